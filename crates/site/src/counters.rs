//! The gateway's counters of a core; those of HTTP are [`blitz_http::counters`].
//!
//! Most are derived from the [record](crate::Record) of a request, so they count requests that have
//! ended.

use std::cell::RefCell;

use blitz_http::core_local;

use crate::failure::Failure;
use crate::rejection::Rejection;

/// Counts of one core since its start. A request counts when it has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counters {
    /// Requests that a route matched, also if its rules rejected them.
    pub routed: u64,
    /// Requests that no target matched: the built-in site answered them.
    pub unrouted: u64,
    /// Requests that the gateway rejected before a response, in the order of [`Rejection::ALL`].
    pub rejections: [u64; Rejection::ALL.len()],
    /// Final responses of upstreams that were relayed, by class: index 1 holds 2xx.
    pub responses: [u64; 5],
    /// Requests whose upstream failed, in the order of [`Failure::ALL`].
    pub failures: [u64; Failure::ALL.len()],
    /// Addresses to which no connection could be made, even if another address was reached.
    pub connect_failures: u64,
    /// Requests that were sent again, however often (rule 13).
    pub retries: u64,
    /// Requests that were not sent again because the upstream's budget was used up (rule 13).
    pub retries_over_budget: u64,
    /// Servers that got no requests for a time, because they failed.
    pub ejections: u64,
    /// Servers that were not ejected, because half of their set was.
    pub ejections_refused: u64,
    /// Requests that were sent a second time while the first attempt waited for its response.
    pub hedges: u64,
    /// Those whose second attempt had the first response head.
    pub hedges_won: u64,
    /// Requests that were shed because their upstream had as many as it could take, by their importance: index 0 holds
    /// those of the lowest.
    pub shed: [u64; 4],
    /// Copies of requests that were sent to the upstream of a `mirror`.
    pub mirrored: u64,
    /// Those of them without a response.
    pub mirror_failures: u64,
    /// Requests that were not copied because as many copies were under way as may be.
    pub mirrors_over_limit: u64,
    /// Requests that were not copied because their content was too long or not complete.
    pub mirrors_without_content: u64,
    /// Responses that ended early, because the upstream's did or the client left.
    pub cut_off: u64,
    /// Requests whose content ended early, came too slowly or broke the rules, before a response.
    pub client_faults: u64,
    /// Connections that became tunnels, counted when they do.
    pub tunnels: u64,
    /// Tunnels that were closed because one side had ended and the other was silent
    /// ([`tunnel_half_close_timeout`](blitz_http::Limits::tunnel_half_close_timeout)).
    pub tunnels_half_closed: u64,
    /// Responses that were compressed for their client, counted when they end.
    pub compressed: u64,
    /// Their content before the compression, in bytes.
    pub compressed_bytes_before: u64,
    /// Their content after it.
    pub compressed_bytes_after: u64,
    /// Requests whose content is decompressed for the upstream, counted when they begin.
    pub decompressed: u64,
    /// Failed handshakes without a line in the access log, because too many had the same cause.
    pub handshakes_omitted: u64,
    /// Incomplete heads without a line in the access log, because too many had the same cause.
    pub heads_omitted: u64,
    /// Requests beyond a `rate_limit` that has `dry_run`.
    pub rate_limit_dry_runs: u64,
    /// Requests whose key had no bucket of its own, because too many others were throttled.
    pub rate_limits_overflowed: u64,
    /// Requests for files that were refused because the core has as many open as it may.
    pub files_refused_open: u64,
    /// Requests for files that were refused because too many of the folder wait for the disk.
    pub files_refused_waiting: u64,
    /// Requests that passed by a decision of an authorizer that the core remembered.
    pub authorizations_remembered: u64,
    /// Requests that passed without a decision of their authorizer, because it failed and `on_failure` is open.
    pub authorizations_skipped: u64,
    /// Configurations on this core: the newest one, and older ones that requests still use.
    pub snapshots: u64,
    /// Requests now, from their record's beginning to its end.
    pub in_flight: u64,
}

