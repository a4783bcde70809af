//! How many requests may be sent again (rule 13).
//!
//! An upstream that fails or refuses every request must not get several times the load because of that.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

/// Retries of requests that the upstream may have processed: one for so many requests.
const REQUESTS_PER_RETRY: u32 = 5;
/// Retries of requests that the upstream certainly did not process, for each request.
const UNPROCESSED_PER_REQUEST: u32 = 2;
/// Retries of either kind that are always possible within [`PERIOD`].
const RETRIES_MIN: u32 = 100;
/// The time that requests and retries are counted for.
const PERIOD: Duration = Duration::from_secs(10);
/// Each part of it is forgotten as a whole.
const PARTS: usize = 10;
const PART: Duration = Duration::from_millis(PERIOD.as_millis() as u64 / PARTS as u64);

/// Whether the upstream may have processed a request that is to be sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Processed {
    Perhaps,
    No,
}

/// The requests and retries of one upstream on one core within the last ten seconds.
#[derive(Debug, Default)]
pub(crate) struct RetryBudget {
    /// Requests within the current part.
    requests: Cell<u32>,
    /// When the current part ends; `None` before the first request.
    until: Cell<Option<Instant>>,
    window: RefCell<Window>,
}

#[derive(Debug, Default)]
struct Window {
    parts: [RetryCounts; PARTS],
    /// Index of the current part, whose requests are not in it yet.
    at: usize,
}

#[derive(Debug, Default, Clone, Copy)]
struct RetryCounts {
    requests: u32,
    /// Of requests that may have been processed.
    perhaps: u32,
    /// Of requests that were not processed.
    unprocessed: u32,
}

impl RetryBudget {
    /// Counts a request. This happens once for each, so it is cheap.
    #[inline]
    pub(crate) fn note_request(&self, now: Instant) {
        self.keep_up(now);
        self.requests.set(self.requests.get() + 1);
    }

    /// Counts a retry, if there is one left.
    pub(crate) fn try_retry(&self, processed: Processed, now: Instant) -> bool {
        self.keep_up(now);
        let mut window = self.window.borrow_mut();
        let sum = |count: fn(&RetryCounts) -> u32| window.parts.iter().map(count).sum::<u32>();
        let requests = sum(|part| part.requests) + self.requests.get();
        let (spent, allowed) = match processed {
            Processed::Perhaps => (sum(|part| part.perhaps), requests / REQUESTS_PER_RETRY),
            Processed::No => (
                sum(|part| part.unprocessed),
                requests.saturating_mul(UNPROCESSED_PER_REQUEST),
            ),
        };
        if spent >= allowed.max(RETRIES_MIN) {
            return false;
        }
        let at = window.at;
        match processed {
            Processed::Perhaps => window.parts[at].perhaps += 1,
            Processed::No => window.parts[at].unprocessed += 1,
        }
        true
    }

    #[inline]
    fn keep_up(&self, now: Instant) {
        if self.until.get().is_none_or(|until| now >= until) {
            self.advance(now);
        }
    }

    /// Begins a part, and forgets the oldest ones.
    #[cold]
    fn advance(&self, now: Instant) {
        let mut window = self.window.borrow_mut();
        let at = window.at;
        window.parts[at].requests = self.requests.take();
        let mut until = self.until.get().unwrap_or(now);
        if now.saturating_duration_since(until) >= PERIOD {
            window.parts = Default::default();
            until = now;
        }
        while until <= now {
            window.at = (window.at + 1) % PARTS;
            let at = window.at;
            window.parts[at] = RetryCounts::default();
            until += PART;
        }
        self.until.set(Some(until));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many retries there are now.
    fn left(budget: &RetryBudget, processed: Processed, now: Instant) -> u32 {
        (0..)
            .take_while(|_| budget.try_retry(processed, now))
            .count() as u32
    }

    #[test]
    fn retries_depend_on_the_requests_of_the_last_ten_seconds() {
        let start = Instant::now();
        for (processed, allowed) in [(Processed::Perhaps, 400), (Processed::No, 4000)] {
            let budget = RetryBudget::default();
            for number in 0..2000 {
                budget.note_request(start + PERIOD / 2000 * number);
            }
            let end = start + PERIOD - PART / 2;
            assert_eq!(left(&budget, processed, end), allowed);
            assert_eq!(left(&budget, processed, end + PART), 0, "{processed:?}");
            assert_eq!(left(&budget, processed, end + 2 * PERIOD), RETRIES_MIN);
        }
    }

    #[test]
    fn a_hundred_retries_of_each_kind_are_always_possible() {
        let budget = RetryBudget::default();
        let now = Instant::now();
        assert_eq!(left(&budget, Processed::Perhaps, now), RETRIES_MIN);
        assert_eq!(left(&budget, Processed::No, now), RETRIES_MIN);
        assert_eq!(left(&budget, Processed::No, now + PERIOD - PART), 0);
        assert_eq!(left(&budget, Processed::No, now + PERIOD), RETRIES_MIN);
    }
}
