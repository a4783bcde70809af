//! Head parser and router, in a process of their own: the example `parser_and_router`.

use std::process::Command;
use std::time::Duration;

use serde::Deserialize;

use crate::output;
use crate::process::{SERVER_CORE, output_within};
use crate::programs::{Example, Programs};

/// The time limit of one process.
const WITHIN: Duration = Duration::from_secs(60);

/// Nanoseconds of one call, as the example prints them.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct CallTimes {
    pub(super) name: String,
    pub(super) calls_per_batch: u64,
    pub(super) batches: u64,
    pub(super) min: f64,
    pub(super) p50: f64,
    pub(super) p99: f64,
}

/// The results of all processes, or why there are none.
pub(super) enum InProcess {
    Run(Vec<Vec<CallTimes>>),
    NotRun(String),
}

/// Runs the example once for each round.
pub(super) fn measure(programs: &Programs, rounds: u32) -> Result<InProcess, String> {
    let program = match programs.example(Example::ParserAndRouter) {
        Ok(program) => program,
        Err(reason) => return Ok(InProcess::NotRun(reason)),
    };
    output::message("head parser and router …");
    let run = |_| {
        let mut command = Command::new("taskset");
        command.args(["-c", SERVER_CORE]).arg(&program);
        let output = output_within(&mut command, WITHIN)
            .map_err(|error| format!("parser_and_router: {error}"))?;
        serde_json::from_slice(&output.stdout).map_err(|_| {
            let errors = String::from_utf8_lossy(&output.stderr);
            format!("parser_and_router: {}", errors.trim())
        })
    };
    let runs: Result<Vec<Vec<CallTimes>>, String> = (0..rounds).map(run).collect();
    runs.map(InProcess::Run)
}
