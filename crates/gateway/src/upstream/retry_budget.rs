//! How many requests may be sent again (rule 13).
//!
//! An upstream that fails or refuses every request must not get several times the load because of that.
//!
//! Each core counts its own requests, and has a share of them to send again. All cores have together the retries that an
//! upstream may get in any case ([`SharedRetries`]). Of requests that may have been processed, all cores together send at most so
//! many again:
//!
//! - since the start, the share of the requests, 10 for each second, and [`RETRIES_MIN`];
//! - within any ten seconds, the share of the requests of these and the ten seconds before, and [`RETRIES_MIN`].

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use blitz_config::Share;

use super::shared_retries::SharedRetries;

/// Retries of requests that the upstream certainly did not process, for each request.
const UNPROCESSED_PER_REQUEST: u32 = 2;
/// Retries that are always possible within [`PERIOD`]: of requests that the upstream may have processed on all cores
/// together, of others on each core.
pub(super) const RETRIES_MIN: u32 = 100;
/// The time that requests and retries are counted for.
pub(super) const PERIOD: Duration = Duration::from_secs(10);
/// Each part of it is forgotten as a whole.
pub(super) const PARTS: usize = 10;
const PART: Duration = Duration::from_millis(PERIOD.as_millis() as u64 / PARTS as u64);
/// Retries are counted for one part more: the first and the last may be incomplete, and together they are never less
/// than a period. Requests are counted without it: they are never those of more than a period.
const PARTS_KEPT: usize = PARTS + 1;

/// The number of the part at a time, from 0.
pub(super) fn part_since(epoch: Instant, now: Instant) -> u64 {
    (now.saturating_duration_since(epoch).as_millis() / PART.as_millis()) as u64
}

/// Whether the upstream may have processed a request that is to be sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Processed {
    Perhaps,
    No,
}

/// How many of the requests may be sent again that the upstream may have processed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RetryShare {
    millionths: u32,
}

impl Default for RetryShare {
    fn default() -> RetryShare {
        RetryShare {
            millionths: 200_000,
        }
    }
}

impl From<Share> for RetryShare {
    fn from(share: Share) -> RetryShare {
        RetryShare {
            millionths: share.millionths(),
        }
    }
}

impl RetryShare {
    fn of(self, requests: u32) -> u32 {
        let product = u64::from(requests) * u64::from(self.millionths);
        (product / 1_000_000) as u32
    }
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
    parts: [RetryCounts; PARTS_KEPT],
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

impl Window {
    fn requests(&self) -> u32 {
        let oldest = (self.at + 1) % PARTS_KEPT;
        let parts = self.parts.iter().enumerate();
        let recent = parts.filter(|(index, _)| *index != oldest);
        recent.map(|(_, part)| part.requests).sum()
    }

    fn retries(&self, count: fn(&RetryCounts) -> u32) -> u32 {
        self.parts.iter().map(count).sum()
    }
}

impl RetryBudget {
    /// Counts a request. This happens once for each, so it is cheap.
    #[inline]
    pub(crate) fn note_request(&self, now: Instant) {
        self.keep_up(now);
        self.requests.set(self.requests.get() + 1);
    }

    /// Counts a retry, if there is one left.
    pub(crate) fn try_retry(
        &self,
        processed: Processed,
        share: RetryShare,
        shared: &SharedRetries,
        now: Instant,
    ) -> bool {
        self.keep_up(now);
        let mut window = self.window.borrow_mut();
        let requests = window.requests() + self.requests.get();
        let at = window.at;
        match processed {
            Processed::Perhaps => {
                if window.retries(|part| part.perhaps) < share.of(requests) {
                    shared.note(now);
                } else if !shared.try_take(now) {
                    return false;
                }
                window.parts[at].perhaps += 1;
            }
            Processed::No => {
                let allowed = requests.saturating_mul(UNPROCESSED_PER_REQUEST);
                if window.retries(|part| part.unprocessed) >= allowed.max(RETRIES_MIN) {
                    return false;
                }
                window.parts[at].unprocessed += 1;
            }
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
        if now.saturating_duration_since(until) >= PERIOD + PART {
            window.parts = Default::default();
            until = now;
        }
        while until <= now {
            window.at = (window.at + 1) % PARTS_KEPT;
            let at = window.at;
            window.parts[at] = RetryCounts::default();
            until += PART;
        }
        self.until.set(Some(until));
    }
}

#[cfg(test)]
mod tests;
