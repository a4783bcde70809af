//! The workloads: those of a comparison of HTTP/2 with HTTP/3 that is often cited.

use std::time::Duration;

use crate::study::{Case, Length, Load, Requests, Subject, Version, Watched};

/// What a client requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Workload {
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    /// Requested in turn.
    pub(super) paths: &'static [&'static str],
    /// Requests of a cold run.
    pub(super) requests: u32,
    pub(super) in_flight: u32,
}

/// How a client uses its connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Client {
    /// HTTP/1.1 with a connection for each request in flight.
    Http1,
    /// HTTP/2 with one connection.
    Http2,
    /// HTTP/3 with one connection.
    Http3,
    /// HTTP/2 with a connection for each request in flight: a client that does not wait for its first connection dials
    /// so many when it is cold.
    Http2Dialing,
}

/// Whether connecting is part of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// A new client and its first requests, handshakes included.
    Cold,
    /// The same client once its rate is steady.
    Warm,
}

pub(super) const WORKLOADS: &[Workload] = &[
    Workload {
        name: "single",
        title: "Single request",
        paths: &["/ping"],
        requests: 100,
        in_flight: 1,
    },
    Workload {
        name: "high",
        title: "High concurrency",
        paths: &["/json"],
        requests: 500,
        in_flight: 50,
    },
    Workload {
        name: "very-high",
        title: "Very high concurrency",
        paths: &["/json"],
        requests: 1_000,
        in_flight: 100,
    },
    Workload {
        name: "small",
        title: "Many small responses",
        paths: &["/data?size=1024"],
        requests: 2_000,
        in_flight: 50,
    },
    Workload {
        name: "delay",
        title: "Slow responses of the server",
        paths: &["/delay?ms=50"],
        requests: 200,
        in_flight: 20,
    },
    Workload {
        name: "large",
        title: "Large responses",
        paths: &["/data?size=10485760"],
        requests: 20,
        in_flight: 1,
    },
    Workload {
        name: "mixed",
        title: "Mixed",
        paths: &["/ping", "/json", "/data?size=10240", "/data?size=102400"],
        requests: 200,
        in_flight: 10,
    },
];

impl Workload {
    /// The load, in words.
    fn describe(&self) -> String {
        let paths = self.paths.join(", ");
        format!(
            "{paths}: {} requests, {} in flight",
            self.requests, self.in_flight
        )
    }

    /// The workload in one mode, on the server at `base`. A warm run takes so `long`.
    pub(super) fn case(&self, mode: Mode, base: &str, watched: &Watched, long: Duration) -> Case {
        let length = match mode {
            Mode::Cold => Length::Requests(self.requests),
            Mode::Warm => Length::warm(long),
        };
        let requests = match self.paths {
            [path] => Requests::Path((*path).to_owned()),
            paths => Requests::Mix(paths.iter().map(|&path| path.to_owned()).collect()),
        };
        let subjects = self.clients(mode).into_iter().map(|client| {
            let (connections, streams) = client.connections(self.in_flight);
            let load = Load::new(base, requests.clone(), client.version(), length);
            Subject {
                name: client.name().to_owned(),
                load: load.with(connections, streams),
                watched: watched.clone(),
                may_fail: false,
            }
        });
        Case {
            title: self.title.to_owned(),
            load: self.describe(),
            subjects: subjects.collect(),
            base: Some(Client::Http2.name().to_owned()),
            not_run: Vec::new(),
        }
    }

    /// A client that dials differs from one with a single connection when it is cold.
    fn clients(&self, mode: Mode) -> Vec<Client> {
        let mut clients = vec![Client::Http1, Client::Http2, Client::Http3];
        if mode == Mode::Cold && self.in_flight > 1 {
            clients.push(Client::Http2Dialing);
        }
        clients
    }
}

impl Client {
    pub(super) const ALL: [Client; 4] = [
        Client::Http1,
        Client::Http2,
        Client::Http3,
        Client::Http2Dialing,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Client::Http1 => "HTTP/1.1",
            Client::Http2 => "HTTP/2",
            Client::Http3 => "HTTP/3",
            Client::Http2Dialing => "HTTP/2, dialing",
        }
    }

    pub(super) fn version(self) -> Version {
        match self {
            Client::Http1 => Version::Http1,
            Client::Http2 | Client::Http2Dialing => Version::Http2,
            Client::Http3 => Version::Http3,
        }
    }

    /// Connections, and streams on each.
    fn connections(self, in_flight: u32) -> (u32, u32) {
        match self {
            Client::Http1 | Client::Http2Dialing => (in_flight, 1),
            Client::Http2 | Client::Http3 => (1, in_flight),
        }
    }
}

impl Mode {
    pub(super) const ALL: [Mode; 2] = [Mode::Cold, Mode::Warm];

    pub(super) fn name(self) -> &'static str {
        match self {
            Mode::Cold => "cold",
            Mode::Warm => "warm",
        }
    }
}
