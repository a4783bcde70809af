//! `cargo xtask simulate`: the checker, planted bugs that it has to find, and instruction counts of
//! whole requests.

mod count;
mod mutants;

use std::process::{Command, ExitCode};

use crate::dist::{self, CHECKED};

/// Runs the checker with these arguments; `--mutants` runs it on sources with planted bugs, and `--count`
/// counts the instructions of its requests with callgrind.
pub(crate) fn run(args: &[String]) -> ExitCode {
    match args {
        [flag, rest @ ..] if flag == "--mutants" => return mutants::run(rest),
        // With --requests, --count is a flag of the checker.
        [flag, rest @ ..] if flag == "--count" && !rest.iter().any(|arg| arg == "--requests") => {
            return count::run(rest);
        }
        _ => {}
    }
    let checker = match dist::build(CHECKED, "blitz-simulate", "blitz-simulate") {
        Ok(checker) => checker,
        Err(error) => {
            eprintln!("xtask simulate: {error}");
            return ExitCode::FAILURE;
        }
    };
    let status = Command::new(&checker).args(args).status();
    match status {
        Ok(status) => {
            let code = status.code().and_then(|code| u8::try_from(code).ok());
            ExitCode::from(code.unwrap_or(1))
        }
        Err(error) => {
            eprintln!("xtask simulate: {}: {error}", checker.display());
            ExitCode::FAILURE
        }
    }
}
