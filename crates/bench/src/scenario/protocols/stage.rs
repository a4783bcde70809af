//! The server and the generator of a run, on this machine's loopback or at both ends of an emulated link.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::workload::{Client, Mode, Workload};
use crate::link::{Link, LinkReport, LinkSpec};
use crate::load_result::{Affects, LoadResult};
use crate::process::{
    LOAD_CORE, SERVER_CORE, cpu_seconds_of, free_address, stop_child, wait_within,
};
use crate::programs::Programs;
use crate::run_folder::RunFolder;
use crate::tls_files::TlsFiles;

const START_WITHIN: Duration = Duration::from_secs(10);

/// What a run may take beyond its planned time.
const SPARE: Duration = Duration::from_secs(90);

/// The port of the server in its own namespace.
const PORT: u16 = 8443;

/// A running server, and the network in front of it.
pub(super) struct Stage<'a> {
    programs: &'a Programs,
    folder: &'a RunFolder,
    link: Option<Link>,
    server: Child,
    address: SocketAddr,
}

/// The figures of one run.
#[derive(Debug, Clone)]
pub(super) struct Run {
    pub(super) result: LoadResult,
    /// CPU time of the server per request, in microseconds. For warm runs, in which it covers the warm-up as well.
    pub(super) server_us: f64,
}

impl<'a> Stage<'a> {
    /// Starts the server on one core.
    pub(super) fn start(
        programs: &'a Programs,
        folder: &'a RunFolder,
        tls: &TlsFiles,
        link: Option<&LinkSpec>,
        seed: u64,
    ) -> Result<Stage<'a>, String> {
        let link = link.map(|spec| Link::start(spec, seed)).transpose();
        let link = link.map_err(|error| error.to_string())?;
        let address = match &link {
            Some(link) => SocketAddr::new(link.server_address(), PORT),
            None => free_address()?,
        };
        let mut command = Command::new("taskset");
        command.args(["-c", SERVER_CORE]).arg(programs.blitz());
        command.args(["run", "--cores", "1", "--log", "error", "--listen-tls"]);
        command.arg(address.to_string());
        command.arg("--cert").arg(&tls.certificate);
        command.arg("--key").arg(&tls.key);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let server = match &link {
            Some(link) => link.spawn_server(&mut command),
            None => command.spawn(),
        };
        let server = server.map_err(|error| format!("blitz run does not start: {error}"))?;
        let stage = Stage {
            programs,
            folder,
            link,
            server,
            address,
        };
        stage.wait_until_it_accepts()?;
        Ok(stage)
    }

    fn wait_until_it_accepts(&self) -> Result<(), String> {
        let begun = Instant::now();
        while begun.elapsed() < START_WITHIN {
            let connect = || TcpStream::connect_timeout(&self.address, Duration::from_secs(2));
            let connected = match &self.link {
                Some(link) => link.in_client(connect).and_then(|connected| connected),
                None => connect(),
            };
            if connected.is_ok() {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(20));
        }
        Err(format!("blitz run does not listen on {}", self.address))
    }

    /// Runs the generator once, as a new process.
    pub(super) fn run(
        &self,
        workload: &Workload,
        client: Client,
        mode: Mode,
        length: Duration,
    ) -> Result<Run, String> {
        let mut command = self.generator(workload, client, mode, length)?;
        let before = cpu_seconds_of(self.server.id());
        let child = match &self.link {
            Some(link) => link.spawn_client(&mut command),
            None => command.spawn(),
        };
        let child = child.map_err(|error| format!("blitz load does not start: {error}"))?;
        let output = wait_within(child, length + SPARE)?;
        let used = cpu_seconds_of(self.server.id()) - before;
        let errors = String::from_utf8_lossy(&output.stderr);
        let what = format!("{}, {}, {}", workload.name, client.name(), mode.name());
        let result: LoadResult = serde_json::from_slice(&output.stdout)
            .map_err(|_| format!("{what}: {}", errors.trim()))?;
        if result.target.protocol != client.alpn() {
            return Err(format!("{what}: it used {}", result.target.protocol));
        }
        if !result.is_valid_for(Affects::Everything) {
            let problems = result
                .problems
                .iter()
                .map(|problem| problem.message.as_str());
            let problems = problems.collect::<Vec<_>>().join(" ");
            return Err(format!("{what}: {problems} {}", errors.trim()));
        }
        let warm_up = result.warm_up_s / result.duration_s.max(f64::MIN_POSITIVE);
        let requests = result.counts.completed as f64 * (1.0 + warm_up);
        Ok(Run {
            server_us: used * 1e6 / requests,
            result,
        })
    }

    fn generator(
        &self,
        workload: &Workload,
        client: Client,
        mode: Mode,
        length: Duration,
    ) -> Result<Command, String> {
        let (connections, streams) = client.connections(workload.in_flight);
        let mut command = Command::new("taskset");
        command.args(["-c", LOAD_CORE]).arg(self.programs.blitz());
        command.args(["load", "--json", "-", "--quiet", "--insecure", "-t", "1"]);
        command.args(["--http", client.version()]);
        command.args(["-c", &connections.to_string()]);
        command.args(["-m", &streams.to_string()]);
        match mode {
            Mode::Cold => command.args(["-n", &workload.requests.to_string()]),
            Mode::Warm => {
                let milliseconds = format!("{}ms", length.as_millis());
                command.args(["-d", &milliseconds, "--warm-up", "1s"])
            }
        };
        let base = format!("https://{}", self.address);
        if let [path] = workload.paths {
            command.arg(format!("{base}{path}"));
        } else {
            let file = self.folder.path().join(format!("{}.txt", workload.name));
            fs::write(&file, workload.paths.join("\n"))
                .map_err(|error| format!("{}: {error}", file.display()))?;
            command.arg("-i").arg(file).arg(base);
        }
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Ok(command)
    }

    /// Stops the server; what the link did.
    pub(super) fn stop(mut self) -> Option<LinkReport> {
        self.link.take().map(Link::stop)
    }
}

impl Drop for Stage<'_> {
    fn drop(&mut self) {
        stop_child(&mut self.server);
    }
}
