//! Tests of the binary: exit codes and messages.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod access_log;
mod agreement;
mod api_key;
mod bench_all;
mod bench_regression;
mod bench_supervised;
mod completions;
mod config_file;
mod control_bounds;
mod control_listen;
mod control_state;
mod control_support;
mod doctor;
mod examples;
mod fmt;
mod https;
mod includes;
mod jwt_keys_url;
mod jwt_secret;
mod known_truth;
mod load;
mod load_accounting;
mod load_limits;
mod log;
mod process_limits;
mod process_settings;
mod rate_store;
mod reload_listeners;
mod run;
mod running_config;
mod servers;
mod service_manager;
mod several_servers;
mod tail;
mod terminal;
mod timeouts;
mod top;
mod traces;
mod tuning;
mod usage_errors;
mod version;
mod without_flags;

use std::process::{Command, Output};

/// Runs the binary with `args` until it ends.
fn blitz(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_blitz"))
        .args(args)
        .output()
        .expect("the binary starts")
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("plain text")
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("plain text")
}
