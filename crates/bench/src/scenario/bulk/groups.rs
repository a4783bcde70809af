//! The groups of `blitz bench bulk`, their rows and the goals of Blitz.

use crate::group::{ClientProtocol, Group, LoadTool, ServerWork};
use crate::process::Workers;
use crate::system::{System, SystemKind};

/// The direction of the content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Download,
    Upload,
}

/// A compared program.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Contender {
    pub(crate) name: &'static str,
    kind: SystemKind,
    /// Goals apply to the rows of Blitz.
    pub(crate) is_blitz: bool,
}

/// A quantity with a goal, compared with another row of the same group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Quantity {
    /// The ratio of CPU time per MiB.
    Cpu,
    /// The difference of the peaks of resident memory, in MiB.
    Memory,
    /// The ratio of the 99th percentiles of the latency of small requests.
    SmallLatency,
}

/// The quantity of Blitz, compared with that of `base`, is at most `at_most`.
#[derive(Debug)]
pub(crate) struct Goal {
    pub(crate) quantity: Quantity,
    pub(crate) base: &'static str,
    pub(crate) at_most: f64,
}

/// The server behind the proxies of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The example `bulk_backend`, which checks and counts uploads as well.
    Program,
    /// nginx, which sends a file with `sendfile`.
    Nginx,
}

/// Rows with the same work, in one table per size.
#[derive(Debug)]
pub(crate) struct BulkGroup {
    pub(crate) group: Group,
    pub(crate) direction: Direction,
    pub(crate) origin: Origin,
    /// Whether small requests run beside the load.
    pub(crate) small_requests: bool,
    /// Whether it runs if the command line names no groups.
    by_default: bool,
    contenders: &'static [Contender],
    pub(crate) goals: &'static [Goal],
}

/// One row of a table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row {
    pub(crate) group: &'static BulkGroup,
    pub(crate) contender: &'static Contender,
}

impl BulkGroup {
    fn rows(&'static self) -> impl Iterator<Item = Row> {
        let row = move |contender| Row {
            group: self,
            contender,
        };
        self.contenders.iter().map(row)
    }
}

impl Row {
    pub(crate) fn system(&self) -> System {
        System {
            name: self.contender.name,
            group: &self.group.group,
            kind: self.contender.kind,
            by_default: self.group.by_default,
            workers: Workers::One,
        }
    }

    /// The server that it forwards to, if it is a proxy.
    pub(crate) fn origin(&self) -> Option<Origin> {
        let is_proxied = self.group.group.role == ServerWork::ProxyContentToHttp1;
        is_proxied.then_some(self.group.origin)
    }

    /// The group and the program.
    pub(crate) fn name(&self) -> String {
        format!("{} {}", self.group.group.name, self.contender.name)
    }
}

const fn contender(name: &'static str, kind: SystemKind) -> Contender {
    Contender {
        name,
        kind,
        is_blitz: matches!(kind, SystemKind::Blitz { .. }),
    }
}

const RELAY_LARGE: Contender = contender("relay-large", SystemKind::LimitRelayLarge);
const RELAY_SPLICE: Contender = contender("relay-splice", SystemKind::LimitRelaySplice);
const BLITZ_URING: Contender = contender("blitz-uring", SystemKind::Blitz { io: "uring" });
const BLITZ_EPOLL: Contender = contender("blitz-epoll", SystemKind::Blitz { io: "epoll" });
const NGINX: Contender = contender("nginx", SystemKind::Nginx);
const HAPROXY: Contender = contender("haproxy", SystemKind::Haproxy);
const H2O: Contender = contender("h2o", SystemKind::H2o);

/// The relays do not terminate TLS and do not speak HTTP/2.
const CLEAR_PROXIES: &[Contender] = &[
    RELAY_LARGE,
    RELAY_SPLICE,
    BLITZ_URING,
    BLITZ_EPOLL,
    NGINX,
    HAPROXY,
    H2O,
];
const PROXIES: &[Contender] = &[BLITZ_URING, BLITZ_EPOLL, NGINX, HAPROXY, H2O];
const SENDERS: &[Contender] = &[BLITZ_URING, BLITZ_EPOLL, NGINX];
const BESIDE: &[Contender] = &[BLITZ_URING, BLITZ_EPOLL, NGINX, HAPROXY];

