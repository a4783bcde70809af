//! A measured system: its program and its flags.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

use super::build::{Artifact, artifact_path, build};
use super::group::{ClientProtocol, Group, ServerRole};
use super::peers::{self, SMALL_PATH, StartOptions};
use super::process::Workers;
use super::tls_files::TlsFiles;

/// The program of a system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    LimitResponder {
        io: &'static str,
    },
    LimitRelay,
    /// The relay with large receives.
    LimitRelayLarge,
    /// The relay without a copy.
    LimitRelaySplice,
    HelloWorld {
        io: &'static str,
    },
    Blitz {
        io: &'static str,
    },
    Nginx,
    Haproxy,
    H2o,
    Envoy,
    Caddy,
}

/// The flags of the relay for large receives. Multishot receives took less CPU than single ones.
const RELAY_LARGE: &[&str] = &["--buffers", "64", "--buffer-bytes", "262144"];
const RELAY_SPLICE: &[&str] = &["--splice", "on"];

/// One row of a comparison.
#[derive(Debug)]
pub(crate) struct System {
    pub(crate) name: &'static str,
    pub(crate) group: &'static Group,
    pub(crate) kind: Kind,
    /// Whether it runs if the command line names no systems.
    pub(crate) by_default: bool,
    pub(crate) workers: Workers,
}

impl System {
    pub(crate) fn matches(&self, word: &str) -> bool {
        word == self.name || (self.by_default && word == self.group.name)
    }

    /// The name of the program if it is not part of this repository.
    pub(crate) fn peer(&self) -> Option<&'static str> {
        match self.kind {
            Kind::Nginx => Some("nginx"),
            Kind::Haproxy => Some("haproxy"),
            Kind::H2o => Some("h2o"),
            Kind::Envoy => Some("envoy"),
            Kind::Caddy => Some("caddy"),
            _ => None,
        }
    }

    /// The program of this repository that has to be built first.
    pub(crate) fn artifact(&self) -> Option<Artifact> {
        match self.kind {
            Kind::LimitResponder { .. } => Some(Artifact::LimitResponder),
            Kind::LimitRelay | Kind::LimitRelayLarge | Kind::LimitRelaySplice => {
                Some(Artifact::LimitRelay)
            }
            Kind::HelloWorld { .. } => Some(Artifact::HelloWorld),
            Kind::Blitz { .. } => Some(Artifact::Blitz),
            Kind::Nginx | Kind::Haproxy | Kind::H2o | Kind::Envoy | Kind::Caddy => None,
        }
    }

    /// The command; writes a configuration file where one is needed.
    pub(crate) fn command(&self, options: &StartOptions<'_>) -> Result<Command, String> {
        let program = self.artifact().map_or_else(PathBuf::new, artifact_path);
        let listen = options.listen.to_string();
        let mut command = Command::new(program);
        match self.kind {
            Kind::LimitResponder { io } => {
                command.args(["--listen", &listen, "--io", io]);
                if let Some(response) = options.response {
                    command.arg("--response").arg(response);
                }
            }
            Kind::LimitRelay | Kind::LimitRelayLarge | Kind::LimitRelaySplice => {
                command.args(["--listen", &listen, "--to", &options.backend.to_string()]);
                command.args(match self.kind {
                    Kind::LimitRelayLarge => RELAY_LARGE,
                    Kind::LimitRelaySplice => RELAY_SPLICE,
                    _ => &[],
                });
            }
            Kind::HelloWorld { io } => {
                command
                    .env("BLITZ_LISTEN", listen)
                    .env("BLITZ_CORES", self.workers.count().to_string())
                    .env("BLITZ_IO", io);
            }
            Kind::Blitz { io } => blitz(&mut command, self, options, io)?,
            Kind::Nginx => command = peers::nginx::command(self.group, self.workers, options)?,
            Kind::Haproxy => command = peers::haproxy::command(self.group, options)?,
            Kind::H2o => command = peers::h2o::command(self.group, options)?,
            Kind::Envoy => command = peers::envoy::command(self.group, options)?,
            Kind::Caddy => command = peers::caddy::command(self.group, options)?,
        }
        // Blitz prints its counters when it ends, like the bare rings.
        command.env("BLITZ_REACTOR_COUNTERS", "1");
        Ok(command)
    }
}

/// Builds the programs of the systems, each once.
pub(crate) fn build_all<'a>(systems: impl Iterator<Item = &'a System>) -> Result<(), String> {
    let artifacts: BTreeSet<Artifact> = systems.filter_map(System::artifact).collect();
    artifacts.into_iter().try_for_each(build)
}

/// `blitz run`; without a target the built-in endpoints respond.
fn blitz(
    command: &mut Command,
    system: &System,
    options: &StartOptions<'_>,
    io: &str,
) -> Result<(), String> {
    let group = system.group;
    let listen = options.listen.to_string();
    let cores = system.workers.count().to_string();
    command.args(["run", "--cores", &cores, "--io", io]);
    match group.protocol {
        ClientProtocol::Http1 | ClientProtocol::H2c => {
            command.args(["--listen", &listen]);
        }
        ClientProtocol::Tls => {
            let TlsFiles {
                certificate, key, ..
            } = options.tls()?;
            command.args(["--listen-tls", &listen]);
            command.arg("--cert").arg(certificate).arg("--key").arg(key);
        }
    }
    match group.role {
        ServerRole::Respond | ServerRole::SendContent => {}
        ServerRole::ProxyToHttp1 | ServerRole::ProxyContentToHttp1 => {
            command.args(["--to", &format!("http://{}", options.backend)]);
        }
        ServerRole::ProxyToH2c => {
            command.args(["--to", &format!("h2c://{}", options.backend)]);
        }
    }
    if let Some(small) = options.small_backend {
        command.args(["--to", &format!("{SMALL_PATH}=http://{small}")]);
    }
    Ok(())
}
