//! The arguments and the exit codes of `blitz bench`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};

use crate::comparison;
use crate::goals::Outcome;
use crate::invocation::{self, Invocation};
use crate::programs::Programs;
use crate::rounds::RoundsArguments;
use crate::scenario::{self, bulk, idle, protocols, start};
use crate::tuning;

const EXAMPLES: &str = "\
Examples:
  blitz bench h1 --quick
      a first impression of HTTP/1.1: three rounds of one second
  blitz bench h2 --out results
      HTTP/2 beside nginx, HAProxy and H2O, saved in a folder
  blitz bench h1 --only blitz-proxy-uring,nginx-proxy
      two systems only; an unknown name lists the known ones
  blitz bench protocols --link rtt=50ms --link rtt=50ms,loss=1%
      is HTTP/3 faster? on two emulated links, as a report
  blitz bench bulk --size all --only h1-down,h1-up
      large bodies of five sizes

Servers and load tools that are not installed are named and left out. In the
repository of Blitz, cargo xtask bench also builds and runs the limit programs.

Exit codes: 0 every goal is met, 1 a goal is missed or the measurement failed,
2 usage error, 75 the set is void: repeat it.";

/// EX_TEMPFAIL of sysexits(3): try again later.
const VOID: u8 = 75;

/// The arguments of `blitz bench`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct BenchArguments {
    #[command(subcommand)]
    benchmark: Benchmark,

    /// The folder for the results
    #[arg(
        long,
        value_name = "DIR",
        default_value = "blitz-results",
        global = true
    )]
    out: PathBuf,
    /// The folder with the built examples of the repository, among them the limit programs
    #[arg(long, value_name = "DIR", global = true)]
    programs: Option<PathBuf>,
    /// The revision that the results name
    #[arg(long, value_name = "TEXT", global = true, hide = true)]
    revision: Option<String>,
}

#[derive(Debug, Subcommand)]
enum Benchmark {
    /// HTTP/1.1: CPU per request of a fixed response and of a proxy, 100 connections
    H1(RoundsArguments),
    /// HTTP/2, with TLS and without: CPU per request of a fixed response, 32 connections with 32 streams
    H2(RoundsArguments),
    /// HTTP/3, beside HTTP/2 over TLS: CPU per request, 32 connections with 32 streams; handshakes; two workers
    H3(RoundsArguments),
    /// HTTPS with HTTP/1.1: CPU per request, 100 connections, and CPU per full handshake
    Tls(RoundsArguments),
    /// HTTP/2 to HTTP/1.1 and HTTP/2 upstreams: CPU per request, 32 connections with 32 streams
    H2Proxy(RoundsArguments),
    /// CPU per request of a server with two workers, against two servers with one worker each
    Cores(RoundsArguments),
    /// Large bodies: CPU per MiB of downloads and uploads, throughput and memory, 16 connections
    Bulk(bulk::BulkArguments),
    /// Memory of an idle keep-alive connection
    Idle(idle::IdleArguments),
    /// HTTP/1.1, HTTP/2 and HTTP/3 of one server, cold and warm, on loopback or over emulated links: a report
    Protocols(protocols::ProtocolsArguments),
    /// Time from the start of the process to its first response
    Start(start::StartArguments),
    /// Change settings of the machine until the end of the input
    #[command(hide = true)]
    Tuning(tuning::TuningArguments),
}

/// Measures, prints the tables and saves them.
///
/// `revision` is that of the binary, and `words` are the words of its command line, which the results name.
pub fn run(
    arguments: &BenchArguments,
    revision: &str,
    words: impl IntoIterator<Item = String>,
) -> ExitCode {
    let programs = match Programs::new(arguments.programs.as_deref()) {
        Ok(programs) => programs,
        Err(message) => return failed(&message),
    };
    let invocation = Invocation {
        command: invocation::command(words),
        revision: arguments.revision.as_deref().unwrap_or(revision).to_owned(),
        programs,
        out: arguments.out.clone(),
    };
    match measure(&arguments.benchmark, &invocation) {
        Ok(Outcome::Met) => ExitCode::SUCCESS,
        Ok(Outcome::Missed) => failed("a goal is missed"),
        Ok(Outcome::Void) => {
            eprintln!("blitz bench: the set is void; repeat it");
            ExitCode::from(VOID)
        }
        Err(message) => failed(&message),
    }
}

fn failed(message: &str) -> ExitCode {
    eprintln!("blitz bench: {message}");
    ExitCode::FAILURE
}

fn measure(benchmark: &Benchmark, invocation: &Invocation) -> Result<Outcome, String> {
    let compare = |scenario, arguments| comparison::run(scenario, arguments, invocation);
    match benchmark {
        Benchmark::H1(arguments) => compare(&scenario::H1, arguments),
        Benchmark::H2(arguments) => compare(&scenario::H2_FIXED, arguments),
        Benchmark::H3(arguments) => compare(&scenario::H3, arguments),
        Benchmark::Tls(arguments) => compare(&scenario::TLS, arguments),
        Benchmark::H2Proxy(arguments) => compare(&scenario::H2_PROXY, arguments),
        Benchmark::Cores(arguments) => compare(&scenario::CORES, arguments),
        Benchmark::Bulk(arguments) => bulk::run(arguments, invocation),
        Benchmark::Idle(arguments) => idle::run(arguments, invocation),
        Benchmark::Protocols(arguments) => protocols::run(arguments, invocation),
        Benchmark::Start(arguments) => start::run(arguments, invocation),
        Benchmark::Tuning(arguments) => {
            tuning::run(arguments, invocation.programs.blitz()).map(|()| Outcome::Met)
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::{Command, FromArgMatches};

    use super::*;

    fn parse(words: &str) -> Result<BenchArguments, clap::Error> {
        let command = BenchArguments::augment_args(Command::new("bench"));
        let matches = command.try_get_matches_from(words.split(' '))?;
        BenchArguments::from_arg_matches(&matches)
    }

    #[test]
    fn places_stand_before_or_after_the_benchmark_and_the_last_one_applies() {
        let out = |words| parse(words).unwrap().out;
        assert_eq!(out("bench h1"), PathBuf::from("blitz-results"));
        assert_eq!(out("bench --out a h1 --quick"), PathBuf::from("a"));
        assert_eq!(out("bench --out a h1 --out b"), PathBuf::from("b"));
    }

    #[test]
    fn every_scenario_is_a_benchmark_of_its_name() {
        for scenario in scenario::ALL {
            assert!(parse(&format!("bench {} --quick", scenario.name)).is_ok());
        }
        assert_eq!(parse("bench h9").unwrap_err().exit_code(), 2);
    }

    #[test]
    fn examples_fit_into_80_columns() {
        for line in EXAMPLES.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }
}
