//! `cargo xtask bench`: builds what a benchmark measures and runs `blitz bench`.
//!
//! The crate `blitz-bench` measures. It is part of the binary and no dependency of this program, which
//! would otherwise compile the whole server before it checks the style of a file.

mod revisions;

use std::env;
use std::ffi::OsString;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::dist::PROFILE;
use crate::tidy::repository_root;

/// The results of full runs, relative to the root of the repository.
const RESULTS: &str = "benchmarks/results";

/// The examples that a benchmark runs beside the binary, each with its package.
const EXAMPLES: &[(&str, &[Example])] = &[
    (
        "all",
        &[
            LIMIT_RESPONDER,
            LIMIT_RELAY,
            HELLO_WORLD,
            HTTP3_LOAD,
            BULK_BACKEND,
            PACED_CLIENT,
            BLOCKING_PROXY,
            PARSER_AND_ROUTER,
            BOARD_SERVER,
        ],
    ),
    ("h1", &[LIMIT_RESPONDER, LIMIT_RELAY, HELLO_WORLD]),
    ("h3", &[HTTP3_LOAD]),
    ("h2-proxy", &[LIMIT_RESPONDER]),
    ("cores", &[LIMIT_RESPONDER]),
    ("log", &[LIMIT_RESPONDER, LIMIT_RELAY]),
    ("board", &[BOARD_SERVER]),
    ("bulk", &[LIMIT_RELAY, BULK_BACKEND, PACED_CLIENT]),
    ("generator", &[HTTP3_LOAD]),
    ("compare", &[LIMIT_RESPONDER, LIMIT_RELAY]),
    ("idle", &[HELLO_WORLD]),
    ("start", &[HELLO_WORLD]),
    ("models", &[BLOCKING_PROXY]),
    (
        "framework",
        &[HELLO_WORLD, LIMIT_RESPONDER, PARSER_AND_ROUTER],
    ),
];

/// Package and name.
type Example = (&'static str, &'static str);

const LIMIT_RESPONDER: Example = ("blitz-reactor", "limit_responder");
const LIMIT_RELAY: Example = ("blitz-reactor", "limit_relay");
const BULK_BACKEND: Example = ("blitz-reactor", "bulk_backend");
const PACED_CLIENT: Example = ("blitz-reactor", "paced_client");
const HELLO_WORLD: Example = ("blitz", "hello_world");
const HTTP3_LOAD: Example = ("blitz-http", "http3_load");
const BLOCKING_PROXY: Example = ("blitz-proto", "blocking_proxy");
const BOARD_SERVER: Example = ("blitz-gateway", "board_server");
const PARSER_AND_ROUTER: Example = ("blitz", "parser_and_router");

/// The workspace of other frameworks, and its programs.
const FRAMEWORKS: &str = "benchmarks/frameworks";
const FRAMEWORK_PROGRAMS: [&str; 2] = ["axum_hello", "actix_hello"];

/// The clients of Go, a program and its folder in `benchmarks`.
const GO_CLIENTS: &str = "go_load";

/// Builds the release and becomes `blitz bench`, whose exit codes are those of this command.
pub(crate) fn run(args: &[String]) -> ExitCode {
    let result = build(args)
        .and_then(|()| revisions::with_binaries(args, &target_folder()))
        .and_then(|args| execute(&args));
    match result {
        Ok(never) => match never {},
        Err(message) => {
            eprintln!("xtask bench: {message}");
            ExitCode::FAILURE
        }
    }
}

fn build(args: &[String]) -> Result<(), String> {
    build_target("blitz-cli", "--bin", "blitz")?;
    let is_help = args.iter().any(|arg| arg == "-h" || arg == "--help");
    if is_help {
        return Ok(());
    }
    if names(args, "framework") || names(args, "all") {
        build_frameworks();
    }
    if ["generator", "protocols", "all"]
        .iter()
        .any(|benchmark| names(args, benchmark))
    {
        build_go_clients();
    }
    examples_of(args)
        .iter()
        .try_for_each(|(package, name)| build_target(package, "--example", name))
}

/// Builds the other frameworks beside the examples. Without them, for example without a registry, `blitz bench` reports
/// that they were not run.
fn build_frameworks() {
    eprintln!("building {} …", FRAMEWORK_PROGRAMS.join(" and "));
    let target = target_folder().join("frameworks");
    let status = Command::new(env!("CARGO"))
        .args(["build", "--release", "--quiet", "--locked", "--bins"])
        .arg("--target-dir")
        .arg(&target)
        .current_dir(repository_root().join(FRAMEWORKS))
        .status();
    let is_built = status.is_ok_and(|status| status.success());
    let examples = target_folder().join(PROFILE).join("examples");
    for name in FRAMEWORK_PROGRAMS {
        let place = examples.join(name);
        // A program of an earlier revision would be measured instead.
        let _ = fs::remove_file(&place);
        if is_built && let Err(error) = copy(&target.join("release").join(name), &place) {
            eprintln!("xtask bench: {name}: {error}");
        }
    }
    if !is_built {
        eprintln!("xtask bench: {FRAMEWORKS} does not build; its programs are not run");
    }
}

/// Builds the clients of Go beside the examples. Without Go `blitz bench` reports that they were not run.
fn build_go_clients() {
    eprintln!("building {GO_CLIENTS} …");
    let place = target_folder()
        .join(PROFILE)
        .join("examples")
        .join(GO_CLIENTS);
    // A program of an earlier revision would be measured instead.
    let _ = fs::remove_file(&place);
    let build = Command::new("go")
        .args(["build", "-o"])
        .arg(&place)
        .current_dir(repository_root().join("benchmarks").join(GO_CLIENTS))
        .env("PATH", path_with_tools().unwrap_or_default())
        .status();
    if !build.is_ok_and(|status| status.success()) {
        eprintln!("xtask bench: {GO_CLIENTS} does not build; Go's clients are not run");
    }
}

fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::copy(from, to).map(drop)
}

fn names(args: &[String], benchmark: &str) -> bool {
    args.iter().any(|arg| arg == benchmark)
}

/// The examples that the benchmark needs; none for an unknown one, which `blitz bench` reports.
fn examples_of(args: &[String]) -> &'static [Example] {
    let named = |(name, _): &&(&str, _)| names(args, name);
    let found = EXAMPLES.iter().find(named);
    found.map_or(&[], |(_, examples)| *examples)
}

/// Builds one program as it is installed.
fn build_target(package: &str, kind: &str, name: &str) -> Result<(), String> {
    eprintln!("building {name} …");
    let status = Command::new(env!("CARGO"))
        .args(["build", "--profile", PROFILE, "--quiet", "--locked"])
        .args(["--package", package, kind, name])
        .current_dir(repository_root())
        .status()
        .map_err(|e| format!("cargo: {e}"))?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("{name} does not build"))
    }
}

/// An error of a program that does not start; otherwise this function does not return.
fn execute(args: &[String]) -> Result<std::convert::Infallible, String> {
    let release = target_folder().join(PROFILE);
    let blitz = release.join("blitz");
    let error = Command::new(&blitz)
        // Usage and results name the command that people have entered.
        .arg0("cargo xtask")
        .arg("bench")
        .arg("--programs")
        .arg(release.join("examples"))
        .arg("--out")
        .arg(repository_root().join(RESULTS))
        .args(["--revision", &revision()])
        .args(forms(args))
        .args(args)
        .env("PATH", path_with_tools()?)
        .exec();
    Err(format!("{}: {error}", blitz.display()))
}

/// The folder of this repository keeps no HTML, which `blitz bench report` makes from the JSON.
fn forms(args: &[String]) -> &'static [&'static str] {
    let is_elsewhere = args
        .iter()
        .any(|arg| arg == "--out" || arg.starts_with("--out="));
    match is_elsewhere || names(args, "report") {
        true => &[],
        false => &["--no-html"],
    }
}

/// Cargo's target folder.
fn target_folder() -> PathBuf {
    let target = env::var_os("CARGO_TARGET_DIR");
    target.map_or_else(|| repository_root().join("target"), Into::into)
}

/// PATH, and after it the servers that `.ci/tools` has installed.
fn path_with_tools() -> Result<OsString, String> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&path).chain([target_folder().join("tools/bin")]);
    env::join_paths(folders).map_err(|e| format!("PATH: {e}"))
}

/// The measured commit, and whether the tree has uncommitted changes.
fn revision() -> String {
    let root = repository_root();
    let revision = git(&root, &["rev-parse", "--short=12", "HEAD"]);
    let changed = !git(&root, &["status", "--porcelain", "--untracked-files=no"]).is_empty();
    if changed {
        format!("{revision} with uncommitted changes")
    } else {
        revision
    }
}

fn git(root: &Path, args: &[&str]) -> String {
    let output = Command::new("git").args(args).current_dir(root).output();
    output
        .map(|o| String::from_utf8_lossy(&o.stdout).trim().to_owned())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_benchmark_needs_its_examples_and_an_unknown_one_none() {
        let of = |words: &str| {
            let args: Vec<String> = words.split(' ').map(str::to_owned).collect();
            examples_of(&args)
        };
        assert_eq!(of("h2-proxy --quick"), [LIMIT_RESPONDER]);
        assert_eq!(of("--out results idle"), [HELLO_WORLD]);
        assert_eq!(of("models --quick"), [BLOCKING_PROXY]);
        assert!(of("h2 --only h2c").is_empty() && of("h9").is_empty());
    }

    #[test]
    fn results_of_the_repository_have_no_html() {
        let of = |words: &str| {
            let args: Vec<String> = words.split(' ').map(str::to_owned).collect();
            forms(&args)
        };
        assert_eq!(of("compare --quick"), ["--no-html"]);
        assert!(of("compare --out results").is_empty() && of("--out=results h1").is_empty());
    }

    #[test]
    fn every_framework_is_a_program_of_its_workspace() {
        let folder = repository_root().join(FRAMEWORKS);
        assert!(folder.join("Cargo.lock").exists());
        for name in FRAMEWORK_PROGRAMS {
            assert!(folder.join(format!("src/bin/{name}.rs")).exists(), "{name}");
        }
    }

    #[test]
    fn all_benchmarks_need_all_examples() {
        let of_all = examples_of(&["all".to_owned()]);
        for (_, examples) in EXAMPLES {
            assert!(examples.iter().all(|example| of_all.contains(example)));
        }
    }

    #[test]
    fn every_example_is_a_file_of_its_package() {
        let root = repository_root();
        for (package, name) in EXAMPLES.iter().flat_map(|(_, examples)| *examples) {
            let folder = match *package {
                "blitz" => "server",
                package => package.trim_start_matches("blitz-"),
            };
            let file = format!("crates/{folder}/examples/{name}");
            let exists = [format!("{file}.rs"), format!("{file}/main.rs")]
                .iter()
                .any(|file| root.join(file).exists());
            let manifest = root.join(format!("crates/{folder}/Cargo.toml"));
            let manifest = fs::read_to_string(manifest).expect("the package has one");
            let is_named = manifest.contains(&format!("[[example]]\nname = \"{name}\"\npath"));
            assert!(exists || is_named, "{file}");
        }
    }
}
