//! A server with two workers, against two servers with one worker each.

use super::{EPOLL, Scenario, URING, goal, workers};
use crate::group::{ClientProtocol, Group, LoadTool, ServerWork};
use crate::process::Workers::{Two, TwoServers};
use crate::system::SystemKind;

pub(crate) static CORES: Scenario = Scenario {
    name: "cores",
    title: "Two workers in one server and in two",
    connections: 100,
    streams: 1,
    groups: &[FIXED_ON_CORES, PROXY_ON_CORES],
    systems: &[
        workers(
            TwoServers,
            "apart",
            FIXED_ON_CORES,
            SystemKind::Blitz { io: URING },
        ),
        workers(
            Two,
            "together",
            FIXED_ON_CORES,
            SystemKind::Blitz { io: URING },
        ),
        workers(
            TwoServers,
            "apart-epoll",
            FIXED_ON_CORES,
            SystemKind::Blitz { io: EPOLL },
        ),
        workers(
            Two,
            "together-epoll",
            FIXED_ON_CORES,
            SystemKind::Blitz { io: EPOLL },
        ),
        workers(TwoServers, "nginx-apart", FIXED_ON_CORES, SystemKind::Nginx),
        workers(Two, "nginx-together", FIXED_ON_CORES, SystemKind::Nginx),
        workers(
            TwoServers,
            "apart-proxy",
            PROXY_ON_CORES,
            SystemKind::Blitz { io: URING },
        ),
        workers(
            Two,
            "together-proxy",
            PROXY_ON_CORES,
            SystemKind::Blitz { io: URING },
        ),
        workers(
            TwoServers,
            "apart-proxy-epoll",
            PROXY_ON_CORES,
            SystemKind::Blitz { io: EPOLL },
        ),
        workers(
            Two,
            "together-proxy-epoll",
            PROXY_ON_CORES,
            SystemKind::Blitz { io: EPOLL },
        ),
        workers(
            TwoServers,
            "nginx-apart-proxy",
            PROXY_ON_CORES,
            SystemKind::Nginx,
        ),
        workers(
            Two,
            "nginx-together-proxy",
            PROXY_ON_CORES,
            SystemKind::Nginx,
        ),
    ],
    goals: &[
        goal("together", "apart", 1.03),
        goal("together-epoll", "apart-epoll", 1.03),
        goal("together-proxy", "apart-proxy", 1.03),
        goal("together-proxy-epoll", "apart-proxy-epoll", 1.03),
    ],
    goals_of_many: &[],
};

const FIXED_ON_CORES: &Group = &Group {
    name: "cores-fixed",
    title: "HTTP/1.1, fixed response, two workers",
    protocol: ClientProtocol::Http1,
    role: ServerWork::Respond,
    load_tool: LoadTool::Wrk,
    bases: &["apart", "apart-epoll", "nginx-apart"],
    plausible: None,
};

const PROXY_ON_CORES: &Group = &Group {
    name: "cores-proxy",
    title: "HTTP/1.1, proxy to one backend, two workers",
    protocol: ClientProtocol::Http1,
    role: ServerWork::ProxyToHttp1,
    load_tool: LoadTool::Wrk,
    bases: &["apart-proxy", "apart-proxy-epoll", "nginx-apart-proxy"],
    plausible: None,
};
