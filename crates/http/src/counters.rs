//! HTTP counters of a core. They are plain numbers: each core has its own, and callers add them up.

use std::cell::RefCell;
use std::rc::Rc;

use blitz_proto::Version;
use blitz_quic::Counters as QuicCounters;
use blitz_reactor::core_local;

use crate::tls::TlsCounters;

/// Counts of one core since its start; `connections`, `reading_head` and `upstream_idle` are gauges.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counters {
    /// Client connections open now, idle ones included.
    pub connections: u64,
    /// Client connections accepted.
    pub accepted: u64,
    /// Request heads that were passed to a service, of all versions. Only snapshots have this sum.
    pub requests: u64,
    /// The same by the version of their connection, in the order of [`Version`]: HTTP/1.0 counts as 1.1.
    pub requests_by_version: [u64; 4],
    /// Final responses sent, by class: index 0 holds 1xx (only 101 is final), 4 holds 5xx.
    pub responses: [u64; 5],
    /// Exchanges that ended without a complete response: the client closed, or the service
    /// cancelled.
    pub cancelled: u64,
    /// Connections that became tunnels.
    pub upgrades: u64,
    /// Connections that switched from HTTP/1.1 to HTTP/2.
    pub h2c_upgrades: u64,
    /// Heads that did not arrive within their deadline (408).
    pub header_timeouts: u64,
    /// Connections over HTTP/1.1 now of which a part of a head has come, and the rest is awaited.
    pub reading_head: u64,
    /// Heads over HTTP/1.1 whose client left before they were complete.
    pub heads_abandoned: u64,
    /// Heads over HTTP/1.1 that were not complete when their connection was evicted (rule 20).
    pub heads_evicted: u64,
    /// HTTP/2 connections closed because the peer did not acknowledge our settings in time.
    pub settings_timeouts: u64,
    /// How often lack of memory stopped reading from an HTTP/2 connection, or delayed a stream that
    /// had something to queue.
    pub held_back: u64,
    /// Upstream streams that were reset because the core was out of memory and they held the most.
    pub streams_shed: u64,
    /// Requests refused (503) because the core held too many large request heads.
    pub heads_refused: u64,
    /// Idle connections closed at their deadline.
    pub idle_timeouts: u64,
    /// Connections of clients and of the pool closed in favour of new ones, at the limit of sockets
    /// (rule 20).
    pub evicted: u64,
    /// Request bodies below the minimum rate (408).
    pub body_timeouts: u64,
    /// Connections closed because the peer took no bytes for too long.
    pub send_stalls: u64,
    /// Tunnels closed because no bytes were transferred for too long.
    pub tunnel_timeouts: u64,
    /// Upstream connections opened.
    pub upstream_connects: u64,
    /// Attempts to connect upstream that failed.
    pub upstream_connect_failures: u64,
    /// Requests sent on a connection from the pool.
    pub upstream_reused: u64,
    /// Upstream connections that could not return to the pool after their response.
    pub upstream_not_reused: u64,
    /// Responses of HTTP/1.1 with more bytes behind them, after which the connection is closed (rule 11).
    pub upstream_unexpected_bytes: u64,
    /// Idle upstream connections that received bytes or were closed by the upstream (rule 11).
    pub upstream_idle_lost: u64,
    /// Upstream connections that get no more requests, because of their age or because their TLS
    /// settings were replaced.
    pub upstream_retired: u64,
    /// Upstream connections closed because they were silent and did not acknowledge a PING.
    pub upstream_silent: u64,
    /// Times that an HTTP/2 connection to an upstream got no new requests for a while: many were reset, or
    /// content that the server did not read had used up its window.
    pub upstream_rests: u64,
    /// Requests that waited because the maximum of connections to the upstream was in use.
    pub upstream_limit_waits: u64,
    /// Requests refused because too many waited for a connection to the upstream.
    pub upstream_queue_full: u64,
    /// Requests refused because they had waited too long for a connection to the upstream.
    pub upstream_queue_timeouts: u64,
    /// Idle upstream connections in the pool now.
    pub upstream_idle: u64,
    /// TLS, on both sides.
    pub tls: TlsCounters,
    /// Endpoints of QUIC, without those that have ended.
    pub quic: QuicCounters,
    /// Refused requests by the name of the violated rule.
    pub refused: Vec<(&'static str, u64)>,
}

impl Counters {
    /// A constant, since `default` is not `const`: the thread-local needs no check for
    /// initialization at each count.
    const NONE: Counters = Counters {
        connections: 0,
        accepted: 0,
        requests: 0,
        requests_by_version: [0; 4],
        responses: [0; 5],
        cancelled: 0,
        upgrades: 0,
        h2c_upgrades: 0,
        header_timeouts: 0,
        reading_head: 0,
        heads_abandoned: 0,
        heads_evicted: 0,
        settings_timeouts: 0,
        held_back: 0,
        streams_shed: 0,
        heads_refused: 0,
        idle_timeouts: 0,
        evicted: 0,
        body_timeouts: 0,
        send_stalls: 0,
        tunnel_timeouts: 0,
        upstream_connects: 0,
        upstream_connect_failures: 0,
        upstream_reused: 0,
        upstream_not_reused: 0,
        upstream_unexpected_bytes: 0,
        upstream_idle_lost: 0,
        upstream_retired: 0,
        upstream_silent: 0,
        upstream_rests: 0,
        upstream_limit_waits: 0,
        upstream_queue_full: 0,
        upstream_queue_timeouts: 0,
        upstream_idle: 0,
        tls: TlsCounters::NONE,
        quic: QuicCounters::NONE,
        refused: Vec::new(),
    };

