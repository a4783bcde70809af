//! The comparisons: which systems run side by side, and the goals that Blitz must meet.

pub(crate) mod all;
pub(crate) mod board;
pub(crate) mod bulk;
pub(crate) mod compare;
mod cores;
pub(crate) mod faults;
pub(crate) mod framework;
pub(crate) mod gateway;
pub(crate) mod generator;
mod h1;
mod h2;
mod h2_proxy;
mod h3;
pub(crate) mod idle;
mod log;
pub(crate) mod models;
pub(crate) mod protocols;
pub(crate) mod regression;
pub(crate) mod report;
pub(crate) mod start;
pub(crate) mod suite;
mod tls;

use crate::group::Group;
use crate::process::Workers;
use crate::system::{System, SystemKind};

pub(crate) use cores::CORES;
pub(crate) use h1::H1;
pub(crate) use h2::H2_FIXED;
pub(crate) use h2_proxy::H2_PROXY;
pub(crate) use h3::H3;
pub(crate) use log::LOG;
pub(crate) use tls::TLS;

/// One benchmark whose systems run interleaved.
pub(crate) struct Scenario {
    /// The command, and part of the names of the files with its results.
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    /// Default number of connections of the load tool.
    pub(crate) connections: u32,
    /// Requests in flight on each connection.
    pub(crate) streams: u32,
    /// In the order of the tables.
    pub(crate) groups: &'static [&'static Group],
    /// In the order of the tables.
    pub(crate) systems: &'static [System],
    pub(crate) goals: &'static [Goal],
    /// The goals with [`MANY_CONNECTIONS`] or more.
    pub(crate) goals_of_many: &'static [Goal],
}

/// CPU per request of `system`, divided by that of `base` in the same round, is at most `at_most`.
pub(crate) struct Goal {
    pub(crate) system: &'static str,
    pub(crate) base: &'static str,
    pub(crate) at_most: f64,
}

/// With so many connections what they occupy no longer fits into the caches, and other goals apply.
pub(crate) const MANY_CONNECTIONS: u32 = 500;

impl Scenario {
    /// The goals with so many connections.
    pub(crate) fn goals(&self, connections: u32) -> &'static [Goal] {
        match connections >= MANY_CONNECTIONS {
            true => self.goals_of_many,
            false => self.goals,
        }
    }
}

pub(crate) const ALL: &[&Scenario] = &[&H1, &H2_FIXED, &H3, &TLS, &H2_PROXY, &CORES, &LOG];

const URING: &str = "uring";
const EPOLL: &str = "epoll";

const fn system(name: &'static str, group: &'static Group, kind: SystemKind) -> System {
    System {
        name,
        group,
        kind,
        by_default: true,
        workers: Workers::One,
    }
}

/// Two workers, one on each core: of two servers, or of one.
const fn workers(
    workers: Workers,
    name: &'static str,
    group: &'static Group,
    kind: SystemKind,
) -> System {
    System {
        workers,
        ..system(name, group, kind)
    }
}

/// A system that runs only if the command line names it.
const fn extra(name: &'static str, group: &'static Group, kind: SystemKind) -> System {
    System {
        name,
        group,
        kind,
        by_default: false,
        workers: Workers::One,
    }
}

const fn goal(system: &'static str, base: &'static str, at_most: f64) -> Goal {
    Goal {
        system,
        base,
        at_most,
    }
}

/// The usual backend of proxies to HTTP/1.1: the bare ring, which is the cheapest.
pub(crate) static BACKEND: System = system(
    "backend",
    h1::FIXED,
    SystemKind::LimitResponder { io: URING },
);
/// A backend that responds later, and to many requests at once.
pub(crate) static BACKEND_NGINX: System = system("backend-nginx", h1::FIXED, SystemKind::Nginx);
/// A backend that every machine has, where the bare ring is missing.
pub(crate) static BACKEND_BLITZ: System =
    system("backend-blitz", h1::FIXED, SystemKind::Blitz { io: "auto" });
/// The backend of HTTP/2 proxies: a program that is not one of the compared proxies.
pub(crate) static BACKEND_H2C: System = system("backend-h2c", h2::H2C, SystemKind::H2o);

/// The system of that name, in any scenario.
pub(crate) fn find(name: &str) -> Option<&'static System> {
    let mut systems = ALL.iter().flat_map(|scenario| scenario.systems);
    systems.find(|system| system.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_every_goal_and_base_has_its_row() {
        let names: Vec<_> = ALL.iter().flat_map(|s| s.systems).map(|s| s.name).collect();
        for (index, name) in names.iter().enumerate() {
            assert!(!names[..index].contains(name), "{name} is listed twice");
        }
        for scenario in ALL {
            let row = |name: &str| {
                let found = scenario.systems.iter().find(|s| s.name == name);
                found.unwrap_or_else(|| panic!("{}: no row {name}", scenario.name))
            };
            for goal in scenario.goals {
                let (system, base) = (row(goal.system), row(goal.base));
                assert!(system.by_default && base.by_default);
                assert_eq!(system.group.role, base.group.role, "the same work");
                assert_eq!(system.group.protocol, base.group.protocol);
                assert!(system.group == base.group || system.group.bases.contains(&goal.base));
            }
            for group in scenario.groups {
                for base in group.bases {
                    assert_eq!(row(base).group.role, group.role);
                    assert_eq!(row(base).group.protocol, group.protocol);
                }
            }
            for system in scenario.systems {
                assert!(scenario.groups.contains(&system.group), "{}", system.name);
            }
        }
    }
}
