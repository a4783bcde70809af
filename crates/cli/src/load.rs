//! `blitz load`: the load generator, which the crate `blitz-bench` implements.

use std::env;
use std::process::ExitCode;

use blitz_bench::load::{self, LoadArguments};

/// Sends the load and reports.
pub(crate) fn run(arguments: &LoadArguments) -> ExitCode {
    let words = env::args_os().map(|word| word.to_string_lossy().into_owned());
    load::run(arguments, words)
}
