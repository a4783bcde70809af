//! One run of one system: load, CPU, memory, and whether every answer was right.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::group::{Front, Load, Task};
use super::load::{Order, Summary};
use super::plan::{Plan, WARM_UP};
use super::process::{LOAD_CORE, SERVER_CORE, Server, busy_seconds, free_address, own_cpu_seconds};
use super::system::{Kind, Surroundings, System};
use super::tls_files::TlsFiles;
use super::wrk::Wrk;
use super::{h2load, handshakes, probe};

/// What one run gave.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Run {
    pub(crate) round: u32,
    pub(crate) cpu_us_per_request: f64,
    pub(crate) requests_per_second: f64,
    pub(crate) resident_bytes: u64,
    /// Share of one core that neither server, backend nor load tool used.
    pub(crate) foreign_share: f64,
    pub(crate) load: Summary,
}

/// What a system reports at its end, over its whole life.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Counters {
    pub(crate) enters: u64,
    pub(crate) sqes: u64,
    pub(crate) cqes: u64,
}

/// A system with all of its runs.
#[derive(Serialize)]
pub(crate) struct Measured {
    pub(crate) name: &'static str,
    #[serde(skip)]
    pub(crate) system: &'static System,
    pub(crate) runs: Vec<Run>,
    pub(crate) counters: Option<Counters>,
    /// Requests of its whole life: what the counters are divided by.
    pub(crate) requests: u64,
}

/// All systems of a plan, up and running, and the backends behind the proxies.
pub(crate) struct Bench<'a> {
    plan: &'a Plan,
    folder: &'a Path,
    wrk: Wrk,
    tls: Option<TlsFiles>,
    backends: Vec<Server>,
    entries: Vec<Entry>,
}

struct Entry {
    server: Server,
    /// What the load tool counts of one response.
    response_bytes: usize,
    measured: Measured,
}

