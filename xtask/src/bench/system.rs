//! A system under measurement: what it is started from, and with which flags.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::build::{Artifact, artifact_path};
use super::group::{Front, Group, Task};
use super::peers;
use super::tls_files::TlsFiles;

/// How a system is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    LimitResponder { io: &'static str },
    LimitRelay,
    HelloWorld { io: &'static str },
    Blitz { io: &'static str },
    Nginx,
    Haproxy,
    H2o,
    Envoy,
}

/// One row of a comparison.
#[derive(Debug)]
pub(crate) struct System {
    pub(crate) name: &'static str,
    pub(crate) group: &'static Group,
    pub(crate) kind: Kind,
    /// Part of a run that names no systems.
    pub(crate) by_default: bool,
}

/// What a start needs to know.
pub(crate) struct Surroundings<'a> {
    pub(crate) listen: SocketAddr,
    /// Where proxies forward to.
    pub(crate) backend: SocketAddr,
    /// Most connections that clients will have open at once.
    pub(crate) connections: u32,
    /// Most requests that will be under way at once.
    pub(crate) requests: u32,
    /// The bytes that the bare ring answers with; its own without.
    pub(crate) response: Option<&'a Path>,
    pub(crate) tls: Option<&'a TlsFiles>,
    /// An empty folder of this run.
    pub(crate) folder: &'a Path,
}

impl<'a> Surroundings<'a> {
    /// The certificate that every server of the run shows.
    pub(crate) fn tls(&self) -> Result<&'a TlsFiles, String> {
        self.tls
            .ok_or_else(|| "no certificate was made for this run".to_owned())
    }
}

impl System {
    pub(crate) fn is_meant_by(&self, word: &str) -> bool {
        word == self.name || (self.by_default && word == self.group.name)
    }

    /// The program of others that it is, if it is one.
    pub(crate) fn peer(&self) -> Option<&'static str> {
        match self.kind {
            Kind::Nginx => Some("nginx"),
            Kind::Haproxy => Some("haproxy"),
            Kind::H2o => Some("h2o"),
            Kind::Envoy => Some("envoy"),
            _ => None,
        }
    }

    /// What has to be built first.
    pub(crate) fn artifact(&self) -> Option<Artifact> {
        match self.kind {
            Kind::LimitResponder { .. } => Some(Artifact::LimitResponder),
            Kind::LimitRelay => Some(Artifact::LimitRelay),
            Kind::HelloWorld { .. } => Some(Artifact::HelloWorld),
            Kind::Blitz { .. } => Some(Artifact::Blitz),
            Kind::Nginx | Kind::Haproxy | Kind::H2o | Kind::Envoy => None,
        }
    }

    /// The command with one worker; writes a configuration file where one is needed.
    pub(crate) fn command(&self, around: &Surroundings<'_>) -> Result<Command, String> {
        let program = self.artifact().map_or_else(PathBuf::new, artifact_path);
        let listen = around.listen.to_string();
        let mut command = Command::new(program);
        match self.kind {
            Kind::LimitResponder { io } => {
                command.args(["--listen", &listen, "--io", io]);
                if let Some(response) = around.response {
                    command.arg("--response").arg(response);
                }
            }
            Kind::LimitRelay => {
                command.args(["--listen", &listen, "--to", &around.backend.to_string()]);
            }
            Kind::HelloWorld { io } => {
                command
                    .env("BLITZ_LISTEN", listen)
                    .env("BLITZ_CORES", "1")
                    .env("BLITZ_IO", io);
            }
            Kind::Blitz { io } => blitz(&mut command, self.group, around, io)?,
            Kind::Nginx => command = peers::nginx::command(self.group, around)?,
            Kind::Haproxy => command = peers::haproxy::command(self.group, around)?,
            Kind::H2o => command = peers::h2o::command(self.group, around)?,
            Kind::Envoy => command = peers::envoy::command(self.group, around)?,
        }
        // Blitz prints its counters at the end, as the bare rings do.
        command.env("BLITZ_REACTOR_COUNTERS", "1");
        Ok(command)
    }
}

/// `blitz run`; what is not forwarded is answered by the built-in site.
fn blitz(
    command: &mut Command,
    group: &Group,
    around: &Surroundings<'_>,
    io: &str,
) -> Result<(), String> {
    let listen = around.listen.to_string();
    command.args(["run", "--cores", "1", "--io", io]);
    match group.front {
        Front::Http1 | Front::H2c => {
            command.args(["--listen", &listen]);
        }
        Front::Tls => {
            let TlsFiles {
                certificate, key, ..
            } = around.tls()?;
            command.args(["--listen-tls", &listen]);
            command.arg("--cert").arg(certificate).arg("--key").arg(key);
        }
    }
    match group.task {
        Task::Answer => {}
        Task::ToHttp1 => {
            command.args(["--to", &format!("http://{}", around.backend)]);
        }
        Task::ToH2c => {
            command.args(["--to", &format!("h2c://{}", around.backend)]);
        }
    }
    Ok(())
}
