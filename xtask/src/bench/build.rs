//! The release builds that are measured.

use std::path::PathBuf;
use std::process::Command;

use crate::tidy::repository_root;

/// A program of this repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Artifact {
    LimitResponder,
    LimitRelay,
    HelloWorld,
    Blitz,
    BulkBackend,
    PacedClient,
    Http3Load,
}

impl Artifact {
    /// Package, cargo's flag for the kind of target, name.
    fn cargo_target(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Artifact::LimitResponder => ("blitz-reactor", "--example", "limit_responder"),
            Artifact::LimitRelay => ("blitz-reactor", "--example", "limit_relay"),
            Artifact::HelloWorld => ("blitz", "--example", "hello_world"),
            Artifact::Blitz => ("blitz-cli", "--bin", "blitz"),
            Artifact::BulkBackend => ("blitz-reactor", "--example", "bulk_backend"),
            Artifact::PacedClient => ("blitz-reactor", "--example", "paced_client"),
            Artifact::Http3Load => ("blitz-http", "--example", "http3_load"),
        }
    }
}

/// Builds one program in the release profile.
pub(crate) fn build(artifact: Artifact) -> Result<(), String> {
    let (package, what, name) = artifact.cargo_target();
    eprintln!("building {name} …");
    let status = Command::new(env!("CARGO"))
        .args([
            "build",
            "--release",
            "--quiet",
            "--locked",
            "--package",
            package,
            what,
            name,
        ])
        .current_dir(repository_root())
        .status()
        .map_err(|e| format!("cargo: {e}"))?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("{name} does not build"))
    }
}

/// Cargo's target folder.
pub(crate) fn target_folder() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR");
    target.map_or_else(|| repository_root().join("target"), Into::into)
}

/// The file that `build` writes.
pub(crate) fn artifact_path(artifact: Artifact) -> PathBuf {
    let (_, what, name) = artifact.cargo_target();
    let release = target_folder().join("release");
    if what == "--example" {
        release.join("examples").join(name)
    } else {
        release.join(name)
    }
}
