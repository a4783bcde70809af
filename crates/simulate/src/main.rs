#![forbid(unsafe_code)]
//! `blitz-simulate`: runs of simulated gateways, many seeds at a time.

use std::io::{IsTerminal, Write};
use std::process::{Command, ExitCode};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use blitz_simulate::{RunFailure, RunSummary, run, run_and_shrink, run_set};
use clap::Parser;

/// Checks whole gateways on a simulated machine
///
/// The seed of a run determines everything in it: the network, the limits of the gateway, its clients
/// and upstreams, and their faults.
#[derive(Parser)]
#[command(
    name = "cargo xtask simulate",
    after_help = "\
Examples:
  cargo xtask simulate --runs 5000
  cargo xtask simulate --seed-from 1000000 --minutes 30
  cargo xtask simulate --seed 17 --trace
  cargo xtask simulate --mutants             checks that planted bugs are found
  cargo xtask simulate --count               counts what whole requests cost, with valgrind

Exit codes: 0 all runs passed, 1 a run failed, 2 wrong usage."
)]
struct Arguments {
    /// Runs this seed only, shrinks its plan if it fails, and shows the events
    #[arg(long, conflicts_with_all = ["seed_from", "runs", "minutes"])]
    seed: Option<u64>,
    /// The first seed
    #[arg(long, default_value_t = 1)]
    seed_from: u64,
    /// Number of seeds [default: 500, or no limit with --minutes]
    #[arg(long)]
    runs: Option<u64>,
    /// Stops after this number of minutes
    #[arg(long, value_parser = minutes)]
    minutes: Option<Duration>,
    /// Threads [default: the number of processors]
    #[arg(long)]
    jobs: Option<usize>,
    /// Stops at the first failure
    #[arg(long)]
    first: bool,
    /// Serves requests of this kind without faults, and prints the number of receives, sends and datagrams
    #[arg(long, value_name = "KIND", conflicts_with_all = ["seed", "runs", "minutes"])]
    count: Option<String>,
    /// Number of requests of --count
    #[arg(long, requires = "count", default_value_t = 1_000)]
    requests: usize,
    /// Lists the kinds of --count
    #[arg(long)]
    kinds: bool,
    /// Runs only the sets of servers, which every fourth seed has
    #[arg(long)]
    sets: bool,
    /// Shows the events of --seed even if it passes, and does not shrink a failing plan
    #[arg(long, requires = "seed")]
    trace: bool,
}

/// Reads a time in minutes.
fn minutes(text: &str) -> Result<Duration, String> {
    let minutes: f64 = text.parse().map_err(|_| "it is not a number".to_owned())?;
    Duration::try_from_secs_f64(minutes * 60.0).map_err(|error| error.to_string())
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.kinds {
        blitz_simulate::kinds().for_each(|kind| println!("{kind}"));
        return ExitCode::SUCCESS;
    }
    let has_passed = match (&arguments.count, arguments.seed) {
        (Some(kind), _) => match blitz_simulate::serve(kind, arguments.requests) {
            Ok(counters) => {
                println!(
                    "receives {} sends {} datagrams_received {} datagrams_sent {}",
                    counters.receives + counters.trains_received,
                    counters.sends + counters.trains_sent,
                    counters.datagrams_received,
                    counters.datagrams_sent,
                );
                true
            }
            Err(error) => {
                eprintln!("{kind}: {error}");
                false
            }
        },
        (None, Some(seed)) => show(seed, &arguments),
        (None, None) => carry_out(&arguments),
    };
    match has_passed {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// Runs one seed and prints its events. Returns whether it passed.
fn show(seed: u64, arguments: &Arguments) -> bool {
    let ran = match (arguments.sets, arguments.trace) {
        (true, _) => run_set(seed, true),
        (false, true) => run(seed, true),
        (false, false) => run_and_shrink(seed),
    };
    match ran {
        Ok(summary) => {
            print_all(&summary.trace);
            println!(
                "seed {seed} passed: {} requests and {} reloads of cores in {:.3} s of virtual time",
                summary.requests,
                summary.reloads,
                summary.time.as_secs_f64()
            );
            true
        }
        Err(failure) => {
            if let Some(plan) = &failure.shrunk {
                println!("{plan}");
            }
            print_all(&failure.trace);
            print!("{failure}");
            false
        }
    }
}

fn print_all(lines: &[String]) {
    lines.iter().for_each(|line| println!("{line}"));
}

/// Runs many seeds. Returns whether all passed.
fn carry_out(arguments: &Arguments) -> bool {
    let endless = if arguments.minutes.is_some() {
        u64::MAX
    } else {
        500
    };
    let end = arguments
        .seed_from
        .saturating_add(arguments.runs.unwrap_or(endless));
    let began = Instant::now();
    let limit = arguments.minutes;
    let next = AtomicU64::new(arguments.seed_from);
    let total = Mutex::new(Total::default());
    let processors = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..arguments.jobs.unwrap_or(processors) {
            scope.spawn(|| {
                while limit.is_none_or(|limit| began.elapsed() < limit) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end {
                        break;
                    }
                    let ran = match arguments.sets {
                        true => run_set(seed, false),
                        false => run(seed, false),
                    };
                    let mut total = total.lock().expect("no thread panics while it counts");
                    total.add(&ran, began);
                    if arguments.first && total.failed > 0 {
                        break;
                    }
                }
            });
        }
    });
    let total = total
        .into_inner()
        .expect("no thread panics while it counts");
    let took = began.elapsed().as_secs_f64();
    if std::io::stderr().is_terminal() {
        eprint!("\r\x1b[K");
    }
    println!(
        "{} runs, {} with reloads, {} with sets, {} requests, {} failed; {:.0} runs/s, {:.0} requests/s",
        total.runs,
        total.with_reloads,
        total.with_sets,
        total.requests,
        total.failed,
        total.runs as f64 / took,
        total.requests as f64 / took
    );
    if total.failed > 0 {
        println!(
            "revision {}; run `cargo xtask simulate --seed N` to shrink a failure and show its events",
            revision()
        );
    }
    total.failed == 0
}

#[derive(Default)]
struct Total {
    runs: u64,
    with_reloads: u64,
    with_sets: u64,
    requests: usize,
    failed: u64,
    shown: Duration,
}

impl Total {
    fn add(&mut self, ran: &Result<RunSummary, RunFailure>, began: Instant) {
        self.runs += 1;
        match ran {
            Ok(summary) => {
                self.requests += summary.requests;
                self.with_reloads += u64::from(summary.reloads > 0);
                self.with_sets += u64::from(summary.has_set);
            }
            Err(failure) => {
                self.failed += 1;
                println!("{failure}");
            }
        }
        let now = began.elapsed();
        if now - self.shown > Duration::from_secs(1) && std::io::stderr().is_terminal() {
            self.shown = now;
            eprint!("\r\x1b[K{} runs, {} failed", self.runs, self.failed);
            // The progress line may be lost.
            let _ = std::io::stderr().flush();
        }
    }
}

/// Revision of the sources, needed to repeat a failure.
fn revision() -> String {
    let output = Command::new("git")
        .args(["describe", "--always", "--dirty", "--abbrev=12"])
        .output();
    let said = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    said.ok()
        .filter(|said| !said.is_empty())
        .unwrap_or_else(|| "unknown".to_owned())
}
