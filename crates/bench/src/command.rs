//! The arguments and the exit codes of `blitz bench`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Command, Subcommand};

use crate::comparison;
use crate::goals::BenchOutcome;
use crate::invocation::{self, Invocation};
use crate::member;
use crate::output;
use crate::programs::Programs;
use crate::rounds::RoundsArguments;
use crate::scenario::{
    self, all, board, bulk, compare, faults, framework, gateway, generator, idle, models,
    protocols, regression, report, start, suite,
};
use crate::supervised::{end_with_the_input, exit_code, run_supervised};
use crate::tuning;

const EXAMPLES: &str = "\
Examples:
  blitz bench all --quick
      everything in under 15 minutes; interrupted, it continues
  blitz bench local
      requests per second, latency, CPU and memory in 30 seconds
  blitz bench production --tune
      on all cores, with the settings of the machine changed meanwhile
  blitz bench regression old.json new.json
      two saved results, with an exit code for CI
  blitz bench h1 --quick
      a first impression of HTTP/1.1: three rounds of one second
  blitz bench h2 --out results
      HTTP/2 beside nginx, HAProxy and H2O, saved in a folder
  blitz bench h1 --only blitz-proxy-uring,nginx-proxy
      two systems only; an unknown name lists the known ones
  blitz bench protocols --link rtt=50ms --link rtt=50ms,loss=1%
      is HTTP/3 faster? on two emulated links, as a report
  blitz bench compare --only proxied-h1,blitz,nginx
      latency of two proxies at 25, 50, 75 and 90 % of the slower one's capacity
  blitz bench board --only static,static-h2
      files as HttpArena requests them, beside nginx, H2O and Caddy
  blitz bench faults --only stopped,blitz-tuned,envoy-tuned
      one of three members fails behind two proxies
  blitz bench gateway --quick
      the health endpoint over three protocols, within a minute
  blitz bench framework --only latency,churn
      the response of an application, beside other frameworks
  blitz bench models --clients 10,1000
      what a proxy adds to the latency: blocking threads beside event loops
  blitz bench bulk --size all --only h1-down,h1-up
      large bodies of five sizes

Servers and load tools that are not installed are named and left out. In the
repository of Blitz, cargo xtask bench also builds and runs the limit programs.

Exit codes: 0 every goal is met, 1 a goal is missed or the measurement failed,
2 usage error, 75 the set is void: repeat it, 130 interrupted, 143 terminated.";

/// The exit code of usage errors, as clap's.
const USAGE: u8 = 2;
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
    /// Save no HTML; blitz bench report makes it from the JSON
    #[arg(long, global = true)]
    no_html: bool,
    /// The folder with the built examples of the repository, among them the limit programs
    #[arg(long, value_name = "DIR", global = true)]
    programs: Option<PathBuf>,
    /// The revision that the results name
    #[arg(long, value_name = "TEXT", global = true, hide = true)]
    revision: Option<String>,
    /// End with the process that holds the other end of the input
    #[arg(long, global = true, hide = true)]
    supervised: bool,
}

