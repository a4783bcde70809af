//! `cargo xtask dist`: the release as one statically linked file, with a proof that it needs no other.
//!
//! The C library is linked statically on the gnu target. Our own resolver resolves names, never the C
//! library, so nothing loads shared objects at run time.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use crate::elf;
use crate::tidy::repository_root;

/// The profile of what is installed and measured.
pub(crate) const PROFILE: &str = "dist";

/// The profile of what is tested: fast code with the assertions of debug builds.
pub(crate) const CHECKED: &str = "checked";

const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Builds and checks the file, and prints its path.
pub(crate) fn run(args: &[String]) -> ExitCode {
    let profile = match args {
        [] => PROFILE,
        [checked] if checked == "--checked" => CHECKED,
        _ => {
            eprintln!(
                "xtask dist: the only argument is --checked, which builds code with assertions sooner"
            );
            return ExitCode::from(2);
        }
    };
    let built = build(profile, "blitz-cli", "blitz");
    match built.and_then(|file| verify(&file).map(|version| (file, version))) {
        Ok((file, version)) => {
            let size = fs::metadata(&file).map_or(0, |data| data.len());
            println!(
                "{}: {} KiB, static, runs in an empty root: {version}",
                file.display(),
                size >> 10
            );
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("xtask dist: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Builds a program as a static file, and returns its path. Programs of one profile share their dependencies.
pub(crate) fn build(profile: &str, package: &str, program: &str) -> Result<PathBuf, String> {
    let root = repository_root();
    // With an explicit target the flag applies to the binary and not to the build scripts.
    let status = Command::new(env!("CARGO"))
        .args([
            "build",
            "--profile",
            profile,
            "--locked",
            "--package",
            package,
            "--target",
            TARGET,
        ])
        .env("RUSTFLAGS", "-C target-feature=+crt-static")
        .current_dir(&root)
        .status()
        .map_err(|e| format!("cargo: {e}"))?;
    if !status.success() {
        return Err(format!("{package} does not build"));
    }
    let target_dir = std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), Into::into);
    Ok(target_dir.join(TARGET).join(profile).join(program))
}

/// Checks that the file names no loader and no library, then runs it in an empty root.
fn verify(file: &Path) -> Result<String, String> {
    let bytes = fs::read(file).map_err(|e| format!("{}: {e}", file.display()))?;
    let needs = elf::needs(&bytes)?;
    if let Some(interpreter) = needs.interpreter {
        return Err(format!("the file needs the loader {interpreter}"));
    }
    if needs.libraries > 0 {
        return Err(format!(
            "the file needs {} shared libraries",
            needs.libraries
        ));
    }
    run_in_empty_root(file)
}

/// Runs `blitz version` in a root folder that holds this one file.
fn run_in_empty_root(file: &Path) -> Result<String, String> {
    let root = EmptyRoot::create()?;
    fs::copy(file, root.0.join("blitz")).map_err(|e| format!("copy: {e}"))?;
    // A user namespace permits chroot without root.
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "chroot"])
        .arg(&root.0)
        .args(["/blitz", "version"])
        .stdin(Stdio::null())
        .output()
        .map_err(|e| format!("unshare (of util-linux): {e}"))?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if output.status.success() && text.starts_with("blitz ") {
        return Ok(text);
    }
    let error = String::from_utf8_lossy(&output.stderr);
    Err(format!(
        "in an empty root it printed '{text}' and '{}'",
        error.trim()
    ))
}

/// A new folder, removed when dropped.
struct EmptyRoot(PathBuf);

impl EmptyRoot {
    fn create() -> Result<EmptyRoot, String> {
        let path = std::env::temp_dir().join(format!("blitz-dist-{}", std::process::id()));
        fs::create_dir(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(EmptyRoot(path))
    }
}

impl Drop for EmptyRoot {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
