//! `blitz bench protocols`: HTTP/1.1, HTTP/2 and HTTP/3 of one server, cold and warm, on loopback or over emulated links.

mod findings;
mod series;
mod stage;
mod workload;

use std::time::Duration;

use clap::Args;

use crate::goals::BenchOutcome;
use crate::invocation::Invocation;
use crate::link::Link;
use crate::output;
use crate::programs::{Example, locate};
use crate::report::{Conclusion, ConclusionKind, Report};
use crate::run_folder::RunFolder;
use crate::study::{Length, P99, ReportFiles, Watch, finish_files};
use crate::tls_files::TlsFiles;
use findings::Findings;
use series::{NamedLink, OnNetwork, Series, congestion_note, name_of};
use stage::Stage;
use workload::{WORKLOADS, Workload};

/// Flags of `blitz bench protocols`.
#[derive(Debug, Args)]
pub(crate) struct ProtocolsArguments {
    /// Rounds; 6 are the least that can show a difference [default: 7; 6 over links]
    #[arg(long, value_parser = clap::value_parser!(u32).range(6..=200))]
    rounds: Option<u32>,
    /// Least length of a warm run, which has 100 responses as well [default: 2; 1 over links]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=60))]
    seconds: Option<u64>,
    /// Longest time of a warm run without 100 responses; its row is void then
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
    max_seconds: u64,
    /// Only these workloads, separated by commas; an unknown name lists the known ones
    #[arg(long, value_delimiter = ',', value_parser = workload)]
    only: Vec<Workload>,
    /// Run over an emulated link; may be repeated, to compare links
    ///
    /// A profile, such as 4g, or settings, such as rtt=50ms,loss=1%. Needs root, or user namespaces.
    #[arg(long, value_name = "LINK")]
    link: Vec<NamedLink>,
    /// Six rounds of the workloads single, high and large, or of those of --only, with short warm runs; not saved
    #[arg(long, conflicts_with = "rounds")]
    quick: bool,
    /// The seed of orders and links
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// The least responses of a warm run. A rate of a few responses has a few possible values.
const RESPONSES_MIN: u32 = 100;

/// The workloads of `--quick`.
const QUICK: &[&str] = &["single", "high", "large"];

fn workload(name: &str) -> Result<Workload, String> {
    let found = WORKLOADS
        .iter()
        .copied()
        .find(|workload| workload.name == name);
    found.ok_or_else(|| {
        let names: Vec<_> = WORKLOADS.iter().map(|workload| workload.name).collect();
        format!("there is no workload `{name}`; known: {}", names.join(", "))
    })
}

/// Measures and reports.
pub(crate) fn run(
    arguments: &ProtocolsArguments,
    invocation: &Invocation,
) -> Result<BenchOutcome, String> {
    locate("taskset")?;
    let watch = Watch::start();
    let name = match arguments.link.is_empty() {
        true => "protocols",
        false => "protocols-link",
    };
    let mut files = (!arguments.quick).then(|| ReportFiles::new(name, invocation));
    let mut measured = Vec::new();
    let mut not_run: Vec<Conclusion> = Vec::new();
    let networks = arguments.networks();
    for (index, (link, workloads)) in networks.iter().enumerate() {
        // Without the privilege for links, workloads that need one are left out, unless links are what was asked for.
        let obstacle = match (link, arguments.link.is_empty()) {
            (Some(link), true) => Link::start(&link.spec, arguments.seed).err(),
            _ => None,
        };
        match obstacle {
            Some(error) => {
                let text = format!("{}: not run. {error}", titles(workloads));
                not_run.push(Conclusion::new(ConclusionKind::NotRun, text));
            }
            None => measured.push(measure(arguments, invocation, link.clone(), workloads)?),
        }
        let left = &networks[index + 1..];
        if let Some(files) = &mut files
            && !left.is_empty()
        {
            let (report, date) = report_of(arguments, invocation, &watch, (&measured, &not_run));
            let left: Vec<String> = left
                .iter()
                .map(|(link, _)| name_of(link.as_ref()))
                .collect();
            files.write_part(report, &date, &left.join(", "));
        }
    }
    let (report, date) = report_of(arguments, invocation, &watch, (&measured, &not_run));
    finish_files(&report, &date, files)
}

/// The report of what is measured so far, and its date.
fn report_of(
    arguments: &ProtocolsArguments,
    invocation: &Invocation,
    watch: &Watch,
    (measured, not_run): (&[OnNetwork], &[Conclusion]),
) -> (Report, String) {
    let series = measured.iter().flat_map(|network| &network.series);
    let cases = series.map(|series| &series.measured);
    let surroundings = watch.finish(&invocation.revision, [], cases);
    let findings = Findings::new(measured);
    let mut report = findings.report(&invocation.command, &surroundings, arguments.rounds());
    report.conclusions.extend_from_slice(not_run);
    (report, surroundings.facts.date)
}

impl ProtocolsArguments {
    fn rounds(&self) -> u32 {
        let usual = if self.link.is_empty() { 7 } else { 6 };
        match self.quick {
            true => 6,
            false => self.rounds.unwrap_or(usual),
        }
    }

