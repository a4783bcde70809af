//! `blitz bench protocols`: HTTP/1.1, HTTP/2 and HTTP/3 of one server, cold and warm, on loopback or over emulated links.

mod findings;
mod series;
mod stage;
mod workload;

use std::fs;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Args;

use crate::goals::Outcome;
use crate::invocation::Invocation;
use crate::link::LinkSpec;
use crate::machine::{Facts, current_foreign_share, warn_of_foreign_share};
use crate::noise::NoiseWatch;
use crate::programs::locate;
use crate::report::{Report, Terminal};
use crate::run_folder::RunFolder;
use crate::stats;
use crate::tls_files::TlsFiles;
use findings::{Findings, Surroundings};
use series::{OnNetwork, Series};
use stage::{Run, Stage};
use workload::{Client, Mode, WORKLOADS, Workload};

/// Flags of `blitz bench protocols`.
#[derive(Debug, Args)]
pub(crate) struct ProtocolsArguments {
    /// Rounds; 5 are the least that can show a difference
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(5..=200))]
    rounds: u32,
    /// Length of a warm run
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=60))]
    seconds: u64,
    /// Only these workloads, separated by commas: single, high, very-high, small, delay, large, mixed
    #[arg(long, value_delimiter = ',', value_parser = workload)]
    only: Vec<&'static Workload>,
    /// Run over an emulated link; may be repeated, to compare links
    ///
    /// A profile, such as 4g, or settings, such as rtt=50ms,loss=1%. Needs root, or user namespaces.
    #[arg(long, value_name = "LINK")]
    link: Vec<LinkSpec>,
    /// Five rounds of the workloads single, high and large
    #[arg(long, conflicts_with_all = ["rounds", "only"])]
    quick: bool,
    /// The seed of orders and links
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// The workloads of `--quick`.
const QUICK: &[&str] = &["single", "high", "large"];

fn workload(name: &str) -> Result<&'static Workload, String> {
    let found = WORKLOADS.iter().find(|workload| workload.name == name);
    found.ok_or_else(|| {
        let names: Vec<_> = WORKLOADS.iter().map(|workload| workload.name).collect();
        format!("there is no workload `{name}`; known: {}", names.join(", "))
    })
}

/// Measures and reports.
pub(crate) fn run(
    arguments: &ProtocolsArguments,
    invocation: &Invocation,
) -> Result<Outcome, String> {
    locate("taskset")?;
    let begun = Instant::now();
    let started_at = SystemTime::now().duration_since(UNIX_EPOCH);
    let share = current_foreign_share();
    warn_of_foreign_share(share);
    let watch = NoiseWatch::start();
    let networks: Vec<Option<LinkSpec>> = match arguments.link.is_empty() {
        true => vec![None],
        false => arguments.link.iter().cloned().map(Some).collect(),
    };
    let mut measured = Vec::new();
    for network in networks {
        measured.push(measure(arguments, invocation, network)?);
    }
    let noise = watch.finish(Default::default());
    let surroundings = Surroundings {
        facts: Facts::gather(&invocation.revision, []),
        noise,
        foreign_share: share,
        started_at: started_at.map_or(0.0, |since| since.as_secs_f64()),
        duration: begun.elapsed(),
        rounds: arguments.rounds(),
    };
    let report = Findings::new(&measured).report(&invocation.command, &surroundings);
    print!("{}", report.text(&Terminal::of_stdout()));
    save(&report, arguments, invocation, &surroundings.facts.date)?;
    match report.problems.is_empty() {
        true => Ok(Outcome::Met),
        false => Ok(Outcome::Void),
    }
}

impl ProtocolsArguments {
    fn rounds(&self) -> u32 {
        if self.quick { 5 } else { self.rounds }
    }

    fn workloads(&self) -> Vec<&'static Workload> {
        let is_wanted = |workload: &&Workload| match self.quick {
            true => QUICK.contains(&workload.name),
            false => self.only.is_empty() || self.only.iter().any(|only| only == workload),
        };
        WORKLOADS.iter().filter(is_wanted).collect()
    }
}

/// All runs over one network.
fn measure(
    arguments: &ProtocolsArguments,
    invocation: &Invocation,
    link: Option<LinkSpec>,
) -> Result<OnNetwork, String> {
    let folder = RunFolder::create()?;
    let programs = &invocation.programs;
    let tls = TlsFiles::create(folder.path(), programs)?;
    let stage = Stage::start(programs, &folder, &tls, link.as_ref(), arguments.seed)?;
    let length = Duration::from_secs(arguments.seconds);
    let network = link
        .as_ref()
        .map_or("loopback".to_owned(), ToString::to_string);
    let mut series = Vec::new();
    for workload in arguments.workloads() {
        for mode in Mode::ALL {
            eprintln!("{network}: {}, {} …", workload.title, mode.name());
            let clients = workload.clients(mode);
            let mut runs: Vec<(Client, Vec<Run>)> =
                clients.iter().map(|&client| (client, Vec::new())).collect();
            for round in 0..arguments.rounds() {
                for index in stats::order(clients.len(), round, arguments.seed) {
                    let run = stage.run(workload, clients[index], mode, length)?;
                    runs[index].1.push(run);
                }
            }
            series.push(Series {
                workload,
                mode,
                runs,
            });
        }
    }
    let link_report = stage.stop();
    Ok(OnNetwork {
        link,
        series,
        invalid: link_report.and_then(|report| report.invalid()),
    })
}

/// Writes the report in all forms.
fn save(
    report: &Report,
    arguments: &ProtocolsArguments,
    invocation: &Invocation,
    date: &str,
) -> Result<(), String> {
    if arguments.quick {
        return Ok(());
    }
    let suffix = if arguments.link.is_empty() {
        ""
    } else {
        "-link"
    };
    let folder = &invocation.out;
    let error = |error| format!("{}: {error}", folder.display());
    fs::create_dir_all(folder).map_err(error)?;
    let json = serde_json::to_string(report).map_err(|error| error.to_string())?;
    for (form, text) in [
        ("json", json),
        ("md", report.markdown()),
        ("html", report.html()),
    ] {
        let file = folder.join(format!("{date}-protocols{suffix}.{form}"));
        fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))?;
        eprintln!("saved {}", file.display());
    }
    Ok(())
}
