//! Resolution of names on the control thread, as long as the process runs.
//!
//! It queries the system's name servers and its hosts file, and publishes each result as an immutable snapshot. Cores
//! only load snapshots: no request waits for a query, except for the first one. A name is queried when its TTL expires,
//! soon after an address could not be connected to, and at once on a reload.

mod failure;
mod files;
mod lookup;
mod pause;
mod query;
mod service;

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use arc_swap::{ArcSwap, ArcSwapOption};
use tokio::sync::Notify;

use crate::control_thread;
use lookup::{Found, NotFound, look_up};
use pause::{PAUSE_FIRST, PAUSE_MIN, REFRESH_MAX, REFRESH_MIN, longer, with_jitter};
use service::Changes;

pub use failure::NameFailure;
pub use lookup::ServiceServer;
pub use service::{ResolvedService, ServiceResult};

/// The addresses of a name, in ascending order: one look-up, for programs that need no refresh. Blocks this thread.
///
/// # Errors
/// Why there are none, in words.
pub fn look_up_once(name: &str, port: u16) -> Result<Vec<SocketAddr>, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("the resolver does not start: {error}"))?;
    match runtime.block_on(look_up(name, port, &[])) {
        Ok(found) => Ok(found.addresses),
        Err(not_found) => Err(not_found.reason),
    }
}

/// A name and a port, with the newest result for them.
#[derive(Debug)]
pub struct ResolvedName {
    name: String,
    port: u16,
    latest: ArcSwap<LookupResult>,
    requests: Arc<RefreshRequests>,
    /// Look-ups that have begun.
    begun: AtomicU32,
    /// How many of them have ended.
    ended: AtomicU32,
    /// How often the addresses have changed.
    changes: AtomicU32,
    /// The last of these changes, but the first addresses.
    change: ArcSwapOption<NameChange>,
    /// See [`ResolvedName::looks_up_soon`].
    looks_up_soon: AtomicBool,
}

/// A change of the addresses of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameChange {
    /// The addresses until then, in ascending order.
    pub before: Vec<SocketAddr>,
    /// When the new ones were known.
    pub at: SystemTime,
}

/// The state of a name at a moment: how many look-ups have begun, and how often the addresses have changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NameState {
    begun: u32,
    changes: u32,
}

/// Requests to query a name again before its TTL expires. Equal ones count as one.
#[derive(Debug, Default)]
pub(crate) struct RefreshRequests {
    /// No connection to one of its addresses could be made: soon.
    failure: Notify,
    /// The settings are reloaded: at once.
    reload: Notify,
}

/// Outcome of the last look-up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LookupResult {
    /// None yet: the first query is in progress.
    Pending,
    /// At least one address, in ascending order.
    Addresses(Vec<SocketAddr>),
    /// No query has succeeded. Addresses of an earlier query stay in use while later ones fail.
    Failed(NameFailure),
}

impl ResolvedName {
    /// The newest result; costs a few nanoseconds and never waits.
    pub fn latest(&self) -> arc_swap::Guard<Arc<LookupResult>> {
        self.latest.load()
    }

    /// The state before a request uses the newest result.
    #[inline]
    pub fn state(&self) -> NameState {
        NameState {
            begun: self.begun.load(Ordering::Acquire),
            changes: self.changes.load(Ordering::Acquire),
        }
    }

    /// The last change of its addresses; `None` if it has the first ones.
    pub fn last_change(&self) -> Option<Arc<NameChange>> {
        self.change.load_full()
    }

    /// Whether the addresses have changed since then.
    pub fn has_changed_since(&self, then: NameState) -> bool {
        self.changes.load(Ordering::Acquire) != then.changes
    }

    /// Whether a look-up that has begun since then has ended.
    pub fn is_newer_than(&self, then: NameState) -> bool {
        let ended = self.ended.load(Ordering::Acquire);
        ended.wrapping_sub(then.begun).cast_signed() > 0
    }

    /// Whether the name is queried within about a second of a failure to connect. While an upstream is down
    /// for longer, this is not so, and no request waits for the query.
    pub fn looks_up_soon(&self) -> bool {
        self.looks_up_soon.load(Ordering::Acquire)
    }

