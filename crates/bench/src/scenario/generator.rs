//! `blitz bench generator`: what `blitz load` itself needs, beside other load generators that send the same load to the
//! same server, and whether they measure the same.

use std::time::Duration;

use clap::Args;

use super::h1::FIXED;
use super::h2::H2C;
use crate::fixed_response::PATH;
use crate::goals::BenchOutcome;
use crate::group::{Group, LoadTool};
use crate::invocation::Invocation;
use crate::load_tool;
use crate::not_run::NotRun;
use crate::number;
use crate::output;
use crate::process::{SERVER_CORE, ServerProcess, free_address};
use crate::programs::{Example, locate};
use crate::report::{Conclusion, ConclusionKind, Report, Section, System};
use crate::run_folder::RunFolder;
use crate::stats;
use crate::study::{
    CLIENT_US, Case, Cell, Figure, Generator, Length, Load, Measured, P50, Program,
    REQUESTS_PER_SECOND, Requests, Sentence, Subject, Version, Watch, Watched, conclusion, finish,
    section,
};
use crate::tls_files::TlsFiles;

/// Flags of `blitz bench generator`.
#[derive(Debug, Args)]
pub(crate) struct GeneratorArguments {
    /// Rounds; 6 are the least that can show a difference
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(6..=200))]
    rounds: u32,
    /// Length of one run
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=60))]
    seconds: u64,
    /// Six rounds of one second; not saved
    #[arg(long, conflicts_with_all = ["rounds", "seconds"])]
    quick: bool,
    /// The seed of the order in which the generators of a round run
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// The generator that the others are compared with.
const BLITZ: &str = "blitz load";
const GO: &str = "quic-go";

/// One load, and the generators that can send it.
struct LoadCase {
    title: &'static str,
    path: &'static str,
    version: Version,
    scheme: &'static str,
    /// Connections, and requests in flight on each.
    load: (u32, u32),
    others: &'static [Other],
    /// The CPU time of `blitz load` per request, divided by that of each other generator. `None` compares what they
    /// measure.
    at_most: Option<f64>,
}

/// Another generator.
struct Other {
    name: &'static str,
    client: GeneratorProgram,
}

enum GeneratorProgram {
    Tool(LoadTool),
    Go,
    Oha,
}

const WRK: Other = tool("wrk", LoadTool::Wrk);
const H2LOAD: Other = tool("h2load", LoadTool::H2load { varied: false });
const H3: Other = tool(
    "h3 and quinn",
    LoadTool::Http3(crate::group::Requests::Same),
);
const QUIC_GO: Other = Other {
    name: GO,
    client: GeneratorProgram::Go,
};
const OHA: Other = Other {
    name: "oha",
    client: GeneratorProgram::Oha,
};

const fn tool(name: &'static str, tool: LoadTool) -> Other {
    Other {
        name,
        client: GeneratorProgram::Tool(tool),
    }
}

/// A response of the server takes so long, so that no generator bounds the rate.
const SLOW: &str = "/delay?ms=5";

const WORKS: [LoadCase; 6] = [
    LoadCase {
        title: "HTTP/1.1, 100 connections",
        path: PATH,
        version: Version::Http1,
        scheme: "http",
        load: (100, 1),
        others: &[WRK, OHA],
        at_most: Some(0.8),
    },
    LoadCase {
        title: "HTTP/2 over TLS, 32 connections with 32 streams",
        path: PATH,
        version: Version::Http2,
        scheme: "https",
        load: (32, 32),
        others: &[H2LOAD, OHA],
        at_most: Some(0.8),
    },
    LoadCase {
        title: "HTTP/2 without TLS, 32 connections with 32 streams",
        path: PATH,
        version: Version::Http2,
        scheme: "http",
        load: (32, 32),
        others: &[H2LOAD],
        at_most: Some(0.8),
    },
    LoadCase {
        title: "HTTP/3, 32 connections with 32 streams",
        path: PATH,
        version: Version::Http3,
        scheme: "https",
        load: (32, 32),
        others: &[H3, QUIC_GO],
        // At least twice as many requests for the same time.
        at_most: Some(0.5),
    },
    LoadCase {
        title: "HTTP/1.1, 20 connections, responses after 5 ms",
        path: SLOW,
        version: Version::Http1,
        scheme: "http",
        load: (20, 1),
        others: &[WRK, OHA],
        at_most: None,
    },
    LoadCase {
        title: "HTTP/2 over TLS, 2 connections with 10 streams, responses after 5 ms",
        path: SLOW,
        version: Version::Http2,
        scheme: "https",
        load: (2, 10),
        others: &[H2LOAD, OHA],
        at_most: None,
    },
];

