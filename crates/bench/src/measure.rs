//! One run of one system: load, CPU, memory, and a check of every response.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::load_tool::{self, LoadRun, LoadSummary, LoadTools, last_json};
use crate::peer::StartOptions;
use crate::process::{
    LOAD_CORE, SERVER_CORE, ServerProcess, Switches, Workers, busy_seconds, free_address,
    own_cpu_seconds,
};
use crate::programs::Programs;
use crate::rounds::RoundsPlan;
use crate::stats::{Median, order};
use crate::system::{System, SystemKind};
use crate::tls_files::TlsFiles;
use crate::{fixed_response, probe, sites};

/// The measurements of one run.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Run {
    pub(crate) round: u32,
    pub(crate) cpu_us_per_request: f64,
    pub(crate) requests_per_second: f64,
    pub(crate) resident_bytes: u64,
    /// Share of one core that programs other than server, backend and load tool used.
    pub(crate) foreign_share: f64,
    pub(crate) switches: Switches,
    pub(crate) load: LoadSummary,
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
    plan: &'a RoundsPlan,
    programs: &'a Programs,
    folder: &'a Path,
    tools: LoadTools<'a>,
    tls: Option<TlsFiles>,
    backends: Vec<(&'static System, ServerProcess)>,
    running: Vec<RunningSystem>,
}

struct RunningSystem {
    servers: Vec<ServerProcess>,
    /// The access logs of those that have one.
    logs: Vec<PathBuf>,
    /// Bytes that the load tool counts for one response.
    response_bytes: usize,
    measured: Measurement,
}

impl<'a> Bench<'a> {
    /// Starts all systems and warms them up if the plan says so. `folder` is empty and exists until the end.
    pub(crate) fn start(
        plan: &'a RoundsPlan,
        programs: &'a Programs,
        tls: Option<TlsFiles>,
        folder: &'a Path,
    ) -> Result<Bench<'a>, String> {
        let mut bench = Bench {
            plan,
            programs,
            folder,
            tools: LoadTools::prepare(folder, programs)?,
            tls,
            backends: Vec::new(),
            running: Vec::new(),
        };
        let response = bench.capture_response()?;
        bench.start_backends(response.as_deref())?;
        for system in &plan.systems {
            let servers = bench.start_servers(system, response.as_deref())?;
            let mut running =
                RunningSystem::new(system, servers, bench.tls.as_ref(), &bench.tools)?;
            let addresses = running.servers.iter().map(|server| server.address);
            let logs = addresses.filter_map(|address| system.log_file(folder, address));
            running.logs = logs.collect();
            bench.running.push(running);
        }
        if let Some(warm_up) = plan.warm_up {
            for index in 0..bench.running.len() {
                bench.run(index, 0, warm_up)?;
                bench.running[index].measured.runs.clear();
            }
        }
        Ok(bench)
    }

    fn start_backends(&mut self, response: Option<&Path>) -> Result<(), String> {
        for system in self.plan.backends() {
            let address = free_address()?;
            let options = self.start_options(address, address, response);
            let mut command = system.command(&options)?;
            if matches!(system.kind, SystemKind::LimitResponder { .. }) {
                // One request at a time: a backend that waits for several would add its wait to every proxy.
                command.args(["--wait", "1"]);
            }
            let server = ServerProcess::start_pinned(system.name, LOAD_CORE, &command, address)?;
            self.backends.push((system, server));
        }
        Ok(())
    }

    /// The servers of one system, on their cores.
    fn start_servers(
        &self,
        system: &System,
        response: Option<&Path>,
    ) -> Result<Vec<ServerProcess>, String> {
        let backend = self.plan.backend_of(system).and_then(|wanted| {
            let mut backends = self.backends.iter();
            backends.find(|(backend, _)| backend.name == wanted.name)
        });
        let mut servers = Vec::new();
        for processors in system.workers.servers() {
            let address = free_address()?;
            let backend = backend.map_or(address, |(_, server)| server.address);
            let options = self.start_options(address, backend, response);
            let command = system.command(&options)?;
            let server = ServerProcess::start_pinned(system.name, processors, &command, address)?;
            servers.push(server);
        }
        Ok(servers)
    }

    /// Stores the response of the example server, which the bare ring sends as well.
    fn capture_response(&self) -> Result<Option<PathBuf>, String> {
        let example = |system: &&&System| matches!(system.kind, SystemKind::HelloWorld { .. });
        let Some(system) = self.plan.systems.iter().find(example) else {
            return Ok(None);
        };
        let listen = free_address()?;
        let command = system.command(&self.start_options(listen, listen, None))?;
        let server = ServerProcess::start_pinned(system.name, SERVER_CORE, &command, listen)?;
        let response = probe::request(listen).map_err(|e| format!("{}: {e}", system.name))?;
        drop(server);
        let file = self.folder.join("response");
        fs::write(&file, response).map_err(|e| format!("{}: {e}", file.display()))?;
        Ok(Some(file))
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
            programs: self.programs,
            folder: self.folder,
        }
    }

    /// One run of every system. The rounds are counted from 1.
    pub(crate) fn round(&mut self, round: u32) -> Result<(), String> {
        let order = order(self.running.len(), round - 1, self.plan.seed);
        order
            .into_iter()
            .try_for_each(|index| self.run(index, round, self.plan.run))
    }

    /// Stops all systems and reads the counters that they print when they end.
    pub(crate) fn finish(self) -> Vec<Measurement> {
        let finish = |mut running: RunningSystem| {
            let outputs = running.servers.into_iter().map(ServerProcess::stop);
            let counters: Vec<Option<Counters>> = outputs.map(|text| last_json(&text)).collect();
            running.measured.counters = counters.into_iter().reduce(Counters::sum).flatten();
            running.measured
        };
        self.running.into_iter().map(finish).collect()
    }

    fn run(&mut self, index: usize, round: u32, length: Duration) -> Result<(), String> {
        let cpu_seconds = |(_, backend): &(_, ServerProcess)| backend.cpu_seconds();
        let backends = || self.backends.iter().map(cpu_seconds).sum::<f64>();
        let tls = self.tls.as_ref();
        let running = &mut self.running[index];
        let (name, group) = (running.measured.name, running.measured.system.group);
        let failed = |error: String| format!("{name}, round {round}: {error}");
        running.probe(tls, &self.tools).map_err(failed)?;
        running.empty_logs().map_err(failed)?;
        let load_run = LoadRun {
            address: running.servers[0].address,
            protocol: group.protocol,
            path: fixed_response::PATH,
            upload: None,
            timeout: load_tool::TIMEOUT,
            connections: self.plan.connections,
            streams: self.plan.streams,
            length,
            tls,
        };
        let (server_before, others_before) =
            (running.cpu_seconds(), backends() + own_cpu_seconds());
        let switches_before = running.switches();
        let busy_before = busy_seconds();
        let load =
            |core: &str, load_run: &LoadRun<'_>| self.tools.run_on(core, group.load_tool, load_run);
        let summary = match running.measured.system.workers {
            Workers::One => load(LOAD_CORE, &load_run),
            Workers::TwoServers | Workers::Two | Workers::Many(_) => {
                let addresses: Vec<_> = running.servers.iter().map(|s| s.address).collect();
                load_tool::run_on_all_cores(&addresses, &load_run, load)
            }
        };
        let summary = summary.map_err(failed)?;
        running.wait_for_logs(summary.requests).map_err(failed)?;
        let busy = busy_seconds() - busy_before;
        let server = running.cpu_seconds() - server_before;
        let switches = running.switches().since(switches_before);
        // The load tool has ended, so its time is part of our own or of our children's.
        let others = backends() + own_cpu_seconds() - others_before;
        let resident_bytes = running
            .servers
            .iter()
            .map(ServerProcess::resident_bytes)
            .sum();
        running.probe(tls, &self.tools).map_err(failed)?;
        summary.check(running.response_bytes).map_err(failed)?;
        running.measured.requests += summary.requests;
        running.measured.runs.push(Run {
            round,
            cpu_us_per_request: server * 1e6 / summary.requests as f64,
            requests_per_second: summary.requests_per_second(),
            resident_bytes,
            foreign_share: (busy - server - others).max(0.0) / length.as_secs_f64(),
            switches,
            load: summary,
        });
        Ok(())
    }
}