    /// Queries the name again at once, or within about a second if the last such query changed nothing, and
    /// later if that is repeated. The known addresses stay in use meanwhile.
    pub fn refresh_after_failure(&self) {
        self.requests.failure.notify_one();
    }

    /// To query the name again at once.
    pub(crate) fn requests(&self) -> Arc<RefreshRequests> {
        Arc::clone(&self.requests)
    }

    /// A name with a result that never changes.
    #[must_use]
    pub fn fixed(result: LookupResult) -> ResolvedName {
        ResolvedName::new(String::new(), 0, result)
    }

    fn new(name: String, port: u16, result: LookupResult) -> ResolvedName {
        ResolvedName {
            name,
            port,
            latest: ArcSwap::from_pointee(result),
            requests: Arc::default(),
            begun: AtomicU32::new(0),
            ended: AtomicU32::new(0),
            changes: AtomicU32::new(0),
            change: ArcSwapOption::empty(),
            looks_up_soon: AtomicBool::new(true),
        }
    }

    /// Makes the addresses known to the cores; returns whether they are new.
    fn publish(&self, addresses: Vec<SocketAddr>, is_news: bool) -> bool {
        let (name, port) = (&self.name, self.port);
        let before = self.latest();
        let before = match &**before {
            LookupResult::Addresses(before) => before.as_slice(),
            _ => &[],
        };
        let is_changed = before != addresses;
        if is_changed {
            tracing::info!(name, port, ?addresses, ?before, "upstream name resolved");
        } else if is_news {
            tracing::info!(name, port, ?addresses, "upstream name resolved, no change");
        } else {
            tracing::debug!(name, port, ?addresses, "upstream name resolved, no change");
        }
        if is_changed {
            if !before.is_empty() {
                self.change.store(Some(Arc::new(NameChange {
                    before: before.to_vec(),
                    at: SystemTime::now(),
                })));
            }
            self.latest
                .store(Arc::new(LookupResult::Addresses(addresses)));
            self.changes.fetch_add(1, Ordering::Release);
        }
        is_changed
    }

    /// Reports that a query had no result. Earlier addresses stay in use.
    fn publish_failure(&self, not_found: &NotFound, is_news: bool) {
        let (name, reason) = (&self.name, &not_found.reason);
        let failed = LookupResult::Failed(not_found.failure);
        let latest = self.latest();
        match &**latest {
            LookupResult::Addresses(in_use) if is_news => {
                tracing::warn!(name, reason, ?in_use, "upstream name not resolved again");
            }
            _ if is_news => tracing::warn!(name, reason, "upstream name not resolved"),
            _ => tracing::debug!(name, reason, "upstream name not resolved"),
        }
        if !matches!(**latest, LookupResult::Addresses(_)) && **latest != failed {
            self.latest.store(Arc::new(failed));
        }
    }
}

impl RefreshRequests {
    /// Queries the name again at once.
    pub(crate) fn reload(&self) {
        self.reload.notify_one();
    }

    /// Waits until the name is to be queried again: when its result `expires`, at once on a reload,
    /// and after `pause` if there was a failure to connect.
    async fn next(&self, pause: Duration, expires: Duration) -> Trigger {
        let failure = async {
            tokio::time::sleep(pause).await;
            self.failure.notified().await;
        };
        tokio::select! {
            () = self.reload.notified() => return Trigger::Reload,
            () = failure => return Trigger::Failure,
            () = tokio::time::sleep(expires) => {}
        }
        // A failure during the pause, which is longer than the result was valid.
        match tokio::time::timeout(Duration::ZERO, self.failure.notified()).await {
            Ok(()) => Trigger::Failure,
            Err(_) => Trigger::Expiry,
        }
    }
}

/// Why a name is queried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trigger {
    /// The last result has expired, or the last query failed.
    Expiry,
    /// No connection to one of its addresses could be made.
    Failure,
    /// The settings are reloaded.
    Reload,
}

/// Resolves names on the control thread.
pub struct Resolver {
    /// Replace those of `/etc/resolv.conf`; the hosts file is always read.
    servers: Arc<[SocketAddr]>,
    known: HashMap<(String, u16), Weak<ResolvedName>>,
    services: HashMap<String, Weak<ResolvedService>>,
    changes: Arc<Changes>,
}