impl Counters {
    /// Written out because `default` is not a constant function: otherwise each count would first
    /// check whether the thread's counters are initialized.
    const NONE: Counters = Counters {
        routed: 0,
        unrouted: 0,
        rejections: [0; Rejection::ALL.len()],
        responses: [0; 5],
        failures: [0; Failure::ALL.len()],
        connect_failures: 0,
        retries: 0,
        retries_over_budget: 0,
        ejections: 0,
        ejections_refused: 0,
        hedges: 0,
        hedges_won: 0,
        shed: [0; 4],
        mirrored: 0,
        mirror_failures: 0,
        mirrors_over_limit: 0,
        mirrors_without_content: 0,
        cut_off: 0,
        client_faults: 0,
        tunnels: 0,
        tunnels_half_closed: 0,
        compressed: 0,
        compressed_bytes_before: 0,
        compressed_bytes_after: 0,
        decompressed: 0,
        handshakes_omitted: 0,
        heads_omitted: 0,
        rate_limit_dry_runs: 0,
        rate_limits_overflowed: 0,
        files_refused_open: 0,
        files_refused_waiting: 0,
        authorizations_remembered: 0,
        authorizations_skipped: 0,
        snapshots: 0,
        in_flight: 0,
    };

    /// Requests that failed in this way.
    #[must_use]
    pub fn failed(&self, failure: Failure) -> u64 {
        self.failures[failure as usize]
    }

    /// Requests that were rejected for this reason.
    #[must_use]
    pub fn rejected(&self, rejection: Rejection) -> u64 {
        self.rejections[rejection as usize]
    }

    /// Adds the counts of another core.
    pub fn add(&mut self, other: &Counters) {
        self.routed += other.routed;
        self.unrouted += other.unrouted;
        self.connect_failures += other.connect_failures;
        self.retries += other.retries;
        self.retries_over_budget += other.retries_over_budget;
        self.ejections += other.ejections;
        self.ejections_refused += other.ejections_refused;
        self.hedges += other.hedges;
        self.hedges_won += other.hedges_won;
        self.mirrored += other.mirrored;
        self.mirror_failures += other.mirror_failures;
        self.mirrors_over_limit += other.mirrors_over_limit;
        self.mirrors_without_content += other.mirrors_without_content;
        self.cut_off += other.cut_off;
        self.client_faults += other.client_faults;
        self.tunnels += other.tunnels;
        self.tunnels_half_closed += other.tunnels_half_closed;
        self.compressed += other.compressed;
        self.compressed_bytes_before += other.compressed_bytes_before;
        self.compressed_bytes_after += other.compressed_bytes_after;
        self.decompressed += other.decompressed;
        self.handshakes_omitted += other.handshakes_omitted;
        self.heads_omitted += other.heads_omitted;
        self.rate_limit_dry_runs += other.rate_limit_dry_runs;
        self.rate_limits_overflowed += other.rate_limits_overflowed;
        self.files_refused_open += other.files_refused_open;
        self.files_refused_waiting += other.files_refused_waiting;
        self.authorizations_remembered += other.authorizations_remembered;
        self.authorizations_skipped += other.authorizations_skipped;
        self.snapshots += other.snapshots;
        self.in_flight += other.in_flight;
        let responses = self.responses.iter_mut().zip(other.responses);
        let failures = self.failures.iter_mut().zip(other.failures);
        let rejections = self.rejections.iter_mut().zip(other.rejections);
        let shed = self.shed.iter_mut().zip(other.shed);
        responses
            .chain(failures)
            .chain(rejections)
            .chain(shed)
            .for_each(|(sum, count)| *sum += count);
    }
}

impl Default for Counters {
    fn default() -> Counters {
        Counters::NONE
    }
}

/// Counters of the calling core.
#[must_use]
pub fn counters() -> Counters {
    CORE.with_borrow(Clone::clone)
}

/// Changes the counters of the calling core.
pub fn count(change: impl FnOnce(&mut Counters)) {
    CORE.with_borrow_mut(change);
}

/// Counts a rejection that no record of a request has: that of an app.
pub fn count_rejection(rejection: Rejection) {
    count(|counters| counters.rejections[rejection as usize] += 1);
}

core_local! {
    static CORE: RefCell<Counters> = const { RefCell::new(Counters::NONE) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_cores_are_added() {
        let mut core = Counters {
            retries: 1,
            ..Counters::default()
        };
        core.failures[Failure::ConnectionRefused as usize] = 2;
        core.rejections[Rejection::Method as usize] = 4;
        core.responses[4] = 3;
        let mut sum = core.clone();
        sum.add(&core);
        assert_eq!(sum.failed(Failure::ConnectionRefused), 4);
        assert_eq!(sum.failed(Failure::DnsError), 0);
        assert_eq!(sum.rejected(Rejection::Method), 8);
        assert_eq!((sum.responses[4], sum.retries), (6, 2));
    }
}
