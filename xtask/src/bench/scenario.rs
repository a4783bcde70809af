//! The comparisons: which systems run side by side, and the goals that Blitz must meet.

use super::goals::Goal;
use super::group::{
    FIXED, FIXED_ON_CORES, Group, H2, H2_BESIDE_H3, H2_BESIDE_H3_VARIED, H2_TO_H1, H2_TO_H2C,
    H2_VARIED, H2C, H2C_VARIED, H3_HANDSHAKES, H3_ON_CORES, H3_SAME, H3_VARIED, HANDSHAKES,
    HANDSHAKES_BESIDE_H3, HTTPS, PROXY, PROXY_ON_CORES,
};
use super::process::Workers::{self, Two, TwoServers};
use super::system::{Kind, System};

/// One `cargo xtask bench` command whose systems run interleaved.
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
    /// In the order in which a round runs them.
    pub(crate) systems: &'static [System],
    pub(crate) goals: &'static [Goal],
    /// The goals with [`MANY_CONNECTIONS`] or more.
    pub(crate) goals_of_many: &'static [Goal],
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

pub(crate) const ALL: &[&Scenario] = &[&H1, &H2_FIXED, &H3, &TLS, &H2_PROXY, &CORES];

const URING: &str = "uring";
const EPOLL: &str = "epoll";

const fn system(name: &'static str, group: &'static Group, kind: Kind) -> System {
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
    kind: Kind,
) -> System {
    System {
        workers,
        ..system(name, group, kind)
    }
}