/// Measures and reports.
pub(crate) fn run(
    arguments: &GeneratorArguments,
    invocation: &Invocation,
) -> Result<BenchOutcome, String> {
    locate("taskset")?;
    let folder = RunFolder::create()?;
    let tls = TlsFiles::create(folder.path(), &invocation.programs)?;
    let (clear, secure) = (free_address()?, free_address()?);
    let server = start(invocation, &tls, [clear, secure])?;
    let watch = Watch::start();
    let generator = Generator {
        programs: &invocation.programs,
        folder: &folder,
        link: None,
    };
    let mut measured = Vec::new();
    for work in &WORKS {
        output::message(&format!("{} …", work.title));
        let address = if work.scheme == "http" { clear } else { secure };
        let base = format!("{}://{address}", work.scheme);
        let case = work.case(&base, arguments.length(), (&server, &tls, invocation));
        measured.push(case.run_each(&generator, arguments.rounds(), arguments.seed)?);
    }
    let surroundings = watch.finish(&invocation.revision, ["wrk", "h2load"], &measured);
    let mut report = report(&measured, invocation);
    let is_missed = WORKS
        .iter()
        .zip(&measured)
        .any(|(work, case)| work.misses(case));
    surroundings.describe(&mut report);
    let date = &surroundings.facts.date;
    match finish(&report, "generator", date, !arguments.quick, invocation)? {
        BenchOutcome::Met if is_missed => Ok(BenchOutcome::Missed),
        outcome => Ok(outcome),
    }
}

impl GeneratorArguments {
    fn rounds(&self) -> u32 {
        if self.quick { 6 } else { self.rounds }
    }

    /// Without a warm-up, which other generators do not have: every request counts for all of them.
    fn length(&self) -> Length {
        Length::Time {
            measured: Duration::from_secs(if self.quick { 1 } else { self.seconds }),
            warm_up: Duration::ZERO,
        }
    }
}

/// Blitz with a listener in clear text and one over TLS.
fn start(
    invocation: &Invocation,
    tls: &TlsFiles,
    [clear, secure]: [std::net::SocketAddr; 2],
) -> Result<ServerProcess, String> {
    let mut command = std::process::Command::new(invocation.programs.blitz());
    command.args(["run", "--cores", "1", "--log", "error"]);
    command.args(["--listen", &clear.to_string()]);
    command.args(["--listen-tls", &secure.to_string()]);
    command.arg("--cert").arg(&tls.certificate);
    command.arg("--key").arg(&tls.key);
    ServerProcess::start_pinned("blitz", SERVER_CORE, &command, secure)
}

impl LoadCase {
    fn case(
        &self,
        base: &str,
        length: Length,
        (server, tls, invocation): (&ServerProcess, &TlsFiles, &Invocation),
    ) -> Case {
        let (connections, streams) = self.load;
        let path = Requests::Path(self.path.to_owned());
        let load = Load::new(base, path, self.version, length).with(connections, streams);
        let subject = |name: &str, program: Program| Subject {
            name: name.to_owned(),
            load: Load {
                program,
                ..load.clone()
            },
            watched: Watched {
                servers: vec![server.process()],
                beside: Vec::new(),
            },
            may_fail: false,
        };
        let mut subjects = vec![subject(BLITZ, Program::Blitz)];
        let mut not_run = Vec::new();
        for other in self.others {
            match other.program(self, tls, invocation) {
                Ok(program) => subjects.push(subject(other.name, program)),
                Err(reason) => not_run.push(NotRun {
                    name: other.name.to_owned(),
                    reason,
                }),
            }
        }
        Case {
            title: self.title.to_owned(),
            load: format!("GET {}, closed loop, one generating core", self.path),
            subjects,
            base: Some(BLITZ.to_owned()),
            not_run,
        }
    }

    /// Whether `blitz load` needs more than its goal, compared with a generator that was run.
    fn misses(&self, case: &Measured) -> bool {
        let ratios = self
            .others
            .iter()
            .filter_map(|other| cost(case, other.name));
        let mut ratios = ratios.map(|comparison| comparison.ratio);
        self.at_most
            .is_some_and(|at_most| ratios.any(|ratio| ratio > at_most))
    }

