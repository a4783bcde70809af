//! `cargo xtask bench`: builds what a benchmark measures and runs `blitz bench`.
//!
//! The crate `blitz-bench` measures. It is part of the binary and no dependency of this program, which
//! would otherwise compile the whole server before it checks the style of a file.

mod revisions;

use std::env;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

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
        ],
    ),
    ("h1", &[LIMIT_RESPONDER, LIMIT_RELAY, HELLO_WORLD]),
    ("h3", &[HTTP3_LOAD]),
    ("h2-proxy", &[LIMIT_RESPONDER]),
    ("cores", &[LIMIT_RESPONDER]),
    ("bulk", &[LIMIT_RELAY, BULK_BACKEND, PACED_CLIENT]),
    ("idle", &[HELLO_WORLD]),
    ("start", &[HELLO_WORLD]),
];

/// Package and name.
type Example = (&'static str, &'static str);

const LIMIT_RESPONDER: Example = ("blitz-reactor", "limit_responder");
const LIMIT_RELAY: Example = ("blitz-reactor", "limit_relay");
const BULK_BACKEND: Example = ("blitz-reactor", "bulk_backend");
const PACED_CLIENT: Example = ("blitz-reactor", "paced_client");
const HELLO_WORLD: Example = ("blitz", "hello_world");
const HTTP3_LOAD: Example = ("blitz-http", "http3_load");

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
    examples_of(args)
        .iter()
        .try_for_each(|(package, name)| build_target(package, "--example", name))
}

/// The examples that the benchmark needs; none for an unknown one, which `blitz bench` reports.
fn examples_of(args: &[String]) -> &'static [Example] {
    let named = |(name, _): &&(&str, _)| args.iter().any(|arg| arg == name);
    let found = EXAMPLES.iter().find(named);
    found.map_or(&[], |(_, examples)| *examples)
}

/// Builds one program in the release profile.
fn build_target(package: &str, kind: &str, name: &str) -> Result<(), String> {
    eprintln!("building {name} …");
    let status = Command::new(env!("CARGO"))
        .args(["build", "--release", "--quiet", "--locked"])
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
    let release = target_folder().join("release");
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
        .args(args)
        .env("PATH", path_with_tools()?)
        .exec();
    Err(format!("{}: {error}", blitz.display()))
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
        assert!(of("h2 --only h2c").is_empty() && of("h9").is_empty());
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
            assert!(exists, "{file}");
        }
    }
}
