//! `blitz bench gateway`: the health endpoint over HTTP/1.1, HTTP/2 without TLS and HTTP/3, with few and many connections.

mod findings;

use std::time::Duration;

use clap::Args;

use super::system;
use crate::fixed_response::HEALTH;
use crate::goals::BenchOutcome;
use crate::group::{ClientProtocol, Group, LoadTool, Requests, ServerWork};
use crate::invocation::Invocation;
use crate::output;
use crate::peer::blitz_health::Protection;
use crate::programs::locate;
use crate::report;
use crate::run_folder::RunFolder;
use crate::study::{
    self, Case, Contender, Length, Load, Measured, Stage, Subject, Version, Watch, finish,
};
use crate::system::SystemKind;
use crate::tls_files::TlsFiles;
use findings::Findings;

/// Flags of `blitz bench gateway`.
#[derive(Debug, Args)]
pub(crate) struct GatewayArguments {
    /// Rounds; 6 are the least that can show a difference
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u32).range(6..=200))]
    rounds: u32,
    /// Length of one run
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=60))]
    seconds: u64,
    /// Only these systems or protocols, separated by commas: h1, h2c, h3, blitz, blitz-secret, blitz-file, blitz-jwt,
    /// nginx, haproxy, h2o, caddy, envoy
    #[arg(long, value_delimiter = ',', value_parser = word)]
    only: Vec<String>,
    /// The smallest load of each protocol, in runs of 0.2 s; not saved
    #[arg(long, conflicts_with_all = ["rounds", "seconds"])]
    quick: bool,
    /// The seed of the order in which the systems of a round run
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// The loads of one protocol.
struct ProtocolLoads {
    name: &'static str,
    title: &'static str,
    version: Version,
    scheme: &'static str,
    group: Group,
    /// Requests in flight on each connection.
    streams: u32,
    connections: [u32; 3],
}

const fn group(name: &'static str, protocol: ClientProtocol, load_tool: LoadTool) -> Group {
    Group {
        name,
        title: "",
        protocol,
        role: ServerWork::RespondHealth,
        load_tool,
        bases: &[],
        plausible: None,
    }
}

static PROTOCOLS: [ProtocolLoads; 3] = [
    ProtocolLoads {
        name: "h1",
        title: "HTTP/1.1",
        version: Version::Http1,
        scheme: "http",
        group: group("h1", ClientProtocol::Http1, LoadTool::Wrk),
        streams: 1,
        connections: [100, 500, 1_000],
    },
    ProtocolLoads {
        name: "h2c",
        title: "HTTP/2 without TLS",
        version: Version::Http2,
        scheme: "http",
        group: group(
            "h2c",
            ClientProtocol::H2c,
            LoadTool::H2load { varied: false },
        ),
        streams: 100,
        connections: [10, 50, 100],
    },
    ProtocolLoads {
        name: "h3",
        title: "HTTP/3",
        version: Version::Http3,
        scheme: "https",
        group: group("h3", ClientProtocol::Tls, LoadTool::Http3(Requests::Same)),
        streams: 100,
        connections: [10, 50, 100],
    },
];

/// The system that the others are compared with.
const BLITZ: &str = "blitz";

/// The same with `JWT_SECRET` in the environment, with the response of a file, and with that behind a token.
const SECRET: &str = "blitz-secret";
const FILE: &str = "blitz-file";
const JWT: &str = "blitz-jwt";

const SYSTEMS: [(&str, SystemKind); 9] = [
    (BLITZ, SystemKind::Blitz { io: "auto" }),
    (SECRET, SystemKind::BlitzHealth(Protection::OtherPaths)),
    (FILE, SystemKind::BlitzHealth(Protection::None)),
    (JWT, SystemKind::BlitzHealth(Protection::Health)),
    ("nginx", SystemKind::Nginx),
    ("haproxy", SystemKind::Haproxy),
    ("h2o", SystemKind::H2o),
    ("caddy", SystemKind::Caddy),
    ("envoy", SystemKind::Envoy),
];

/// A value of `--only`.
fn word(word: &str) -> Result<String, String> {
    let protocols = PROTOCOLS.iter().map(|protocol| protocol.name);
    let known: Vec<&str> = protocols.chain(SYSTEMS.map(|(name, _)| name)).collect();
    match known.contains(&word) {
        true => Ok(word.to_owned()),
        false => Err(format!(
            "there is no system or protocol `{word}`; known: {}",
            known.join(", ")
        )),
    }
}

/// The loads of one protocol with their runs.
struct OnProtocol {
    protocol: &'static ProtocolLoads,
    cases: Vec<Measured>,
    systems: Vec<report::System>,
}

/// Measures and reports.
pub(crate) fn run(
    arguments: &GatewayArguments,
    invocation: &Invocation,
) -> Result<BenchOutcome, String> {
    locate("taskset")?;
    let folder = RunFolder::create()?;
    let tls = TlsFiles::create(folder.path(), &invocation.programs)?;
    let watch = Watch::start();
    let mut all = Vec::new();
    for protocol in PROTOCOLS
        .iter()
        .filter(|it| arguments.wants_protocol(it.name))
    {
        all.push(measure(arguments, invocation, protocol, (&folder, &tls))?);
    }
    let cases = all.iter().flat_map(|on| &on.cases);
    let surroundings = watch.finish(&invocation.revision, [], cases);
    let findings = Findings::new(&all);
    let report = findings.report(&invocation.command, &surroundings, arguments.rounds());
    let date = &surroundings.facts.date;
    finish(&report, "gateway", date, !arguments.quick, invocation)
}