    /// Adds the counts of another core.
    pub fn add(&mut self, other: &Counters) {
        self.connections += other.connections;
        self.accepted += other.accepted;
        self.requests += other.requests;
        let requests = self.requests_by_version.iter_mut();
        let requests = requests.zip(other.requests_by_version);
        let responses = self.responses.iter_mut().zip(other.responses);
        requests
            .chain(responses)
            .for_each(|(sum, count)| *sum += count);
        self.cancelled += other.cancelled;
        self.upgrades += other.upgrades;
        self.h2c_upgrades += other.h2c_upgrades;
        self.header_timeouts += other.header_timeouts;
        self.reading_head += other.reading_head;
        self.heads_abandoned += other.heads_abandoned;
        self.heads_evicted += other.heads_evicted;
        self.settings_timeouts += other.settings_timeouts;
        self.held_back += other.held_back;
        self.streams_shed += other.streams_shed;
        self.heads_refused += other.heads_refused;
        self.idle_timeouts += other.idle_timeouts;
        self.evicted += other.evicted;
        self.body_timeouts += other.body_timeouts;
        self.send_stalls += other.send_stalls;
        self.tunnel_timeouts += other.tunnel_timeouts;
        self.upstream_connects += other.upstream_connects;
        self.upstream_connect_failures += other.upstream_connect_failures;
        self.upstream_reused += other.upstream_reused;
        self.upstream_not_reused += other.upstream_not_reused;
        self.upstream_unexpected_bytes += other.upstream_unexpected_bytes;
        self.upstream_idle_lost += other.upstream_idle_lost;
        self.upstream_retired += other.upstream_retired;
        self.upstream_silent += other.upstream_silent;
        self.upstream_rests += other.upstream_rests;
        self.upstream_limit_waits += other.upstream_limit_waits;
        self.upstream_queue_full += other.upstream_queue_full;
        self.upstream_queue_timeouts += other.upstream_queue_timeouts;
        self.upstream_idle += other.upstream_idle;
        self.tls.add(&other.tls);
        self.quic.add(&other.quic);
        for &(rule, count) in &other.refused {
            self.add_refused(rule, count);
        }
    }

    /// Counts for one violated rule.
    #[must_use]
    pub fn refused_for(&self, rule: &str) -> u64 {
        self.refused
            .iter()
            .find(|(name, _)| *name == rule)
            .map_or(0, |(_, count)| *count)
    }

    fn add_refused(&mut self, rule: &'static str, count: u64) {
        // The set of rules is closed and small, so a list is enough.
        match self.refused.iter_mut().find(|(name, _)| *name == rule) {
            Some((_, sum)) => *sum += count,
            None => self.refused.push((rule, count)),
        }
    }
}

/// Counters of the calling core.
#[must_use]
pub fn counters() -> Counters {
    let mut counters = CORE.with_borrow(Clone::clone);
    // Here, so that a request increments one count.
    counters.requests = counters.requests_by_version.iter().sum();
    // The reactor evicts connections with an incomplete head without a call of this crate.
    counters.evicted = blitz_reactor::counters().evicted;
    SOURCES.with_borrow(|sources| {
        for source in sources {
            counters.quic.add(&source());
        }
    });
    counters
}

pub(crate) fn count(change: impl FnOnce(&mut Counters)) {
    CORE.with_borrow_mut(change);
}

/// Counts a request of a connection of this version.
#[inline]
pub(crate) fn count_request(version: Version) {
    count(|counters| counters.requests_by_version[version as usize] += 1);
}

pub(crate) fn count_refused(rule: &'static str) {
    CORE.with_borrow_mut(|counters| counters.add_refused(rule, 1));
}

/// Counters of an endpoint of QUIC, which counts itself.
type Source = Rc<dyn Fn() -> QuicCounters>;

core_local! {
    static CORE: RefCell<Counters> = const { RefCell::new(Counters::NONE) };
    static SOURCES: RefCell<Vec<Source>> = const { RefCell::new(Vec::new()) };
}

/// Counters that those of the core include until this is dropped.
pub(crate) struct Included(Source);

impl Included {
    pub(crate) fn new(source: impl Fn() -> QuicCounters + 'static) -> Included {
        let source: Source = Rc::new(source);
        SOURCES.with_borrow_mut(|sources| sources.push(Rc::clone(&source)));
        Included(source)
    }
}

impl Drop for Included {
    fn drop(&mut self) {
        // While the thread ends, the list may already be gone.
        let _ = SOURCES.try_with(|sources| {
            let mut sources = sources.borrow_mut();
            sources.retain(|source| !Rc::ptr_eq(source, &self.0));
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_summed_by_rule() {
        let mut sum = Counters::default();
        let mut core = Counters {
            requests: 2,
            ..Counters::default()
        };
        core.add_refused("bare-lf", 1);
        sum.add(&core);
        core.add_refused("host-missing", 3);
        sum.add(&core);
        assert_eq!(sum.requests, 4);
        assert_eq!(sum.refused_for("bare-lf"), 2);
        assert_eq!(sum.refused_for("host-missing"), 3);
        assert_eq!(sum.refused_for("no-such-rule"), 0);
    }
}
