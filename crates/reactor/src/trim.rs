//! Memory that a burst has used goes back to the operating system.
//!
//! Free lists and the allocator keep what a busy moment needed, which serves the next such moment;
//! but one that does not come again would leave a core with many times the memory that it needs.

use std::cell::Cell;
use std::time::{Duration, Instant};

use crate::buffer::{self, Pool};
use crate::driver::{self, Driver};
use crate::executor;

/// Tasks, sockets and full buffers at a time from which on a core has been busy enough to look for
/// memory to give back.
const BURST_MIN: usize = 512;

/// How long there have to be less than half as many.
const QUIET_TIME: Duration = Duration::from_secs(2);

/// Finds out when a burst is over.
#[derive(Default)]
pub(crate) struct Trim {
    /// The most at a time since memory was last given back.
    peak: Cell<usize>,
    quiet_since: Cell<Option<Instant>>,
}

impl Trim {
    /// Notes how many tasks, sockets and full buffers there are; how long it is until memory may be
    /// given back, if there is a burst to wait for the end of.
    #[inline]
    pub(crate) fn note(&self, count: usize, now: Instant) -> Option<Duration> {
        let peak = self.peak.get();
        if count >= peak {
            self.peak.set(count);
        }
        if peak < BURST_MIN || count > peak / 2 {
            self.quiet_since.set(None);
            return None;
        }
        let since = self.quiet_since.get().unwrap_or(now);
        self.quiet_since.set(Some(since));
        Some((since + QUIET_TIME).saturating_duration_since(now))
    }

    /// Gives memory back, unless the driver has reports that may be about buffers. Whether it did.
    #[cold]
    pub(crate) fn give_back(&self, count: usize, driver: &mut Driver, pool: &Pool) -> bool {
        if !driver.shrink(pool) {
            return false;
        }
        pool.give_back_memory();
        buffer::forget_kept();
        executor::forget_kept();
        driver::trim_heap();
        self.peak.set(count);
        self.quiet_since.set(None);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_over_when_half_of_it_is_gone_for_a_while() {
        let (trim, start) = (Trim::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(trim.note(BURST_MIN - 1, at(0)), None);
        assert_eq!(trim.note(1, at(0)), None, "that was no burst");
        assert_eq!(trim.note(1_000, at(1)), None);
        assert_eq!(trim.note(501, at(1)), None);
        assert_eq!(trim.note(500, at(2)), Some(QUIET_TIME));
        assert_eq!(trim.note(400, at(3)), Some(QUIET_TIME / 2));
        assert_eq!(trim.note(501, at(3)), None, "it goes on");
        assert_eq!(trim.note(10, at(4)), Some(QUIET_TIME));
        assert_eq!(trim.note(10, at(7)), Some(Duration::ZERO));
    }
}
