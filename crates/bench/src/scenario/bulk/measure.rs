//! One run of one row: load, CPU, memory, and a check of the content.

use std::net::SocketAddr;
use std::path::Path;
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::backend::{self, BackendCounters};
use super::content::Contents;
use super::exchange;
use super::groups::{Direction, Origin, Row};
use super::paced::{self, SmallLatency};
use super::plan::BulkPlan;
use super::size::ContentSize;
use super::transfer::{Expected, Transfer, Uploaded};
use crate::group::{ClientProtocol, LoadTool};
use crate::load_tool::{LoadRun, LoadSummary, LoadTools, last_json};
use crate::peer::StartOptions;
use crate::process::{
    LOAD_CORE, SERVER_CORE, ServerProcess, Switches, busy_seconds, free_address, own_cpu_seconds,
};
use crate::programs::{Example, Programs};
use crate::stats::{Median, order};
use crate::tls_files::TlsFiles;

const MIB: f64 = (1 << 20) as f64;
/// The longest time of one exchange of a load tool.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The measurements of one run.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Run {
    pub(crate) round: u32,
    pub(crate) cpu_us_per_mib: f64,
    pub(crate) mib_per_second: f64,
    /// The peak of resident memory since the start of the server.
    pub(crate) peak_mib: f64,
    /// Share of one core that programs other than server, backend and load tool used.
    pub(crate) foreign_share: f64,
    pub(crate) switches: Switches,
    /// Complete exchanges.
    pub(crate) requests: u64,
    /// Transferred content, also of exchanges that were not complete at the end.
    pub(crate) content_bytes: u64,
    pub(crate) small: Option<SmallLatency>,
}

/// The operations of a server's whole life, which it prints when it ends.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Operations {
    pub(crate) receives: u64,
    pub(crate) sends: u64,
}

/// A row with all its runs of one size.
#[derive(Debug, Serialize)]
pub(crate) struct Measurement {
    pub(crate) group: &'static str,
    pub(crate) program: &'static str,
    #[serde(skip)]
    pub(crate) row: Row,
    pub(crate) size: ContentSize,
    pub(crate) connections: u32,
    /// Length of one run.
    pub(crate) seconds: u64,
    pub(crate) runs: Vec<Run>,
    pub(crate) operations: Option<Operations>,
    /// Content of the server's whole life, by which the operations are divided.
    pub(crate) content_bytes: u64,
}

impl Measurement {
    /// How often other threads took the server's core, per second: the median of its runs.
    pub(crate) fn preemptions_per_second(&self) -> Option<f64> {
        let rate = |run: &Run| run.switches.involuntary as f64 / self.seconds as f64;
        Some(Median::of(self.runs.iter().map(rate))?.value)
    }

    /// Operations per MiB of content.
    pub(crate) fn per_mib(&self, which: fn(&Operations) -> u64) -> Option<f64> {
        let operations = self.operations.as_ref()?;
        Some(which(operations) as f64 * MIB / self.content_bytes as f64)
    }
}

/// The running servers of one size, and their backends.
pub(crate) struct Bench<'a> {
    plan: &'a BulkPlan,
    size: ContentSize,
    contents: &'a Contents,
    tls: Option<&'a TlsFiles>,
    programs: &'a Programs,
    folder: &'a Path,
    tools: LoadTools<'a>,
    /// Each is absent if no row needs it.
    backend: Option<ServerProcess>,
    nginx_backend: Option<ServerProcess>,
    small_backend: Option<ServerProcess>,
    running: Vec<RunningServer>,
}

struct RunningServer {
    server: ServerProcess,
    /// Bytes of the head of a response, which wrk counts as well.
    head_bytes: u64,
    measured: Measurement,
}

