//! The exit codes of `blitz bench regression`, with results of this repository.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::Value;

use crate::{blitz, stderr, stdout};

/// A folder for changed results, removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let name = format!("blitz-regression-{name}-{}", std::process::id());
        let folder = Folder(std::env::temp_dir().join(name));
        fs::create_dir_all(&folder.0).unwrap();
        folder
    }

    /// A result of 15 rounds, changed.
    fn result(&self, name: &str, change: impl Fn(&mut Value)) -> String {
        let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benchmarks/results");
        let text = fs::read_to_string(results.join("2026-11-25-h1-3.json")).unwrap();
        let mut json: Value = serde_json::from_str(&text).unwrap();
        json["void"] = Value::Array(Vec::new());
        change(&mut json);
        let file = self.0.join(name);
        fs::write(&file, json.to_string()).unwrap();
        file.display().to_string()
    }

    fn compare(&self, base: &str, new: &str, more: &[&str]) -> Output {
        let out = self.0.join("out").display().to_string();
        blitz(&[&["bench", "regression", base, new, "--out", &out], more].concat())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Multiplies the CPU time of all runs of Blitz.
fn slower(json: &mut Value, factor: f64) {
    slower_system(json, "blitz-uring", factor);
}

fn slower_system(json: &mut Value, name: &str, factor: f64) {
    let mut systems = json["measured"].as_array_mut().unwrap().iter_mut();
    let system = systems.find(|system| system["name"] == name).unwrap();
    for run in system["runs"].as_array_mut().unwrap() {
        let time = run["cpu_us_per_request"].as_f64().unwrap();
        run["cpu_us_per_request"] = (time * factor).into();
    }
}

#[test]
fn equal_results_have_no_regression_and_the_report_is_saved() {
    let folder = Folder::new("equal");
    let base = folder.result("base.json", |_| {});
    let output = folder.compare(&base, &base, &[]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stdout(&output).contains("without a significant difference"));
    let saved = fs::read_dir(folder.0.join("out")).unwrap();
    let mut endings: Vec<String> = saved
        .map(|file| {
            file.unwrap()
                .path()
                .extension()
                .unwrap()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    endings.sort();
    assert_eq!(endings, ["html", "json", "md"]);
}

#[test]
fn a_slower_system_is_a_regression_unless_the_threshold_allows_it() {
    let folder = Folder::new("slower");
    let base = folder.result("base.json", |_| {});
    let new = folder.result("new.json", |json| slower(json, 1.3));
    let output = folder.compare(&base, &new, &[]);
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
    assert!(stdout(&output).contains("+30.0 %"), "{}", stdout(&output));
    assert!(stderr(&output).contains("there is a regression"));
    let allowed = folder.compare(&base, &new, &["--at-most", "40%"]);
    assert_eq!(allowed.status.code(), Some(0), "{}", stdout(&allowed));
    let better = folder.compare(&new, &base, &[]);
    assert_eq!(better.status.code(), Some(0), "{}", stdout(&better));
}

#[test]
fn a_slower_control_is_no_regression_and_is_told() {
    let folder = Folder::new("control");
    let base = folder.result("base.json", |_| {});
    let new = folder.result("new.json", |json| slower_system(json, "nginx", 1.3));
    let output = folder.compare(&base, &new, &[]);
    assert_eq!(output.status.code(), Some(0), "{}", stdout(&output));
    let text = stdout(&output);
    assert!(
        text.contains("other programs") && text.contains("+30.0 %"),
        "{text}"
    );
}

#[test]
fn a_void_result_has_no_verdict() {
    let folder = Folder::new("void");
    let base = folder.result("base.json", |json| {
        json["void"] = Value::from(vec!["steal"]);
    });
    let new = folder.result("new.json", |json| slower(json, 1.3));
    let output = folder.compare(&base, &new, &[]);
    assert_eq!(output.status.code(), Some(75), "{}", stdout(&output));
    assert!(stdout(&output).contains("steal"), "{}", stdout(&output));
}

#[test]
fn a_file_that_is_no_result_is_a_usage_error() {
    let folder = Folder::new("usage");
    let base = folder.result("base.json", |_| {});
    for (new, reason) in [
        ("/nowhere.json", "/nowhere.json"),
        ("/etc/hostname", "no result"),
    ] {
        let output = folder.compare(&base, new, &[]);
        assert_eq!(output.status.code(), Some(2), "{new}");
        assert!(stderr(&output).contains(reason), "{}", stderr(&output));
    }
    let output = folder.compare(&base, &base, &["--at-most", "much"]);
    assert_eq!(output.status.code(), Some(2));
    let output = folder.compare("/bin/true", "/bin/true", &["--binaries", "--quick"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
}
