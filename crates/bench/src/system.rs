//! A measured system: its program and its flags.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::board;
use crate::group::{ClientProtocol, Group, ServerWork};
use crate::peer::blitz_health::Protection;
use crate::peer::varnish::Storage;
use crate::peer::{self, SMALL_PATH, StartOptions};
use crate::process::Workers;
use crate::programs::{Example, Programs, missing};
use crate::sites::{self, SitesLog, SitesProgram};
use crate::tls_files::TlsFiles;

/// The program of a system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SystemKind {
    LimitResponder {
        io: &'static str,
    },
    LimitRelay,
    /// The relay with large receives.
    LimitRelayLarge,
    /// The relay without a copy.
    LimitRelaySplice,
    /// The example server, or without it the built-in endpoints of Blitz.
    HelloWorld {
        io: &'static str,
    },
    Blitz {
        io: &'static str,
    },
    /// Blitz with a health endpoint, and tokens.
    BlitzHealth(Protection),
    /// A proxy with a connection for each request.
    BlockingProxy {
        threads: u32,
    },
    /// A proxy with many sites.
    Sites {
        program: SitesProgram,
        log: SitesLog,
    },
    /// The entry for the board, which computes its responses.
    BoardEntry {
        io: &'static str,
    },
    /// Another framework with the response of the example server.
    Framework(Example),
    Nginx,
    Haproxy,
    H2o,
    Envoy,
    Caddy,
    Varnish {
        storage: Storage,
    },
}

/// The flags of the relay for large receives. Multishot receives took less CPU than single ones.
const RELAY_LARGE: &[&str] = &["--buffers", "64", "--buffer-bytes", "262144"];
const RELAY_SPLICE: &[&str] = &["--splice", "on"];

/// One row of a comparison.
#[derive(Debug)]
pub(crate) struct System {
    pub(crate) name: &'static str,
    pub(crate) group: &'static Group,
    pub(crate) kind: SystemKind,
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
            SystemKind::Nginx => Some("nginx"),
            SystemKind::Haproxy => Some("haproxy"),
            SystemKind::Sites { program, .. } => match program {
                SitesProgram::Blitz { .. } => None,
                SitesProgram::Nginx => Some("nginx"),
                SitesProgram::Haproxy => Some("haproxy"),
            },
            SystemKind::H2o => Some("h2o"),
            SystemKind::Envoy => Some("envoy"),
            SystemKind::Caddy => Some("caddy"),
            SystemKind::Varnish { .. } => Some("varnishd"),
            _ => None,
        }
    }

    /// Why this system cannot run: its program is missing. The example server has a substitute.
    pub(crate) fn missing_program(&self, programs: &Programs) -> Option<String> {
        match self.kind {
            SystemKind::LimitResponder { .. } => programs.example(Example::LimitResponder).err(),
            SystemKind::LimitRelay | SystemKind::LimitRelayLarge | SystemKind::LimitRelaySplice => {
                programs.example(Example::LimitRelay).err()
            }
            SystemKind::BlockingProxy { .. } => programs.example(Example::BlockingProxy).err(),
            SystemKind::BoardEntry { .. } => programs.example(Example::BoardServer).err(),
            SystemKind::Framework(example) => programs.example(example).err(),
            SystemKind::HelloWorld { .. }
            | SystemKind::Blitz { .. }
            | SystemKind::BlitzHealth(_) => None,
            SystemKind::Sites { .. }
            | SystemKind::Nginx
            | SystemKind::Haproxy
            | SystemKind::H2o
            | SystemKind::Envoy
            | SystemKind::Caddy
            | SystemKind::Varnish { .. } => missing(self.peer().as_slice()),
        }
    }

    /// The access log of its server with this address, if it has one.
    pub(crate) fn log_file(&self, folder: &Path, address: SocketAddr) -> Option<PathBuf> {
        let has_log = match self.kind {
            SystemKind::Sites { log, .. } => log != SitesLog::Off,
            _ => false,
        };
        has_log.then(|| sites::log_file(folder, address))
    }

    /// The command; writes a configuration file where one is needed.
    pub(crate) fn command(&self, options: &StartOptions<'_>) -> Result<Command, String> {
        let listen = options.listen.to_string();
        let example = |example| options.programs.example(example).map(Command::new);
        let mut command = match self.kind {
            SystemKind::LimitResponder { io } => {
                let mut command = example(Example::LimitResponder)?;
                command.args(["--listen", &listen, "--io", io]);
                if let Some(response) = options.response {
                    command.arg("--response").arg(response);
                }
                command
            }
            SystemKind::LimitRelay | SystemKind::LimitRelayLarge | SystemKind::LimitRelaySplice => {
                let mut command = example(Example::LimitRelay)?;
                command.args(["--listen", &listen, "--to", &options.backend.to_string()]);
                command.args(match self.kind {
                    SystemKind::LimitRelayLarge => RELAY_LARGE,
                    SystemKind::LimitRelaySplice => RELAY_SPLICE,
                    _ => &[],
                });
                command
            }
            SystemKind::BlockingProxy { threads } => {
                let mut command = example(Example::BlockingProxy)?;
                command.args(["--listen", &listen, "--to", &options.backend.to_string()]);
                command.args(["--threads", &threads.to_string()]);
                command
            }
            SystemKind::Sites { program, log } => {
                peer::site_proxy::command(program, log, self.workers, options)?
            }
            SystemKind::BoardEntry { io } => board_entry(self, options, io)?,
            SystemKind::Framework(framework) => {
                let mut command = example(framework)?;
                command.args(["--listen", &listen]);
                command.args(["--threads", &self.workers.count().to_string()]);
                command
            }
            SystemKind::HelloWorld { io } => match example(Example::HelloWorld) {
                Ok(mut command) => {
                    command
                        .env("BLITZ_LISTEN", listen)
                        .env("BLITZ_CORES", self.workers.count().to_string())
                        .env("BLITZ_IO", io);
                    command
                }
                Err(_) => blitz(self, options, io)?,
            },
            SystemKind::Blitz { io } => blitz(self, options, io)?,
            SystemKind::BlitzHealth(protection) => {
                peer::blitz_health::command(protection, self.group, self.workers, options)?
            }
            SystemKind::Nginx => peer::nginx::command(self.group, self.workers, options)?,
            SystemKind::Haproxy => peer::haproxy::command(self.group, self.workers, options)?,
            SystemKind::H2o => peer::h2o::command(self.group, options)?,
            SystemKind::Envoy => peer::envoy::command(self.group, options)?,
            SystemKind::Caddy => peer::caddy::command(self.group, options)?,
            SystemKind::Varnish { storage } => {
                peer::varnish::command(self.group, storage, options)?
            }
        };
        // Blitz prints its counters when it ends, like the bare rings.
        command.env("BLITZ_REACTOR_COUNTERS", "1");
        Ok(command)
    }
}

