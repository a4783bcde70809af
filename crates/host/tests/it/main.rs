//! Tests of the process, one file per behaviour.
#![allow(clippy::unwrap_used)] // clippy's own allowance does not reach the helpers of tests

mod a_service_runs_on_every_core;
mod listeners_come_and_go;
mod log_daemons;
mod log_files;
mod log_outputs;

use std::thread;
use std::time::{Duration, Instant};

use blitz_testing::IO_TIMEOUT;

/// Waits until the condition holds.
fn eventually(text: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + IO_TIMEOUT;
    while !condition() {
        assert!(Instant::now() < deadline, "{text}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// The lines of the log with this text, which is unique to the calling test.
fn warnings(text: &str) -> Vec<String> {
    let mut lines = blitz_testing::log_lines();
    lines.retain(|line| line.contains(text));
    lines
}