const fn goal(quantity: Quantity, base: &'static str, at_most: f64) -> Goal {
    Goal {
        quantity,
        base,
        at_most,
    }
}

const MEMORY_MIB_MAX: f64 = 16.0;
/// Both goals for CPU time apply, so the cheaper server decides.
const PROXY_GOALS: &[Goal] = &[
    goal(Quantity::Cpu, "nginx", 0.9),
    goal(Quantity::Cpu, "haproxy", 0.9),
    goal(Quantity::Memory, "nginx", MEMORY_MIB_MAX),
];
const SENDER_GOALS: &[Goal] = &[
    goal(Quantity::Cpu, "nginx", 1.0),
    goal(Quantity::Memory, "nginx", MEMORY_MIB_MAX),
];
const BESIDE_GOALS: &[Goal] = &[goal(Quantity::SmallLatency, "nginx", 1.5)];

const H1: (ClientProtocol, LoadTool) = (ClientProtocol::Http1, LoadTool::Wrk);
const H1_TLS: (ClientProtocol, LoadTool) = (ClientProtocol::Tls, LoadTool::Wrk);
const H2_TLS: (ClientProtocol, LoadTool) =
    (ClientProtocol::Tls, LoadTool::H2load { varied: false });
const H2C: (ClientProtocol, LoadTool) = (ClientProtocol::H2c, LoadTool::H2load { varied: false });

const PROXY_BASES: &[&str] = &["nginx", "haproxy"];

const fn proxied(
    name: &'static str,
    title: &'static str,
    (protocol, load_tool): (ClientProtocol, LoadTool),
    direction: Direction,
) -> BulkGroup {
    BulkGroup {
        group: Group {
            name,
            title,
            protocol,
            role: ServerWork::ProxyContentToHttp1,
            load_tool,
            bases: PROXY_BASES,
            plausible: None,
        },
        direction,
        origin: Origin::Program,
        small_requests: false,
        by_default: true,
        contenders: match protocol {
            ClientProtocol::Http1 => CLEAR_PROXIES,
            ClientProtocol::Tls | ClientProtocol::H2c => PROXIES,
        },
        goals: PROXY_GOALS,
    }
}

const fn sent(
    name: &'static str,
    title: &'static str,
    (protocol, load_tool): (ClientProtocol, LoadTool),
) -> BulkGroup {
    BulkGroup {
        group: Group {
            name,
            title,
            protocol,
            role: ServerWork::SendContent,
            load_tool,
            bases: &["nginx"],
            plausible: None,
        },
        direction: Direction::Download,
        origin: Origin::Program,
        small_requests: false,
        by_default: true,
        contenders: SENDERS,
        goals: SENDER_GOALS,
    }
}

/// Responses of nginx, through the same proxies.
const fn from_nginx(group: BulkGroup) -> BulkGroup {
    BulkGroup {
        origin: Origin::Nginx,
        ..group
    }
}

/// A group without goals that runs only if the command line names it.
const fn extra(group: BulkGroup) -> BulkGroup {
    BulkGroup {
        by_default: false,
        goals: &[],
        ..group
    }
}

const fn with_small_requests(group: BulkGroup) -> BulkGroup {
    BulkGroup {
        by_default: false,
        small_requests: true,
        contenders: BESIDE,
        goals: BESIDE_GOALS,
        ..group
    }
}

/// In the order of the tables.
pub(crate) static GROUPS: &[BulkGroup] = &[
    proxied(
        "h1-down",
        "HTTP/1.1, proxied responses",
        H1,
        Direction::Download,
    ),
    proxied("h1-up", "HTTP/1.1, proxied uploads", H1, Direction::Upload),
    proxied(
        "h2-down",
        "HTTP/2 over TLS, proxied responses",
        H2_TLS,
        Direction::Download,
    ),
    proxied(
        "h2-up",
        "HTTP/2 over TLS, proxied uploads",
        H2_TLS,
        Direction::Upload,
    ),
    from_nginx(proxied(
        "h1-nginx",
        "HTTP/1.1, proxied responses of nginx",
        H1,
        Direction::Download,
    )),
    from_nginx(proxied(
        "h2-nginx",
        "HTTP/2 over TLS, proxied responses of nginx",
        H2_TLS,
        Direction::Download,
    )),
    sent("data", "HTTP/1.1, /data and a file of nginx", H1),
    extra(proxied(
        "tls-down",
        "HTTP/1.1 over TLS, proxied responses",
        H1_TLS,
        Direction::Download,
    )),
    extra(proxied(
        "tls-up",
        "HTTP/1.1 over TLS, proxied uploads",
        H1_TLS,
        Direction::Upload,
    )),
    extra(proxied(
        "h2c-down",
        "HTTP/2 without TLS, proxied responses",
        H2C,
        Direction::Download,
    )),
    extra(proxied(
        "h2c-up",
        "HTTP/2 without TLS, proxied uploads",
        H2C,
        Direction::Upload,
    )),
    extra(sent(
        "tls-data",
        "HTTP/1.1 over TLS, /data and a file of nginx",
        H1_TLS,
    )),
    extra(sent(
        "h2-data",
        "HTTP/2 over TLS, /data and a file of nginx",
        H2_TLS,
    )),
    extra(sent(
        "h2c-data",
        "HTTP/2 without TLS, /data and a file of nginx",
        H2C,
    )),
    with_small_requests(proxied(
        "beside",
        "HTTP/1.1, small requests beside proxied responses",
        H1,
        Direction::Download,
    )),
];

