//! Gives memory back to the operating system after a burst.
//!
//! Free lists and the allocator keep the memory of a burst for the next one. If no other burst follows,
//! the core would keep many times the memory that it needs.

use std::cell::Cell;
use std::time::{Duration, Instant};

use crate::buffer::{Pool, free_unused_buffers};
use crate::driver::{Driver, trim_heap};
use crate::executor::free_unused_blocks;

/// A burst of [`CoreMemory::parts`] has at least this many at a time.
const PARTS_MIN: usize = 512;

/// A burst of copied bytes has at least this many at a time.
const COPIED_MIN: usize = 4 * 1024 * 1024;

/// A burst is over after fewer than half as many for this long.
const QUIET_TIME: Duration = Duration::from_secs(2);

/// The memory that a core holds.
pub(crate) struct CoreMemory {
    /// Tasks, sockets and filled buffers.
    pub(crate) parts: usize,
    /// Bytes outside the pool that count against its limit, most of them copies. A burst of them may end long
    /// before the connections do: pooled buffers replace them, and the heap would stay beside these.
    pub(crate) copied: usize,
}

/// Detects the ends of bursts, and gives their memory back.
pub(crate) struct Trim {
    parts: Burst,
    copied: Burst,
}

impl Trim {
    pub(crate) fn new() -> Trim {
        Trim {
            parts: Burst::at_least(PARTS_MIN),
            copied: Burst::at_least(COPIED_MIN),
        }
    }

    /// Returns the time until memory is given back, if a burst is ending.
    #[inline]
    pub(crate) fn record(&self, held: &CoreMemory, now: Instant) -> Option<Duration> {
        let parts = self.parts.record(held.parts, now);
        let copied = self.copied.record(held.copied, now);
        parts.into_iter().chain(copied).min()
    }

    /// Gives memory back; false if the driver has completions that may refer to buffers.
    #[cold]
    pub(crate) fn give_back(&self, held: &CoreMemory, driver: &mut Driver, pool: &Pool) -> bool {
        if !driver.shrink(pool) {
            return false;
        }
        pool.give_back_memory();
        free_unused_buffers();
        free_unused_blocks();
        trim_heap();
        self.parts.restart(held.parts);
        self.copied.restart(held.copied);
        true
    }
}

/// Detects the end of a burst.
struct Burst {
    min: usize,
    /// The largest count since memory was last given back.
    peak: Cell<usize>,
    quiet_since: Cell<Option<Instant>>,
}

impl Burst {
    fn at_least(min: usize) -> Burst {
        Burst {
            min,
            peak: Cell::new(0),
            quiet_since: Cell::new(None),
        }
    }

    /// Returns the time until the burst is over, if it is ending.
    #[inline]
    fn record(&self, count: usize, now: Instant) -> Option<Duration> {
        let peak = self.peak.get();
        if count >= peak {
            self.peak.set(count);
        }
        if peak < self.min || count > peak / 2 {
            self.quiet_since.set(None);
            return None;
        }
        let since = self.quiet_since.get().unwrap_or(now);
        self.quiet_since.set(Some(since));
        Some((since + QUIET_TIME).saturating_duration_since(now))
    }

    fn restart(&self, count: usize) {
        self.peak.set(count);
        self.quiet_since.set(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_over_when_half_of_it_is_gone_for_a_while() {
        let (burst, start) = (Burst::at_least(PARTS_MIN), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(burst.record(PARTS_MIN - 1, at(0)), None);
        assert_eq!(burst.record(1, at(0)), None, "that was no burst");
        assert_eq!(burst.record(1_000, at(1)), None);
        assert_eq!(burst.record(501, at(1)), None);
        assert_eq!(burst.record(500, at(2)), Some(QUIET_TIME));
        assert_eq!(burst.record(400, at(3)), Some(QUIET_TIME / 2));
        assert_eq!(burst.record(501, at(3)), None, "it goes on");
        assert_eq!(burst.record(10, at(4)), Some(QUIET_TIME));
        assert_eq!(burst.record(10, at(7)), Some(Duration::ZERO));
    }
}