impl Resolver {
    /// A resolver that asks these servers, or with none of them those of `/etc/resolv.conf`.
    #[must_use]
    pub fn new(servers: &[SocketAddr]) -> Resolver {
        Resolver {
            servers: servers.into(),
            known: HashMap::new(),
            services: HashMap::new(),
            changes: Arc::default(),
        }
    }

    /// A name, which is resolved until it is dropped. One that is known is the same as before.
    ///
    /// # Errors
    /// The thread or its runtime could not be started.
    pub fn resolve(&mut self, name: &str, port: u16) -> io::Result<Arc<ResolvedName>> {
        match self.find(name, port) {
            Some(known) => Ok(known),
            None => self.begin(name, port),
        }
    }

    /// A name with SRV records, as [`Resolver::resolve`].
    ///
    /// # Errors
    /// The thread or its runtime could not be started.
    pub fn service(&mut self, name: &str) -> io::Result<Arc<ResolvedService>> {
        if let Some(known) = self.services.get(name).and_then(Weak::upgrade) {
            return Ok(known);
        }
        let service = Arc::new(ResolvedService::new(name, &self.changes));
        let kept_fresh = service::keep_fresh(Arc::downgrade(&service), Arc::clone(&self.servers));
        control_thread::spawn(kept_fresh)?;
        (self.services).insert(name.to_owned(), Arc::downgrade(&service));
        Ok(service)
    }

    /// How often the servers of services have changed.
    pub fn service_changes(&self) -> u64 {
        self.changes.count()
    }

    /// Waits until each service has had an answer or a failure, but no longer than this. Blocks this thread.
    pub fn wait_for_services(&self, limit: Duration) {
        let services = self.services.values().filter_map(Weak::upgrade);
        self.changes.wait_for(&services.collect::<Vec<_>>(), limit);
    }

    /// Forgets the names that are not resolved any more.
    pub fn prune(&mut self) {
        self.services
            .retain(|_, service| service.strong_count() > 0);
        self.known.retain(|_, name| name.strong_count() > 0);
    }

    fn find(&self, name: &str, port: u16) -> Option<Arc<ResolvedName>> {
        self.known.get(&(name.to_owned(), port))?.upgrade()
    }

    fn begin(&mut self, name: &str, port: u16) -> io::Result<Arc<ResolvedName>> {
        let pending = LookupResult::Pending;
        let resolved = Arc::new(ResolvedName::new(name.to_owned(), port, pending));
        let kept_fresh = keep_fresh(Arc::downgrade(&resolved), Arc::clone(&self.servers));
        control_thread::spawn(kept_fresh)?;
        let key = (name.to_owned(), port);
        self.known.insert(key, Arc::downgrade(&resolved));
        Ok(resolved)
    }

    /// Queries all names again at once.
    pub fn reload(&self) {
        let names = self.known.values().filter_map(Weak::upgrade);
        names.for_each(|name| name.requests().reload());
        let services = self.services.values().filter_map(Weak::upgrade);
        services.for_each(|service| service.query_again());
    }

    /// Whether there are names.
    pub fn has_names(&self) -> bool {
        self.known.values().any(|name| name.strong_count() > 0)
            || (self.services.values()).any(|service| service.strong_count() > 0)
    }
}

