//! HTTP/2 to HTTP/1.1 and HTTP/2 upstreams.

use super::{EPOLL, Scenario, URING, extra, goal, system};
use crate::group::{ClientProtocol, Group, LoadTool, ServerWork};
use crate::system::SystemKind;

pub(crate) static H2_PROXY: Scenario = Scenario {
    name: "h2-proxy",
    title: "HTTP/2 to upstreams",
    connections: 32,
    streams: 32,
    groups: &[H2_TO_H1, H2_TO_H2C],
    systems: &[
        system("blitz-to-h1", H2_TO_H1, SystemKind::Blitz { io: URING }),
        extra(
            "blitz-to-h1-epoll",
            H2_TO_H1,
            SystemKind::Blitz { io: EPOLL },
        ),
        system("h2o-to-h1", H2_TO_H1, SystemKind::H2o),
        system("haproxy-to-h1", H2_TO_H1, SystemKind::Haproxy),
        system("nginx-to-h1", H2_TO_H1, SystemKind::Nginx),
        extra("envoy-to-h1", H2_TO_H1, SystemKind::Envoy),
        system("blitz-to-h2c", H2_TO_H2C, SystemKind::Blitz { io: URING }),
        extra(
            "blitz-to-h2c-epoll",
            H2_TO_H2C,
            SystemKind::Blitz { io: EPOLL },
        ),
        system("haproxy-to-h2c", H2_TO_H2C, SystemKind::Haproxy),
        system("envoy-to-h2c", H2_TO_H2C, SystemKind::Envoy),
    ],
    goals: &[
        goal("blitz-to-h1", "h2o-to-h1", 0.55),
        // Both goals apply, so the better server decides.
        goal("blitz-to-h2c", "haproxy-to-h2c", 0.60),
        goal("blitz-to-h2c", "envoy-to-h2c", 0.60),
    ],
    goals_of_many: &[],
};

const H2_TO_H1: &Group = &Group {
    name: "to-h1",
    title: "HTTP/2 over TLS, proxy to one HTTP/1.1 backend",
    protocol: ClientProtocol::Tls,
    role: ServerWork::ProxyToHttp1,
    load_tool: LoadTool::H2load { varied: false },
    bases: &["h2o-to-h1", "nginx-to-h1"],
    plausible: None,
};

const H2_TO_H2C: &Group = &Group {
    name: "to-h2c",
    title: "HTTP/2 over TLS, proxy to one HTTP/2 backend without TLS",
    protocol: ClientProtocol::Tls,
    role: ServerWork::ProxyToH2c,
    load_tool: LoadTool::H2load { varied: false },
    bases: &["haproxy-to-h2c", "envoy-to-h2c"],
    plausible: None,
};
