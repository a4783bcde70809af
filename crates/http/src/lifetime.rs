//! How long a connection gets requests: its maximum age, and the generation of its settings.

use std::time::{Duration, Instant};

use blitz_proto::Limits;

use crate::counters::count;

/// The end of a connection's use, fixed when the connection is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lifetime {
    made: Instant,
    until: Instant,
    /// The number of the TLS settings that the connection was made with; 0 in clear text.
    settings: u64,
}

impl Lifetime {
    /// The lifetime of a connection that is made now.
    pub(crate) fn new(limits: &Limits, settings: u64) -> Lifetime {
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

    /// `settings` is the number of the current settings.
    #[inline]
    pub(crate) fn has_expired(self, now: Instant, settings: u64) -> bool {
        now >= self.until || self.settings != settings
    }
}

/// A random part of the age, at most a tenth, so that connections made together do not end
/// together.
fn early(age: Duration, random: u64) -> Duration {
    age / 10 * (random % 1024) as u32 / 1024
}

/// Counts a connection that is too old for another request, or that has replaced settings.
#[cold]
pub(crate) fn count_retired() {
    count(|counters| counters.upstream_retired += 1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_made_together_end_within_a_tenth_of_their_age() {
        let hour = Duration::from_secs(3600);
        assert_eq!(early(hour, 0), Duration::ZERO);
        assert_eq!(early(hour, 512), Duration::from_secs(180));
        assert!(early(hour, u64::MAX) < hour / 10);
        // Longer than any sensible configuration.
        let century = Duration::from_secs(100 * 365 * 24 * 3600);
        assert!(early(century, 1023) < century / 10);
    }
}
