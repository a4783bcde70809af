//! `blitz bench protocols`: HTTP/1.1, HTTP/2 and HTTP/3 of one server, cold and warm, on loopback or over emulated links.

mod findings;
mod series;
mod stage;
mod workload;

use std::time::Duration;

use clap::Args;

use crate::goals::Outcome;
use crate::invocation::Invocation;
use crate::link::LinkSpec;
use crate::programs::locate;
use crate::run_folder::RunFolder;
use crate::study::{Watch, finish};
use crate::tls_files::TlsFiles;
use findings::Findings;
use series::{OnNetwork, Series};
use stage::Stage;
use workload::{Mode, WORKLOADS, Workload};

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
    /// Five rounds of the workloads single, high and large, with warm runs of a second
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
    let watch = Watch::start();
    let networks: Vec<Option<LinkSpec>> = match arguments.link.is_empty() {
        true => vec![None],
        false => arguments.link.iter().cloned().map(Some).collect(),
    };
    let mut measured = Vec::new();
    for network in networks {
        measured.push(measure(arguments, invocation, network)?);
    }
    let surroundings = watch.finish(&invocation.revision, []);
    let findings = Findings::new(&measured);
    let report = findings.report(&invocation.command, &surroundings, arguments.rounds());
    let name = match arguments.link.is_empty() {
        true => "protocols",
        false => "protocols-link",
    };
    let is_saved = !arguments.quick;
    finish(
        &report,
        name,
        &surroundings.facts.date,
        is_saved,
        invocation,
    )
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
    let seconds = if arguments.quick {
        1
    } else {
        arguments.seconds
    };
    let length = Duration::from_secs(seconds);
    let network = link
        .as_ref()
        .map_or("loopback".to_owned(), ToString::to_string);
    let mut series = Vec::new();
    for workload in arguments.workloads() {
        for mode in Mode::ALL {
            eprintln!("{network}: {}, {} …", workload.title, mode.name());
            let case = workload.case(mode, &stage.base(), &stage.watched(), length);
            let measured = case.run(&stage.generator(), arguments.rounds(), arguments.seed)?;
            series.push(Series {
                workload,
                mode,
                measured,
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
