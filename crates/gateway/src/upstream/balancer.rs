//! One upstream as one core sees it: which of its addresses is used next.

use std::cell::{Cell, RefCell};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use blitz_host::names::{LookupResult, NameFailure, NameState, ResolvedName, ResolvedService};
use blitz_http::{Address, Pool, Protocol, Upstream, UpstreamTls};
use blitz_site::Failure;

use super::cooldown::Cooldowns;
use super::figures::{AddressFigures, Counts};
use super::latency::Latency;
use super::member::Member;
use super::outlier::Outcomes;
use super::retry_budget::RetryBudget;
use super::shared_retries::SharedRetries;

/// Addresses tried for one request.
pub(super) const TRIES_MAX: usize = 3;
/// Connections to a name that end without a response, within [`RESETS_PERIOD`], after which the name is
/// resolved again. A restarted upstream resets one or two.
const RESETS_MAX: u32 = 3;
/// How long a server gets no requests after one that failed when it was tried again.
const PROBE_FAILED: Duration = Duration::from_secs(5);
/// See [`RESETS_MAX`].
const RESETS_PERIOD: Duration = Duration::from_secs(10);

/// The addresses of an upstream, used in turn, and the connections to them.
pub(crate) struct Balancer {
    source: AddressSource,
    connector: Connector,
    /// Counts requests, to distribute them over the addresses.
    round_robin: Cell<u32>,
    /// Handles to the addresses used so far, so that no request has to look one up.
    upstreams: RefCell<Vec<(SocketAddr, Upstream)>>,
    /// Of the addresses above only, so there are never more.
    cooldowns: RefCell<Cooldowns>,
    /// Of the addresses above, or of the only one.
    counts: RefCell<Vec<(SocketAddr, Counts)>>,
    /// Number of connections that ended without a response, and since when they are counted.
    resets: Cell<Option<(u32, Instant)>>,
    pub(crate) retries: RetryBudget,
    /// Requests that have chosen it among several servers, until they end.
    pub(super) in_flight: Cell<u32>,
    /// Consecutive failures after which it is judged; `None` if it is not one of several servers.
    failures_max: Cell<Option<u32>>,
    pub(super) latency: Latency,
    pub(super) outcomes: Outcomes,
    /// It has failed so often that its set is to judge it.
    pub(super) is_suspect: Cell<bool>,
    /// A request of this core finds out whether it works again.
    is_probed: Cell<bool>,
}

/// The state of an address on this core.
pub(crate) struct AddressState {
    pub(crate) address: Address,
    pub(crate) idle: usize,
    pub(crate) in_use: usize,
    /// How long requests will avoid it.
    pub(crate) cooling_down: Option<Duration>,
    /// How long ago it could not be connected to, and why.
    pub(crate) last_failure: Option<(Duration, Failure)>,
    pub(crate) figures: AddressFigures,
    /// Requests that have chosen the server among several, and have not ended.
    pub(crate) running: u32,
}

/// The states of upstreams on a core, by the numbers of the upstreams in a snapshot.
pub(crate) type States = Vec<(usize, Vec<AddressState>)>;

/// An upstream as its core sees it now.
#[derive(Debug, Clone)]
pub(crate) struct UpstreamState {
    /// Its name in metrics.
    pub(crate) label: Arc<str>,
    /// Connections without a request.
    pub(crate) idle: usize,
    /// Connections in use.
    pub(crate) active: usize,
    /// Addresses that requests avoid, because no connection could be made.
    pub(crate) avoided: usize,
}

/// How connections to an upstream are made.
#[derive(Clone)]
pub(crate) struct Connector {
    /// The upstream in metrics.
    pub(crate) label: Arc<str>,
    /// The knowledge of all cores about the upstream.
    pub(crate) member: Arc<Member>,
    pub(crate) pool: Pool,
    pub(crate) protocol: Protocol,
    pub(crate) tls: Option<UpstreamTls>,
}

impl Connector {
    fn to(&self, address: &Address) -> Upstream {
        match &self.tls {
            None => self.pool.upstream_with_protocol(address, self.protocol),
            Some(tls) => self.pool.upstream_tls(address, tls),
        }
    }
}

