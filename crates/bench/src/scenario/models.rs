//! `blitz bench models`: the same traffic through proxies that wait in different ways, beside the backend itself.

mod findings;

use std::time::Duration;

use clap::Args;

use super::{EPOLL, URING, h1, system, workers};
use crate::goals::BenchOutcome;
use crate::invocation::Invocation;
use crate::not_run::{self, NotRun};
use crate::output;
use crate::peer::StartOptions;
use crate::process::{LOAD_CORE, ServerProcess, Workers, free_address};
use crate::programs::{Programs, locate};
use crate::run_folder::RunFolder;
use crate::study::{
    Case, Generator, Length, Load, Measured, Requests, Subject, Version, Watch, Watched, finish,
};
use crate::system::{System, SystemKind};

/// Flags of `blitz bench models`.
#[derive(Debug, Args)]
pub(crate) struct ModelsArguments {
    /// Rounds; 6 are the least that can show a difference
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(6..=200))]
    rounds: u32,
    /// Length of a run
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=60))]
    seconds: u64,
    /// Numbers of clients, separated by commas
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,10,50,100,500,1000",
          value_parser = clap::value_parser!(u32).range(1..=5000))]
    clients: Vec<u32>,
    /// Six short rounds with 10 clients as ab and 50 as wrk; not saved
    #[arg(long, conflicts_with_all = ["rounds", "seconds", "clients"])]
    quick: bool,
    /// The seed of the orders
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// The page: 31 KiB.
const PAGE_BYTES: u32 = 31 * 1024;
const POOL_THREADS: u32 = 64;
const WARM_UP: Duration = Duration::from_millis(500);
/// The time within which the first byte, and each further one, has to arrive.
const TIMEOUT: &str = "--timeout=10s";

/// The row without a proxy.
const DIRECT: &str = "direct";
const BLOCKING: &str = "blocking thread";
const POOL: &str = "thread pool";
const EVENT_LOOP: &str = "event loop, epoll";
const REACTORS_EPOLL: &str = "reactor per core, epoll";
const REACTORS_URING: &str = "reactor per core, io_uring";
const NGINX: &str = "nginx";

static BACKEND: System = system("backend", h1::FIXED, SystemKind::Blitz { io: EPOLL });

/// In the order of the tables.
static PROXIES: &[System] = &[
    system(
        BLOCKING,
        h1::PROXY,
        SystemKind::BlockingProxy { threads: 1 },
    ),
    system(
        POOL,
        h1::PROXY,
        SystemKind::BlockingProxy {
            threads: POOL_THREADS,
        },
    ),
    system(EVENT_LOOP, h1::PROXY, SystemKind::Blitz { io: EPOLL }),
    workers(
        Workers::Two,
        REACTORS_EPOLL,
        h1::PROXY,
        SystemKind::Blitz { io: EPOLL },
    ),
    workers(
        Workers::Two,
        REACTORS_URING,
        h1::PROXY,
        SystemKind::Blitz { io: URING },
    ),
    system(NGINX, h1::PROXY, SystemKind::Nginx),
];

/// How the clients use their connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConnectionReuse {
    /// A new connection for each request.
    Ab,
    /// The connection is kept, if the server keeps it.
    Wrk,
}

impl ConnectionReuse {
    const ALL: [ConnectionReuse; 2] = [ConnectionReuse::Ab, ConnectionReuse::Wrk];

    fn name(self) -> &'static str {
        match self {
            ConnectionReuse::Ab => "new connections",
            ConnectionReuse::Wrk => "keep-alive",
        }
    }
}

/// Measures and reports.
pub(crate) fn run(
    arguments: &ModelsArguments,
    invocation: &Invocation,
) -> Result<BenchOutcome, String> {
    locate("taskset")?;
    let watch = Watch::start();
    let folder = RunFolder::create()?;
    let programs = &invocation.programs;
    let stage = Stage::start(programs, &folder, arguments.clients_max())?;
    let generator = Generator {
        programs,
        folder: &folder,
        link: None,
    };
    let mut measured: Vec<(ConnectionReuse, u32, Measured)> = Vec::new();
    for (client, count) in arguments.loads() {
        let case = stage.case(client, count, arguments.length());
        output::message(&format!("{} …", case.title));
        let case = case.run(&generator, arguments.rounds(), arguments.seed)?;
        measured.push((client, count, case));
    }
    let peers = stage.running.iter().filter_map(|(system, _)| system.peer());
    let cases = measured.iter().map(|(.., case)| case);
    let surroundings = watch.finish(&invocation.revision, peers, cases);
    drop(stage);
    let command = &invocation.command;
    let report = findings::report(&measured, command, &surroundings, arguments.rounds());
    let date = &surroundings.facts.date;
    finish(&report, "models", date, !arguments.quick, invocation)
}