async fn keep_fresh(watched: Weak<ResolvedName>, servers: Arc<[SocketAddr]>) {
    let mut trigger = Trigger::Expiry;
    let mut failure = None;
    let mut pause = PAUSE_FIRST;
    while let Some(resolved) = watched.upgrade() {
        let requests = resolved.requests();
        let is_reload = trigger == Trigger::Reload;
        let begun = resolved
            .begun
            .fetch_add(1, Ordering::AcqRel)
            .wrapping_add(1);
        let looked_up = look_up(&resolved.name, resolved.port, &servers).await;
        let expires = match looked_up {
            Ok(Found { addresses, ttl }) => {
                let is_news = is_reload || failure.take().is_some();
                let is_changed = resolved.publish(addresses, is_news);
                pause = match trigger {
                    Trigger::Failure if !is_changed => longer(pause),
                    _ => PAUSE_FIRST,
                };
                ttl.clamp(REFRESH_MIN, REFRESH_MAX)
            }
            Err(not_found) => {
                // One warning for each change of the reason.
                let known = failure.replace(not_found.failure);
                resolved.publish_failure(&not_found, is_reload || known != failure);
                pause = match known {
                    Some(_) if !is_reload => longer(pause),
                    _ => PAUSE_MIN,
                };
                with_jitter(pause)
            }
        };
        resolved
            .looks_up_soon
            .store(pause <= PAUSE_MIN, Ordering::Release);
        resolved.ended.store(begun, Ordering::Release);
        drop(resolved);
        trigger = requests.next(with_jitter(pause), expires).await;
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{LazyLock, Mutex};

    use tracing::Dispatch;
    use tracing::subscriber::NoSubscriber;

    use super::pause::PAUSE_MAX;
    use super::*;

    /// Beside a single dispatcher, an event that another thread without one meets first would be off for ever.
    static SECOND: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(NoSubscriber::default()));

    /// Log lines of this thread.
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// The lines from INFO on that `f` logs.
    fn logged(f: impl FnOnce()) -> String {
        LazyLock::force(&SECOND);
        let log = Log::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_writer(move || writer.clone());
        tracing::subscriber::with_default(subscriber.finish(), f);
        let bytes = log.0.lock().unwrap();
        String::from_utf8(bytes.clone()).unwrap()
    }

    fn addresses(texts: &[&str]) -> Vec<SocketAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn old_and_new_addresses_are_logged_when_they_change() {
        let name = ResolvedName::fixed(LookupResult::Pending);
        let publish = |texts: &[&str], is_news| {
            let text = logged(|| {
                name.publish(addresses(texts), is_news);
            });
            text.split_once("upstream name")
                .map(|(_, rest)| rest.to_owned())
        };
        let first = publish(&["10.0.0.1:80"], false).unwrap();
        assert!(
            first.contains("addresses=[10.0.0.1:80] before=[]"),
            "{first}"
        );
        assert_eq!(name.last_change(), None);
        assert_eq!(publish(&["10.0.0.1:80"], false), None);
        let again = publish(&["10.0.0.1:80"], true).unwrap();
        assert!(again.contains("resolved, no change"), "{again}");
        let changed = publish(&["10.0.0.2:80"], false).unwrap();
        assert!(
            changed.contains("addresses=[10.0.0.2:80] before=[10.0.0.1:80]"),
            "{changed}"
        );
        let change = name.last_change().unwrap();
        assert_eq!(change.before, addresses(&["10.0.0.1:80"]));
        assert!(change.at.elapsed().unwrap() < Duration::from_secs(60));
        publish(&["10.0.0.2:80"], true);
        assert_eq!(name.last_change(), Some(change));
    }

    #[test]
    fn a_failure_is_logged_once_and_keeps_the_addresses() {
        let name = ResolvedName::fixed(LookupResult::Pending);
        let fail = |is_news| {
            let not_found = NotFound {
                failure: NameFailure::NoSuchName,
                reason: String::from("for a reason"),
            };
            logged(|| name.publish_failure(&not_found, is_news))
        };
        let text = fail(true);
        assert!(text.contains("WARN"), "{text}");
        assert!(text.contains("upstream name not resolved name="), "{text}");
        assert!(text.contains("reason=\"for a reason\""), "{text}");
        assert_eq!(fail(false), "");
        let failed = LookupResult::Failed(NameFailure::NoSuchName);
        assert_eq!(**name.latest(), failed);
        name.publish(addresses(&["10.0.0.1:80"]), false);
        let text = fail(true);
        assert!(text.contains("in_use=[10.0.0.1:80]"), "{text}");
        assert_ne!(**name.latest(), failed);
    }

    #[test]
    fn pauses_are_at_most_a_quarter_longer() {
        for _ in 0..100 {
            let pause = with_jitter(PAUSE_MAX);
            assert!(pause >= PAUSE_MAX && pause < PAUSE_MAX + PAUSE_MAX / 4);
        }
    }
}
