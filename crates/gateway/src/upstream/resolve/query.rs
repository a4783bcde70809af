//! Queries to the name servers: the names of the search list, and both families of addresses.

use std::pin::pin;
use std::time::Duration;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{ResolverConfig, ResolverOpts};
use hickory_resolver::lookup::Lookup;
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::{Name, Record, RecordType};
use tokio::time::timeout;

use super::failure::NameFailure;

/// How long the addresses of one family wait for those of the other (RFC 8305, section 3). That RFC
/// recommends 50 ms for a person who waits for a page; a gateway keeps the result until its TTL expires.
const RESOLUTION_DELAY: Duration = Duration::from_millis(300);

/// The records of the first name of the search list that has addresses.
///
/// # Errors
/// The error of the last query. A name server that is silent or cannot be reached ends the search, because
/// the next name may belong to another machine.
pub(super) async fn query(
    name: Name,
    config: ResolverConfig,
    options: ResolverOpts,
) -> Result<Vec<Record>, NetError> {
    let names = candidates(&name, &config, options.ndots);
    let provider = TokioRuntimeProvider::default();
    let resolver = TokioResolver::builder_with_config(config, provider)
        .with_options(options)
        .build()?;
    let mut last = NetError::Message("no name to query");
    for name in names {
        match both_families(&resolver, name).await {
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
async fn both_families(resolver: &TokioResolver, name: Name) -> Result<Vec<Record>, NetError> {
    let mut v4 = pin!(resolver.lookup(name.clone(), RecordType::A));
    let mut v6 = pin!(resolver.lookup(name, RecordType::AAAA));
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

fn has_addresses(lookup: &Lookup) -> bool {
    let mut records = lookup.answers().iter();
    records.any(|record| record.data.ip_addr().is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

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
