//! How long a connection gets requests: its maximum age, the generation of its settings, and what its server announces.

use std::time::{Duration, Instant};

use blitz_proto::Limits;

use crate::counters::count;

/// How long before the end of the time that a server announces its connection is closed, so that no request
/// meets the server's FIN; at most half of that time.
const KEEP_ALIVE_MARGIN: Duration = Duration::from_secs(1);

/// How long a server keeps an idle connection open, as far as it has announced that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IdleLimit {
    /// The connection has carried no request since it was idle last.
    Unchanged,
    Unknown,
    /// `timeout` of `Keep-Alive`.
    Seconds(u32),
}

/// The end of a connection's use, fixed when the connection is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lifetime {
    until: Instant,
    /// That, or the end of the time that the server keeps the connection open without a request.
    usable_until: Instant,
    /// The number of the TLS settings that the connection was made with; 0 in clear text.
    settings: u64,
}

impl Lifetime {
    /// The lifetime of a connection that is made now.
    pub(crate) fn new(limits: &Limits, settings: u64) -> Lifetime {
        let age_max = limits.connection_age_max;
        let age = age_max - early(age_max, blitz_reactor::random_u64());
        let until = blitz_reactor::now() + age;
        Lifetime {
            until,
            usable_until: until,
            settings,
        }
    }

    /// The connection becomes idle.
    #[inline]
    pub(crate) fn limit_idle(&mut self, limit: IdleLimit) {
        match limit {
            IdleLimit::Unchanged => {}
            IdleLimit::Unknown => self.usable_until = self.until,
            IdleLimit::Seconds(seconds) => self.limit_idle_to(seconds, blitz_reactor::now()),
        }
    }

    #[cold]
    fn limit_idle_to(&mut self, seconds: u32, now: Instant) {
        let time = Duration::from_secs(seconds.into());
        let end = now + time - KEEP_ALIVE_MARGIN.min(time / 2);
        self.usable_until = self.until.min(end);
    }

    /// How long the connection may be idle from now on, at most `idle_timeout`.
    #[inline]
    pub(crate) fn idle_time(self, idle_timeout: Duration) -> Duration {
        if self.usable_until == self.until {
            return idle_timeout;
        }
        let left = self
            .usable_until
            .saturating_duration_since(blitz_reactor::now());
        left.min(idle_timeout)
    }

    /// `settings` is the number of the current settings.
    #[inline]
    pub(crate) fn has_expired(self, now: Instant, settings: u64) -> bool {
        now >= self.usable_until || self.settings != settings
    }

    /// Whether it has expired, and not only because its server would close it.
    pub(crate) fn is_over(self, now: Instant, settings: u64) -> bool {
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
    fn idle_connections_close_before_the_server_closes_them() {
        let now = Instant::now();
        let until = now + Duration::from_secs(60);
        let mut lifetime = Lifetime {
            until,
            usable_until: until,
            settings: 0,
        };
        let mut left = |seconds| {
            lifetime.limit_idle_to(seconds, now);
            (lifetime.usable_until - now).as_millis()
        };
        assert_eq!(
            [0, 1, 2, 5, 75].map(&mut left),
            [0, 500, 1000, 4000, 60_000]
        );
        left(2);
        lifetime.limit_idle(IdleLimit::Unchanged);
        let then = now + Duration::from_secs(1);
        assert!(lifetime.has_expired(then, 0) && !lifetime.is_over(then, 0));
        lifetime.limit_idle(IdleLimit::Unknown);
        assert_eq!(lifetime.usable_until, until);
    }

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
