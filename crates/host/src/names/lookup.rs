//! One look-up of a name.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use hickory_resolver::Hosts;
use hickory_resolver::config::{
    ConnectionConfig, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts,
};
use hickory_resolver::net::NetError;
use hickory_resolver::proto::op::Query;
use hickory_resolver::proto::rr::{Name, RData, Record, RecordType};
use tokio::time::Instant;

use super::failure::NameFailure;
use super::files;
use super::query::{Wanted, query};

/// Addresses in ascending order, and for how long they are valid.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) addresses: Vec<SocketAddr>,
    pub(super) ttl: Duration,
}

/// A server of a service.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServiceServer {
    /// Its name, in lower case and without a dot at its end. A name server may tell any text.
    pub host: String,
    /// Its port; not 0.
    pub port: u16,
    /// Its weight among the others.
    pub weight: u16,
}

/// The most servers of a service; others are left out.
const SERVERS_MAX: usize = 256;

/// Servers in ascending order, and for how long they are valid.
#[derive(Debug)]
pub(super) struct FoundServers {
    pub(super) servers: Vec<ServiceServer>,
    pub(super) ttl: Duration,
}

/// A failure with its description for the log.
#[derive(Debug)]
pub(super) struct NotFound {
    pub(super) failure: NameFailure,
    pub(super) reason: String,
}

/// Looks `name` up, in the hosts file before any name server. Reads that file and `resolv.conf` again, so
/// that edits need no restart. `servers` replaces the name servers of `resolv.conf`.
pub(super) async fn look_up(
    name: &str,
    port: u16,
    servers: &[SocketAddr],
) -> Result<Found, NotFound> {
    let unreadable = |reason| NotFound {
        failure: NameFailure::Error,
        reason,
    };
    let hosts = files::hosts().map_err(unreadable)?;
    let settings = settings(servers).map_err(unreadable)?;
    look_up_with(&hosts, settings, name, port).await
}

async fn look_up_with(
    hosts: &Hosts,
    (config, options): (ResolverConfig, ResolverOpts),
    name: &str,
    port: u16,
) -> Result<Found, NotFound> {
    let servers = Servers::of(&config);
    let start = Instant::now();
    let records = match name.parse::<Name>() {
        Ok(name) => match in_hosts(hosts, &name) {
            records if records.is_empty() => query(Wanted::Addresses, name, config, options).await,
            records => Ok(records),
        },
        Err(error) => Err(error.into()),
    };
    let records = records.map_err(|error| servers.not_found(&error, start.elapsed()))?;
    found(&records, port).ok_or_else(|| servers.described(NameFailure::NoAddress, String::new()))
}

/// Looks up the servers of a service, with the settings of [`look_up`].
pub(super) async fn look_up_service(
    name: &str,
    servers: &[SocketAddr],
) -> Result<FoundServers, NotFound> {
    let (config, options) = settings(servers).map_err(|reason| NotFound {
        failure: NameFailure::Error,
        reason,
    })?;
    let servers = Servers::of(&config);
    let start = Instant::now();
    let records = match name.parse::<Name>() {
        Ok(name) => query(Wanted::Services, name, config, options).await,
        Err(error) => Err(error.into()),
    };
    let none = || NotFound {
        failure: NameFailure::NoAddress,
        reason: format!("the name has no SRV record of a server, according to {servers}"),
    };
    match records {
        Ok(records) => found_servers(&records).ok_or_else(none),
        Err(error) if NameFailure::of(&error) == NameFailure::NoAddress => Err(none()),
        Err(error) => Err(servers.not_found(&error, start.elapsed())),
    }
}

/// The servers of the lowest priority; `None` without one. RFC 2782: "A Target of "." means that the service is decidedly
/// not available at this domain."
fn found_servers(records: &[Record]) -> Option<FoundServers> {
    let of_service = records.iter().filter_map(|record| match &record.data {
        RData::SRV(srv) if srv.port != 0 && !srv.target.is_root() => Some((record.ttl, srv)),
        _ => None,
    });
    let lowest = of_service.clone().map(|(_, srv)| srv.priority).min()?;
    let (mut servers, mut ttl) = (Vec::new(), u32::MAX);
    for (own_ttl, srv) in of_service.filter(|(_, srv)| srv.priority == lowest) {
        ttl = ttl.min(own_ttl);
        let host = srv.target.to_ascii();
        servers.push(ServiceServer {
            host: host.strip_suffix('.').unwrap_or(&host).to_ascii_lowercase(),
            port: srv.port,
            weight: srv.weight,
        });
    }
    // Servers rotate their answers. In ascending order an unchanged set is equal.
    servers.sort_unstable();
    servers.dedup_by(|one, other| (&one.host, one.port) == (&other.host, other.port));
    servers.truncate(SERVERS_MAX);
    Some(FoundServers {
        servers,
        ttl: Duration::from_secs(ttl.into()),
    })
}