/// A note on the systems that are measured with another program than the one of their table.
pub(crate) fn substitutes(systems: &[&System], programs: &Programs) -> Option<String> {
    let reason = programs.example(Example::HelloWorld).err()?;
    let is_example = |system: &&&System| matches!(system.kind, SystemKind::HelloWorld { .. });
    let names: Vec<&str> = systems
        .iter()
        .filter(is_example)
        .map(|system| system.name)
        .collect();
    (!names.is_empty()).then(|| format!("{} by blitz run: {reason}", names.join(", ")))
}

/// The entry of the board with the files of the run.
fn board_entry(system: &System, options: &StartOptions<'_>, io: &str) -> Result<Command, String> {
    let mut command = Command::new(options.programs.example(Example::BoardServer)?);
    let root = options.folder.join(board::FOLDER);
    command.args(["--cores", &system.workers.count().to_string(), "--io", io]);
    command.arg("--files").arg(root.join(board::STATIC));
    command.arg("--data").arg(root.join(board::DATA));
    let listen = options.listen.to_string();
    match system.group.protocol {
        ClientProtocol::Http1 | ClientProtocol::H2c => {
            command.args(["--listen", &listen]);
        }
        ClientProtocol::Tls => {
            let tls = options.tls()?;
            command.args(["--listen-tls", &listen]);
            command.arg("--cert").arg(&tls.certificate);
            command.arg("--key").arg(&tls.key);
        }
    }
    Ok(command)
}

/// `blitz run`; without a target the built-in endpoints respond.
fn blitz(system: &System, options: &StartOptions<'_>, io: &str) -> Result<Command, String> {
    let mut command = Command::new(options.programs.blitz());
    let group = system.group;
    let listen = options.listen.to_string();
    let cores = system.workers.count();
    let routes = match group.role {
        ServerWork::Board => Some(peer::blitz::board_routes(options)),
        ServerWork::SendFile { .. } => Some(peer::blitz::folder_route(options)),
        _ => None,
    };
    if let Some(routes) = routes {
        return peer::blitz::with_routes(group, (io, cores), &routes, options);
    }
    let cores = cores.to_string();
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
        ServerWork::Respond
        | ServerWork::RespondHealth
        | ServerWork::SendContent
        | ServerWork::SendFile { .. }
        | ServerWork::Board => {}
        ServerWork::ProxyToHttp1 | ServerWork::ProxyContentToHttp1 => {
            command.args(["--to", &format!("http://{}", options.backend)]);
        }
        ServerWork::ProxyToH2c => {
            command.args(["--to", &format!("h2c://{}", options.backend)]);
        }
    }
    if let Some(small) = options.small_backend {
        command.args(["--to", &format!("{SMALL_PATH}=http://{small}")]);
    }
    Ok(command)
}