impl<'a> Bench<'a> {
    /// Starts all servers and warms them up if the plan says so.
    pub(crate) fn start(
        plan: &'a BulkPlan,
        size: ContentSize,
        contents: &'a Contents,
        tls: Option<&'a TlsFiles>,
        programs: &'a Programs,
        folder: &'a Path,
    ) -> Result<Bench<'a>, String> {
        contents.write_files(size)?;
        let needs = |origin| plan.rows.iter().any(|row| row.origin() == Some(origin));
        let with_small = plan.rows.iter().any(|row| row.group.small_requests);
        let pattern = contents.pattern_file();
        let mut bench = Bench {
            plan,
            size,
            contents,
            tls,
            programs,
            folder,
            tools: LoadTools::prepare(folder, programs)?,
            backend: needs(Origin::Program)
                .then(|| backend::start(programs, &pattern))
                .transpose()?,
            nginx_backend: None,
            small_backend: with_small
                .then(|| backend::start_preferred(programs, &pattern))
                .transpose()?,
            running: Vec::new(),
        };
        if needs(Origin::Nginx) {
            bench.nginx_backend = Some(backend::start_nginx(&bench.options(free_address()?))?);
        }
        for row in &plan.rows {
            let server = bench.start_server(row)?;
            bench.running.push(server);
        }
        if let Some(warm_up) = plan.warm_up(size) {
            for index in 0..bench.running.len() {
                bench.run(index, 0, warm_up)?;
                bench.running[index].measured.runs.clear();
            }
        }
        Ok(bench)
    }

    /// The parameters of a server without a backend.
    fn options(&self, listen: SocketAddr) -> StartOptions<'a> {
        let connections = self.plan.connections(self.size);
        StartOptions {
            listen,
            backend: listen,
            small_backend: None,
            connections,
            requests: connections * self.plan.streams,
            response: None,
            tls: self.tls,
            programs: self.programs,
            folder: self.folder,
        }
    }

    fn start_server(&self, row: &Row) -> Result<RunningServer, String> {
        let listen = free_address()?;
        let backend = match row.origin() {
            Some(Origin::Program) => self.backend.as_ref(),
            Some(Origin::Nginx) => self.nginx_backend.as_ref(),
            None => None,
        };
        let small = self.small_backend.as_ref();
        let options = StartOptions {
            backend: backend.map_or(listen, |backend| backend.address),
            small_backend: small
                .filter(|_| row.group.small_requests)
                .map(|server| server.address),
            ..self.options(listen)
        };
        let command = row.system().command(&options)?;
        Ok(RunningServer {
            server: ServerProcess::start_pinned(&row.name(), SERVER_CORE, &command, listen)?,
            head_bytes: 0,
            measured: Measurement {
                group: row.group.group.name,
                program: row.contender.name,
                row: *row,
                size: self.size,
                connections: options.connections,
                seconds: self.plan.length(self.size).as_secs(),
                runs: Vec::new(),
                operations: None,
                content_bytes: 0,
            },
        })
    }

    /// One run of every row. The rounds are counted from 1.
    pub(crate) fn round(&mut self, round: u32) -> Result<(), String> {
        let length = self.plan.length(self.size);
        let order = order(self.running.len(), round - 1, self.plan.seed);
        order
            .into_iter()
            .try_for_each(|index| self.run(index, round, length))
    }

    /// Stops all servers and reads the counters that they print when they end.
    pub(crate) fn finish(self) -> Vec<Measurement> {
        let finish = |mut running: RunningServer| {
            running.measured.operations = last_json(&running.server.stop());
            running.measured
        };
        self.running.into_iter().map(finish).collect()
    }

    fn run(&mut self, index: usize, round: u32, length: Duration) -> Result<(), String> {
        let row = self.running[index].measured.row;
        let failed =
            |error: String| format!("{}, {}, round {round}: {error}", row.name(), self.size);
        self.running[index].head_bytes = self.exchange(index).map_err(failed)?;
        let backend_before = self.backend_counters()?;
        let server_before = self.running[index].server.cpu_seconds();
        let switches_before = self.running[index].server.switches();
        let (others_before, busy_before) = (self.others_cpu_seconds(), busy_seconds());
        let (summary, small) = self.load(index, length).map_err(failed)?;
        let busy = busy_seconds() - busy_before;
        let server = self.running[index].server.cpu_seconds() - server_before;
        let switches = self.running[index].server.switches().since(switches_before);
        let others = self.others_cpu_seconds() - others_before;
        let uploaded = self.uploaded_since(backend_before)?;
        let peak_bytes = self.running[index].server.peak_resident_bytes();
        self.exchange(index).map_err(failed)?;
        let connections = self.running[index].measured.connections;
        let expected = Expected {
            size: self.size,
            in_flight: u64::from(connections * self.streams(row)),
        };
        let head_bytes = self.running[index].head_bytes;
        let transfer = Transfer::of(row.group, &summary, head_bytes, &uploaded);
        expected.check(&summary, &transfer).map_err(failed)?;
        let measured = &mut self.running[index].measured;
        // The exchanges before and after the run are part of the server's life as well.
        measured.content_bytes += transfer.content_bytes + 2 * self.size.bytes();
        let mib = transfer.content_bytes as f64 / MIB;
        measured.runs.push(Run {
            round,
            cpu_us_per_mib: server * 1e6 / mib,
            mib_per_second: mib * 1e6 / summary.duration_us.max(1) as f64,
            peak_mib: peak_bytes as f64 / MIB,
            foreign_share: (busy - server - others).max(0.0) / length.as_secs_f64(),
            switches,
            requests: transfer.requests,
            content_bytes: transfer.content_bytes,
            small,
        });
        Ok(())
    }

    fn backend_counters(&self) -> Result<Option<BackendCounters>, String> {
        let backend = self.backend.as_ref();
        backend
            .map(|backend| backend::counters(backend.address))
            .transpose()
    }

    fn uploaded_since(&self, before: Option<BackendCounters>) -> Result<Uploaded, String> {
        match (before, &self.backend) {
            (Some(before), Some(backend)) => Uploaded::since(&before, backend.address),
            _ => Ok(Uploaded::NONE),
        }
    }

    /// CPU time of the backends, of this process and of the load tools that have ended.
    fn others_cpu_seconds(&self) -> f64 {
        let backends = self.backend.iter().chain(&self.nginx_backend);
        let backends = backends.chain(&self.small_backend);
        backends.map(ServerProcess::cpu_seconds).sum::<f64>() + own_cpu_seconds()
    }

    /// Requests in flight on one connection.
    fn streams(&self, row: Row) -> u32 {
        match row.group.group.load_tool {
            LoadTool::H2load { .. } => self.plan.streams,
            LoadTool::Wrk | LoadTool::WrkToSites | LoadTool::Handshakes | LoadTool::Http3(_) => 1,
        }
    }

    /// The authority that the clients of the row trust; other groups of the run may have no TLS.
    fn tls_of(&self, row: Row) -> Option<&'a TlsFiles> {
        let protocol = row.group.group.protocol;
        self.tls.filter(|_| protocol == ClientProtocol::Tls)
    }

    /// One exchange whose content is checked. Returns the bytes of the head of a download.
    fn exchange(&self, index: usize) -> Result<u64, String> {
        let running = &self.running[index];
        let row = running.measured.row;
        let server = exchange::Destination {
            address: running.server.address,
            group: &row.group.group,
            tls: self.tls_of(row),
        };
        let pattern = match row.origin() {
            Some(Origin::Program) => self.contents.proxied(),
            Some(Origin::Nginx) | None => self.contents.built_in(),
        };
        match row.group.direction {
            Direction::Download => {
                exchange::download(server, &self.download_path(), self.size, pattern)
            }
            Direction::Upload => {
                let file = self.contents.upload_file(self.size);
                exchange::upload(server, &file, self.size)?;
                Ok(0)
            }
        }
    }

    fn download_path(&self) -> String {
        format!("/data?size={}", self.size.bytes())
    }

    /// Runs the load tool, and the small requests beside it.
    fn load(
        &self,
        index: usize,
        length: Duration,
    ) -> Result<(LoadSummary, Option<SmallLatency>), String> {
        let running = &self.running[index];
        let row = running.measured.row;
        let (path, upload) = match row.group.direction {
            Direction::Download => (self.download_path(), None),
            Direction::Upload => {
                let file = self.contents.upload_file(self.size);
                ("/upload".to_owned(), Some(file))
            }
        };
        let address = running.server.address;
        let load_run = LoadRun {
            address,
            protocol: row.group.group.protocol,
            path: &path,
            upload: upload.as_deref(),
            timeout: TIMEOUT,
            connections: running.measured.connections,
            streams: self.streams(row),
            length,
            tls: self.tls_of(row),
        };
        let load_tool = row.group.group.load_tool;
        if !row.group.small_requests {
            return Ok((self.tools.run_on(LOAD_CORE, load_tool, &load_run)?, None));
        }
        let paced_client = self.programs.example(Example::PacedClient)?;
        thread::scope(|scope| {
            let small = scope.spawn(|| paced::run(&paced_client, address, length));
            let summary = self.tools.run_on(LOAD_CORE, load_tool, &load_run)?;
            let small = small.join().unwrap_or_else(|_| Err("panicked".into()))?;
            Ok((summary, Some(small)))
        })
    }
}