    /// The group whose load tools are looked for.
    fn group(&self) -> &'static Group {
        match self.version {
            Version::Http1 => FIXED,
            _ => H2C,
        }
    }
}

impl Other {
    /// The program; the error is the reason why it cannot run.
    fn program(
        &self,
        work: &LoadCase,
        tls: &TlsFiles,
        invocation: &Invocation,
    ) -> Result<Program, String> {
        let programs = &invocation.programs;
        match self.client {
            GeneratorProgram::Go => programs.example(Example::GoLoad).map(Program::Go),
            GeneratorProgram::Oha => locate("oha").map(Program::Oha),
            GeneratorProgram::Tool(tool @ LoadTool::Http3(_)) => {
                programs.example(Example::Http3Load)?;
                Ok(Program::Tool(tool, tls.clone()))
            }
            GeneratorProgram::Tool(tool) => match load_tool::missing_tool(work.group(), programs) {
                Some(reason) => Err(reason),
                None => Ok(Program::Tool(tool, tls.clone())),
            },
        }
    }
}

fn report(measured: &[Measured], invocation: &Invocation) -> Report {
    let mut report = Report::new(
        "Load generators",
        "How much CPU time does blitz load need for a request, and does it measure what other generators measure?",
        &invocation.command,
    );
    let names = [
        (BLITZ, ""),
        (WRK.name, "http/1.1"),
        (H2LOAD.name, "h2"),
        (OHA.name, ""),
        (H3.name, "h3"),
        (GO, "h3"),
    ];
    let systems = names.map(|(name, protocol)| System::run(name, protocol, ""));
    for (work, case) in WORKS.iter().zip(measured) {
        report.sections.push(section_of(work, case, &systems));
        for other in work.others {
            report.conclusions.push(match work.at_most {
                Some(at_most) => verdict(case, other.name, at_most),
                None => agreement(case, other.name),
            });
        }
    }
    report.method = vec![
        "The server is Blitz with one core; each generator has the other one, and one generating thread. In each round \
         every generator runs once, in balanced orders."
            .to_owned(),
        "The CPU time of a generator is that of its whole process, its start and its connections included, divided by \
         its requests. blitz load checks each response, and records each latency in a histogram."
            .to_owned(),
        "Percentiles are those that each generator prints; h2load prints none.".to_owned(),
    ];
    report
}

fn section_of(work: &LoadCase, case: &Measured, systems: &[System]) -> Section {
    let figures: &[Figure] = match work.at_most {
        Some(_) => &[CLIENT_US],
        None => &[REQUESTS_PER_SECOND, P50],
    };
    let cells = [
        Cell::CLIENT_US,
        Cell::REQUESTS,
        Cell::ROUNDS_P50,
        Cell::ROUNDS_P99,
        Cell::SERVER_US,
    ];
    section(
        work.title,
        &[&case.load],
        &[case],
        systems,
        (figures, &cells),
    )
}

/// The CPU time of `blitz load` per request, compared with that of another generator.
fn cost(case: &Measured, other: &str) -> Option<stats::Comparison> {
    case.compare(BLITZ, other, &CLIENT_US)
}

/// Whether the CPU time of `blitz load` is within its goal.
fn verdict(case: &Measured, other: &str, at_most: f64) -> Conclusion {
    let about = &case.title;
    let Some(comparison) = cost(case, other) else {
        let text = format!("{about}: {other} was not compared.");
        return Conclusion::new(ConclusionKind::NotRun, text);
    };
    let is_met = comparison.ratio <= at_most;
    let kind = match is_met {
        true => ConclusionKind::Better,
        false => ConclusionKind::Worse,
    };
    let text = number::significant;
    Conclusion::new(
        kind,
        format!(
            "{about}: {BLITZ} needs {} times the CPU time of {other} per request ({} to {}); the goal is at most {at_most}.",
            text(comparison.ratio),
            text(comparison.interval.low),
            text(comparison.interval.high),
        ),
    )
}

/// Whether both measure the same rate.
fn agreement(case: &Measured, other: &str) -> Conclusion {
    let sentence = Sentence {
        about: &case.title,
        subject: BLITZ,
        base: other,
        figure: &REQUESTS_PER_SECOND,
        verb: "measures",
        object: "as many requests per second as",
    };
    conclusion(case, &sentence)
}