impl ModelsArguments {
    fn rounds(&self) -> u32 {
        if self.quick { 6 } else { self.rounds }
    }

    fn length(&self) -> Length {
        match self.quick {
            true => Length::quick(300),
            false => Length::Time {
                measured: Duration::from_secs(self.seconds),
                warm_up: WARM_UP,
            },
        }
    }

    /// The cases, in the order in which they run.
    fn loads(&self) -> Vec<(ConnectionReuse, u32)> {
        if self.quick {
            return vec![(ConnectionReuse::Ab, 10), (ConnectionReuse::Wrk, 50)];
        }
        let loads = ConnectionReuse::ALL.into_iter().flat_map(|client| {
            let counts = self.clients.iter();
            counts.map(move |&count| (client, count))
        });
        loads.collect()
    }

    fn clients_max(&self) -> u32 {
        self.loads()
            .iter()
            .map(|&(_, count)| count)
            .max()
            .unwrap_or(0)
    }
}

/// The backend and the proxies that are there.
struct Stage {
    backend: ServerProcess,
    running: Vec<(&'static System, ServerProcess)>,
    not_run: Vec<NotRun>,
}

impl Stage {
    fn start(programs: &Programs, folder: &RunFolder, clients_max: u32) -> Result<Stage, String> {
        let start = |system: &System, cores: &str, backend: Option<&ServerProcess>| {
            let listen = free_address()?;
            let options = StartOptions {
                listen,
                backend: backend.map_or(listen, |server| server.address),
                small_backend: None,
                connections: clients_max,
                requests: clients_max,
                response: None,
                tls: None,
                programs,
                folder: folder.path(),
            };
            let command = system.command(&options)?;
            ServerProcess::start_pinned(system.name, cores, &command, listen)
        };
        let backend = start(&BACKEND, LOAD_CORE, None)?;
        let mut proxies: Vec<&'static System> = PROXIES.iter().collect();
        let not_run = not_run::remove(
            &mut proxies,
            |system| system.name.to_owned(),
            |system| system.missing_program(programs),
        );
        let mut running = Vec::new();
        for system in proxies {
            let cores = system.workers.servers()[0];
            running.push((system, start(system, cores, Some(&backend))?));
        }
        Ok(Stage {
            backend,
            running,
            not_run,
        })
    }

    fn case(&self, client: ConnectionReuse, count: u32, length: Length) -> Case {
        let path = format!("/data?size={PAGE_BYTES}");
        let subject = |name: &str, server: &ServerProcess, beside: Vec<u32>| {
            let base = format!("http://{}", server.address);
            let requests = Requests::Path(path.clone());
            let mut load = Load::new(base, requests, Version::Http1, length).with(count, 1);
            load.flags
                .extend([TIMEOUT.to_owned(), "--keep-going".to_owned()]);
            if client == ConnectionReuse::Ab {
                load.flags.push("--new-connections".to_owned());
            }
            Subject {
                name: name.to_owned(),
                load,
                watched: Watched {
                    servers: vec![server.process()],
                    beside,
                },
                may_fail: name != DIRECT,
            }
        };
        let mut subjects = vec![subject(DIRECT, &self.backend, Vec::new())];
        subjects.extend(
            self.running
                .iter()
                .map(|(system, server)| subject(system.name, server, vec![self.backend.process()])),
        );
        let connections = match client {
            ConnectionReuse::Ab => "a new connection for each request",
            ConnectionReuse::Wrk => "each on a connection that it keeps if the server does",
        };
        Case {
            title: format!("{count} clients, {}", client.name()),
            load: format!("GET {path}, {count} requests at a time, {connections}."),
            subjects,
            base: Some(BLOCKING.to_owned()),
            not_run: self.not_run.clone(),
        }
    }
}
