//! Measurements against the limit of this machine and against other servers.
//!
//! `benchmarks/README.md` explains the method to those who want to repeat it.

mod bars;
mod build;
mod h1;
mod idle;
mod machine;
mod measure;
mod peers;
mod plan;
mod probe;
mod process;
mod report;
mod start;
mod stats;
mod system;
mod wrk;

use std::process::ExitCode;

use bars::Outcome;
use clap::{Parser, Subcommand};

/// Compares Blitz with the limit of this machine and with other servers.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench", after_help = EXAMPLES)]
struct Arguments {
    #[command(subcommand)]
    scenario: Scenario,
}

const EXAMPLES: &str = "\
Examples:
  cargo xtask bench h1                            the full comparison, about ten minutes
  cargo xtask bench h1 --quick                    a first look: three rounds of one second
  cargo xtask bench h1 --only limit,nginx,blitz-uring
  cargo xtask bench h1 --only relay,nginx-proxy,haproxy-proxy

Exit codes: 0 every bar is met, 1 a bar is missed or nothing could be measured, 2 wrong usage,
75 the set is void and has to be repeated.";

/// EX_TEMPFAIL of sysexits(3): try again later.
const VOID: u8 = 75;

#[derive(Debug, Subcommand)]
enum Scenario {
    /// HTTP/1.1: CPU per request of a fixed answer and of a proxy, 100 connections
    H1(plan::H1Arguments),
    /// Memory of an idle keep-alive connection
    Idle(idle::IdleArguments),
    /// Time from starting the process to its first answer
    Start(start::StartArguments),
}

/// Runs `cargo xtask bench <args>`.
pub(crate) fn run(args: &[String]) -> ExitCode {
    let command = std::iter::once("bench").chain(args.iter().map(String::as_str));
    let arguments = match Arguments::try_parse_from(command.clone()) {
        Ok(arguments) => arguments,
        Err(error) => {
            // Nothing is left to do if the terminal cannot be written to.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    let command = command.collect::<Vec<_>>().join(" ");
    let outcome = match &arguments.scenario {
        Scenario::H1(arguments) => h1::run(arguments, &command),
        Scenario::Idle(arguments) => idle::run(arguments, &command),
        Scenario::Start(arguments) => start::run(arguments, &command),
    };
    match outcome {
        Ok(Outcome::Met) => ExitCode::SUCCESS,
        Ok(Outcome::Missed) => {
            eprintln!("xtask bench: a bar is missed");
            ExitCode::FAILURE
        }
        Ok(Outcome::Void) => {
            eprintln!("xtask bench: the set is void, repeat it");
            ExitCode::from(VOID)
        }
        Err(message) => {
            eprintln!("xtask bench: {message}");
            ExitCode::FAILURE
        }
    }
}
