//! Resolution of upstream names on the control thread, as long as the gateway runs.
//!
//! One thread with a current-thread runtime queries the system's name servers and its hosts file
//! whenever a TTL expires, and publishes each result as an immutable snapshot. Cores only load
//! snapshots: no request waits for a query, except for the first one.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use arc_swap::ArcSwap;
use hickory_resolver::TokioResolver;
use hickory_resolver::config::{
    ConnectionConfig, LookupIpStrategy, NameServerConfig, ResolverConfig, ResolverOpts,
};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;

/// Shortest time between queries, if the TTL is shorter.
const REFRESH_MIN: Duration = Duration::from_secs(1);
/// Longest time between queries: changes of the hosts file apply within five minutes.
const REFRESH_MAX: Duration = Duration::from_secs(300);
/// Pause after the first failure; it doubles with each further one.
const RETRY_MIN: Duration = Duration::from_secs(1);
/// Longest pause between failures.
const RETRY_MAX: Duration = Duration::from_secs(30);

/// A name and a port, with the newest result for them.
#[derive(Debug)]
pub(crate) struct ResolvedName {
    name: String,
    port: u16,
    latest: ArcSwap<LookupResult>,
}

/// Outcome of the last look-up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LookupResult {
    /// None yet: the first query is in progress.
    Pending,
    /// At least one address, in ascending order.
    Addresses(Vec<SocketAddr>),
    /// No query has succeeded. Addresses of an earlier query stay in use while later ones fail.
    Failed(NameFailure),
}

/// Why a name has no address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NameFailure {
    /// The name does not exist, has no address, or its servers refuse to answer.
    Error,
    /// No name server answered in time.
    Timeout,
}

impl ResolvedName {
    /// The newest result; costs a few nanoseconds and never waits.
    pub(crate) fn latest(&self) -> arc_swap::Guard<Arc<LookupResult>> {
        self.latest.load()
    }

    /// Whether this is the name and port.
    pub(crate) fn is(&self, name: &str, port: u16) -> bool {
        self.name == name && self.port == port
    }

    /// A name with a result that never changes.
    #[cfg(test)]
    pub(crate) fn fixed(result: LookupResult) -> ResolvedName {
        ResolvedName {
            name: String::new(),
            port: 0,
            latest: ArcSwap::from_pointee(result),
        }
    }

    fn publish(&self, result: LookupResult) {
        if **self.latest.load() != result {
            // Failures have a warning of their own.
            if let LookupResult::Addresses(addresses) = &result {
                tracing::info!(
                    name = self.name,
                    port = self.port,
                    ?addresses,
                    "upstream name resolved"
                );
            }
            self.latest.store(Arc::new(result));
        }
    }
}

/// Starts to resolve names; without names there is no thread.
///
/// The queries stop when the name's [`ResolvedName`] is dropped. `servers` replaces those of
/// `/etc/resolv.conf`; the hosts file is always read.
///
/// # Errors
/// The thread or its runtime could not be started.
pub(crate) fn start(
    names: &[(String, u16)],
    servers: &[SocketAddr],
) -> io::Result<Vec<Arc<ResolvedName>>> {
    let make = |(name, port): &(String, u16)| {
        let latest = ArcSwap::from_pointee(LookupResult::Pending);
        Arc::new(ResolvedName {
            name: name.clone(),
            port: *port,
            latest,
        })
    };
    let resolved: Vec<Arc<ResolvedName>> = names.iter().map(make).collect();
    if resolved.is_empty() {
        return Ok(resolved);
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let watched: Vec<Weak<ResolvedName>> = resolved.iter().map(Arc::downgrade).collect();
    let servers: Arc<[SocketAddr]> = servers.into();
    thread::Builder::new()
        .name(String::from("blitz-control"))
        .spawn(move || {
            let tasks = watched
                .into_iter()
                .map(|name| runtime.spawn(keep_fresh(name, servers.clone())));
            let tasks: Vec<_> = tasks.collect();
            runtime.block_on(async {
                for task in tasks {
                    // If a task panics, its name keeps its result; the other tasks continue.
                    let _ = task.await;
                }
            });
        })?;
    Ok(resolved)
}

async fn keep_fresh(watched: Weak<ResolvedName>, servers: Arc<[SocketAddr]>) {
    let mut retry = RETRY_MIN;
    while let Some(resolved) = watched.upgrade() {
        let wait = match look_up(&resolved, &servers).await {
            Ok((addresses, ttl)) => {
                resolved.publish(LookupResult::Addresses(addresses));
                retry = RETRY_MIN;
                ttl.clamp(REFRESH_MIN, REFRESH_MAX)
            }
            Err((failure, reason)) => {
                tracing::warn!(name = resolved.name, reason, "upstream name not resolved");
                if !matches!(**resolved.latest(), LookupResult::Addresses(_)) {
                    resolved.publish(LookupResult::Failed(failure));
                }
                let wait = retry;
                retry = (retry * 2).min(RETRY_MAX);
                wait
            }
        };
        drop(resolved);
        tokio::time::sleep(wait).await;
    }
}

/// One query. Reads the hosts file and `resolv.conf` again, so that edits need no restart.
async fn look_up(
    resolved: &ResolvedName,
    servers: &[SocketAddr],
) -> Result<(Vec<SocketAddr>, Duration), (NameFailure, String)> {
    let resolver = resolver(servers).map_err(|error| (NameFailure::Error, error.to_string()))?;
    let found = resolver
        .lookup_ip(resolved.name.as_str())
        .await
        .map_err(|error| {
            let failure = match error {
                NetError::Timeout => NameFailure::Timeout,
                _ => NameFailure::Error,
            };
            (failure, error.to_string())
        })?;
    let mut addresses: Vec<SocketAddr> = found
        .iter()
        .map(|ip| SocketAddr::new(ip, resolved.port))
        .collect();
    // Servers rotate their answers. In ascending order an unchanged set is equal.
    addresses.sort_unstable();
    addresses.dedup();
    if addresses.is_empty() {
        return Err((NameFailure::Error, String::from("the name has no address")));
    }
    let ttl = found
        .as_lookup()
        .answers()
        .iter()
        .map(|record| record.ttl)
        .min();
    Ok((
        addresses,
        Duration::from_secs(ttl.unwrap_or_default().into()),
    ))
}

fn resolver(servers: &[SocketAddr]) -> Result<TokioResolver, NetError> {
    let (config, mut options) = if servers.is_empty() {
        // resolv.conf(5): without the file, only a name server on this machine is used.
        hickory_resolver::system_conf::read_system_conf().unwrap_or_else(|_| {
            let local = NameServerConfig::udp_and_tcp(IpAddr::from([127, 0, 0, 1]));
            (
                ResolverConfig::from_name_servers(vec![local]),
                ResolverOpts::default(),
            )
        })
    } else {
        let servers = servers.iter().map(name_server).collect();
        (
            ResolverConfig::from_name_servers(servers),
            ResolverOpts::default(),
        )
    };
    options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
    // Results are kept here; a second cache would only delay the refresh.
    options.cache_size = 0;
    let provider = TokioRuntimeProvider::default();
    TokioResolver::builder_with_config(config, provider)
        .with_options(options)
        .build()
}

fn name_server(address: &SocketAddr) -> NameServerConfig {
    let mut connections = vec![ConnectionConfig::udp(), ConnectionConfig::tcp()];
    for connection in &mut connections {
        connection.port = address.port();
    }
    NameServerConfig::new(address.ip(), true, connections)
}