/// Every row, in the order of the tables.
pub(crate) fn rows() -> impl Iterator<Item = Row> {
    GROUPS.iter().flat_map(BulkGroup::rows)
}

/// The rows to measure, in the order of the tables. `only` names groups and programs: without a group, the
/// default groups are measured, and without a program, all programs of the groups.
pub(crate) fn chosen(only: &[String]) -> Result<Vec<Row>, String> {
    let is_group = |word: &String| GROUPS.iter().any(|group| group.group.name == word);
    let is_program = |word: &String| CLEAR_PROXIES.iter().any(|contender| contender.name == word);
    if let Some(word) = only
        .iter()
        .find(|word| !is_group(word) && !is_program(word))
    {
        let groups = GROUPS.iter().map(|group| group.group.name);
        let known = groups.chain(CLEAR_PROXIES.iter().map(|contender| contender.name));
        let known = known.collect::<Vec<_>>().join(", ");
        return Err(format!(
            "there is no group or program '{word}'; known: {known}"
        ));
    }
    let (with_groups, with_programs) = (only.iter().any(is_group), only.iter().any(is_program));
    let names = |name: &str| only.iter().any(|word| word == name);
    let groups = GROUPS.iter().filter(|group| match with_groups {
        true => names(group.group.name),
        false => group.by_default,
    });
    let rows = groups.flat_map(BulkGroup::rows);
    Ok(rows
        .filter(|row| !with_programs || names(row.contender.name))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(only: &[&str]) -> Vec<String> {
        let only: Vec<String> = only.iter().map(|&word| word.to_owned()).collect();
        chosen(&only).unwrap().iter().map(Row::name).collect()
    }

    #[test]
    fn every_goal_and_base_has_its_row_and_goals_have_a_row_of_blitz() {
        for (index, group) in GROUPS.iter().enumerate() {
            let name = group.group.name;
            let row = |base: &str| group.contenders.iter().any(|c| c.name == base);
            assert!(group.group.bases.iter().all(|base| row(base)), "{name}");
            assert!(group.goals.iter().all(|goal| row(goal.base)), "{name}");
            assert!(group.contenders.iter().any(|c| c.is_blitz), "{name}");
            let before = &GROUPS[..index];
            assert!(
                before.iter().all(|other| other.group.name != name),
                "{name}"
            );
        }
    }

    #[test]
    fn groups_and_programs_select_the_rows_of_both() {
        assert_eq!(names(&["h1-up", "nginx"]), ["h1-up nginx"]);
        assert_eq!(
            names(&["nginx", "data", "blitz-uring", "beside"]),
            [
                "data blitz-uring",
                "data nginx",
                "beside blitz-uring",
                "beside nginx"
            ]
        );
        let nginx = names(&["nginx"]);
        assert_eq!(
            nginx.len(),
            GROUPS.iter().filter(|group| group.by_default).count()
        );
        assert!(names(&[]).len() > nginx.len() && !names(&[]).contains(&"beside nginx".to_owned()));
    }

    #[test]
    fn an_unknown_name_lists_the_known_ones() {
        let error = chosen(&["ngnix".to_owned()]).err().unwrap();
        assert!(
            error.contains("ngnix") && error.contains("h1-down, h1-up,"),
            "{error}"
        );
    }
}
