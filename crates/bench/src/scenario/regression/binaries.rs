//! Two binaries on this machine, interleaved: CPU time per request of a fixed response and of a proxy, over HTTP/1.1,
//! HTTP/2 and HTTP/3.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use clap::Args;

use super::findings::Findings;
use super::judge::Rounds;
use super::saved::{FigureKey, Saved, Series};
use super::{RegressionArguments, command, with_regression};
use crate::fixed_response;
use crate::goals::BenchOutcome;
use crate::invocation::Invocation;
use crate::output;
use crate::process::{LOAD_CORE, SERVER_CORE, ServerProcess, free_address};
use crate::programs::locate;
use crate::report::System;
use crate::run_folder::RunFolder;
use crate::study::{
    Case, Cell, Figure, Generator, Length, Load, Measured, Requests, SERVER_US, Subject, Version,
    Watch, Watched, finish, section,
};
use crate::tls_files::TlsFiles;

/// Flags of a comparison of binaries.
#[derive(Debug, Clone, Args)]
pub(super) struct ComparisonPlan {
    /// Interleaved rounds of --binaries
    #[arg(long, default_value_t = 15, requires = "binaries", value_parser = clap::value_parser!(u32).range(6..=1000))]
    rounds: u32,
    /// Length of one run of --binaries
    #[arg(long, default_value_t = 2, requires = "binaries", value_parser = clap::value_parser!(u64).range(1..=60))]
    seconds: u64,
    /// Seed of the order of --binaries
    #[arg(long, default_value_t = 1, requires = "binaries")]
    seed: u64,
    /// Six rounds of one second with --binaries; the result is not saved
    #[arg(long, requires = "binaries", conflicts_with_all = ["rounds", "seconds"])]
    quick: bool,
}

const BASE: &str = "base";
const NEW: &str = "new";

/// The figures whose change is a verdict. Requests per second are limited by the generator on two cores, and memory is
/// that of the same process in all rounds, so that its rounds repeat nothing.
const FIGURES: [Figure; 1] = [SERVER_US];
const CELLS: [Cell; 5] = [
    Cell::SERVER_US,
    Cell::REQUESTS,
    Cell::P50,
    Cell::P99,
    Cell::RESIDENT,
];

/// The work of the servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ServerWork {
    Fixed,
    Proxy,
}

impl ServerWork {
    fn name(self) -> &'static str {
        match self {
            ServerWork::Fixed => "Fixed response",
            ServerWork::Proxy => "Proxy to HTTP/1.1",
        }
    }
}

/// Version, connections and streams of a load.
const LOADS: [(Version, u32, u32); 3] = [
    (Version::Http1, 100, 1),
    (Version::Http2, 32, 32),
    (Version::Http3, 32, 32),
];

/// A server of one of the binaries: clear text and TLS have addresses of their own.
struct Measurand {
    name: &'static str,
    role: ServerWork,
    clear: ServerProcess,
    tls: ServerProcess,
}

