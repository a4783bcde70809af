//! The core's clock and its generator of random numbers.

use std::cell::Cell;
use std::time::{Duration, Instant, SystemTime};

/// The time of the current turn, read once per turn. Ticks are milliseconds since the start of the core.
pub(crate) struct Clock {
    start: Instant,
    now: Cell<Instant>,
    tick: Cell<u64>,
    wall: Cell<Option<SystemTime>>,
}

impl Clock {
    pub(crate) fn new(now: Instant) -> Clock {
        Clock {
            start: now,
            now: Cell::new(now),
            tick: Cell::new(0),
            wall: Cell::new(None),
        }
    }

    /// Sets the time at the start of a turn.
    #[inline]
    pub(crate) fn update(&self, now: Instant) {
        self.now.set(now);
        self.tick.set((now - self.start).as_millis() as u64);
        self.wall.set(None);
    }

    pub(crate) fn now(&self) -> Instant {
        self.now.get()
    }

    /// Wall-clock time, read at most once per turn, on first use.
    pub(crate) fn wall(&self, read: impl FnOnce() -> SystemTime) -> SystemTime {
        let wall = self.wall.get().unwrap_or_else(read);
        self.wall.set(Some(wall));
        wall
    }

    /// The last tick that has passed.
    pub(crate) fn tick(&self) -> u64 {
        self.tick.get()
    }

    /// The first tick that is not before `at`.
    pub(crate) fn tick_after(&self, at: Instant) -> u64 {
        ticks_up(at.saturating_duration_since(self.start))
    }

    /// The time until a tick.
    pub(crate) fn until(&self, tick: u64) -> Duration {
        (self.start + Duration::from_millis(tick)).saturating_duration_since(self.now())
    }
}

/// A duration in ticks, rounded up.
pub(crate) fn ticks_up(duration: Duration) -> u64 {
    duration.as_secs() * 1_000 + u64::from(duration.subsec_nanos().div_ceil(1_000_000))
}

/// SplitMix64 (Steele, Lea, Flood 2014), for jitter and random choices, not for keys.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
}
