//! Access log and metrics: a proxy that is configured with many sites, with its log and without.

use super::{EPOLL, Scenario, URING, extra, goal, system};
use crate::group::{ClientProtocol, Group, LoadTool, PlausibleRatio, ServerWork};
use crate::sites::{SitesLog, SitesProgram};
use crate::system::SystemKind;

pub(crate) static LOG: Scenario = Scenario {
    name: "log",
    title: "Access log and metrics",
    connections: 100,
    streams: 1,
    groups: &[SITES],
    systems: &[
        system("sites-relay", SITES, SystemKind::LimitRelay),
        system("sites-blitz", SITES, sites(BLITZ, SitesLog::Off)),
        system("sites-blitz-log", SITES, sites(BLITZ, SitesLog::Usual)),
        extra(
            "sites-blitz-log-epoll",
            SITES,
            sites(BLITZ_EPOLL, SitesLog::Usual),
        ),
        system(
            "sites-nginx",
            SITES,
            sites(SitesProgram::Nginx, SitesLog::Off),
        ),
        system(
            "sites-nginx-log",
            SITES,
            sites(SitesProgram::Nginx, SitesLog::Usual),
        ),
        system(
            "sites-nginx-log-buffered",
            SITES,
            sites(SitesProgram::Nginx, SitesLog::Buffered),
        ),
        system(
            "sites-haproxy",
            SITES,
            sites(SitesProgram::Haproxy, SitesLog::Off),
        ),
        system(
            "sites-haproxy-log",
            SITES,
            sites(SitesProgram::Haproxy, SitesLog::Usual),
        ),
    ],
    goals: &[
        goal("sites-blitz-log", "sites-relay", 1.40),
        goal("sites-blitz-log", "sites-nginx-log", 0.75),
    ],
    goals_of_many: &[],
};

const BLITZ: SitesProgram = SitesProgram::Blitz { io: URING };
const BLITZ_EPOLL: SitesProgram = SitesProgram::Blitz { io: EPOLL };

const fn sites(program: SitesProgram, log: SitesLog) -> SystemKind {
    SystemKind::Sites { program, log }
}

const SITES: &Group = &Group {
    name: "sites",
    title: "HTTP/1.1, proxy of 100 sites to one backend",
    protocol: ClientProtocol::Http1,
    role: ServerWork::ProxyToHttp1,
    load_tool: LoadTool::WrkToSites,
    bases: &["sites-relay", "sites-nginx-log", "sites-blitz"],
    plausible: Some(PlausibleRatio {
        row: "sites-relay",
        base: "sites-nginx",
        range: 0.45..=0.70,
    }),
};
