//! One run of one system: load, CPU, memory, and a check of every response.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::group::{ClientProtocol, LoadTool, ServerRole};
use super::load::{LoadRun, Summary, last_json};
use super::peers::StartOptions;
use super::plan::{Plan, WARM_UP};
use super::process::{
    LOAD_CORE, SERVER_CORE, Server, Workers, busy_seconds, free_address, own_cpu_seconds,
};
use super::system::{Kind, System};
use super::tls_files::TlsFiles;
use super::wrk::Wrk;
use super::{h2load, handshakes, http3_load, load, probe};

/// The measurements of one run.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Run {
    pub(crate) round: u32,
    pub(crate) cpu_us_per_request: f64,
    pub(crate) requests_per_second: f64,
    pub(crate) resident_bytes: u64,
    /// Share of one core that programs other than server, backend and load tool used.
    pub(crate) foreign_share: f64,
    pub(crate) load: Summary,
}

/// The counters that a system prints when it ends, over its whole life.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Counters {
    pub(crate) enters: u64,
    pub(crate) sqes: u64,
    pub(crate) cqes: u64,
}

impl Counters {
    /// Of two servers; `None` if one of them has none.
    fn sum(a: Option<Counters>, b: Option<Counters>) -> Option<Counters> {
        let (a, b) = (a?, b?);
        Some(Counters {
            enters: a.enters + b.enters,
            sqes: a.sqes + b.sqes,
            cqes: a.cqes + b.cqes,
        })
    }
}

/// A system with all its runs.
#[derive(Serialize)]
pub(crate) struct Measurement {
    pub(crate) name: &'static str,
    #[serde(skip)]
    pub(crate) system: &'static System,
    pub(crate) runs: Vec<Run>,
    pub(crate) counters: Option<Counters>,
    /// Requests of its whole life, by which the counters are divided.
    pub(crate) requests: u64,
}

/// The running systems of a plan, and the backends of the proxies.
pub(crate) struct Bench<'a> {
    plan: &'a Plan,
    folder: &'a Path,
    wrk: Wrk,
    tls: Option<TlsFiles>,
    backends: Vec<Server>,
    running: Vec<RunningSystem>,
}

struct RunningSystem {
    servers: Vec<Server>,
    /// Bytes that the load tool counts for one response.
    response_bytes: usize,
    measured: Measurement,
}

impl<'a> Bench<'a> {
    /// Starts all systems and warms them up. `folder` is empty and exists until the end.
    pub(crate) fn start(
        plan: &'a Plan,
        backends: &[&'static System],
        tls: Option<TlsFiles>,
        folder: &'a Path,
    ) -> Result<Bench<'a>, String> {
        let mut bench = Bench {
            plan,
            folder,
            wrk: Wrk::prepare(folder)?,
            tls,
            backends: Vec::new(),
            running: Vec::new(),
        };
        let response = capture_response(plan, folder)?;
        let mut backend_addresses = Vec::new();
        for &system in backends {
            let address = free_address()?;
            let options = bench.start_options(address, address, response.as_deref());
            let mut command = system.command(&options)?;
            if matches!(system.kind, Kind::LimitResponder { .. }) {
                // One request at a time: a backend that waits for several would add its wait to every proxy.
                command.args(["--wait", "1"]);
            }
            let server = Server::start_pinned(system.name, LOAD_CORE, &command, address)?;
            bench.backends.push(server);
            backend_addresses.push((system.group.protocol, address));
        }
        for system in &plan.systems {
            let backend_protocol = match system.group.role {
                ServerRole::ProxyToH2c => ClientProtocol::H2c,
                _ => ClientProtocol::Http1,
            };
            let backend = backend_addresses
                .iter()
                .find(|(protocol, _)| *protocol == backend_protocol);
            let mut servers = Vec::new();
            for processors in system.workers.servers() {
                let address = free_address()?;
                let backend = backend.map_or(address, |(_, address)| *address);
                let options = bench.start_options(address, backend, response.as_deref());
                let command = system.command(&options)?;
                let server = Server::start_pinned(system.name, processors, &command, address)?;
                servers.push(server);
            }
            let running = RunningSystem::new(system, servers, bench.tls.as_ref())?;
            bench.running.push(running);
        }
        for index in 0..bench.running.len() {
            bench.run(index, 0, WARM_UP)?;
            bench.running[index].measured.runs.clear();
        }
        Ok(bench)
    }

