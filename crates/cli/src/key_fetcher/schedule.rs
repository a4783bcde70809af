//! When a key set is fetched.

use std::time::{Duration, Instant};

/// Without `max-age`, and its bounds. The longest is how long a key is used that its issuer has withdrawn.
const INTERVAL: Duration = Duration::from_secs(10 * 60);
const INTERVAL_MIN: Duration = Duration::from_secs(60);
const INTERVAL_MAX: Duration = Duration::from_secs(60 * 60);

/// The first and the longest pause after a failure; it doubles each time.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// The shortest pause before a fetch that tokens ask for: anybody can send tokens with new names of keys.
const WISH_PAUSE: Duration = Duration::from_secs(10);

/// The next fetch.
#[derive(Debug)]
pub(super) struct Schedule {
    next: Instant,
    /// The last fetch.
    last: Option<Instant>,
    is_wanted: bool,
    /// Since the last success.
    failures: u32,
}

impl Schedule {
    /// At once.
    pub(super) fn new(now: Instant) -> Schedule {
        Schedule {
            next: now,
            last: None,
            is_wanted: false,
            failures: 0,
        }
    }

    /// A token names a key that is not there.
    pub(super) fn want(&mut self) {
        self.is_wanted = true;
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        let may_ask = self.last.is_none_or(|last| now >= last + WISH_PAUSE);
        now >= self.next || (self.is_wanted && may_ask)
    }

    /// The keys were fetched. Returns whether that has failed before.
    pub(super) fn succeed(&mut self, now: Instant, max_age: Option<Duration>, random: u64) -> bool {
        let interval = max_age
            .unwrap_or(INTERVAL)
            .clamp(INTERVAL_MIN, INTERVAL_MAX);
        // Up to an eighth less, so that gateways do not come all at once.
        self.done(now, now + interval - spread(interval / 8, random));
        std::mem::take(&mut self.failures) > 0
    }

    /// The keys could not be fetched. Returns whether that is the first time.
    pub(super) fn fail(&mut self, now: Instant, random: u64) -> bool {
        let pause = PAUSE_MIN * (1 << self.failures.min(6));
        let pause = pause.min(PAUSE_MAX);
        self.done(now, now + pause + spread(pause / 2, random));
        self.failures = self.failures.saturating_add(1);
        self.failures == 1
    }

    fn done(&mut self, now: Instant, next: Instant) {
        self.last = Some(now);
        self.next = next;
        self.is_wanted = false;
    }
}

/// A part of this time.
fn spread(most: Duration, random: u64) -> Duration {
    most.mul_f64((random % 1024) as f64 / 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn keys_are_fetched_again_before_they_are_old() {
        let now = Instant::now();
        for (max_age, seconds) in [
            (None, 600),
            (Some(0), 60),
            (Some(300), 300),
            (Some(1 << 31), 3600),
        ] {
            for random in [0, 1023] {
                let mut schedule = Schedule::new(now);
                assert!(schedule.is_due(now));
                assert!(!schedule.succeed(now, max_age.map(Duration::from_secs), random));
                assert!(
                    !schedule.is_due(now + SECOND * (seconds * 7 / 8 - 1)),
                    "{max_age:?}"
                );
                assert!(schedule.is_due(now + SECOND * seconds), "{max_age:?}");
            }
        }
    }

    #[test]
    fn a_wish_is_met_once_in_ten_seconds() {
        let now = Instant::now();
        let mut schedule = Schedule::new(now);
        schedule.succeed(now, None, 0);
        schedule.want();
        assert!(!schedule.is_due(now + WISH_PAUSE - SECOND));
        assert!(schedule.is_due(now + WISH_PAUSE));
        schedule.succeed(now + WISH_PAUSE, None, 0);
        assert!(!schedule.is_due(now + WISH_PAUSE * 3));
    }

    #[test]
    fn pauses_after_failures_grow_up_to_a_minute() {
        let mut now = Instant::now();
        let mut schedule = Schedule::new(now);
        for (number, pause) in [1, 2, 4, 8, 16, 32, 60, 60].into_iter().enumerate() {
            assert_eq!(schedule.fail(now, 0), number == 0);
            assert!(
                !schedule.is_due(now + SECOND * pause - SECOND / 2),
                "{pause}"
            );
            now += SECOND * pause;
            assert!(schedule.is_due(now), "{pause}");
        }
        assert!(schedule.succeed(now, None, 0));
        assert!(schedule.fail(now, 1023));
    }
}