/// A system that runs only if the command line names it.
const fn extra(name: &'static str, group: &'static Group, kind: Kind) -> System {
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

pub(crate) static H1: Scenario = Scenario {
    name: "h1",
    title: "HTTP/1.1",
    connections: 100,
    streams: 1,
    groups: &[FIXED, PROXY],
    systems: &[
        system("limit", FIXED, Kind::LimitResponder { io: URING }),
        extra("limit-epoll", FIXED, Kind::LimitResponder { io: EPOLL }),
        system("blitz-uring", FIXED, Kind::HelloWorld { io: URING }),
        system("blitz-epoll", FIXED, Kind::HelloWorld { io: EPOLL }),
        system("nginx", FIXED, Kind::Nginx),
        system("haproxy", FIXED, Kind::Haproxy),
        system("relay", PROXY, Kind::LimitRelay),
        system("blitz-proxy-uring", PROXY, Kind::Blitz { io: URING }),
        system("blitz-proxy-epoll", PROXY, Kind::Blitz { io: EPOLL }),
        system("nginx-proxy", PROXY, Kind::Nginx),
        system("haproxy-proxy", PROXY, Kind::Haproxy),
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

pub(crate) static H2_FIXED: Scenario = Scenario {
    name: "h2",
    title: "HTTP/2",
    connections: 32,
    streams: 32,
    groups: &[H2, H2_VARIED, H2C, H2C_VARIED],
    systems: &[
        system("blitz-h2", H2, Kind::Blitz { io: URING }),
        extra("blitz-h2-epoll", H2, Kind::Blitz { io: EPOLL }),
        system("h2o-h2", H2, Kind::H2o),
        system("nginx-h2", H2, Kind::Nginx),
        system("haproxy-h2", H2, Kind::Haproxy),
        system("blitz-h2-varied", H2_VARIED, Kind::Blitz { io: URING }),
        system("h2o-h2-varied", H2_VARIED, Kind::H2o),
        extra("nginx-h2-varied", H2_VARIED, Kind::Nginx),
        extra("haproxy-h2-varied", H2_VARIED, Kind::Haproxy),
        system("blitz-h2c", H2C, Kind::Blitz { io: URING }),
        system("h2o-h2c", H2C, Kind::H2o),
        extra("nginx-h2c", H2C, Kind::Nginx),
        extra("haproxy-h2c", H2C, Kind::Haproxy),
        system("blitz-h2c-varied", H2C_VARIED, Kind::Blitz { io: URING }),
        system("h2o-h2c-varied", H2C_VARIED, Kind::H2o),
    ],
    goals: &[
        goal("blitz-h2", "h2o-h2", 1.0),
        goal("blitz-h2-varied", "h2o-h2-varied", 1.0),
        goal("blitz-h2c", "h2o-h2c", 1.0),
        goal("blitz-h2c-varied", "h2o-h2c-varied", 1.0),
    ],
    goals_of_many: &[],
};

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
        system("blitz-h2-beside", H2_BESIDE_H3, Kind::Blitz { io: URING }),
        system("blitz-h3", H3_SAME, Kind::Blitz { io: URING }),
        extra("blitz-h3-epoll", H3_SAME, Kind::Blitz { io: EPOLL }),
        system("caddy-h3", H3_SAME, Kind::Caddy),
        system("envoy-h3", H3_SAME, Kind::Envoy),
        system(
            "blitz-h2-varied-beside",
            H2_BESIDE_H3_VARIED,
            Kind::Blitz { io: URING },
        ),
        system("blitz-h3-varied", H3_VARIED, Kind::Blitz { io: URING }),
        system("caddy-h3-varied", H3_VARIED, Kind::Caddy),
        system("envoy-h3-varied", H3_VARIED, Kind::Envoy),
        system(
            "blitz-tcp-handshakes",
            HANDSHAKES_BESIDE_H3,
            Kind::Blitz { io: URING },
        ),
        system(
            "blitz-h3-handshakes",
            H3_HANDSHAKES,
            Kind::Blitz { io: URING },
        ),
        system("caddy-h3-handshakes", H3_HANDSHAKES, Kind::Caddy),
        workers(
            TwoServers,
            "h3-apart",
            H3_ON_CORES,
            Kind::Blitz { io: URING },
        ),
        workers(Two, "h3-together", H3_ON_CORES, Kind::Blitz { io: URING }),
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

pub(crate) static TLS: Scenario = Scenario {
    name: "tls",
    title: "TLS",
    connections: 100,
    streams: 1,
    groups: &[HTTPS, HANDSHAKES],
    systems: &[
        system("blitz-https", HTTPS, Kind::Blitz { io: URING }),
        extra("blitz-https-epoll", HTTPS, Kind::Blitz { io: EPOLL }),
        system("nginx-https", HTTPS, Kind::Nginx),
        system("haproxy-https", HTTPS, Kind::Haproxy),
        extra("h2o-https", HTTPS, Kind::H2o),
        system("blitz-handshakes", HANDSHAKES, Kind::Blitz { io: URING }),
        system("nginx-handshakes", HANDSHAKES, Kind::Nginx),
        system("haproxy-handshakes", HANDSHAKES, Kind::Haproxy),
        extra("h2o-handshakes", HANDSHAKES, Kind::H2o),
    ],
    goals: &[
        goal("blitz-https", "nginx-https", 0.85),
        // At least as many per second of CPU as nginx.
        goal("blitz-handshakes", "nginx-handshakes", 1.0),
    ],
    goals_of_many: &[],
};

pub(crate) static H2_PROXY: Scenario = Scenario {
    name: "h2-proxy",
    title: "HTTP/2 to upstreams",
    connections: 32,
    streams: 32,
    groups: &[H2_TO_H1, H2_TO_H2C],
    systems: &[
        system("blitz-to-h1", H2_TO_H1, Kind::Blitz { io: URING }),
        extra("blitz-to-h1-epoll", H2_TO_H1, Kind::Blitz { io: EPOLL }),
        system("h2o-to-h1", H2_TO_H1, Kind::H2o),
        system("haproxy-to-h1", H2_TO_H1, Kind::Haproxy),
        system("nginx-to-h1", H2_TO_H1, Kind::Nginx),
        extra("envoy-to-h1", H2_TO_H1, Kind::Envoy),
        system("blitz-to-h2c", H2_TO_H2C, Kind::Blitz { io: URING }),
        extra("blitz-to-h2c-epoll", H2_TO_H2C, Kind::Blitz { io: EPOLL }),
        system("haproxy-to-h2c", H2_TO_H2C, Kind::Haproxy),
        system("envoy-to-h2c", H2_TO_H2C, Kind::Envoy),
    ],
    goals: &[
        goal("blitz-to-h1", "h2o-to-h1", 0.55),
        // Both goals apply, so the better server decides.
        goal("blitz-to-h2c", "haproxy-to-h2c", 0.60),
        goal("blitz-to-h2c", "envoy-to-h2c", 0.60),
    ],
    goals_of_many: &[],
};

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
            Kind::Blitz { io: URING },
        ),
        workers(Two, "together", FIXED_ON_CORES, Kind::Blitz { io: URING }),
        workers(
            TwoServers,
            "apart-epoll",
            FIXED_ON_CORES,
            Kind::Blitz { io: EPOLL },
        ),
        workers(
            Two,
            "together-epoll",
            FIXED_ON_CORES,
            Kind::Blitz { io: EPOLL },
        ),
        workers(TwoServers, "nginx-apart", FIXED_ON_CORES, Kind::Nginx),
        workers(Two, "nginx-together", FIXED_ON_CORES, Kind::Nginx),
        workers(
            TwoServers,
            "apart-proxy",
            PROXY_ON_CORES,
            Kind::Blitz { io: URING },
        ),
        workers(
            Two,
            "together-proxy",
            PROXY_ON_CORES,
            Kind::Blitz { io: URING },
        ),
        workers(
            TwoServers,
            "apart-proxy-epoll",
            PROXY_ON_CORES,
            Kind::Blitz { io: EPOLL },
        ),
        workers(
            Two,
            "together-proxy-epoll",
            PROXY_ON_CORES,
            Kind::Blitz { io: EPOLL },
        ),
        workers(TwoServers, "nginx-apart-proxy", PROXY_ON_CORES, Kind::Nginx),
        workers(Two, "nginx-together-proxy", PROXY_ON_CORES, Kind::Nginx),
    ],
    goals: &[
        goal("together", "apart", 1.03),
        goal("together-epoll", "apart-epoll", 1.03),
        goal("together-proxy", "apart-proxy", 1.03),
        goal("together-proxy-epoll", "apart-proxy-epoll", 1.03),
    ],
    goals_of_many: &[],
};

/// The usual backend of proxies to HTTP/1.1: the bare ring, which is the cheapest.
pub(crate) static BACKEND: System = system("backend", FIXED, Kind::LimitResponder { io: URING });
/// A backend that responds later, and to many requests at once.
pub(crate) static BACKEND_NGINX: System = system("backend-nginx", FIXED, Kind::Nginx);
/// The backend of HTTP/2 proxies: a program that is not one of the compared proxies.
pub(crate) static BACKEND_H2C: System = system("backend-h2c", H2C, Kind::H2o);

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