enum AddressSource {
    One(Upstream),
    /// Both are this machine; an application may listen on only one of them.
    Localhost([SocketAddr; 2]),
    Name(Arc<ResolvedName>),
    /// None: no server of it is known.
    Service(Arc<ResolvedService>),
}

/// The addresses that one request has tried.
#[derive(Debug, Default)]
pub(crate) struct Tried {
    addresses: [Option<SocketAddr>; TRIES_MAX],
    count: u8,
    /// Which of them the first attempt went to, for the retry.
    again: Option<u8>,
    /// Index of the first address in the list.
    first: Option<u32>,
    /// The state of the name before the first address was picked.
    name: Option<NameState>,
}

impl Tried {
    /// The address of the first attempt, once.
    fn take_again(&mut self) -> Option<SocketAddr> {
        self.addresses[usize::from(self.again.take()?)]
    }

    /// Whether the request went to this address first.
    pub(crate) fn is_first(&self, upstream: &Upstream) -> bool {
        match *upstream.address() {
            Address::Tcp(address) => self.addresses[0] == Some(address),
            Address::Unix(_) => true,
        }
    }

    /// Lets a retry go where the first attempt went, if no other address can be reached.
    pub(crate) fn may_return_to(&mut self, upstream: &Upstream) {
        if let Address::Tcp(address) = *upstream.address() {
            let index = self.addresses.iter().position(|&one| one == Some(address));
            self.again = index.map(|index| index as u8);
        }
    }
}

/// The next step for a request that needs a connection.
pub(crate) enum Pick {
    /// Take a connection from there.
    Upstream(Upstream),
    /// The first query for the name has no result yet: pick again soon.
    Pending,
    /// The name has no address.
    Unresolved(NameFailure),
    /// Every address was tried, or as many as one request may try.
    Exhausted,
}

impl Balancer {
    pub(crate) fn fixed(connector: Connector, address: &Address) -> Balancer {
        let upstream = connector.to(address);
        Balancer::new(connector, AddressSource::One(upstream))
    }

    pub(crate) fn localhost(connector: Connector, port: u16) -> Balancer {
        let v4 = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let v6 = SocketAddr::from((Ipv6Addr::LOCALHOST, port));
        Balancer::new(connector, AddressSource::Localhost([v4, v6]))
    }

    pub(crate) fn named(connector: Connector, name: Arc<ResolvedName>) -> Balancer {
        Balancer::new(connector, AddressSource::Name(name))
    }

    /// In the place of a service that has no server.
    pub(crate) fn without_server(connector: Connector, service: Arc<ResolvedService>) -> Balancer {
        Balancer::new(connector, AddressSource::Service(service))
    }

    fn new(connector: Connector, source: AddressSource) -> Balancer {
        let only = match &source {
            AddressSource::One(upstream) => Some((key_of(upstream), Counts::default())),
            AddressSource::Localhost(_) | AddressSource::Name(_) | AddressSource::Service(_) => {
                None
            }
        };
        Balancer {
            source,
            connector,
            round_robin: Cell::new(0),
            upstreams: RefCell::default(),
            cooldowns: RefCell::default(),
            counts: RefCell::new(only.into_iter().collect()),
            resets: Cell::default(),
            retries: RetryBudget::default(),
            in_flight: Cell::new(0),
            failures_max: Cell::default(),
            latency: Latency::default(),
            outcomes: Outcomes::default(),
            is_suspect: Cell::default(),
            is_probed: Cell::default(),
        }
    }

    /// The next address for a request, which is noted in `tried`.
    pub(crate) fn pick(&self, tried: &mut Tried, now: impl FnOnce() -> Instant) -> Pick {
        match &self.source {
            AddressSource::One(_) if tried.count > 0 => Pick::Exhausted,
            AddressSource::One(upstream) => {
                tried.count = 1;
                Pick::Upstream(upstream.clone())
            }
            AddressSource::Localhost(addresses) => {
                // Not in turn: the address that answers is used until it fails.
                tried.first = Some(0);
                self.pick_of(addresses, tried, now())
            }
            AddressSource::Service(service) => {
                // There are some meanwhile, for requests of the next snapshot.
                let failure = service.failure().unwrap_or(NameFailure::NoAddress);
                Pick::Unresolved(failure)
            }
            AddressSource::Name(name) => {
                tried.name.get_or_insert_with(|| name.state());
                match &**name.latest() {
                    LookupResult::Pending => {
                        tried.name = None;
                        Pick::Pending
                    }
                    LookupResult::Failed(failure) => Pick::Unresolved(*failure),
                    LookupResult::Addresses(addresses) => self.pick_of(addresses, tried, now()),
                }
            }
        }
    }