/// Runs both, and reports.
pub(super) fn run(
    arguments: &RegressionArguments,
    invocation: &Invocation,
) -> Result<BenchOutcome, String> {
    locate("taskset")?;
    let plan = &arguments.plan;
    let revisions = [&arguments.base, &arguments.new].map(|binary| revision(binary));
    let [base, new] = revisions;
    let (base, new) = match (base, new) {
        (Ok(base), Ok(new)) => (base, new),
        (Err(message), _) | (_, Err(message)) => {
            output::message(&format!("blitz bench: {message}"));
            return Ok(BenchOutcome::Unusable);
        }
    };
    let folder = RunFolder::create()?;
    let tls = TlsFiles::create(folder.path(), &invocation.programs)?;
    let watch = Watch::start();
    let backend = start(
        invocation.programs.blitz(),
        "backend",
        LOAD_CORE,
        &["--listen"],
        None,
    )?;
    let mut servers = Vec::new();
    for role in [ServerWork::Fixed, ServerWork::Proxy] {
        for (name, binary) in [(BASE, &arguments.base), (NEW, &arguments.new)] {
            servers.push(Measurand::start(name, role, binary, &tls, &backend)?);
        }
    }
    let generator = Generator {
        programs: &invocation.programs,
        folder: &folder,
        link: None,
    };
    let mut measured = Vec::new();
    for role in [ServerWork::Fixed, ServerWork::Proxy] {
        for load in LOADS {
            let case = case(role, load, &servers, &backend, plan.length());
            output::message(&format!("{}: {} …", role.name(), case.title));
            measured.push((role, case.run(&generator, plan.rounds(), plan.seed)?));
        }
    }
    let cases = measured.iter().map(|(_, case)| case);
    let surroundings = watch.finish(&invocation.revision, [], cases);
    let processor = Some(surroundings.facts.cpu.clone());
    let saved = |name: &str, revision: &str| saved(name, revision, processor.clone(), &measured);
    let (base, new) = (saved(BASE, &base), saved(NEW, &new));
    let findings = Findings::new(&base, &new, Rounds::Paired, arguments.at_most);
    let mut report = findings.report(&command(arguments, invocation));
    report.title = "Regression: two binaries, interleaved".to_owned();
    report.repeat.clear();
    report.sections = sections(&measured, [&base, &new], &report.sections);
    surroundings.describe(&mut report);
    let date = &surroundings.facts.date;
    let outcome = finish(&report, "regression", date, !plan.quick, invocation)?;
    Ok(with_regression(outcome, &findings))
}

impl ComparisonPlan {
    fn rounds(&self) -> u32 {
        if self.quick { 6 } else { self.rounds }
    }

    fn length(&self) -> Length {
        let seconds = if self.quick { 1 } else { self.seconds };
        Length::Time {
            measured: Duration::from_secs(seconds),
            warm_up: Duration::from_millis(500),
        }
    }
}

impl Measurand {
    fn start(
        name: &'static str,
        role: ServerWork,
        binary: &Path,
        tls: &TlsFiles,
        backend: &ServerProcess,
    ) -> Result<Measurand, String> {
        let to = format!("http://{}", backend.address);
        let target: &[&str] = match role {
            ServerWork::Fixed => &[],
            ServerWork::Proxy => &["--to", &to],
        };
        let with = |listen| [target, &[listen]].concat();
        Ok(Measurand {
            name,
            role,
            clear: start(binary, name, SERVER_CORE, &with("--listen"), None)?,
            tls: start(binary, name, SERVER_CORE, &with("--listen-tls"), Some(tls))?,
        })
    }

    fn of(&self, version: Version) -> (&ServerProcess, &'static str) {
        match version {
            Version::Http1 => (&self.clear, "http"),
            Version::Http2 | Version::Http3 => (&self.tls, "https"),
        }
    }
}

/// Starts a binary with one worker. The last of the arguments is the flag of its address.
fn start(
    binary: &Path,
    name: &str,
    core: &str,
    arguments: &[&str],
    tls: Option<&TlsFiles>,
) -> Result<ServerProcess, String> {
    let address = free_address()?;
    let mut command = Command::new(binary);
    command.args(["run", "--cores", "1", "--log", "error"]);
    command.args(arguments).arg(address.to_string());
    if let Some(tls) = tls {
        command.arg("--cert").arg(&tls.certificate);
        command.arg("--key").arg(&tls.key);
    }
    ServerProcess::start_pinned(name, core, &command, address)
}

