//! Queries to the name servers: the names of the search list, and both families of addresses.

use std::future::pending;
use std::pin::pin;
use std::time::Duration;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{
    ConnectionConfig, NameServerConfig, ProtocolConfig, ResolverConfig, ResolverOpts,
};
use hickory_resolver::lookup::Lookup;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::{Name, Record, RecordType};
use tokio::time::timeout;

use super::failure::NameFailure;

/// The longest answer that servers are asked to send in a datagram, so that it is not fragmented.
const USUAL_PAYLOAD_BYTES: u16 = 1232;
/// The longest datagram that the resolver receives.
const LONG_PAYLOAD_BYTES: u16 = 4096;

/// How long a server has before it gets the same query without EDNS.
const EDNS_WAIT: Duration = Duration::from_secs(1);

/// How long the addresses of one family wait for those of the other (RFC 8305, section 3). That RFC
/// recommends 50 ms for a person who waits for a page; a gateway keeps the result until its TTL expires.
const RESOLUTION_DELAY: Duration = Duration::from_millis(300);

/// The records that a name is queried for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    /// A and AAAA.
    Addresses,
    /// SRV.
    Services,
}

/// The records of the first name of the search list that has some.
///
/// # Errors
/// The error of the last query. A name server that is silent or cannot be reached ends the search, because
/// the next name may belong to another machine.
pub(super) async fn query(
    wanted: Wanted,
    name: Name,
    config: ResolverConfig,
    options: ResolverOpts,
) -> Result<Vec<Record>, NetError> {
    let names = candidates(&name, &config, options.ndots);
    let resolvers = Resolvers { config, options };
    let mut last = NetError::Message("no name to query");
    for name in names {
        let found = match wanted {
            Wanted::Addresses => both_families(&resolvers, name).await,
            Wanted::Services => {
                let lookup = resolvers.look_up(name, RecordType::SRV).await;
                lookup.map(|lookup| lookup.answers().to_vec())
            }
        };
        match found {
            Ok(records) => return Ok(records),
            Err(error) => last = error,
        }
        if matches!(
            NameFailure::of(&last),
            NameFailure::Timeout | NameFailure::Unreachable
        ) {
            break;
        }
    }
    Err(last)
}

/// The names to query, in order: `name` itself comes first if it has at least `ndots` dots
/// (resolv.conf(5)), otherwise last.
fn candidates(name: &Name, config: &ResolverConfig, ndots: usize) -> Vec<Name> {
    let mut names = Vec::new();
    if !name.is_fqdn() && !name.is_localhost() {
        // The domain of this machine applies only without a search list.
        let domains = match config.search() {
            [] => config
                .domain()
                .map(std::slice::from_ref)
                .unwrap_or_default(),
            search => search,
        };
        let in_domain = |domain| name.clone().append_domain(domain).ok();
        names.extend(domains.iter().filter_map(in_domain));
    }
    let mut bare = name.clone();
    bare.set_fqdn(true);
    let dots = usize::from(name.num_labels()).saturating_sub(1);
    let at = if dots >= ndots { 0 } else { names.len() };
    names.insert(at, bare);
    names
}

/// Queries A and AAAA at the same time. Once one answer has addresses, the other is waited for briefly
/// only: some name servers never answer AAAA.
async fn both_families(resolvers: &Resolvers, name: Name) -> Result<Vec<Record>, NetError> {
    let mut v4 = pin!(resolvers.look_up(name.clone(), RecordType::A));
    let mut v6 = pin!(resolvers.look_up(name, RecordType::AAAA));
    let (first, other) = tokio::select! {
        first = &mut v4 => (first, v6),
        first = &mut v6 => (first, v4),
    };
    let other = match &first {
        Ok(first) if has_addresses(first) => timeout(RESOLUTION_DELAY, other).await.ok(),
        _ => Some(other.await),
    };
    match (first, other) {
        (Ok(first), Some(Ok(other))) => Ok([first.answers(), other.answers()].concat()),
        (Ok(one), _) | (_, Some(Ok(one))) => Ok(one.answers().to_vec()),
        // The name has no address only if both answers say so.
        (Err(first), Some(Err(other))) if NameFailure::of(&first) == NameFailure::NoAddress => {
            Err(other)
        }
        (Err(first), _) => Err(first),
    }
}

/// How the datagrams and connections to the name servers are used.
struct Resolvers {
    config: ResolverConfig,
    options: ResolverOpts,
}

impl Resolvers {
    /// The records of one type. Answers of up to [`USUAL_PAYLOAD_BYTES`] come in a datagram, and longer ones over
    /// TCP, which is tried if a server says that the answer is cut off (this is part of the resolver) and also
    /// if it says nothing: Docker's, for example, sends datagrams of any length. A server without TCP may send a
    /// long datagram.
    async fn look_up(&self, name: Name, family: RecordType) -> Result<Lookup, NetError> {
        match self.with_or_without_edns(&name, family).await {
            Err(error) if is_not_decoded(&error) => {}
            answered => return answered,
        }
        tracing::debug!(%name, "the answer is longer than a datagram: TCP is used");
        match self.ask(Way::Tcp, &name, family).await {
            Err(NetError::Io(_) | NetError::NoConnections | NetError::Timeout) => {
                self.ask(Way::LongDatagrams, &name, family).await
            }
            answered => answered,
        }
    }

