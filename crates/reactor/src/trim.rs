//! Gives memory back to the operating system after a burst.
//!
//! Free lists and the allocator keep the memory of a burst for the next one. If no other burst follows,
//! the core would keep many times the memory that it needs.

use std::cell::Cell;
use std::time::{Duration, Instant};

use crate::buffer::{self, Pool};
use crate::driver::{self, Driver};
use crate::executor;

/// A burst has at least this many tasks, sockets and filled buffers at a time.
const BURST_MIN: usize = 512;

/// A burst is over after fewer than half as many for this long.
const QUIET_TIME: Duration = Duration::from_secs(2);

/// Detects the end of a burst.
#[derive(Default)]
pub(crate) struct Trim {
    /// The largest count since memory was last given back.
    peak: Cell<usize>,
    quiet_since: Cell<Option<Instant>>,
}

impl Trim {
    /// Records the number of tasks, sockets and filled buffers. Returns the time until memory is given
    /// back, if a burst is ending.
    #[inline]
    pub(crate) fn record(&self, count: usize, now: Instant) -> Option<Duration> {
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

    /// Gives memory back; false if the driver has completions that may refer to buffers.
    #[cold]
    pub(crate) fn give_back(&self, count: usize, driver: &mut Driver, pool: &Pool) -> bool {
        if !driver.shrink(pool) {
            return false;
        }
        pool.give_back_memory();
        buffer::free_unused();
        executor::free_unused();
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
        assert_eq!(trim.record(BURST_MIN - 1, at(0)), None);
        assert_eq!(trim.record(1, at(0)), None, "that was no burst");
        assert_eq!(trim.record(1_000, at(1)), None);
        assert_eq!(trim.record(501, at(1)), None);
        assert_eq!(trim.record(500, at(2)), Some(QUIET_TIME));
        assert_eq!(trim.record(400, at(3)), Some(QUIET_TIME / 2));
        assert_eq!(trim.record(501, at(3)), None, "it goes on");
        assert_eq!(trim.record(10, at(4)), Some(QUIET_TIME));
        assert_eq!(trim.record(10, at(7)), Some(Duration::ZERO));
    }
}
