//! The running servers.

use std::net::SocketAddr;

use super::SuitePlan;
use super::rows::Row;
use crate::group::{ClientProtocol, Group, LoadTool, ServerWork};
use crate::invocation::Invocation;
use crate::not_run::NotRun;
use crate::peer::StartOptions;
use crate::process::{ServerProcess, Switches, Workers, free_address};
use crate::run_folder::RunFolder;
use crate::study::{Version, Watched};
use crate::system::{System, SystemKind};
use crate::tls_files::TlsFiles;

pub(super) const BLITZ: &str = "blitz";
pub(super) const NGINX: &str = "nginx";
pub(super) const HAPROXY: &str = "haproxy";

/// In the order of tables.
const SYSTEMS: [(&str, SystemKind); 3] = [
    (BLITZ, SystemKind::Blitz { io: "auto" }),
    (NGINX, SystemKind::Nginx),
    (HAPROXY, SystemKind::Haproxy),
];

/// Most requests in flight on a connection.
const STREAMS_MAX: u32 = 32;

const CLEAR: &Group = &Group {
    protocol: ClientProtocol::Http1,
    ..GROUP
};
const TLS: &Group = &Group {
    protocol: ClientProtocol::Tls,
    ..GROUP
};
const GROUP: Group = Group {
    name: "suite",
    title: "fixed response",
    protocol: ClientProtocol::Http1,
    role: ServerWork::Respond,
    load_tool: LoadTool::Wrk,
    bases: &[],
    plausible: None,
};

/// The servers, each with clear text and with TLS on addresses of their own.
pub(super) struct Stage {
    servers: Vec<RunningServer>,
    not_run: Vec<NotRun>,
}

/// A server, or one half of it.
pub(super) struct RunningServer {
    pub(super) name: &'static str,
    peer: Option<&'static str>,
    has_tls: bool,
    server: ServerProcess,
}

impl Stage {
    /// Starts what is installed.
    pub(super) fn start(
        plan: &SuitePlan,
        invocation: &Invocation,
        tls: &TlsFiles,
        folder: &RunFolder,
    ) -> Result<Stage, String> {
        let programs = &invocation.programs;
        let needs_tls = plan.rows.iter().any(|row| row.version != Version::Http1);
        let mut stage = Stage {
            servers: Vec::new(),
            not_run: Vec::new(),
        };
        for (name, kind) in SYSTEMS {
            for group in [CLEAR, TLS] {
                let has_tls = group.protocol == ClientProtocol::Tls;
                if has_tls && !needs_tls {
                    continue;
                }
                let system = System {
                    name,
                    group,
                    kind,
                    by_default: true,
                    workers: workers(plan.placement.server.count),
                };
                if let Some(reason) = system.missing_program(programs) {
                    if !has_tls {
                        let name = name.to_owned();
                        stage.not_run.push(NotRun { name, reason });
                    }
                    continue;
                }
                let listen = free_address()?;
                let command = system.command(&StartOptions {
                    listen,
                    // There is no proxy.
                    backend: listen,
                    small_backend: None,
                    connections: plan.connections,
                    requests: plan.connections.max(32 * STREAMS_MAX),
                    response: None,
                    tls: Some(tls),
                    programs,
                    folder: folder.path(),
                })?;
                let cores = plan.placement.server.list;
                let server = ServerProcess::start_pinned(name, cores, &command, listen)?;
                stage.servers.push(RunningServer {
                    name,
                    peer: system.peer(),
                    has_tls,
                    server,
                });
            }
        }
        Ok(stage)
    }

    /// The servers that are measured in a row.
    pub(super) fn servers(&self, row: &Row) -> Vec<&RunningServer> {
        let has_tls = row.version != Version::Http1;
        let answers = |server: &&RunningServer| {
            let is_asked = server.name == BLITZ || (row.has_peers && row.version != Version::Http3);
            server.has_tls == has_tls && is_asked
        };
        self.servers.iter().filter(answers).collect()
    }

    /// The servers that cannot be measured in a row with peers, with the reasons.
    pub(super) fn not_run(&self, row: &Row) -> Vec<NotRun> {
        if !row.has_peers {
            return Vec::new();
        }
        let is_missing = |name: &str| self.not_run.iter().any(|not_run| not_run.name == name);
        let http3 = [NGINX, HAPROXY]
            .into_iter()
            .filter(|name| !is_missing(name));
        let http3 = http3
            .filter(|_| row.version == Version::Http3)
            .map(|name| NotRun {
                name: name.to_owned(),
                reason: "its packages have no HTTP/3".to_owned(),
            });
        self.not_run.iter().cloned().chain(http3).collect()
    }

    /// The installed programs that run.
    pub(super) fn programs(&self) -> Vec<&'static str> {
        self.servers
            .iter()
            .filter_map(|server| server.peer)
            .collect()
    }

    /// The context switches of Blitz since its start.
    pub(super) fn switches(&self) -> Switches {
        let blitz = self.servers.iter().filter(|server| server.name == BLITZ);
        blitz.map(|server| server.server.switches()).sum()
    }
}

fn workers(count: u32) -> Workers {
    match count {
        1 => Workers::One,
        count => Workers::Many(count),
    }
}

impl RunningServer {
    pub(super) fn base(&self) -> String {
        let address: SocketAddr = self.server.address;
        match self.has_tls {
            true => format!("https://{address}"),
            false => format!("http://{address}"),
        }
    }

    pub(super) fn watched(&self) -> Watched {
        Watched {
            servers: vec![self.server.process()],
            beside: Vec::new(),
        }
    }
}