impl RunningSystem {
    /// At least one server.
    fn new(
        system: &'static System,
        servers: Vec<ServerProcess>,
        tls: Option<&TlsFiles>,
        tools: &LoadTools<'_>,
    ) -> Result<RunningSystem, String> {
        let response_bytes = probe::request_as(system.group, servers[0].address, tls, tools)
            .map_err(|e| format!("{}: {e}", system.name))?;
        Ok(RunningSystem {
            servers,
            logs: Vec::new(),
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
        self.servers.iter().map(ServerProcess::cpu_seconds).sum()
    }

    fn empty_logs(&self) -> Result<(), String> {
        self.logs.iter().try_for_each(|log| sites::empty_log(log))
    }

    /// Writing the last lines is work of the servers as well.
    fn wait_for_logs(&self, requests: u64) -> Result<(), String> {
        let mut logs = self.logs.iter();
        logs.try_for_each(|log| sites::wait_for_lines(log, requests))
    }

    fn switches(&self) -> Switches {
        self.servers.iter().map(ServerProcess::switches).sum()
    }

    /// Fails if the length of a response differs from the first, because the counts would be wrong.
    fn probe(&mut self, tls: Option<&TlsFiles>, tools: &LoadTools<'_>) -> Result<(), String> {
        for server in &self.servers {
            let bytes = probe::request_as(self.measured.system.group, server.address, tls, tools)?;
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

impl Measurement {
    /// CPU time per request of this system and of a base in the same round; `None` for the base itself, and for
    /// a base that was not measured.
    pub(crate) fn pairs_with(&self, all: &[Measurement], base: &str) -> Option<Vec<(f64, f64)>> {
        let base = all.iter().find(|measured| measured.name == base)?;
        let pairs = self.runs.iter().filter_map(|run| {
            let other = base.runs.iter().find(|other| other.round == run.round)?;
            Some((run.cpu_us_per_request, other.cpu_us_per_request))
        });
        (base.name != self.name).then(|| pairs.collect())
    }

    /// How often other threads took its core, per second: the median of its runs. `None` if it shares its core
    /// with the load tool.
    pub(crate) fn preemptions_per_second(&self) -> Option<f64> {
        let runs = self
            .runs
            .iter()
            .filter(|_| self.system.workers == Workers::One);
        let rate = |run: &Run| run.switches.involuntary as f64 * 1e6 / run.load.duration_us as f64;
        Some(Median::of(runs.map(rate))?.value)
    }

    /// A counter per request.
    pub(crate) fn per_request(&self, which: impl Fn(&Counters) -> u64) -> Option<f64> {
        let counters = self.counters.as_ref()?;
        Some(which(counters) as f64 / self.requests as f64)
    }
}