impl<'a> Bench<'a> {
    /// Starts everything and warms each system up. `folder` is empty and stays until the end.
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
            entries: Vec::new(),
        };
        let response = capture_response(plan, folder)?;
        let mut backend_addresses = Vec::new();
        for &system in backends {
            let address = free_address()?;
            let around = bench.around(address, address, response.as_deref());
            let mut command = system.command(&around)?;
            if matches!(system.kind, Kind::LimitResponder { .. }) {
                // One at a time: a backend that waits for company would add its wait to every proxy.
                command.args(["--wait", "1"]);
            }
            let server = Server::start_pinned(system.name, LOAD_CORE, &command, address)?;
            bench.backends.push(server);
            backend_addresses.push((system.group.front, address));
        }
        for system in &plan.systems {
            let address = free_address()?;
            let speaks = match system.group.task {
                Task::Answer | Task::ToHttp1 => Front::Http1,
                Task::ToH2c => Front::H2c,
            };
            let backend = backend_addresses.iter().find(|(front, _)| *front == speaks);
            let backend = backend.map_or(address, |(_, address)| *address);
            let command = system.command(&bench.around(address, backend, response.as_deref()))?;
            let entry = Entry::start(system, &command, address, bench.tls.as_ref())?;
            bench.entries.push(entry);
        }
        for index in 0..bench.entries.len() {
            bench.run(index, 0, WARM_UP)?;
            bench.entries[index].measured.runs.clear();
        }
        Ok(bench)
    }

    fn around<'b>(
        &'b self,
        listen: SocketAddr,
        backend: SocketAddr,
        response: Option<&'b Path>,
    ) -> Surroundings<'b> {
        Surroundings {
            listen,
            backend,
            connections: self.plan.connections,
            requests: self.plan.connections * self.plan.streams,
            response,
            tls: self.tls.as_ref(),
            folder: self.folder,
        }
    }

    /// One run of every system, in the order of the table.
    pub(crate) fn round(&mut self, round: u32) -> Result<(), String> {
        (0..self.entries.len()).try_for_each(|index| self.run(index, round, self.plan.run))
    }

    /// Stops everything and reads the counters that the servers print at their end.
    pub(crate) fn finish(self) -> Vec<Measured> {
        let finish = |mut entry: Entry| {
            let last_words = entry.server.stop();
            entry.measured.counters = counters(&last_words);
            entry.measured
        };
        self.entries.into_iter().map(finish).collect()
    }

    fn run(&mut self, index: usize, round: u32, length: Duration) -> Result<(), String> {
        let backends = || self.backends.iter().map(Server::cpu_seconds).sum::<f64>();
        let tls = self.tls.as_ref();
        let entry = &mut self.entries[index];
        let (name, group) = (entry.measured.name, entry.measured.system.group);
        let failed = |error: String| format!("{name}, round {round}: {error}");
        entry.probe(tls).map_err(failed)?;
        let order = Order {
            address: entry.server.address,
            front: group.front,
            connections: self.plan.connections,
            streams: self.plan.streams,
            length,
            tls,
        };
        let (server_before, others_before) =
            (entry.server.cpu_seconds(), backends() + own_cpu_seconds());
        let busy_before = busy_seconds();
        let summary = match group.load {
            Load::Wrk => self.wrk.run(&order),
            Load::H2load { varied } => h2load::run(&order, varied, self.folder),
            Load::Handshakes => handshakes::run(&order),
        };
        let summary = summary.map_err(failed)?;
        let busy = busy_seconds() - busy_before;
        let server = entry.server.cpu_seconds() - server_before;
        // The load tool has ended, so its time is among that of our children, or our own.
        let others = backends() + own_cpu_seconds() - others_before;
        let resident_bytes = entry.server.resident_bytes();
        entry.probe(tls).map_err(failed)?;
        summary.check(entry.response_bytes).map_err(failed)?;
        entry.measured.requests += summary.requests;
        entry.measured.runs.push(Run {
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

impl Entry {
    fn start(
        system: &'static System,
        command: &Command,
        address: SocketAddr,
        tls: Option<&TlsFiles>,
    ) -> Result<Entry, String> {
        let server = Server::start_pinned(system.name, SERVER_CORE, command, address)?;
        let response_bytes = probe::ask_as(system.group, address, tls)
            .map_err(|e| format!("{}: {e}", system.name))?;
        Ok(Entry {
            server,
            response_bytes,
            measured: Measured {
                name: system.name,
                system,
                runs: Vec::new(),
                counters: None,
                requests: 1,
            },
        })
    }

    /// A response of another length than the first would be counted wrongly.
    fn probe(&mut self, tls: Option<&TlsFiles>) -> Result<(), String> {
        let bytes = probe::ask_as(self.measured.system.group, self.server.address, tls)?;
        self.measured.requests += 1;
        if bytes == self.response_bytes {
            return Ok(());
        }
        Err(format!(
            "a response has {bytes} bytes, the first had {}",
            self.response_bytes
        ))
    }
}

/// The very bytes that the example server answers with, for the bare ring to answer with too.
fn capture_response(plan: &Plan, folder: &Path) -> Result<Option<std::path::PathBuf>, String> {
    let blitz = |system: &&&System| matches!(system.kind, Kind::HelloWorld { .. });
    let Some(system) = plan.systems.iter().find(blitz) else {
        return Ok(None);
    };
    let listen = free_address()?;
    let around = Surroundings {
        listen,
        backend: listen,
        connections: 1,
        requests: 1,
        response: None,
        tls: None,
        folder,
    };
    let server = Server::start_pinned(system.name, SERVER_CORE, &system.command(&around)?, listen)?;
    let response = probe::ask(listen).map_err(|e| format!("{}: {e}", system.name))?;
    drop(server);
    let file = folder.join("response");
    fs::write(&file, response).map_err(|e| format!("{}: {e}", file.display()))?;
    Ok(Some(file))
}

/// The last line that is an object with the counters in it; servers log other things as well.
fn counters(last_words: &str) -> Option<Counters> {
    last_words
        .lines()
        .rev()
        .find_map(|line| serde_json::from_str(line.trim()).ok())
}

impl Measured {
    /// A counter per request.
    pub(crate) fn per_request(&self, which: impl Fn(&Counters) -> u64) -> Option<f64> {
        let counters = self.counters.as_ref()?;
        Some(which(counters) as f64 / self.requests as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_among_other_lines() {
        let text = "starting\n{\"enters\":3,\"sqes\":4,\"cqes\":5,\"turns\":3}\nbye\n";
        let found = counters(text).unwrap();
        assert_eq!((found.enters, found.sqes, found.cqes), (3, 4, 5));
        assert!(counters("nothing here").is_none());
    }
}