    pub(super) fn member(&self) -> &Member {
        &self.connector.member
    }

    /// It is one of several servers, which is judged after so many consecutive failures.
    pub(super) fn join(&self, failures_max: u32) {
        self.failures_max.set(Some(failures_max));
    }

    /// Lets a request go there, unless another core finds out whether it works again.
    pub(super) fn try_probe(&self, now: Instant) -> bool {
        let member = self.member();
        if !member.is_on_probation() {
            return true;
        }
        let may_go = member.try_probe(now);
        self.is_probed.set(self.is_probed.get() || may_go);
        may_go
    }

    /// Notes that a request goes there although others avoid it: none is left that they do not avoid.
    pub(super) fn go_anyway(&self) {
        self.is_probed.set(self.member().is_on_probation());
    }

    /// Notes how a request at one of several servers ended.
    #[inline(never)]
    fn note_outcome(&self, failures_max: u32, time: Duration, is_failure: bool, now: Instant) {
        let member = self.member();
        if member.is_on_probation() && self.is_probed.take() {
            match is_failure {
                false => {
                    self.outcomes.forget();
                    self.latency.forget();
                    member.returned(now);
                    tracing::info!(server = %member.url, "responds, and gets requests again");
                }
                true => member.avoid(PROBE_FAILED, now),
            }
        }
        if !is_failure
            || self
                .latency
                .seconds(now)
                .is_some_and(|known| time.as_secs_f64() > known)
        {
            self.latency.note(time, now);
        }
        if self.outcomes.note(time, is_failure, failures_max, now) {
            self.is_suspect.set(true);
        }
    }

    /// Whether requests that have other servers avoid this one: it is ejected, or no address is known that could be
    /// connected to.
    pub(super) fn is_avoided(&self, now: Instant) -> bool {
        self.member().is_avoided(now) || self.is_unreachable(now)
    }

    /// Whether no address is known that could be connected to.
    pub(super) fn is_unreachable(&self, now: Instant) -> bool {
        let cooldowns = self.cooldowns.borrow();
        let are_avoided = |addresses: &[SocketAddr]| {
            let mut addresses = addresses.iter();
            addresses.all(|address| cooldowns.contains(*address, now))
        };
        match &self.source {
            AddressSource::Name(name) => match &**name.latest() {
                LookupResult::Pending => false,
                LookupResult::Failed(_) => true,
                LookupResult::Addresses(addresses) => are_avoided(addresses),
            },
            AddressSource::Service(_) => true,
            _ if cooldowns.is_empty() => false,
            AddressSource::One(upstream) => are_avoided(&[key_of(upstream)]),
            AddressSource::Localhost(addresses) => are_avoided(addresses),
        }
    }

    /// The retries of all cores.
    pub(crate) fn shared_retries(&self) -> &SharedRetries {
        &self.connector.member.retries
    }

    /// Whether a request has an address left that is not avoided.
    pub(crate) fn has_other(&self, tried: &Tried, now: Instant) -> bool {
        if usize::from(tried.count) == TRIES_MAX {
            return false;
        }
        let cooldowns = self.cooldowns.borrow();
        let is_left = |address: &SocketAddr| {
            !tried.addresses.contains(&Some(*address)) && !cooldowns.contains(*address, now)
        };
        match &self.source {
            AddressSource::One(_) | AddressSource::Service(_) => false,
            AddressSource::Localhost(addresses) => addresses.iter().any(is_left),
            AddressSource::Name(name) => match &**name.latest() {
                LookupResult::Addresses(addresses) => addresses.iter().any(is_left),
                LookupResult::Pending | LookupResult::Failed(_) => false,
            },
        }
    }

    /// Notes that a request goes to an address, which is not avoided, because it was chosen among several servers.
    pub(super) fn note_picked(&self, upstream: &Upstream, now: Instant) {
        let mut cooldowns = self.cooldowns.borrow_mut();
        if !cooldowns.is_empty() {
            cooldowns.picked(key_of(upstream), now);
        }
    }

