//! Allowed dependencies between crates: they point down only.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::Finding;

/// Every crate of the workspace and the workspace crates that it may depend on.
const ALLOWED: &[(&str, &[&str])] = &[
    ("blitz-config", &[]),
    ("blitz-proto", &[]),
    ("blitz-reactor", &[]),
    ("blitz-quic", &["blitz-reactor"]),
    (
        "blitz-http",
        &["blitz-proto", "blitz-quic", "blitz-reactor"],
    ),
    ("blitz-site", &["blitz-http"]),
    ("blitz-host", &["blitz-http"]),
    ("blitz", &["blitz-host", "blitz-http", "blitz-site"]),
    ("blitz-bench", &["blitz-config", "blitz-host", "blitz-http"]),
    (
        "blitz-gateway",
        &["blitz-config", "blitz-host", "blitz-http", "blitz-site"],
    ),
    (
        "blitz-cli",
        &[
            "blitz-bench",
            "blitz-config",
            "blitz-gateway",
            "blitz",
            "blitz-host",
            "blitz-http",
        ],
    ),
    (
        "blitz-simulate",
        &[
            "blitz-config",
            "blitz-gateway",
            "blitz",
            "blitz-host",
            "blitz-http",
            "blitz-reactor",
            TESTS_ONLY,
        ],
    ),
    ("blitz-testing", &[]),
    ("xtask", &["blitz-config"]),
];

/// A crate that tests and the simulation may use, and products may not.
const TESTS_ONLY: &str = "blitz-testing";

/// Edges for tests and examples only: HTTP/2 test peers use the protocol machine, and an example times the parser of
/// heads beside the router. A site has an app and an upstream in a test.
const IN_TESTS: &[(&str, &str)] = &[
    ("blitz-gateway", "blitz"),
    ("blitz-gateway", "blitz-proto"),
    ("blitz", "blitz-proto"),
];

/// Reads the edges from cargo and compares them with the list above.
pub(crate) fn check(root: &Path, findings: &mut Vec<Finding>) -> Result<(), String> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps"])
        .current_dir(root)
        .output()
        .map_err(|e| format!("cargo metadata: {e}"))?;
    if !output.status.success() {
        return Err(format!(
            "cargo metadata: {}",
            String::from_utf8_lossy(&output.stderr)
        ));
    }
    let metadata: Value =
        serde_json::from_slice(&output.stdout).map_err(|e| format!("cargo metadata: {e}"))?;
    check_metadata(&metadata, findings);
    Ok(())
}

fn check_metadata(metadata: &Value, findings: &mut Vec<Finding>) {
    let packages = metadata["packages"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let ours: Vec<&str> = packages
        .iter()
        .filter_map(|package| package["name"].as_str())
        .collect();
    for package in packages {
        let name = package["name"].as_str().unwrap_or_default();
        let Some((_, allowed)) = ALLOWED.iter().find(|(listed, _)| *listed == name) else {
            findings.push(finding(format!(
                "{name} has no line in the list of allowed edges"
            )));
            continue;
        };
        let dependencies = package["dependencies"].as_array().map(Vec::as_slice);
        for dependency in dependencies.unwrap_or_default() {
            let on = dependency["name"].as_str().unwrap_or_default();
            let for_tests = dependency["kind"] == "dev";
            let fine_for_tests = on == TESTS_ONLY || IN_TESTS.contains(&(name, on));
            let fine =
                !ours.contains(&on) || allowed.contains(&on) || (for_tests && fine_for_tests);
            if !fine {
                findings.push(finding(format!("{name} must not depend on {on}")));
            }
        }
    }
}

fn finding(message: String) -> Finding {
    Finding::new("xtask/src/tidy/edges.rs", 0, message)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn messages(packages: &Value) -> Vec<String> {
        let mut findings = Vec::new();
        check_metadata(&json!({ "packages": packages }), &mut findings);
        findings
            .into_iter()
            .map(|finding| finding.message)
            .collect()
    }

    #[test]
    fn an_upward_edge_is_found() {
        let packages = json!([
            {"name": "blitz-proto", "dependencies": [{"name": "blitz-reactor", "kind": null}]},
            {"name": "blitz-reactor", "dependencies": [{"name": "libc", "kind": null}]},
        ]);
        assert_eq!(
            messages(&packages),
            ["blitz-proto must not depend on blitz-reactor"]
        );
    }

    #[test]
    fn the_testing_crate_is_for_tests_only() {
        let edge = |kind: Value| {
            json!([
                {"name": "blitz-proto", "dependencies": [{"name": "blitz-testing", "kind": kind}]},
                {"name": "blitz-testing", "dependencies": []},
            ])
        };
        assert!(messages(&edge(json!("dev"))).is_empty());
        assert_eq!(messages(&edge(Value::Null)).len(), 1);
    }

    #[test]
    fn a_test_edge_is_not_allowed_in_products() {
        let edge = |kind: Value| {
            json!([
                {"name": "blitz-gateway", "dependencies": [{"name": "blitz-proto", "kind": kind}]},
                {"name": "blitz-proto", "dependencies": []},
            ])
        };
        assert!(messages(&edge(json!("dev"))).is_empty());
        assert_eq!(messages(&edge(Value::Null)).len(), 1);
    }

    #[test]
    fn a_new_crate_has_to_be_listed() {
        let packages = json!([{"name": "blitz-utils", "dependencies": []}]);
        assert_eq!(
            messages(&packages),
            ["blitz-utils has no line in the list of allowed edges"]
        );
    }
}
