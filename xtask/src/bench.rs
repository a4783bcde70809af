//! Benchmarks against the limit programs and against other servers.
//!
//! `benchmarks/README.md` describes the method.

mod build;
mod bulk;
mod compare;
mod goals;
mod group;
mod h2load;
mod handshakes;
mod http3_load;
mod idle;
mod load;
mod machine;
mod measure;
mod peers;
mod plan;
mod probe;
mod process;
mod report;
mod scenario;
mod start;
mod stats;
mod system;
mod tls_files;
mod wrk;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use goals::Outcome;

/// Compares Blitz with the limit programs and with other servers.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench", after_help = EXAMPLES)]
struct Arguments {
    #[command(subcommand)]
    scenario: Scenario,
}

const EXAMPLES: &str = "\
Examples:
  cargo xtask bench h1                            the full comparison, about six minutes
  cargo xtask bench h2 --quick                    the same for HTTP/2; also tls and h2-proxy
  cargo xtask bench h3 --only h2,h3-same          HTTP/3 beside HTTP/2, without handshakes and varied heads
  cargo xtask bench h1 --quick                    a short run: three rounds of one second
  cargo xtask bench h1 --only limit,nginx,blitz-uring
  cargo xtask bench h1 --only relay,nginx-proxy,haproxy-proxy
  cargo xtask bench bulk --size all --only h1-down,h1-up

Exit codes: 0 every goal is met, 1 a goal is missed or the measurement failed, 2 usage error,
75 the set is void; repeat it.";

/// EX_TEMPFAIL of sysexits(3): try again later.
const VOID: u8 = 75;

#[derive(Debug, Subcommand)]
enum Scenario {
    /// HTTP/1.1: CPU per request of a fixed response and of a proxy, 100 connections
    H1(plan::RoundsArguments),
    /// HTTP/2, with TLS and without: CPU per request of a fixed response, 32 connections with 32 streams
    H2(plan::RoundsArguments),
    /// HTTP/3, beside HTTP/2 over TLS: CPU per request, 32 connections with 32 streams; handshakes; two workers
    H3(plan::RoundsArguments),
    /// HTTPS with HTTP/1.1: CPU per request, 100 connections, and CPU per full handshake
    Tls(plan::RoundsArguments),
    /// HTTP/2 to HTTP/1.1 and HTTP/2 upstreams: CPU per request, 32 connections with 32 streams
    H2Proxy(plan::RoundsArguments),
    /// CPU per request of a server with two workers, against two servers with one worker each
    Cores(plan::RoundsArguments),
    /// Large bodies: CPU per MiB of downloads and uploads, throughput and memory, 16 connections
    Bulk(bulk::BulkArguments),
    /// Memory of an idle keep-alive connection
    Idle(idle::IdleArguments),
    /// Time from the start of the process to its first response
    Start(start::StartArguments),
}

/// Runs `cargo xtask bench <args>`.
pub(crate) fn run(args: &[String]) -> ExitCode {
    let command = std::iter::once("bench").chain(args.iter().map(String::as_str));
    let arguments = match Arguments::try_parse_from(command.clone()) {
        Ok(arguments) => arguments,
        Err(error) => {
            // A failure to write to the terminal has no remedy.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    let command = command.collect::<Vec<_>>().join(" ");
    let outcome = match &arguments.scenario {
        Scenario::H1(arguments) => compare::run(&scenario::H1, arguments, &command),
        Scenario::H2(arguments) => compare::run(&scenario::H2_FIXED, arguments, &command),
        Scenario::H3(arguments) => compare::run(&scenario::H3, arguments, &command),
        Scenario::Tls(arguments) => compare::run(&scenario::TLS, arguments, &command),
        Scenario::H2Proxy(arguments) => compare::run(&scenario::H2_PROXY, arguments, &command),
        Scenario::Cores(arguments) => compare::run(&scenario::CORES, arguments, &command),
        Scenario::Bulk(arguments) => bulk::run(arguments, &command),
        Scenario::Idle(arguments) => idle::run(arguments, &command),
        Scenario::Start(arguments) => start::run(arguments, &command),
    };
    match outcome {
        Ok(Outcome::Met) => ExitCode::SUCCESS,
        Ok(Outcome::Missed) => {
            eprintln!("xtask bench: a goal is missed");
            ExitCode::FAILURE
        }
        Ok(Outcome::Void) => {
            eprintln!("xtask bench: the set is void; repeat it");
            ExitCode::from(VOID)
        }
        Err(message) => {
            eprintln!("xtask bench: {message}");
            ExitCode::FAILURE
        }
    }
}
