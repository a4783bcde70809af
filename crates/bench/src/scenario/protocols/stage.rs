//! The server and the generator of a run, on this machine's loopback or at both ends of an emulated link.

use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::link::{Link, LinkReport, LinkSpec};
use crate::process::{SERVER_CORE, free_address, stop_child};
use crate::programs::Programs;
use crate::run_folder::RunFolder;
use crate::study::{Generator, Watched};
use crate::tls_files::TlsFiles;

const START_WITHIN: Duration = Duration::from_secs(10);

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

    /// `https://` and the address of the server.
    pub(super) fn base(&self) -> String {
        format!("https://{}", self.address)
    }

    /// The generator at the other end of the network.
    pub(super) fn generator(&self) -> Generator<'_> {
        Generator {
            programs: self.programs,
            folder: self.folder,
            link: self.link.as_ref(),
        }
    }

    /// That of TCP over the link; empty without one.
    pub(super) fn congestion_control(&self) -> Result<String, String> {
        let found = self.link.as_ref().map(Link::congestion_control);
        let found = found.transpose();
        let found = found.map_err(|error| format!("a connection over the link: {error}"))?;
        Ok(found.unwrap_or_default())
    }

    /// The process of the server.
    pub(super) fn watched(&self) -> Watched {
        Watched {
            servers: vec![self.server.id()],
            beside: Vec::new(),
        }
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
