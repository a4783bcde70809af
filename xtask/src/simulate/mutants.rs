//! Planted bugs: each is a patch to a copy of the sources, and the checker has to find it.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::dist::CHECKED;

/// The folder of the patches.
const PATCHES: &str = "crates/simulate/mutants";

/// The copy of the sources, relative to the root.
const TREE: &str = "target/mutants/tree";

/// Most runs until a bug has to be found.
const RUNS_MAX: &str = "80000";

/// Most minutes for these runs, after which the checker ends by itself.
const MINUTES_MAX: &str = "20";

/// A checker that takes longer is in an endless loop, which is a bug that was found.
const CHECK_MAX: Duration = Duration::from_secs(22 * 60);

const HELP: &str = "\
Runs the checker on sources with planted bugs, each of which it has to find

  cargo xtask simulate --mutants              all bugs, a minute or less each
  cargo xtask simulate --mutants fin_is_a_reset
  cargo xtask simulate --mutants --check      checks only that the patches apply
";

/// Runs `cargo xtask simulate --mutants`.
pub(crate) fn run(args: &[String]) -> ExitCode {
    if args.iter().any(|arg| arg == "--help" || arg == "-h") {
        print!("{HELP}");
        return ExitCode::SUCCESS;
    }
    match find_all(args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask simulate --mutants: {error}");
            ExitCode::FAILURE
        }
    }
}

fn find_all(args: &[String]) -> Result<bool, String> {
    let only_check = args.iter().any(|arg| arg == "--check");
    let wanted: Vec<&String> = args.iter().filter(|arg| *arg != "--check").collect();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .ok_or("xtask has no parent folder")?;
    let all = patches(&root.join(PATCHES)).map_err(|error| format!("{PATCHES}: {error}"))?;
    if all.is_empty() {
        return Err(format!("{PATCHES} has no patch"));
    }
    if let Some(unknown) = wanted
        .iter()
        .find(|name| !all.iter().any(|(known, _)| known == **name))
    {
        return Err(format!("there is no patch '{unknown}' in {PATCHES}"));
    }
    copy_sources(root, &root.join(TREE))?;
    let mut missed = 0;
    for (name, patch) in &all {
        if !wanted.is_empty() && !wanted.contains(&name) {
            continue;
        }
        if !apply(root, patch, &["--check"])? {
            println!("missed  {name}: the patch does not apply");
            missed += 1;
            continue;
        }
        if only_check {
            continue;
        }
        let began = Instant::now();
        apply(root, patch, &[])?;
        let found = check(root);
        apply(root, patch, &["--reverse"])?;
        let seconds = began.elapsed().as_secs();
        match found? {
            Some(found) => println!("found   {name:<40} {seconds:>4} s  {found}"),
            None => {
                println!("missed  {name:<40} {seconds:>4} s");
                missed += 1;
            }
        }
    }
    match (missed, only_check) {
        (0, true) => println!("{} patches apply", all.len()),
        (0, false) => println!("all bugs are found"),
        _ => println!("{missed} missed"),
    }
    Ok(missed == 0)
}

/// Names and files of the patches, in order.
fn patches(folder: &Path) -> io::Result<Vec<(String, PathBuf)>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path
            .file_stem()
            .map(|name| name.to_string_lossy().into_owned());
        if let Some(name) = name.filter(|_| path.extension().is_some_and(|end| end == "patch")) {
            all.push((name, path));
        }
    }
    all.sort();
    Ok(all)
}

/// Copies the files that git tracks, as they are now. Unchanged files keep their times, so that cargo
/// rebuilds little.
fn copy_sources(root: &Path, tree: &Path) -> Result<(), String> {
    let listed = Command::new("git")
        .args(["ls-files", "-z"])
        .current_dir(root)
        .output()
        .map_err(|error| format!("git ls-files: {error}"))?;
    if !listed.status.success() {
        return Err("git ls-files failed: the sources must be a git checkout".to_owned());
    }
    let listed = String::from_utf8_lossy(&listed.stdout);
    let names: BTreeSet<&Path> = listed.split_terminator('\0').map(Path::new).collect();
    remove_others(tree, tree, &names);
    for name in &names {
        let (from, to) = (root.join(name), tree.join(name));
        let Ok(content) = fs::read(&from) else {
            // The file was removed, and git does not know it yet.
            let _ = fs::remove_file(&to);
            continue;
        };
        if fs::read(&to).is_ok_and(|there| there == content) {
            continue;
        }
        let copied = to
            .parent()
            .map_or(Ok(()), fs::create_dir_all)
            .and_then(|()| fs::write(&to, &content));
        copied.map_err(|error| format!("{}: {error}", to.display()))?;
    }
    Ok(())
}

/// Removes what an earlier copy has and the sources have not, except what was built.
fn remove_others(tree: &Path, folder: &Path, names: &BTreeSet<&Path>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let Ok(name) = path.strip_prefix(tree) else {
            continue;
        };
        if path.is_dir() {
            if name != Path::new("target") {
                remove_others(tree, &path, names);
            }
        } else if !names.contains(name) {
            let _ = fs::remove_file(&path);
        }
    }
}

/// Applies a patch to the copy; false if it does not apply.
fn apply(root: &Path, patch: &Path, how: &[&str]) -> Result<bool, String> {
    let status = Command::new("git")
        .args(["apply", "--directory", TREE])
        .args(how)
        .arg(patch)
        .current_dir(root)
        .stderr(Stdio::null())
        .status();
    let status = status.map_err(|error| format!("git apply: {error}"))?;
    Ok(status.success())
}

/// Builds the checker of the copy and runs it until its first failure, which it returns.
fn check(root: &Path) -> Result<Option<String>, String> {
    let build = root.join("target/mutants/build");
    let built = Command::new(env!("CARGO"))
        .args([
            "build",
            "--quiet",
            "--profile",
            CHECKED,
            "--package",
            "blitz-simulate",
        ])
        .env("CARGO_TARGET_DIR", &build)
        .current_dir(root.join(TREE))
        .output()
        .map_err(|error| format!("cargo: {error}"))?;
    if !built.status.success() {
        let output = String::from_utf8_lossy(&built.stderr);
        return Err(format!("a copy with a patch does not build:\n{output}"));
    }
    let path = build.join("checker-output");
    let output = fs::File::create(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut checker = Command::new(build.join("checked/blitz-simulate"))
        .args(["--runs", RUNS_MAX, "--minutes", MINUTES_MAX, "--first"])
        .stdout(output)
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("the checker does not start: {error}"))?;
    let began = Instant::now();
    let mut ended = None;
    while ended.is_none() && began.elapsed() < CHECK_MAX {
        thread::sleep(Duration::from_millis(100));
        ended = checker.try_wait().map_err(|error| error.to_string())?;
    }
    let Some(status) = ended else {
        checker.kill().map_err(|error| error.to_string())?;
        checker.wait().map_err(|error| error.to_string())?;
        return Ok(Some("a run does not end".to_owned()));
    };
    let output = fs::read_to_string(&path).map_err(|error| error.to_string())?;
    let seed = output.lines().find(|line| line.starts_with("seed "));
    match (status.success(), seed) {
        (true, _) => Ok(None),
        (false, Some(seed)) => Ok(Some(seed.to_owned())),
        (false, None) => Err(format!("the checker ended with {status} and named no seed")),
    }
}
