//! What is asked of servers, by which tool, and against whom their figures are held.

use std::ops::RangeInclusive;

/// What clients speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Front {
    Http1,
    /// HTTP/1.1 and HTTP/2 over TLS, as ALPN says.
    Tls,
    /// HTTP/2 without TLS, by prior knowledge.
    H2c,
}

/// What a server does with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Task {
    Answer,
    /// Forward it to a backend of HTTP/1.1.
    ToHttp1,
    /// Forward it to a backend of HTTP/2 without TLS.
    ToH2c,
}

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Load {
    Wrk,
    /// With `varied`, 10,000 heads pass before one is repeated.
    H2load {
        varied: bool,
    },
    /// A new connection with a full handshake for each request.
    Handshakes,
}

/// Systems that do the same, in one table.
#[derive(Debug)]
pub(crate) struct Group {
    /// Stands for its systems on the command line.
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) front: Front,
    pub(crate) task: Task,
    pub(crate) load: Load,
    /// The rows that all others are divided by, round by round.
    pub(crate) bases: &'static [&'static str],
    pub(crate) plausible: Option<Plausible>,
}

/// One row divided by another; outside of the range the machine was measured, not the servers.
#[derive(Debug)]
pub(crate) struct Plausible {
    pub(crate) row: &'static str,
    pub(crate) base: &'static str,
    pub(crate) range: RangeInclusive<f64>,
}

pub(crate) const FIXED: &Group = &Group {
    name: "fixed",
    title: "HTTP/1.1, fixed answer",
    front: Front::Http1,
    task: Task::Answer,
    load: Load::Wrk,
    bases: &["limit", "nginx"],
    plausible: Some(Plausible {
        row: "limit",
        base: "nginx",
        range: 0.60..=0.85,
    }),
};

pub(crate) const PROXY: &Group = &Group {
    name: "proxy",
    title: "HTTP/1.1, proxy to one backend",
    front: Front::Http1,
    task: Task::ToHttp1,
    load: Load::Wrk,
    bases: &["relay", "nginx-proxy"],
    plausible: Some(Plausible {
        row: "relay",
        base: "nginx-proxy",
        range: 0.45..=0.70,
    }),
};

pub(crate) const H2: &Group = &Group {
    name: "tls-same",
    title: "HTTP/2 over TLS, fixed answer, one head repeated",
    front: Front::Tls,
    task: Task::Answer,
    load: Load::H2load { varied: false },
    bases: &["h2o-h2", "nginx-h2"],
    plausible: None,
};

pub(crate) const H2_VARIED: &Group = &Group {
    name: "tls-varied",
    title: "HTTP/2 over TLS, fixed answer, varied heads",
    front: Front::Tls,
    task: Task::Answer,
    load: Load::H2load { varied: true },
    bases: &["h2o-h2-varied"],
    plausible: None,
};

pub(crate) const H2C: &Group = &Group {
    name: "h2c-same",
    title: "HTTP/2 without TLS, fixed answer, one head repeated",
    front: Front::H2c,
    task: Task::Answer,
    load: Load::H2load { varied: false },
    bases: &["h2o-h2c"],
    plausible: None,
};

pub(crate) const H2C_VARIED: &Group = &Group {
    name: "h2c-varied",
    title: "HTTP/2 without TLS, fixed answer, varied heads",
    front: Front::H2c,
    task: Task::Answer,
    load: Load::H2load { varied: true },
    bases: &["h2o-h2c-varied"],
    plausible: None,
};

pub(crate) const HTTPS: &Group = &Group {
    name: "https",
    title: "HTTP/1.1 over TLS, fixed answer",
    front: Front::Tls,
    task: Task::Answer,
    load: Load::Wrk,
    bases: &["nginx-https"],
    plausible: None,
};

pub(crate) const HANDSHAKES: &Group = &Group {
    name: "handshakes",
    title: "Full TLS handshakes, one request each",
    front: Front::Tls,
    task: Task::Answer,
    load: Load::Handshakes,
    bases: &["nginx-handshakes"],
    plausible: None,
};

pub(crate) const H2_TO_H1: &Group = &Group {
    name: "to-h1",
    title: "HTTP/2 over TLS, proxy to one backend of HTTP/1.1",
    front: Front::Tls,
    task: Task::ToHttp1,
    load: Load::H2load { varied: false },
    bases: &["h2o-to-h1", "nginx-to-h1"],
    plausible: None,
};

pub(crate) const H2_TO_H2C: &Group = &Group {
    name: "to-h2c",
    title: "HTTP/2 over TLS, proxy to one backend of HTTP/2 without TLS",
    front: Front::Tls,
    task: Task::ToH2c,
    load: Load::H2load { varied: false },
    bases: &["haproxy-to-h2c", "envoy-to-h2c"],
    plausible: None,
};

impl PartialEq for Group {
    fn eq(&self, other: &Group) -> bool {
        self.name == other.name
    }
}