    /// The length of a warm run. A second of a link has enough round trips, because the number of responses counts as well.
    fn length(&self, workload: &Workload, is_link: bool) -> Length {
        // Ten samples have to lie beyond the percentile in each run.
        let (responses, factor) = match (workload.figure.unit == P99.unit, is_link) {
            (false, _) => (RESPONSES_MIN, 1),
            (true, false) => (10 * RESPONSES_MIN, 4),
            (true, true) => (10 * RESPONSES_MIN, 16),
        };
        let seconds = self.seconds.unwrap_or(if is_link { 1 } else { 2 });
        // A warm-up over a link has to last many round trips.
        let (measured, warm_up) = match (self.quick, is_link) {
            (true, false) => (Duration::from_millis(500), Duration::from_millis(125)),
            (true, true) => (Duration::from_secs(1), Duration::from_secs(1)),
            (false, _) => (Duration::from_secs(seconds), Duration::from_secs(1)),
        };
        let measured = measured * factor;
        Length::AtLeast {
            measured,
            warm_up,
            responses,
            longest: Duration::from_secs(self.max_seconds).max(measured),
        }
    }

    fn workloads(&self) -> impl Iterator<Item = Workload> {
        let is_wanted = |workload: &&Workload| match &self.only[..] {
            [] if self.quick => QUICK.contains(&workload.name),
            [] => self.link.is_empty() || workload.is_usual_over_links,
            only => only.iter().any(|only| only.name == workload.name),
        };
        WORKLOADS.iter().filter(is_wanted).copied()
    }

    /// The networks with their workloads: the loopback or the given links, and the links of single workloads.
    fn networks(&self) -> Vec<(Option<NamedLink>, Vec<Workload>)> {
        let usual = || self.workloads().filter(|workload| workload.link.is_none());
        let mut networks: Vec<(Option<NamedLink>, Vec<Workload>)> = match self.link.is_empty() {
            true => vec![(None, usual().collect())],
            false => {
                let links = self.link.iter();
                let each = links.map(|link| {
                    let loses = link.spec.loses_packets();
                    let workloads = usual().map(move |workload| workload.over_a_link(loses));
                    (Some(link.clone()), workloads)
                });
                each.map(|(link, workloads)| (link, workloads.collect()))
                    .collect()
            }
        };
        for workload in self.workloads() {
            if let Some(link) = workload.link {
                let link = link.parse().expect("a test parses each");
                networks.push((Some(link), vec![workload]));
            }
        }
        networks.retain(|(_, workloads)| !workloads.is_empty());
        networks
    }
}

fn titles(workloads: &[Workload]) -> String {
    let titles: Vec<_> = workloads.iter().map(|workload| workload.title).collect();
    titles.join(", ")
}

/// All runs over one network.
fn measure(
    arguments: &ProtocolsArguments,
    invocation: &Invocation,
    link: Option<NamedLink>,
    workloads: &[Workload],
) -> Result<OnNetwork, String> {
    let folder = RunFolder::create()?;
    let programs = &invocation.programs;
    let go = match &link {
        None => programs.example(Example::GoLoad),
        Some(_) => Err("Go's clients run on the loopback only".to_owned()),
    };
    let tls = TlsFiles::create(folder.path(), programs)?;
    let spec = link.as_ref().map(|link| &link.spec);
    let stage = Stage::start(programs, &folder, &tls, spec, arguments.seed)?;
    let network = name_of(link.as_ref());
    let tcp = stage.congestion_control()?;
    let mut series = Vec::new();
    for &workload in workloads {
        for &mode in workload.modes {
            output::message(&format!("{network}: {}, {} …", workload.title, mode.name()));
            let length = arguments.length(&workload, link.is_some());
            let case = workload.case(mode, (&stage.base(), &stage.watched()), &go, length);
            let mut measured = case.run(&stage.generator(), arguments.rounds(), arguments.seed)?;
            if let Some(note) = congestion_note(&tcp) {
                measured.title = format!("{} ({note})", measured.title);
            }
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
        tcp,
        series,
        invalid: link_report.and_then(|report| report.invalid()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(words: &str) -> ProtocolsArguments {
        use clap::FromArgMatches;
        let command = ProtocolsArguments::augment_args(clap::Command::new("protocols"));
        let words = words.split_whitespace();
        let matches = command.get_matches_from(std::iter::once("protocols").chain(words));
        ProtocolsArguments::from_arg_matches(&matches).unwrap()
    }

    #[test]
    fn every_warm_run_has_at_least_100_responses_and_an_end() {
        for words in [
            "",
            "--quick",
            "--link rtt=50ms",
            "--quick --link rtt=50ms,loss=3%",
        ] {
            let arguments = arguments(words);
            for (link, workloads) in arguments.networks() {
                for workload in workloads {
                    let length = arguments.length(&workload, link.is_some());
                    let Length::AtLeast {
                        responses,
                        longest,
                        measured,
                        ..
                    } = length
                    else {
                        panic!("{words} {}: {length:?}", workload.name);
                    };
                    assert!(responses >= 100 && longest >= measured, "{length:?}");
                }
            }
        }
    }

    #[test]
    fn contents_have_several_clients_on_links_that_lose_packets() {
        let of = |link: &str| {
            let networks = arguments(&format!("--only large --link {link}")).networks();
            networks[0].1[0]
        };
        assert_eq!(of("rtt=50ms").clients, 1);
        let lossy = of("rtt=50ms,loss=1%");
        assert!(lossy.clients > 1 && lossy.requests >= lossy.clients);
    }

    #[test]
    fn names_are_unique_and_links_are_valid() {
        for (index, workload) in WORKLOADS.iter().enumerate() {
            let others = &WORKLOADS[..index];
            assert!(others.iter().all(|other| other.name != workload.name));
            let link = workload.link.map(str::parse::<NamedLink>);
            assert!(link.is_none_or(|link| link.is_ok()), "{}", workload.name);
        }
    }
}
