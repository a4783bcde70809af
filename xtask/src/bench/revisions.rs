//! `cargo xtask bench regression --revisions A B`: builds two revisions and compares their binaries.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{git, repository_root};
use crate::dist::PROFILE;

/// The flag, which has two values.
const FLAG: &str = "--revisions";

/// The arguments of `blitz bench`: `--revisions A B` becomes `--binaries` with the files of the two binaries.
pub(super) fn with_binaries(args: &[String], target: &Path) -> Result<Vec<String>, String> {
    let Some(split) = split(args)? else {
        return Ok(args.to_vec());
    };
    let folder = target.join("revisions");
    // Both names are resolved before the first build, which takes minutes in which a branch may move.
    let [base, new] = split.revisions.map(commit);
    let (base, new) = (base?, new?);
    let mut all = split.others;
    all.push("--binaries".to_owned());
    for commit in [base, new] {
        all.push(build(&commit, &folder)?.display().to_string());
    }
    Ok(all)
}

/// The two revisions, and the other arguments.
struct Split<'a> {
    revisions: [&'a str; 2],
    others: Vec<String>,
}

fn split(args: &[String]) -> Result<Option<Split<'_>>, String> {
    let Some(index) = args.iter().position(|arg| arg == FLAG) else {
        return Ok(None);
    };
    let [base, new, rest @ ..] = &args[index + 1..] else {
        return Err(format!("{FLAG} has two values: {FLAG} v1.0 HEAD"));
    };
    Ok(Some(Split {
        revisions: [base, new],
        others: args[..index].iter().chain(rest).cloned().collect(),
    }))
}

/// The commit of a revision, which must exist.
fn commit(revision: &str) -> Result<String, String> {
    let name = format!("{revision}^{{commit}}");
    let root = repository_root();
    // Without --end-of-options a revision that begins with a dash would be a flag.
    let args = [
        "rev-parse",
        "--verify",
        "--quiet",
        "--end-of-options",
        &name,
    ];
    match git(&root, &args) {
        commit if commit.is_empty() => Err(format!("there is no revision `{revision}`")),
        commit => Ok(commit),
    }
}

/// The release binary of a commit, built in a worktree of its own. Dependencies are built once for all of them. A binary
/// that exists is not built again.
fn build(commit: &str, folder: &Path) -> Result<PathBuf, String> {
    let short = &commit[..12];
    let binary = folder.join(format!("blitz-{short}"));
    if binary.is_file() {
        return Ok(binary);
    }
    let worktree = folder.join(short);
    fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    // One of an earlier build that was interrupted.
    remove(&worktree);
    let added = Command::new("git")
        .args(["worktree", "add", "--quiet", "--force", "--detach"])
        .arg(&worktree)
        .arg(commit)
        .current_dir(repository_root())
        .status();
    if !added.map_err(|error| format!("git: {error}"))?.success() {
        return Err(format!("git worktree add {} fails", worktree.display()));
    }
    let built = build_in(&worktree, folder, &binary);
    remove(&worktree);
    built
        .map(|()| binary)
        .map_err(|error| format!("{short}: {error}"))
}

fn build_in(worktree: &Path, folder: &Path, binary: &Path) -> Result<(), String> {
    eprintln!("building {} …", binary.display());
    let shared = folder.join("target");
    let status = Command::new(env!("CARGO"))
        .args(["build", "--profile", PROFILE, "--quiet", "--locked"])
        // Revisions that have no such profile build their releases so.
        .args(["--config", "profile.dist.inherits=\"release\""])
        .args(["--package", "blitz-cli", "--bin", "blitz"])
        .current_dir(worktree)
        .env("CARGO_TARGET_DIR", &shared)
        .status()
        .map_err(|error| format!("cargo: {error}"))?;
    if !status.success() {
        return Err("blitz does not build".to_owned());
    }
    let built = shared.join(PROFILE).join("blitz");
    // Copied to its name at the end, so that a file of that name is complete.
    let part = binary.with_extension("part");
    fs::copy(&built, &part)
        .and_then(|_| fs::rename(&part, binary))
        .map_err(|error| format!("{}: {error}", binary.display()))
}

/// Removes a worktree; that it does not exist is no error.
fn remove(worktree: &Path) {
    let mut command = Command::new("git");
    command
        .args(["worktree", "remove", "--force"])
        .arg(worktree)
        .current_dir(repository_root());
    let _ = command.output();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn revisions_are_two_values_between_the_other_arguments() {
        let args = words("regression --revisions v1 HEAD --quick");
        let found = split(&args).unwrap().unwrap();
        assert_eq!(found.revisions, ["v1", "HEAD"]);
        assert_eq!(found.others, ["regression", "--quick"]);
        assert!(split(&words("regression --revisions v1")).is_err());
        assert!(split(&words("h1 --quick")).unwrap().is_none());
    }

    #[test]
    fn an_unknown_revision_is_an_error_and_builds_nothing() {
        for revision in ["no-such-revision", "--all"] {
            let error = commit(revision).unwrap_err();
            assert!(error.contains(revision), "{error}");
        }
    }
}