    fn start_options<'b>(
        &'b self,
        listen: SocketAddr,
        backend: SocketAddr,
        response: Option<&'b Path>,
    ) -> StartOptions<'b> {
        StartOptions {
            listen,
            backend,
            connections: self.plan.connections,
            requests: self.plan.connections * self.plan.streams,
            small_backend: None,
            response,
            tls: self.tls.as_ref(),
            folder: self.folder,
        }
    }

    /// One run of every system, in the order of the table.
    pub(crate) fn round(&mut self, round: u32) -> Result<(), String> {
        (0..self.running.len()).try_for_each(|index| self.run(index, round, self.plan.run))
    }

    /// Stops all systems and reads the counters that they print when they end.
    pub(crate) fn finish(self) -> Vec<Measurement> {
        let finish = |mut running: RunningSystem| {
            let outputs = running.servers.into_iter().map(Server::stop);
            let counters: Vec<Option<Counters>> = outputs.map(|text| last_json(&text)).collect();
            running.measured.counters = counters.into_iter().reduce(Counters::sum).flatten();
            running.measured
        };
        self.running.into_iter().map(finish).collect()
    }

    fn run(&mut self, index: usize, round: u32, length: Duration) -> Result<(), String> {
        let backends = || self.backends.iter().map(Server::cpu_seconds).sum::<f64>();
        let tls = self.tls.as_ref();
        let running = &mut self.running[index];
        let (name, group) = (running.measured.name, running.measured.system.group);
        let failed = |error: String| format!("{name}, round {round}: {error}");
        running.probe(tls).map_err(failed)?;
        let load_run = LoadRun {
            address: running.servers[0].address,
            protocol: group.protocol,
            path: probe::PATH,
            upload: None,
            timeout: load::TIMEOUT,
            connections: self.plan.connections,
            streams: self.plan.streams,
            length,
            tls,
        };
        let (server_before, others_before) =
            (running.cpu_seconds(), backends() + own_cpu_seconds());
        let busy_before = busy_seconds();
        let load = |core: &str, load_run: &LoadRun<'_>| match group.load_tool {
            LoadTool::Wrk => self.wrk.run_on(core, load_run),
            LoadTool::H2load { varied } => h2load::run(load_run, varied, self.folder),
            LoadTool::Handshakes => handshakes::run(load_run),
            LoadTool::Http3(requests) => http3_load::run_on(core, load_run, requests),
        };
        let summary = match running.measured.system.workers {
            Workers::One => load(LOAD_CORE, &load_run),
            Workers::TwoServers | Workers::Two => {
                let addresses: Vec<_> = running.servers.iter().map(|s| s.address).collect();
                load::run_on_all_cores(&addresses, &load_run, load)
            }
        };
        let summary = summary.map_err(failed)?;
        let busy = busy_seconds() - busy_before;
        let server = running.cpu_seconds() - server_before;
        // The load tool has ended, so its time is part of our own or of our children's.
        let others = backends() + own_cpu_seconds() - others_before;
        let resident_bytes = running.servers.iter().map(Server::resident_bytes).sum();
        running.probe(tls).map_err(failed)?;
        summary.check(running.response_bytes).map_err(failed)?;
        running.measured.requests += summary.requests;
        running.measured.runs.push(Run {
            round,
            cpu_us_per_request: server * 1e6 / summary.requests as f64,
            requests_per_second: summary.requests_per_second(),
            resident_bytes,
            foreign_share: (busy - server - others).max(0.0) / length.as_secs_f64(),
            load: summary,
        });
        Ok(())
    }
}

impl RunningSystem {
    /// At least one server.
    fn new(
        system: &'static System,
        servers: Vec<Server>,
        tls: Option<&TlsFiles>,
    ) -> Result<RunningSystem, String> {
        let response_bytes = probe::request_as(system.group, servers[0].address, tls)
            .map_err(|e| format!("{}: {e}", system.name))?;
        Ok(RunningSystem {
            servers,
            response_bytes,
            measured: Measurement {
                name: system.name,
                system,
                runs: Vec::new(),
                counters: None,
                requests: 1,
            },
        })
    }

    fn cpu_seconds(&self) -> f64 {
        self.servers.iter().map(Server::cpu_seconds).sum()
    }

    /// Fails if the length of a response differs from the first, because the counts would be wrong.
    fn probe(&mut self, tls: Option<&TlsFiles>) -> Result<(), String> {
        for server in &self.servers {
            let bytes = probe::request_as(self.measured.system.group, server.address, tls)?;
            self.measured.requests += 1;
            if bytes != self.response_bytes {
                return Err(format!(
                    "a response has {bytes} bytes, the first had {}",
                    self.response_bytes
                ));
            }
        }
        Ok(())
    }
}

/// Stores the response of the example server, which the bare ring sends as well.
fn capture_response(plan: &Plan, folder: &Path) -> Result<Option<std::path::PathBuf>, String> {
    let blitz = |system: &&&System| matches!(system.kind, Kind::HelloWorld { .. });
    let Some(system) = plan.systems.iter().find(blitz) else {
        return Ok(None);
    };
    let listen = free_address()?;
    let options = StartOptions {
        listen,
        backend: listen,
        connections: 1,
        requests: 1,
        small_backend: None,
        response: None,
        tls: None,
        folder,
    };
    let server =
        Server::start_pinned(system.name, SERVER_CORE, &system.command(&options)?, listen)?;
    let response = probe::request(listen).map_err(|e| format!("{}: {e}", system.name))?;
    drop(server);
    let file = folder.join("response");
    fs::write(&file, response).map_err(|e| format!("{}: {e}", file.display()))?;
    Ok(Some(file))
}

impl Measurement {
    /// A counter per request.
    pub(crate) fn per_request(&self, which: impl Fn(&Counters) -> u64) -> Option<f64> {
        let counters = self.counters.as_ref()?;
        Some(which(counters) as f64 / self.requests as f64)
    }
}
