//! Measurements against the limit of this machine and against other servers.

use std::process::ExitCode;

/// Runs `cargo xtask bench <args>`.
pub(crate) fn run(args: &[String]) -> ExitCode {
    eprintln!("xtask bench: there is no scenario '{}'", args.join(" "));
    ExitCode::from(2)
}