/// The records of both families. As in the C library, the hosts file applies to the name without the
/// search list, and one line for it is enough.
fn in_hosts(hosts: &Hosts, name: &Name) -> Vec<Record> {
    let families = [RecordType::A, RecordType::AAAA];
    let lookups = families
        .into_iter()
        .filter_map(|family| hosts.lookup_static_host(&Query::query(name.clone(), family)));
    lookups.flat_map(|one| one.answers().to_vec()).collect()
}

/// `None` without an address.
fn found(records: &[Record], port: u16) -> Option<Found> {
    let ips = records.iter().filter_map(|record| record.data.ip_addr());
    let mut addresses: Vec<SocketAddr> = ips.map(|ip| SocketAddr::new(ip, port)).collect();
    // Servers rotate their answers. In ascending order an unchanged set is equal.
    addresses.sort_unstable();
    addresses.dedup();
    let ttls = records.iter().map(|record| record.ttl);
    let ttl = Duration::from_secs(ttls.min().unwrap_or_default().into());
    (!addresses.is_empty()).then_some(Found { addresses, ttl })
}

/// The addresses of the name servers, for the log.
struct Servers(Vec<SocketAddr>);

impl Servers {
    fn of(config: &ResolverConfig) -> Servers {
        let address = |server: &NameServerConfig| {
            let port = server.connections.first().map_or(53, |udp| udp.port);
            SocketAddr::new(server.ip, port)
        };
        let mut servers: Vec<_> = config.name_servers().iter().map(address).collect();
        servers.dedup();
        Servers(servers)
    }

    fn not_found(&self, error: &NetError, took: Duration) -> NotFound {
        let failure = NameFailure::of(error);
        let detail = match failure {
            NameFailure::Timeout => format!("{:.0} s", took.as_secs_f64().max(1.0)),
            _ => error.to_string(),
        };
        self.described(failure, detail)
    }

    fn described(&self, failure: NameFailure, detail: String) -> NotFound {
        let plural = if self.0.len() == 1 { "" } else { "s" };
        let reason = match failure {
            NameFailure::NoSuchName => {
                format!("the name does not exist: {self} answered NXDOMAIN")
            }
            NameFailure::NoAddress => format!("the name has no address, according to {self}"),
            NameFailure::ServerFailed => {
                format!("{self} could not resolve it and answered SERVFAIL")
            }
            NameFailure::ServerRefused => {
                format!("{self} refused the query and answered REFUSED")
            }
            NameFailure::Unreachable => {
                format!("the name server{plural} {self} cannot be reached: {detail}")
            }
            NameFailure::Timeout => {
                format!("the name server{plural} {self} did not answer within {detail}")
            }
            NameFailure::Error => detail,
        };
        NotFound { failure, reason }
    }
}

impl fmt::Display for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, server) in self.0.iter().enumerate() {
            let separator = if at == 0 { "" } else { ", " };
            write!(f, "{separator}{server}")?;
        }
        Ok(())
    }
}

fn settings(servers: &[SocketAddr]) -> Result<(ResolverConfig, ResolverOpts), String> {
    let (config, mut options) = if servers.is_empty() {
        files::resolver_settings()?
    } else {
        let servers = servers.iter().map(name_server).collect();
        (
            ResolverConfig::from_name_servers(servers),
            ResolverOpts::default(),
        )
    };
    // It was read before.
    options.use_hosts_file = ResolveHosts::Never;
    // Results are kept by the caller; a second cache would only delay the refresh.
    options.cache_size = 0;
    // The caller repeats a query that failed. Within one, datagrams are sent again.
    options.attempts = 0;
    Ok((config, options))
}

fn name_server(address: &SocketAddr) -> NameServerConfig {
    let mut connections = vec![ConnectionConfig::udp(), ConnectionConfig::tcp()];
    for connection in &mut connections {
        connection.port = address.port();
    }
    NameServerConfig::new(address.ip(), true, connections)
}

