//! Counts the streams that a client resets on one connection.
//!
//! Cancelled requests of many clients add up on a shared connection, and the server's limit of resets
//! would end it for all of them (rule 19).

use std::time::Instant;

use blitz_proto::Limits;

/// The resets that were sent in this window of time and in the one before.
pub(in crate::conn) struct SentResets {
    current: Resets,
    previous: Resets,
    started: Instant,
    /// Half of a limit was reached and not yet left again.
    are_many: bool,
}

#[derive(Debug, Clone, Copy, Default)]
struct Resets {
    /// Before the response head.
    early: u32,
    total: u32,
}

impl SentResets {
    pub(in crate::conn) fn new(now: Instant) -> SentResets {
        SentResets {
            current: Resets::default(),
            previous: Resets::default(),
            started: now,
            are_many: false,
        }
    }

    pub(in crate::conn) fn note(&mut self, is_early: bool, now: Instant, limits: &Limits) {
        self.begin_window(now, limits);
        self.current.early += u32::from(is_early);
        self.current.total += 1;
        self.are_many = self.exceed_half(limits);
    }

    /// Whether half of a limit is reached: the other half is for requests that are already sent. Two
    /// windows count, because the server's window begins at another time.
    #[inline]
    pub(in crate::conn) fn are_many(&mut self, limits: &Limits) -> bool {
        self.are_many && self.are_still_many(limits)
    }

    #[cold]
    fn are_still_many(&mut self, limits: &Limits) -> bool {
        self.begin_window(blitz_reactor::now(), limits);
        self.are_many = self.exceed_half(limits);
        self.are_many
    }

    fn begin_window(&mut self, now: Instant, limits: &Limits) {
        let age = now.saturating_duration_since(self.started);
        if age >= limits.resets_window {
            let is_next = age < limits.resets_window * 2;
            self.previous = if is_next {
                self.current
            } else {
                Resets::default()
            };
            self.current = Resets::default();
            self.started = now;
        }
    }

    fn exceed_half(&self, limits: &Limits) -> bool {
        self.current.early + self.previous.early >= limits.resets_max / 2
            || self.current.total + self.previous.total >= limits.resets_total_max / 2
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn resets_of_two_windows_count_together() {
        let limits = Limits::default();
        let start = Instant::now();
        let mut resets = SentResets::new(start);
        let mut reset = |count: u32, is_early: bool, seconds: u64| {
            for _ in 0..count {
                resets.note(is_early, start + Duration::from_secs(seconds), &limits);
            }
            resets.are_many
        };
        assert!(!reset(99, true, 9));
        assert!(reset(1, true, 11), "within 10 s of the others");
        assert!(!reset(98, true, 22), "the first window is over");
        assert!(reset(1, true, 23));
        assert!(!reset(1, true, 60), "both are over");
        assert!(!reset(998, false, 61));
        assert!(reset(1, false, 61), "half of the limit of all resets");
    }
}
