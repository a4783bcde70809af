//! HTTP/1.1: a fixed response and a proxy, beside the limit programs.

use super::{EPOLL, Scenario, URING, extra, goal, system};
use crate::group::{ClientProtocol, Group, LoadTool, PlausibleRatio, ServerWork};
use crate::system::SystemKind;

pub(crate) static H1: Scenario = Scenario {
    name: "h1",
    title: "HTTP/1.1",
    connections: 100,
    streams: 1,
    groups: &[FIXED, PROXY],
    systems: &[
        system("limit", FIXED, SystemKind::LimitResponder { io: URING }),
        extra(
            "limit-epoll",
            FIXED,
            SystemKind::LimitResponder { io: EPOLL },
        ),
        system("blitz-uring", FIXED, SystemKind::HelloWorld { io: URING }),
        system("blitz-epoll", FIXED, SystemKind::HelloWorld { io: EPOLL }),
        system("nginx", FIXED, SystemKind::Nginx),
        system("haproxy", FIXED, SystemKind::Haproxy),
        system("relay", PROXY, SystemKind::LimitRelay),
        system("blitz-proxy-uring", PROXY, SystemKind::Blitz { io: URING }),
        system("blitz-proxy-epoll", PROXY, SystemKind::Blitz { io: EPOLL }),
        system("nginx-proxy", PROXY, SystemKind::Nginx),
        system("haproxy-proxy", PROXY, SystemKind::Haproxy),
    ],
    goals: &[
        goal("blitz-uring", "limit", 1.08),
        goal("blitz-uring", "nginx", 0.85),
        goal("blitz-epoll", "limit", 1.15),
        goal("blitz-proxy-uring", "relay", 1.18),
        goal("blitz-proxy-uring", "nginx-proxy", 0.75),
        goal("blitz-proxy-epoll", "relay", 1.25),
    ],
    goals_of_many: &[goal("blitz-proxy-uring", "relay", 1.30)],
};

pub(crate) const FIXED: &Group = &Group {
    name: "fixed",
    title: "HTTP/1.1, fixed response",
    protocol: ClientProtocol::Http1,
    role: ServerWork::Respond,
    load_tool: LoadTool::Wrk,
    bases: &["limit", "nginx"],
    plausible: Some(PlausibleRatio {
        row: "limit",
        base: "nginx",
        range: 0.60..=0.85,
    }),
};

pub(crate) const PROXY: &Group = &Group {
    name: "proxy",
    title: "HTTP/1.1, proxy to one backend",
    protocol: ClientProtocol::Http1,
    role: ServerWork::ProxyToHttp1,
    load_tool: LoadTool::Wrk,
    bases: &["relay", "nginx-proxy"],
    plausible: Some(PlausibleRatio {
        row: "relay",
        base: "nginx-proxy",
        range: 0.45..=0.70,
    }),
};