#[derive(Debug, Subcommand)]
enum Benchmark {
    /// All of them, one after the other; an interrupted run continues
    All(all::AllArguments),
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
    /// Access log and metrics: CPU per request of a proxy with 100 sites, with its log and without
    Log(RoundsArguments),
    /// CPU per request of a server with two workers, against two servers with one worker each
    Cores(RoundsArguments),
    /// The requests of HttpArena's infrastructure league, beside nginx, H2O and Caddy: a report
    Board(board::BoardArguments),
    /// Large bodies: CPU per MiB of downloads and uploads, throughput and memory, 16 connections
    Bulk(bulk::BulkArguments),
    /// Proxies and servers side by side: capacity, then latency at 25 to 90 % of it, as a report with curves
    Compare(compare::CompareArguments),
    /// Goodput, errors and p99 while one of three members is stopped, slowed, killed or replaced: a report
    Faults(faults::FaultsArguments),
    /// The health endpoint over HTTP/1.1, HTTP/2 without TLS and HTTP/3, up to 1,000 connections: a report
    Gateway(gateway::GatewayArguments),
    /// The CPU time that blitz load itself needs, beside wrk, h2load, oha and clients of HTTP/3: a report
    Generator(generator::GeneratorArguments),
    /// Memory of an idle keep-alive connection
    Idle(idle::IdleArguments),
    /// A server framework beside axum and actix-web: latency, sizes, threads, connections, parser and router
    Framework(framework::FrameworkArguments),
    /// Proxies that wait in different ways: a blocking thread, a thread pool, event loops; the latency that they add
    Models(models::ModelsArguments),
    /// The built-in endpoints over HTTP/1.1, beside nginx and HAProxy, in under 30 seconds: a report
    Local(suite::LocalArguments),
    /// The built-in endpoints over HTTP/1.1, HTTP/2 and HTTP/3 on all cores, and latency at a constant rate: a report
    Production(suite::ProductionArguments),
    /// HTTP/1.1, HTTP/2 and HTTP/3 of one server, cold and warm, on loopback or over emulated links: a report
    Protocols(protocols::ProtocolsArguments),
    /// Has anything become worse? Two saved results or two binaries, with an exit code for CI
    Regression(regression::RegressionArguments),
    /// A saved report as HTML, Markdown or text
    Report(report::ReportArguments),
    /// Time from the start of the process to its first response
    Start(start::StartArguments),
    /// Be a server that proxies stand before, until a signal ends it
    #[command(hide = true)]
    Member(member::MemberArguments),
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
    let started = match arguments.supervised {
        true => end_with_the_input(),
        // They have processes of their own that outlive nothing.
        false
            if matches!(
                arguments.benchmark,
                Benchmark::All(_)
                    | Benchmark::Member(_)
                    | Benchmark::Report(_)
                    | Benchmark::Tuning(_)
            ) =>
        {
            Ok(())
        }
        false => match run_supervised() {
            Ok(code) => return code,
            Err(error) => Err(error.to_string()),
        },
    };
    if let Err(message) = started {
        return failed(&message);
    }
    let programs = match Programs::new(arguments.programs.as_deref()) {
        Ok(programs) => programs,
        Err(message) => return failed(&message),
    };
    let invocation = Invocation {
        command: invocation::command(words),
        revision: arguments.revision.as_deref().unwrap_or(revision).to_owned(),
        programs,
        out: arguments.out.clone(),
        with_html: !arguments.no_html,
    };
    match measure(&arguments.benchmark, &invocation) {
        Ok(BenchOutcome::Met) => ExitCode::SUCCESS,
        Ok(BenchOutcome::Missed) => failed(match arguments.benchmark {
            Benchmark::Regression(_) => "there is a regression",
            Benchmark::All(_) => "a benchmark failed, or a goal is missed",
            _ => "a goal is missed",
        }),
        Ok(BenchOutcome::Void) => {
            let message = match arguments.benchmark {
                Benchmark::Regression(_) => "there is no verdict",
                Benchmark::All(_) => "a benchmark is void",
                _ => "the set is void; repeat it",
            };
            output::message(&format!("blitz bench: {message}"));
            ExitCode::from(VOID)
        }
        Ok(BenchOutcome::Unusable) => ExitCode::from(USAGE),
        Ok(BenchOutcome::Interrupted(signal)) => exit_code(signal),
        Err(message) => failed(&message),
    }
}

fn failed(message: &str) -> ExitCode {
    output::message(&format!("blitz bench: {message}"));
    ExitCode::FAILURE
}

fn measure(benchmark: &Benchmark, invocation: &Invocation) -> Result<BenchOutcome, String> {
    let compare = |scenario, arguments| comparison::run(scenario, arguments, invocation);
    match benchmark {
        Benchmark::All(arguments) => {
            let bench = BenchArguments::augment_args(Command::new("bench"));
            all::run(arguments, &bench, invocation)
        }
        Benchmark::H1(arguments) => compare(&scenario::H1, arguments),
        Benchmark::H2(arguments) => compare(&scenario::H2_FIXED, arguments),
        Benchmark::H3(arguments) => compare(&scenario::H3, arguments),
        Benchmark::Tls(arguments) => compare(&scenario::TLS, arguments),
        Benchmark::H2Proxy(arguments) => compare(&scenario::H2_PROXY, arguments),
        Benchmark::Cores(arguments) => compare(&scenario::CORES, arguments),
        Benchmark::Log(arguments) => compare(&scenario::LOG, arguments),
        Benchmark::Board(arguments) => board::run(arguments, invocation),
        Benchmark::Bulk(arguments) => bulk::run(arguments, invocation),
        Benchmark::Compare(arguments) => compare::run(arguments, invocation),
        Benchmark::Faults(arguments) => faults::run(arguments, invocation),
        Benchmark::Gateway(arguments) => gateway::run(arguments, invocation),
        Benchmark::Generator(arguments) => generator::run(arguments, invocation),
        Benchmark::Idle(arguments) => idle::run(arguments, invocation),
        Benchmark::Framework(arguments) => framework::run(arguments, invocation),
        Benchmark::Models(arguments) => models::run(arguments, invocation),
        Benchmark::Local(arguments) => suite::run_local(arguments, invocation),
        Benchmark::Production(arguments) => suite::run_production(arguments, invocation),
        Benchmark::Protocols(arguments) => protocols::run(arguments, invocation),
        Benchmark::Regression(arguments) => regression::run(arguments, invocation),
        Benchmark::Report(arguments) => report::run(arguments),
        Benchmark::Start(arguments) => start::run(arguments, invocation),
        Benchmark::Member(arguments) => member::run(arguments).map(|()| BenchOutcome::Met),
        Benchmark::Tuning(arguments) => {
            tuning::run(arguments, invocation.programs.blitz()).map(|()| BenchOutcome::Met)
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::FromArgMatches;

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