    /// Whether the name has got other addresses since the first of these was picked.
    pub(crate) fn has_changed_since(&self, tried: &Tried) -> bool {
        match (&self.source, tried.name) {
            (AddressSource::Name(name), Some(then)) => name.has_changed_since(then),
            _ => false,
        }
    }

    /// Whether a look-up that began after the first of these was picked will end soon.
    pub(crate) fn expects_look_up(&self, tried: &Tried) -> bool {
        match (&self.source, tried.name) {
            (AddressSource::Name(name), Some(then)) => {
                name.looks_up_soon() && !name.is_newer_than(then)
            }
            _ => false,
        }
    }

    /// Notes that a connection to an address was made or was there.
    #[inline]
    pub(crate) fn connected(&self, upstream: &Upstream) {
        if !self.cooldowns.borrow().is_empty() {
            self.end_cooldown(upstream);
        }
    }

    #[cold]
    fn end_cooldown(&self, upstream: &Upstream) {
        self.cooldowns.borrow_mut().end(key_of(upstream));
    }

    /// Notes that an attempt to connect ended without saying anything about the address.
    #[cold]
    pub(crate) fn undecided(&self, upstream: &Upstream, now: Instant) {
        self.cooldowns.borrow_mut().undecided(key_of(upstream), now);
    }

    /// Notes that no connection to an address could be made. `is_slow`: it took time to fail.
    #[cold]
    pub(crate) fn failed(
        &self,
        upstream: &Upstream,
        failure: Failure,
        is_slow: bool,
        now: Instant,
    ) {
        if let AddressSource::Name(name) = &self.source {
            name.refresh_after_failure();
        }
        self.count(upstream, |counts| {
            counts.failed();
            counts.last_failure = Some((now, failure));
        });
        let key = key_of(upstream);
        self.cooldowns.borrow_mut().failed(key, is_slow, now);
        // Other cores need not find out by a request of their own.
        if self.failures_max.get().is_some() && self.is_unreachable(now) {
            self.is_probed.take();
            let left = self.cooldowns.borrow().left(key, now);
            self.member().avoid(left.unwrap_or_default(), now);
        }
    }

    /// Counts a request that got a connection.
    #[inline]
    pub(crate) fn sent(&self, upstream: &Upstream, now: Instant) {
        self.count(upstream, |counts| counts.sent(now));
    }

    /// Counts a response head, which came after `time`.
    #[inline(always)]
    pub(crate) fn responded(
        &self,
        upstream: &Upstream,
        time: Duration,
        is_failure: bool,
        now: Instant,
    ) {
        self.count(upstream, |counts| counts.responded(time, is_failure, now));
        if let Some(failures_max) = self.failures_max.get() {
            self.note_outcome(failures_max, time, is_failure, now);
        }
    }

    /// Counts a request that was sent and got no response head for `time`. `is_failure`: the server is to blame.
    #[cold]
    pub(crate) fn unanswered(
        &self,
        upstream: &Upstream,
        time: Duration,
        is_failure: bool,
        now: Instant,
    ) {
        self.count(upstream, Counts::failed);
        if let Some(failures_max) = self.failures_max.get().filter(|_| is_failure) {
            self.note_outcome(failures_max, time, true, now);
        }
    }

    /// The name may have lost the address meanwhile: then nothing is counted.
    #[inline(always)]
    fn count(&self, upstream: &Upstream, count: impl FnOnce(&mut Counts)) {
        let (key, mut all) = (key_of(upstream), self.counts.borrow_mut());
        if let Some((_, counts)) = all.iter_mut().find(|(address, _)| *address == key) {
            count(counts);
        }
    }

    /// Its connections and addresses now.
    pub(crate) fn state(&self, now: Instant) -> UpstreamState {
        let states = self.states(now);
        UpstreamState {
            label: Arc::clone(&self.connector.label),
            idle: states.iter().map(|state| state.idle).sum(),
            active: states.iter().map(|state| state.in_use).sum(),
            avoided: self.cooldowns.borrow().count(now),
        }
    }