impl GatewayArguments {
    fn rounds(&self) -> u32 {
        if self.quick { 6 } else { self.rounds }
    }

    fn length(&self) -> Length {
        match self.quick {
            true => Length::quick(200),
            false => Length::warm(Duration::from_secs(self.seconds)),
        }
    }

    fn wants_protocol(&self, name: &str) -> bool {
        let is_protocol = |word: &str| PROTOCOLS.iter().any(|protocol| protocol.name == word);
        self.wants(name, is_protocol)
    }

    fn wants_system(&self, name: &str) -> bool {
        self.wants(name, |word| SYSTEMS.iter().any(|(known, _)| *known == word))
    }

    /// Whether `name` is chosen, or nothing of its kind is.
    fn wants(&self, name: &str, is_of_kind: impl Fn(&str) -> bool) -> bool {
        let mut chosen = self.only.iter().filter(|word| is_of_kind(word)).peekable();
        chosen.peek().is_none() || chosen.any(|word| word == name)
    }
}

/// All loads of one protocol, on the same servers.
fn measure(
    arguments: &GatewayArguments,
    invocation: &Invocation,
    protocol: &'static ProtocolLoads,
    (folder, tls): (&RunFolder, &TlsFiles),
) -> Result<OnProtocol, String> {
    let connections = match arguments.quick {
        true => &protocol.connections[..1],
        false => &protocol.connections[..],
    };
    let most = connections.iter().copied().max().unwrap_or(1);
    let mut stage = Stage::new(&invocation.programs, folder, tls);
    for (name, kind) in SYSTEMS
        .into_iter()
        .filter(|(name, _)| arguments.wants_system(name))
    {
        let contender = Contender {
            name,
            system: system(name, &protocol.group, kind),
        };
        let load = (most, most * protocol.streams);
        stage.start(
            &contender,
            load,
            protocol.version.alpn(),
            &invocation.revision,
        )?;
    }
    check_refusals(protocol, &stage)?;
    let mut cases = Vec::new();
    for &connections in connections {
        let case = case(arguments, protocol, connections, &stage);
        output::message(&format!("{}, {} …", protocol.title, case.title));
        cases.push(case.run_each(&stage.generator(), arguments.rounds(), arguments.seed)?);
    }
    Ok(OnProtocol {
        protocol,
        cases,
        systems: stage.described().to_vec(),
    })
}

/// Without a token a protected path is 401, over the protocol that is measured.
///
/// # Errors
/// It is not.
fn check_refusals(protocol: &ProtocolLoads, stage: &Stage<'_>) -> Result<(), String> {
    for (name, base, watched) in stage.running(protocol.scheme) {
        let Some(path) = protection(name).and_then(Protection::protected_path) else {
            continue;
        };
        let requests = study::Requests::Path(path.to_owned());
        let mut load = Load::new(base, requests, protocol.version, Length::Requests(1));
        load.flags
            .extend(["--expect-status".to_owned(), "401".to_owned()]);
        let subject = Subject {
            name: name.to_owned(),
            load,
            watched,
            may_fail: false,
        };
        let checked = stage.generator().run(&subject);
        checked.map_err(|error| {
            let title = protocol.title;
            format!("{title}, {name}: {path} without a token is not 401: {error}")
        })?;
    }
    Ok(())
}

fn protection(name: &str) -> Option<Protection> {
    let (_, kind) = SYSTEMS.into_iter().find(|(known, _)| *known == name)?;
    match kind {
        SystemKind::BlitzHealth(protection) => Some(protection),
        _ => None,
    }
}

fn case(
    arguments: &GatewayArguments,
    protocol: &ProtocolLoads,
    connections: u32,
    stage: &Stage<'_>,
) -> Case {
    let subjects = stage.running(protocol.scheme).map(|(name, base, watched)| {
        let path = study::Requests::Path(HEALTH.path.to_owned());
        let load = Load::new(base, path, protocol.version, arguments.length());
        let mut load = load.with(connections, protocol.streams);
        if let Some(field) = protection(name).and_then(Protection::field) {
            load.flags.extend(["-H".to_owned(), field]);
        }
        Subject {
            name: name.to_owned(),
            load: load.expecting(HEALTH.body.as_bytes()),
            watched,
            may_fail: false,
        }
    });
    let title = match protocol.streams {
        1 => format!("{connections} connections"),
        streams => format!("{connections} × {streams} streams"),
    };
    Case {
        title,
        load: format!("GET {}, {}, closed loop", HEALTH.path, protocol.title),
        subjects: subjects.collect(),
        base: arguments.wants_system(BLITZ).then(|| BLITZ.to_owned()),
        not_run: stage.not_run().to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(only: &[&str]) -> GatewayArguments {
        GatewayArguments {
            rounds: 5,
            seconds: 2,
            only: only.iter().map(|&word| word.to_owned()).collect(),
            quick: false,
            seed: 1,
        }
    }

    #[test]
    fn systems_and_protocols_are_chosen_apart() {
        let of_system = arguments(&["nginx", "blitz"]);
        assert!(of_system.wants_protocol("h3") && of_system.wants_system("nginx"));
        assert!(!of_system.wants_system("caddy"));
        let of_protocol = arguments(&["h2c"]);
        assert!(of_protocol.wants_system("caddy") && !of_protocol.wants_protocol("h1"));
        assert!(arguments(&[]).wants_system("envoy"));
    }

    #[test]
    fn an_unknown_name_lists_the_known_ones() {
        let error = word("ngnix").unwrap_err();
        assert!(error.contains("ngnix") && error.contains("h1, h2c, h3, blitz, blitz-secret"));
        assert!(word("h2o").is_ok());
    }
}
