//! HTTPS with HTTP/1.1, and full handshakes.

use super::{EPOLL, Scenario, URING, extra, goal, system};
use crate::group::{ClientProtocol, Group, LoadTool, ServerWork};
use crate::system::SystemKind;

pub(crate) static TLS: Scenario = Scenario {
    name: "tls",
    title: "TLS",
    connections: 100,
    streams: 1,
    groups: &[HTTPS, HANDSHAKES],
    systems: &[
        system("blitz-https", HTTPS, SystemKind::Blitz { io: URING }),
        extra("blitz-https-epoll", HTTPS, SystemKind::Blitz { io: EPOLL }),
        system("nginx-https", HTTPS, SystemKind::Nginx),
        system("haproxy-https", HTTPS, SystemKind::Haproxy),
        extra("h2o-https", HTTPS, SystemKind::H2o),
        system(
            "blitz-handshakes",
            HANDSHAKES,
            SystemKind::Blitz { io: URING },
        ),
        system("nginx-handshakes", HANDSHAKES, SystemKind::Nginx),
        system("haproxy-handshakes", HANDSHAKES, SystemKind::Haproxy),
        extra("h2o-handshakes", HANDSHAKES, SystemKind::H2o),
    ],
    goals: &[
        goal("blitz-https", "nginx-https", 0.85),
        // At least as many per second of CPU as nginx.
        goal("blitz-handshakes", "nginx-handshakes", 1.0),
    ],
    goals_of_many: &[],
};

const HTTPS: &Group = &Group {
    name: "https",
    title: "HTTP/1.1 over TLS, fixed response",
    protocol: ClientProtocol::Tls,
    role: ServerWork::Respond,
    load_tool: LoadTool::Wrk,
    bases: &["nginx-https"],
    plausible: None,
};

const HANDSHAKES: &Group = &Group {
    name: "handshakes",
    title: "Full TLS handshakes, one request each",
    protocol: ClientProtocol::Tls,
    role: ServerWork::Respond,
    load_tool: LoadTool::Handshakes,
    bases: &["nginx-handshakes"],
    plausible: None,
};