    /// The state of the addresses that this core has used.
    pub(crate) fn states(&self, now: Instant) -> Vec<AddressState> {
        match &self.source {
            AddressSource::One(upstream) => vec![self.state_of(upstream, now)],
            AddressSource::Localhost(_) | AddressSource::Name(_) | AddressSource::Service(_) => {
                let upstreams = self.upstreams.borrow();
                let used = upstreams.iter();
                used.map(|(_, upstream)| self.state_of(upstream, now))
                    .collect()
            }
        }
    }

    fn state_of(&self, upstream: &Upstream, now: Instant) -> AddressState {
        let key = key_of(upstream);
        let (mut figures, mut last_failure) = (AddressFigures::default(), None);
        self.count(upstream, |counts| {
            figures = counts.figures(now);
            last_failure = counts.last_failure;
        });
        let since = |then| now.saturating_duration_since(then);
        AddressState {
            address: upstream.address().clone(),
            idle: upstream.idle(),
            in_use: upstream.active(),
            cooling_down: (self.cooldowns.borrow().left(key, now))
                .max(self.member().avoided_for(now)),
            last_failure: last_failure.map(|(then, failure)| (since(then), failure)),
            figures,
            running: self.in_flight.get(),
        }
    }

    /// Notes that a connection ended, or was silent for too long, before a response. If this is
    /// repeated, the name is resolved again: another machine may have its address now.
    #[cold]
    pub(crate) fn without_response(&self, now: Instant) {
        let AddressSource::Name(name) = &self.source else {
            return;
        };
        let (count, since) = match self.resets.take() {
            Some((count, since)) if now < since + RESETS_PERIOD => (count + 1, since),
            _ => (1, now),
        };
        if count < RESETS_MAX {
            self.resets.set(Some((count, since)));
        } else {
            name.refresh_after_failure();
        }
    }

    fn pick_of(&self, all: &[SocketAddr], tried: &mut Tried, now: Instant) -> Pick {
        match self.next_of(all, tried, now) {
            Some(address) => Pick::Upstream(self.upstream(address, all)),
            None => Pick::Exhausted,
        }
    }

    fn next_of(&self, all: &[SocketAddr], tried: &mut Tried, now: Instant) -> Option<SocketAddr> {
        if usize::from(tried.count) == TRIES_MAX {
            return tried.take_again();
        }
        let first = *tried.first.get_or_insert_with(|| {
            let first = self.round_robin.get();
            self.round_robin.set(first.wrapping_add(1));
            first
        }) as usize;
        let in_turn = (0..all.len()).map(|offset| all[(first % all.len() + offset) % all.len()]);
        let mut left = in_turn.filter(|address| !tried.addresses.contains(&Some(*address)));
        let mut cooldowns = self.cooldowns.borrow_mut();
        let healthy = left
            .clone()
            .find(|address| !cooldowns.contains(*address, now));
        if healthy.is_none() && tried.again.is_some() {
            return tried.take_again();
        }
        // Addresses in cooldown are used last, since all may have failed a moment ago.
        let address = healthy.or_else(|| left.next())?;
        if healthy.is_some() {
            cooldowns.picked(address, now);
        }
        tried.addresses[usize::from(tried.count)] = Some(address);
        tried.count += 1;
        Some(address)
    }

    fn upstream(&self, address: SocketAddr, all: &[SocketAddr]) -> Upstream {
        let mut upstreams = self.upstreams.borrow_mut();
        if let Some((_, upstream)) = upstreams.iter().find(|(known, _)| *known == address) {
            return upstream.clone();
        }
        // A new address came with a new result, so addresses that are not in it are dropped.
        upstreams.retain(|(known, _)| all.contains(known));
        self.cooldowns.borrow_mut().retain(all);
        let mut counts = self.counts.borrow_mut();
        counts.retain(|(known, _)| all.contains(known));
        counts.push((address, Counts::default()));
        let upstream = self.connector.to(&Address::Tcp(address));
        upstreams.push((address, upstream.clone()));
        upstream
    }
}

/// By what cooldowns know an address. A unix socket is the only address of its upstream, so it needs no name.
fn key_of(upstream: &Upstream) -> SocketAddr {
    match *upstream.address() {
        Address::Tcp(address) => address,
        Address::Unix(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
    }
}

#[cfg(test)]
mod tests;
