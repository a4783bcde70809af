//! `blitz bench framework`: a server framework under the loads of a framework's own benchmark, beside other frameworks.

mod cases;
mod connections;
mod findings;
mod in_process;

use std::fs;
use std::time::Duration;

use clap::Args;

use super::{EPOLL, URING, h1, system};
use crate::fixed_response::PATH;
use crate::goals::BenchOutcome;
use crate::invocation::Invocation;
use crate::not_run::{self, NotRun};
use crate::output;
use crate::peer::StartOptions;
use crate::probe;
use crate::process::{SERVER_CORE, ServerProcess, free_address};
use crate::programs::{Example, Programs, locate};
use crate::run_folder::RunFolder;
use crate::study::{Generator, Length, Load, Requests, Subject, Version, Watch, Watched, finish};
use crate::system::{System, SystemKind, substitutes};
use cases::{CaseGroup, Work};
use connections::DescriptorLimits;
use findings::Findings;

/// Flags of `blitz bench framework`.
#[derive(Debug, Args)]
pub(crate) struct FrameworkArguments {
    /// Rounds; 6 are the least that can show a difference
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(6..=200))]
    rounds: u32,
    /// Length of a run
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=60))]
    seconds: u64,
    /// Only these parts, separated by commas
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<CaseGroup>,
    /// Six short rounds of one load for each part; not saved
    #[arg(long, conflicts_with_all = ["rounds", "seconds"])]
    quick: bool,
    /// The seed of the orders
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

const BLITZ_URING: &str = "blitz, io_uring";
const BLITZ_EPOLL: &str = "blitz, epoll";
const AXUM: &str = "axum";
const ACTIX: &str = "actix-web";
/// The bare ring that parses nothing.
const LIMIT: &str = "limit";

/// In the order of the tables. All have one worker.
static SYSTEMS: &[System] = &[
    system(BLITZ_URING, h1::FIXED, SystemKind::HelloWorld { io: URING }),
    system(BLITZ_EPOLL, h1::FIXED, SystemKind::HelloWorld { io: EPOLL }),
    system(AXUM, h1::FIXED, SystemKind::Framework(Example::AxumHello)),
    system(ACTIX, h1::FIXED, SystemKind::Framework(Example::ActixHello)),
    system(LIMIT, h1::FIXED, SystemKind::LimitResponder { io: URING }),
];

/// Measures and reports.
pub(crate) fn run(
    arguments: &FrameworkArguments,
    invocation: &Invocation,
) -> Result<BenchOutcome, String> {
    locate("taskset")?;
    let watch = Watch::start();
    let folder = RunFolder::create()?;
    let programs = &invocation.programs;
    let limits = DescriptorLimits::raise(arguments.quick);
    let stage = Stage::start(programs, &folder)?;
    let generator = Generator {
        programs,
        folder: &folder,
        link: None,
    };
    let mut measured = Vec::new();
    for (group, work) in arguments.works() {
        let case = work.case(group, &stage);
        output::message(&format!("{} …", case.title));
        let case = case.run(&generator, arguments.rounds(), arguments.seed)?;
        measured.push((group, case));
    }
    let in_process = arguments.has(CaseGroup::Parser);
    let in_process = in_process.then(|| in_process::measure(programs, arguments.rounds()));
    let connections = arguments.has(CaseGroup::Descriptors);
    let connections = connections.then(|| limits.measure(&stage.running));
    let cases = measured.iter().map(|(_, case)| case);
    let surroundings = watch.finish(&invocation.revision, [], cases);
    let findings = Findings {
        measured,
        in_process: in_process.transpose()?,
        connections,
        not_run: stage.not_run,
        note: substitutes(&SYSTEMS.iter().collect::<Vec<_>>(), programs),
        rounds: arguments.rounds(),
    };
    let report = findings.report(&invocation.command, &surroundings);
    let date = &surroundings.facts.date;
    finish(&report, "framework", date, !arguments.quick, invocation)
}

impl FrameworkArguments {
    fn rounds(&self) -> u32 {
        if self.quick { 6 } else { self.rounds }
    }

    fn has(&self, group: CaseGroup) -> bool {
        self.only.is_empty() || self.only.contains(&group)
    }

    /// The loads, in the order in which they run.
    fn works(&self) -> Vec<(CaseGroup, Work)> {
        let length = match self.quick {
            true => Length::quick(150),
            false => Length::Time {
                measured: Duration::from_secs(self.seconds),
                warm_up: Duration::from_millis(500),
            },
        };
        let groups = CaseGroup::ALL.into_iter().filter(|&group| self.has(group));
        let works = groups.flat_map(|group| {
            let works = group.works(length, self.quick).into_iter();
            works.map(move |work| (group, work))
        });
        works.collect()
    }
}

/// The servers that are there.
struct Stage {
    running: Vec<(&'static System, ServerProcess)>,
    not_run: Vec<NotRun>,
}

impl Stage {
    fn start(programs: &Programs, folder: &RunFolder) -> Result<Stage, String> {
        let mut systems: Vec<&'static System> = SYSTEMS.iter().collect();
        let not_run = not_run::remove(
            &mut systems,
            |system| system.name.to_owned(),
            |system| system.missing_program(programs),
        );
        let mut running: Vec<(&'static System, ServerProcess)> = Vec::new();
        // The limit responds with the bytes of the first server.
        let response = folder.path().join("response");
        for system in systems {
            let listen = free_address()?;
            let options = StartOptions {
                listen,
                backend: listen,
                small_backend: None,
                connections: connections::COUNT_MAX,
                requests: connections::COUNT_MAX,
                response: (!running.is_empty()).then_some(&response),
                tls: None,
                programs,
                folder: folder.path(),
            };
            let command = system.command(&options)?;
            let server = ServerProcess::start_pinned(system.name, SERVER_CORE, &command, listen)?;
            let bytes = probe::request(listen).map_err(|e| format!("{}: {e}", system.name))?;
            if running.is_empty() {
                fs::write(&response, bytes).map_err(|e| format!("{}: {e}", response.display()))?;
            }
            running.push((system, server));
        }
        Ok(Stage { running, not_run })
    }

    /// A subject for each server, with the same load.
    fn subjects(&self, load: impl Fn(Load) -> Load, length: Length) -> Vec<Subject> {
        let subjects = self.running.iter().map(|(system, server)| {
            let base = format!("http://{}", server.address);
            let requests = Requests::Path(PATH.to_owned());
            Subject {
                name: system.name.to_owned(),
                load: load(Load::new(base, requests, Version::Http1, length)),
                watched: Watched {
                    servers: vec![server.process()],
                    beside: Vec::new(),
                },
                may_fail: false,
            }
        });
        subjects.collect()
    }
}