/// The version that a binary prints. The error is a reason for people.
fn revision(binary: &Path) -> Result<String, String> {
    let shown = binary.display();
    let output = Command::new(binary).arg("--version").output();
    let output = output.map_err(|error| format!("{shown}: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    match text.trim().strip_prefix("blitz ") {
        Some(version) if output.status.success() => Ok(version.to_owned()),
        _ => Err(format!(
            "{shown} is no binary of Blitz: --version prints `{}`",
            text.trim()
        )),
    }
}

fn case(
    role: ServerWork,
    (version, connections, streams): (Version, u32, u32),
    servers: &[Measurand],
    backend: &ServerProcess,
    length: Length,
) -> Case {
    let of_role = servers.iter().filter(|server| server.role == role);
    let subjects = of_role.map(|measurand| {
        let (server, scheme) = measurand.of(version);
        let base = format!("{scheme}://{}", server.address);
        let requests = Requests::Path(fixed_response::PATH.to_owned());
        Subject {
            name: measurand.name.to_owned(),
            load: Load::new(base, requests, version, length).with(connections, streams),
            watched: Watched {
                servers: vec![server.process()],
                beside: vec![backend.process()],
            },
            may_fail: false,
        }
    });
    let streams = match streams {
        1 => String::new(),
        streams => format!(" with {streams} streams each"),
    };
    Case {
        title: version.name().to_owned(),
        load: format!("{connections} connections{streams}"),
        subjects: subjects.collect(),
        base: Some(BASE.to_owned()),
        not_run: Vec::new(),
    }
}

/// The figures of one of the binaries, as if it were a saved result.
fn saved(
    name: &str,
    revision: &str,
    processor: Option<String>,
    all: &[(ServerWork, Measured)],
) -> Saved {
    let mut saved = Saved {
        name: name.to_owned(),
        revision: Some(revision.to_owned()),
        processor,
        ..Saved::default()
    };
    for (role, case) in all {
        let Some(subject) = case.subject(name) else {
            continue;
        };
        let invalid = subject.void.iter();
        saved
            .invalid
            .extend(invalid.map(|reason| format!("{}: {reason}", case.title)));
        saved.series.extend(FIGURES.iter().map(|figure| Series {
            key: FigureKey {
                section: role.name().to_owned(),
                measure: figure.name.to_owned(),
                system: case.title.clone(),
            },
            unit: figure.unit.to_owned(),
            better: figure.better,
            values: subject.runs.iter().filter_map(figure.of).collect(),
        }));
    }
    saved
}

/// The sections of the study with its charts, and in them the tables of the verdicts.
fn sections(
    all: &[(ServerWork, Measured)],
    saved: [&Saved; 2],
    verdicts: &[crate::report::Section],
) -> Vec<crate::report::Section> {
    let systems = saved.map(|saved| {
        let version = saved.revision.as_deref().unwrap_or_default();
        System::run(&saved.name, "", version)
    });
    let of = |role: ServerWork| {
        let cases = all.iter().filter(|(of, _)| *of == role);
        let cases: Vec<&Measured> = cases.map(|(_, measured)| measured).collect();
        let explanation = [
            "Each binary runs with one worker on a core of its own; the generator has another one.",
        ];
        let mut section = section(
            role.name(),
            &explanation,
            &cases,
            &systems,
            (&FIGURES, &CELLS),
        );
        let tables = verdicts
            .iter()
            .filter(|verdicts| verdicts.heading == role.name());
        let tables = tables.flat_map(|verdicts| verdicts.tables.clone());
        section.tables.splice(0..0, tables);
        section
    };
    [ServerWork::Fixed, ServerWork::Proxy]
        .map(of)
        .into_iter()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::{MeasuredSubject, Run};

    #[test]
    fn another_program_is_refused() {
        let error = revision(Path::new("/bin/true")).unwrap_err();
        assert!(error.contains("no binary of Blitz"), "{error}");
        assert!(
            revision(Path::new("/nowhere/blitz"))
                .unwrap_err()
                .contains("/nowhere")
        );
    }

    #[test]
    fn the_rounds_of_both_binaries_are_pairs() {
        let subject = |name: &str, factor: f64| MeasuredSubject {
            name: name.to_owned(),
            runs: (1..=15)
                .map(|round| Run {
                    // The machine becomes slower by the round, which pairs do not see.
                    server_us: f64::from(round) * factor,
                    ..Run::default()
                })
                .collect(),
            void: None,
        };
        let measured = [(
            ServerWork::Fixed,
            Measured {
                title: "HTTP/1.1".to_owned(),
                load: String::new(),
                base: Some(BASE.to_owned()),
                subjects: vec![subject(BASE, 1.0), subject(NEW, 1.1)],
                not_run: Vec::new(),
            },
        )];
        let of = |name| saved(name, "1", None, &measured);
        let (base, new) = (of(BASE), of(NEW));
        let regression = |rounds| Findings::new(&base, &new, rounds, 0.05).has_regression();
        assert!(regression(Rounds::Paired));
        assert!(!regression(Rounds::Apart), "the drift hides it");
    }
}