#[cfg(test)]
mod tests {
    use hickory_resolver::proto::rr::rdata::SRV;

    use super::*;

    #[test]
    fn a_silent_name_server_is_named_with_the_time_it_was_silent() {
        let servers = |texts: &[&str]| {
            let all: Vec<_> = texts.iter().map(|text| text.parse().unwrap()).collect();
            let (config, _) = settings(&all).unwrap();
            Servers::of(&config)
        };
        let reason = |texts: &[&str], took| {
            let took = Duration::from_millis(took);
            servers(texts).not_found(&NetError::Timeout, took).reason
        };
        assert_eq!(
            reason(&["10.0.0.2:53"], 5003),
            "the name server 10.0.0.2:53 did not answer within 5 s"
        );
        assert_eq!(
            reason(&["10.0.0.2:53", "[::1]:5353"], 10_100),
            "the name servers 10.0.0.2:53, [::1]:5353 did not answer within 10 s"
        );
    }

    #[test]
    fn servers_of_the_lowest_priority_are_found() {
        let record = |priority, weight, port, target: &str, ttl| {
            let target = target.parse().unwrap();
            let srv = SRV::new(priority, weight, port, target);
            let name = "_api._tcp.internal.example.".parse().unwrap();
            Record::from_rdata(name, ttl, RData::SRV(srv))
        };
        let found = found_servers(&[
            record(10, 5, 8080, "B.internal.example.", 30),
            record(20, 1, 8080, "c.internal.example.", 1),
            record(10, 0, 8081, "a.internal.example.", 60),
            record(10, 0, 8081, "a.internal.example.", 60),
            record(0, 1, 0, "none.internal.example.", 60),
            record(0, 1, 80, ".", 60),
        ]);
        let found = found.unwrap();
        let shown: Vec<String> = found
            .servers
            .iter()
            .map(|server| format!("{}:{} {}", server.host, server.port, server.weight))
            .collect();
        assert_eq!(
            shown,
            ["a.internal.example:8081 0", "b.internal.example:8080 5"]
        );
        assert_eq!(found.ttl, Duration::from_secs(30));
        assert!(found_servers(&[record(0, 1, 80, ".", 60)]).is_none());
        let many: Vec<Record> = (1..=300)
            .map(|port| record(0, 1, port, "a.internal.example.", 60))
            .collect();
        assert_eq!(found_servers(&many).unwrap().servers.len(), SERVERS_MAX);
    }

    #[test]
    fn a_name_in_the_hosts_file_needs_no_name_server() {
        let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut hosts = Hosts::default();
        let text = "10.0.0.5 app\n10.0.0.6 dual\nfd00::6 dual # both\n10.0.0.7 App.Corp.Example\n";
        hosts.read_hosts_conf(text.as_bytes()).unwrap();
        let addresses = |name: &str| {
            let (config, options) = settings(&[silent.local_addr().unwrap()]).unwrap();
            let domain = "corp.example".parse().unwrap();
            let servers = config.name_servers().to_vec();
            let config = ResolverConfig::from_parts(None, vec![domain], servers);
            let look_up = look_up_with(&hosts, (config, options), name, 80);
            let limited = async { tokio::time::timeout(Duration::from_millis(50), look_up).await };
            let found = block_on(limited);
            found.ok().map(|found| found.unwrap().addresses)
        };
        let some = |texts: &[&str]| {
            let all: Vec<SocketAddr> = texts.iter().map(|text| text.parse().unwrap()).collect();
            Some(all)
        };
        assert_eq!(addresses("app"), some(&["10.0.0.5:80"]));
        assert_eq!(addresses("dual"), some(&["10.0.0.6:80", "[fd00::6]:80"]));
        assert_eq!(addresses("app.corp.example"), some(&["10.0.0.7:80"]));
        assert_eq!(addresses("other"), None, "the name server is silent");
    }

    fn block_on<F: Future>(future: F) -> F::Output {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(future)
    }

    #[test]
    fn a_query_without_an_answer_ends_after_the_timeout_of_one_attempt() {
        let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = silent.local_addr().unwrap();
        let look_up = look_up("app.internal.example", 80, std::slice::from_ref(&address));
        let not_found = block_on(look_up).unwrap_err();
        assert_eq!(not_found.failure, NameFailure::Timeout, "{not_found:?}");
        let reason = format!("the name server {address} did not answer within 5 s");
        assert_eq!(not_found.reason, reason);
    }
}
