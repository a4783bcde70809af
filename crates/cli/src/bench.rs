//! `blitz bench`: comparisons with other servers, which the crate `blitz-bench` measures.

use std::env;
use std::process::ExitCode;

use blitz_bench::BenchArguments;

use crate::version;

/// Measures and reports.
pub(crate) fn run(arguments: &BenchArguments) -> ExitCode {
    let words = env::args_os().map(|word| word.to_string_lossy().into_owned());
    blitz_bench::run(arguments, version::REVISION, words)
}
