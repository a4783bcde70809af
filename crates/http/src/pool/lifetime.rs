//! How long a connection is given requests: its maximum age, and the generation of its settings.

use std::time::{Duration, Instant};

use blitz_proto::Limits;

use super::Upstream;
use crate::counters::count;
use crate::transport::Transport;

/// Known when the connection is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lifetime {
    made: Instant,
    until: Instant,
    /// The TLS settings that it was made with; 0 in clear text.
    settings: u64,
}

impl Lifetime {
    /// For a connection that is made now.
    pub(super) fn new(limits: &Limits, settings: u64) -> Lifetime {
        let (made, age_max) = (blitz_reactor::now(), limits.connection_age_max);
        Lifetime {
            made,
            until: made + age_max - early(age_max, blitz_reactor::random_u64()),
            settings,
        }
    }

    pub(crate) fn was_made_since(self, moment: Instant) -> bool {
        self.made >= moment
    }

    /// `settings` are those that connections are made with now.
    #[inline]
    pub(crate) fn is_over(self, now: Instant, settings: u64) -> bool {
        now >= self.until || self.settings != settings
    }
}

/// Up to a tenth of the age.
fn early(age: Duration, random: u64) -> Duration {
    age / 10 * (random % 1024) as u32 / 1024
}

/// A connection in use that carries one request at a time: where it returns to, and until when.
pub(crate) struct Lease {
    pub(super) upstream: Upstream,
    pub(super) lifetime: Lifetime,
}

impl Lease {
    /// Takes the connection back. The caller has made sure that it is in the state of a new one.
    pub(crate) fn put_back(self, transport: Transport) {
        self.upstream.release_active();
        self.upstream.take_back(transport, self.lifetime);
    }

    /// The connection is closed instead of coming back.
    pub(crate) fn lost(self) {
        self.upstream.release_active();
    }
}

/// A connection is too old for another request, or was made with settings that were replaced.
#[cold]
pub(crate) fn count_retired() {
    count(|counters| counters.upstream_retired += 1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_that_began_together_end_within_a_tenth_of_their_age() {
        let hour = Duration::from_secs(3600);
        assert_eq!(early(hour, 0), Duration::ZERO);
        assert_eq!(early(hour, 512), Duration::from_secs(180));
        assert!(early(hour, u64::MAX) < hour / 10);
        // The longest that anybody would write.
        let century = Duration::from_secs(100 * 365 * 24 * 3600);
        assert!(early(century, 1023) < century / 10);
    }
}
