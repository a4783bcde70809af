//! HTTP/3, beside HTTP/2 over TLS of the same server.

use super::{EPOLL, Scenario, URING, extra, goal, system, workers};
use crate::group::{ClientProtocol, Group, LoadTool, Requests, ServerWork};
use crate::process::Workers::{Two, TwoServers};
use crate::system::SystemKind;

pub(crate) static H3: Scenario = Scenario {
    name: "h3",
    title: "HTTP/3",
    connections: 32,
    streams: 32,
    groups: &[
        H2_BESIDE_H3,
        H3_SAME,
        H2_BESIDE_H3_VARIED,
        H3_VARIED,
        HANDSHAKES_BESIDE_H3,
        H3_HANDSHAKES,
        H3_ON_CORES,
    ],
    systems: &[
        system(
            "blitz-h2-beside",
            H2_BESIDE_H3,
            SystemKind::Blitz { io: URING },
        ),
        system("blitz-h3", H3_SAME, SystemKind::Blitz { io: URING }),
        extra("blitz-h3-epoll", H3_SAME, SystemKind::Blitz { io: EPOLL }),
        system("caddy-h3", H3_SAME, SystemKind::Caddy),
        system("envoy-h3", H3_SAME, SystemKind::Envoy),
        system(
            "blitz-h2-varied-beside",
            H2_BESIDE_H3_VARIED,
            SystemKind::Blitz { io: URING },
        ),
        system(
            "blitz-h3-varied",
            H3_VARIED,
            SystemKind::Blitz { io: URING },
        ),
        system("caddy-h3-varied", H3_VARIED, SystemKind::Caddy),
        system("envoy-h3-varied", H3_VARIED, SystemKind::Envoy),
        system(
            "blitz-tcp-handshakes",
            HANDSHAKES_BESIDE_H3,
            SystemKind::Blitz { io: URING },
        ),
        system(
            "blitz-h3-handshakes",
            H3_HANDSHAKES,
            SystemKind::Blitz { io: URING },
        ),
        system("caddy-h3-handshakes", H3_HANDSHAKES, SystemKind::Caddy),
        workers(
            TwoServers,
            "h3-apart",
            H3_ON_CORES,
            SystemKind::Blitz { io: URING },
        ),
        workers(
            Two,
            "h3-together",
            H3_ON_CORES,
            SystemKind::Blitz { io: URING },
        ),
    ],
    goals: &[
        goal("blitz-h3", "blitz-h2-beside", 2.5),
        goal("blitz-h3-varied", "blitz-h2-varied-beside", 2.5),
        // Both goals apply, so the better server decides.
        goal("blitz-h3", "caddy-h3", 0.5),
        goal("blitz-h3", "envoy-h3", 0.5),
        goal("blitz-h3-varied", "caddy-h3-varied", 0.5),
        goal("blitz-h3-varied", "envoy-h3-varied", 0.5),
        // At least 0.8 times as many per second of CPU.
        goal("blitz-h3-handshakes", "blitz-tcp-handshakes", 1.25),
        goal("h3-together", "h3-apart", 1.05),
    ],
    goals_of_many: &[],
};

/// A fixed response over TLS, compared with nothing.
const OVER_TLS: Group = Group {
    name: "",
    title: "",
    protocol: ClientProtocol::Tls,
    role: ServerWork::Respond,
    load_tool: LoadTool::H2load { varied: false },
    bases: &[],
    plausible: None,
};

const H2_BESIDE_H3: &Group = &Group {
    name: "h2",
    title: "HTTP/2 over TLS, fixed response, one head repeated",
    ..OVER_TLS
};

const H3_SAME: &Group = &Group {
    name: "h3-same",
    title: "HTTP/3, fixed response, one head repeated",
    load_tool: LoadTool::Http3(Requests::Same),
    bases: &["blitz-h2-beside", "caddy-h3", "envoy-h3"],
    ..OVER_TLS
};

const H2_BESIDE_H3_VARIED: &Group = &Group {
    name: "h2-varied",
    title: "HTTP/2 over TLS, fixed response, varied heads",
    load_tool: LoadTool::H2load { varied: true },
    ..OVER_TLS
};

const H3_VARIED: &Group = &Group {
    name: "h3-varied",
    title: "HTTP/3, fixed response, varied heads",
    load_tool: LoadTool::Http3(Requests::Varied),
    bases: &[
        "blitz-h2-varied-beside",
        "caddy-h3-varied",
        "envoy-h3-varied",
    ],
    ..OVER_TLS
};

const HANDSHAKES_BESIDE_H3: &Group = &Group {
    name: "tcp-handshakes",
    title: "Full TLS handshakes over TCP, one request each",
    load_tool: LoadTool::Handshakes,
    ..OVER_TLS
};

const H3_HANDSHAKES: &Group = &Group {
    name: "h3-handshakes",
    title: "Full QUIC handshakes, one request each",
    load_tool: LoadTool::Http3(Requests::Handshakes),
    bases: &["blitz-tcp-handshakes", "caddy-h3-handshakes"],
    ..OVER_TLS
};

const H3_ON_CORES: &Group = &Group {
    name: "h3-cores",
    title: "HTTP/3, fixed response, two workers",
    load_tool: LoadTool::Http3(Requests::Same),
    bases: &["h3-apart"],
    ..OVER_TLS
};
