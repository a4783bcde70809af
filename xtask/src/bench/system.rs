//! The systems that are compared: one row each.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::build::{Artifact, artifact_path};
use super::peers;

/// What a system does with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Group {
    /// Answers it.
    Fixed,
    /// Forwards it to the backend.
    Proxy,
}

/// How a system is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    LimitResponder { io: &'static str },
    LimitRelay,
    HelloWorld { io: &'static str },
    BlitzProxy { io: &'static str },
    Nginx,
    Haproxy,
}

/// One row of the comparison.
#[derive(Debug)]
pub(crate) struct System {
    pub(crate) name: &'static str,
    pub(crate) group: Group,
    pub(crate) kind: Kind,
    /// Part of a run that names no systems.
    pub(crate) by_default: bool,
}

const fn system(name: &'static str, group: Group, kind: Kind) -> System {
    System {
        name,
        group,
        kind,
        by_default: true,
    }
}

/// All of them, in the order in which a round runs them.
pub(crate) const SYSTEMS: &[System] = &[
    system("limit", Group::Fixed, Kind::LimitResponder { io: "uring" }),
    System {
        by_default: false,
        ..system(
            "limit-epoll",
            Group::Fixed,
            Kind::LimitResponder { io: "epoll" },
        )
    },
    system(
        "blitz-uring",
        Group::Fixed,
        Kind::HelloWorld { io: "uring" },
    ),
    system(
        "blitz-epoll",
        Group::Fixed,
        Kind::HelloWorld { io: "epoll" },
    ),
    system("nginx", Group::Fixed, Kind::Nginx),
    system("haproxy", Group::Fixed, Kind::Haproxy),
    system("relay", Group::Proxy, Kind::LimitRelay),
    system(
        "blitz-proxy-uring",
        Group::Proxy,
        Kind::BlitzProxy { io: "uring" },
    ),
    system(
        "blitz-proxy-epoll",
        Group::Proxy,
        Kind::BlitzProxy { io: "epoll" },
    ),
    system("nginx-proxy", Group::Proxy, Kind::Nginx),
    system("haproxy-proxy", Group::Proxy, Kind::Haproxy),
];

/// What the proxies forward to: the bare ring, the cheapest there is and the same for all.
pub(crate) const BACKEND: System = system(
    "backend",
    Group::Fixed,
    Kind::LimitResponder { io: "uring" },
);

impl Group {
    /// The name of the group's row for the bare ring.
    pub(crate) fn limit(self) -> &'static str {
        match self {
            Group::Fixed => "limit",
            Group::Proxy => "relay",
        }
    }

    /// The name of the group's row for nginx.
    pub(crate) fn nginx(self) -> &'static str {
        match self {
            Group::Fixed => "nginx",
            Group::Proxy => "nginx-proxy",
        }
    }

    pub(crate) fn title(self) -> &'static str {
        match self {
            Group::Fixed => "HTTP/1.1, fixed answer",
            Group::Proxy => "HTTP/1.1, proxy to one backend",
        }
    }
}

/// What a start needs to know.
pub(crate) struct Surroundings<'a> {
    pub(crate) listen: SocketAddr,
    /// Where proxies forward to.
    pub(crate) backend: SocketAddr,
    /// Most connections that will be open at once.
    pub(crate) connections: u32,
    /// The bytes that the bare ring answers with; its own without.
    pub(crate) response: Option<&'a Path>,
    /// An empty folder of this run.
    pub(crate) folder: &'a Path,
}

impl System {
    pub(crate) fn is_meant_by(&self, word: &str) -> bool {
        match self.group {
            _ if word == self.name => true,
            Group::Fixed => self.by_default && word == "fixed",
            Group::Proxy => self.by_default && word == "proxy",
        }
    }

    /// The program from Debian's packages, if it is one of those.
    pub(crate) fn peer(&self) -> Option<&'static str> {
        match self.kind {
            Kind::Nginx => Some("nginx"),
            Kind::Haproxy => Some("haproxy"),
            _ => None,
        }
    }

    /// What has to be built first.
    pub(crate) fn artifact(&self) -> Option<Artifact> {
        match self.kind {
            Kind::LimitResponder { .. } => Some(Artifact::LimitResponder),
            Kind::LimitRelay => Some(Artifact::LimitRelay),
            Kind::HelloWorld { .. } => Some(Artifact::HelloWorld),
            Kind::BlitzProxy { .. } => Some(Artifact::Blitz),
            Kind::Nginx | Kind::Haproxy => None,
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
            Kind::BlitzProxy { io } => {
                let to = format!("http://{}", around.backend);
                command.args(["run", "--listen", &listen, "--to", &to]);
                command.args(["--cores", "1", "--io", io]);
            }
            Kind::Nginx => command = peers::nginx(self.group, around)?,
            Kind::Haproxy => command = peers::haproxy(self.group, around)?,
        }
        // Blitz prints its counters at the end, as the bare rings do.
        command.env("BLITZ_REACTOR_COUNTERS", "1");
        Ok(command)
    }
}
