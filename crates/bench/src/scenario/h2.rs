//! HTTP/2 with a fixed response, with TLS and without.

use super::{EPOLL, Scenario, URING, extra, goal, system};
use crate::group::{ClientProtocol, Group, LoadTool, ServerWork};
use crate::system::SystemKind;

pub(crate) static H2_FIXED: Scenario = Scenario {
    name: "h2",
    title: "HTTP/2",
    connections: 32,
    streams: 32,
    groups: &[H2, H2_VARIED, H2C, H2C_VARIED],
    systems: &[
        system("blitz-h2", H2, SystemKind::Blitz { io: URING }),
        extra("blitz-h2-epoll", H2, SystemKind::Blitz { io: EPOLL }),
        system("h2o-h2", H2, SystemKind::H2o),
        system("nginx-h2", H2, SystemKind::Nginx),
        system("haproxy-h2", H2, SystemKind::Haproxy),
        system(
            "blitz-h2-varied",
            H2_VARIED,
            SystemKind::Blitz { io: URING },
        ),
        system("h2o-h2-varied", H2_VARIED, SystemKind::H2o),
        extra("nginx-h2-varied", H2_VARIED, SystemKind::Nginx),
        extra("haproxy-h2-varied", H2_VARIED, SystemKind::Haproxy),
        system("blitz-h2c", H2C, SystemKind::Blitz { io: URING }),
        system("h2o-h2c", H2C, SystemKind::H2o),
        extra("nginx-h2c", H2C, SystemKind::Nginx),
        extra("haproxy-h2c", H2C, SystemKind::Haproxy),
        system(
            "blitz-h2c-varied",
            H2C_VARIED,
            SystemKind::Blitz { io: URING },
        ),
        system("h2o-h2c-varied", H2C_VARIED, SystemKind::H2o),
    ],
    goals: &[
        goal("blitz-h2", "h2o-h2", 1.0),
        goal("blitz-h2-varied", "h2o-h2-varied", 1.0),
        goal("blitz-h2c", "h2o-h2c", 1.0),
        goal("blitz-h2c-varied", "h2o-h2c-varied", 1.0),
    ],
    goals_of_many: &[],
};

const H2: &Group = &Group {
    name: "tls-same",
    title: "HTTP/2 over TLS, fixed response, one head repeated",
    protocol: ClientProtocol::Tls,
    role: ServerWork::Respond,
    load_tool: LoadTool::H2load { varied: false },
    bases: &["h2o-h2", "nginx-h2"],
    plausible: None,
};

const H2_VARIED: &Group = &Group {
    name: "tls-varied",
    title: "HTTP/2 over TLS, fixed response, varied heads",
    protocol: ClientProtocol::Tls,
    role: ServerWork::Respond,
    load_tool: LoadTool::H2load { varied: true },
    bases: &["h2o-h2-varied"],
    plausible: None,
};

pub(crate) const H2C: &Group = &Group {
    name: "h2c-same",
    title: "HTTP/2 without TLS, fixed response, one head repeated",
    protocol: ClientProtocol::H2c,
    role: ServerWork::Respond,
    load_tool: LoadTool::H2load { varied: false },
    bases: &["h2o-h2c"],
    plausible: None,
};

const H2C_VARIED: &Group = &Group {
    name: "h2c-varied",
    title: "HTTP/2 without TLS, fixed response, varied heads",
    protocol: ClientProtocol::H2c,
    role: ServerWork::Respond,
    load_tool: LoadTool::H2load { varied: true },
    bases: &["h2o-h2c-varied"],
    plausible: None,
};