    /// A server that does not know EDNS gets a query without it: at once if it says so, and after [`EDNS_WAIT`] if
    /// it is silent. Some ignore such queries, or answer without the question, by which answers are recognised.
    async fn with_or_without_edns(
        &self,
        name: &Name,
        family: RecordType,
    ) -> Result<Lookup, NetError> {
        let mut usual = pin!(self.ask(Way::Usual, name, family));
        match timeout(EDNS_WAIT, &mut usual).await {
            Ok(Err(error)) if lacks_edns(&error) => self.ask(Way::WithoutEdns, name, family).await,
            Ok(answered) => answered,
            Err(_) => tokio::select! {
                answered = &mut usual => answered,
                answered = self.answer_without_edns(name, family) => answered,
            },
        }
    }

    /// An answer, also one that is cut off. Failures are left to the query with EDNS.
    async fn answer_without_edns(
        &self,
        name: &Name,
        family: RecordType,
    ) -> Result<Lookup, NetError> {
        match self.ask(Way::WithoutEdns, name, family).await {
            Err(error) if !is_not_decoded(&error) => pending().await,
            answered => answered,
        }
    }

    async fn ask(&self, way: Way, name: &Name, family: RecordType) -> Result<Lookup, NetError> {
        self.resolver(way)?.lookup(name.clone(), family).await
    }

    fn resolver(&self, way: Way) -> Result<TokioResolver, NetError> {
        let (mut config, mut options) = (self.config.clone(), self.options.clone());
        // TCP needs none.
        options.edns0 = matches!(way, Way::Usual | Way::LongDatagrams);
        options.edns_payload_len = match way {
            Way::LongDatagrams => LONG_PAYLOAD_BYTES,
            _ => USUAL_PAYLOAD_BYTES,
        };
        if way == Way::Tcp {
            let servers = config.name_servers().iter().map(without_datagrams);
            config = ResolverConfig::from_name_servers(servers.collect());
        }
        let provider = TokioRuntimeProvider::default();
        TokioResolver::builder_with_config(config, provider)
            .with_options(options)
            .build()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Usual,
    Tcp,
    LongDatagrams,
    WithoutEdns,
}

fn without_datagrams(server: &NameServerConfig) -> NameServerConfig {
    let mut server = server.clone();
    let is_udp = |connection: &ConnectionConfig| connection.protocol == ProtocolConfig::Udp;
    server.connections.retain(|connection| !is_udp(connection));
    server
}

/// The received part of the answer ends within a record, or TCP has been tried.
fn is_not_decoded(error: &NetError) -> bool {
    matches!(error, NetError::Proto(_) | NetError::Truncated)
}

/// RFC 6891, section 7: "Responders that choose not to implement the protocol extensions defined in this
/// document MUST respond with a return code (RCODE) of FORMERR to messages containing an OPT record in the
/// additional section". Some answer with NOTIMP.
fn lacks_edns(error: &NetError) -> bool {
    let codes = [
        ResponseCode::FormErr,
        ResponseCode::NotImp,
        ResponseCode::BADVERS,
    ];
    matches!(error, NetError::Dns(DnsError::ResponseCode(code)) if codes.contains(code))
}

fn has_addresses(lookup: &Lookup) -> bool {
    let mut records = lookup.answers().iter();
    records.any(|record| record.data.ip_addr().is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without EDNS, answers have at most 512 bytes. Files of Docker and Kubernetes do not ask for it.
    #[test]
    fn queries_have_edns_also_if_resolv_conf_has_no_such_option() {
        let resolv_conf = "nameserver 10.0.0.2\noptions ndots:5\n";
        let (config, options) =
            hickory_resolver::system_conf::parse_resolv_conf(resolv_conf).unwrap();
        assert!(!options.edns0);
        let resolvers = Resolvers { config, options };
        let used = |way| {
            let resolver = resolvers.resolver(way).unwrap();
            (
                resolver.options().edns0,
                resolver.options().edns_payload_len,
            )
        };
        assert_eq!(used(Way::Usual), (true, 1232));
        assert_eq!(used(Way::LongDatagrams), (true, 4096));
        assert!(!used(Way::WithoutEdns).0 && !used(Way::Tcp).0);
    }

    #[test]
    fn the_search_list_comes_first_for_names_with_few_dots() {
        let names = |name: &str, resolv_conf: &str| {
            let resolv_conf = format!("nameserver 10.0.0.2\n{resolv_conf}");
            let (config, options) =
                hickory_resolver::system_conf::parse_resolv_conf(resolv_conf).unwrap();
            let names = candidates(&name.parse().unwrap(), &config, options.ndots);
            names.iter().map(Name::to_string).collect::<Vec<_>>()
        };
        let search = "search a.example b.example";
        assert_eq!(
            names("app", search),
            ["app.a.example.", "app.b.example.", "app."]
        );
        assert_eq!(
            names("app.ns", search),
            ["app.ns.", "app.ns.a.example.", "app.ns.b.example."]
        );
        let many_dots = "search a.example\noptions ndots:5";
        assert_eq!(names("app.ns", many_dots), ["app.ns.a.example.", "app.ns."]);
        assert_eq!(names("app.", search), ["app."]);
        assert_eq!(names("app.localhost", many_dots), ["app.localhost."]);
        assert_eq!(names("app", "domain a.example"), ["app.a.example.", "app."]);
    }
}
