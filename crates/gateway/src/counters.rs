//! What the proxy counted on a core, beside what [`blitz_http::counters`] knows.

use std::cell::RefCell;

use blitz_http::{Status, core_local};

use crate::proxy_status::Failure;

/// Counts of one core since its start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counters {
    /// Requests that a target took.
    pub routed: u64,
    /// Requests that no target took, left to the built-in endpoints.
    pub unrouted: u64,
    /// Requests that the gateway refused itself: methods and fields that must not pass.
    pub refused: u64,
    /// Requests in clear text that were sent to HTTPS.
    pub redirected: u64,
    /// Requests for a host that the certificate of their connection does not cover (421).
    pub misdirected: u64,
    /// Final responses of upstreams, by class: index 1 holds 2xx.
    pub responses: [u64; 5],
    /// Requests that got no answer from an upstream, in the order of [`Failure::ALL`].
    pub failures: [u64; Failure::ALL.len()],
    /// Addresses that could not be connected to, whether or not another one could.
    pub connect_failures: u64,
    /// Requests that were sent a second time (rule 13).
    pub retries: u64,
    /// Responses that were cut off, because the upstream's was or the client left.
    pub cut_off: u64,
    /// Requests whose own body ended early, came too slowly or broke the rules.
    pub client_faults: u64,
    /// Connections that became tunnels.
    pub tunnels: u64,
}

impl Counters {
    /// Written out, since a default is no constant: with one, every count would first have to
    /// find out whether its thread's counters are there.
    const NONE: Counters = Counters {
        routed: 0,
        unrouted: 0,
        refused: 0,
        redirected: 0,
        misdirected: 0,
        responses: [0; 5],
        failures: [0; Failure::ALL.len()],
        connect_failures: 0,
        retries: 0,
        cut_off: 0,
        client_faults: 0,
        tunnels: 0,
    };

    /// How often upstreams failed in this way.
    #[must_use]
    pub fn failed(&self, failure: Failure) -> u64 {
        self.failures[failure as usize]
    }

    /// Adds the counts of another core.
    pub fn add(&mut self, other: &Counters) {
        self.routed += other.routed;
        self.unrouted += other.unrouted;
        self.refused += other.refused;
        self.redirected += other.redirected;
        self.misdirected += other.misdirected;
        self.connect_failures += other.connect_failures;
        self.retries += other.retries;
        self.cut_off += other.cut_off;
        self.client_faults += other.client_faults;
        self.tunnels += other.tunnels;
        let responses = self.responses.iter_mut().zip(other.responses);
        let failures = self.failures.iter_mut().zip(other.failures);
        responses
            .chain(failures)
            .for_each(|(sum, count)| *sum += count);
    }
}

/// Counters of the calling core.
#[must_use]
pub fn counters() -> Counters {
    CORE.with_borrow(Clone::clone)
}

pub(crate) fn count(change: impl FnOnce(&mut Counters)) {
    CORE.with_borrow_mut(change);
}

pub(crate) fn count_response(status: Status) {
    let class = usize::from(status.code() / 100).clamp(1, 5);
    count(|counters| counters.responses[class - 1] += 1);
}

core_local! {
    static CORE: RefCell<Counters> = const { RefCell::new(Counters::NONE) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_summed() {
        let mut core = Counters {
            retries: 1,
            ..Counters::default()
        };
        core.failures[Failure::ConnectionRefused as usize] = 2;
        core.responses[4] = 3;
        let mut sum = core.clone();
        sum.add(&core);
        assert_eq!(sum.failed(Failure::ConnectionRefused), 4);
        assert_eq!(sum.failed(Failure::DnsError), 0);
        assert_eq!((sum.responses[4], sum.retries), (6, 2));
    }
}
