//! The core's clock and its generator.

use std::cell::Cell;
use std::time::{Duration, Instant, SystemTime};

/// Time as of the last look, taken once per turn. Ticks are milliseconds since the start.
pub(crate) struct Clock {
    start: Instant,
    now: Cell<Instant>,
    tick: Cell<u64>,
    wall: Cell<Option<SystemTime>>,
}

impl Clock {
    pub(crate) fn new() -> Clock {
        let start = Instant::now();
        Clock {
            start,
            now: Cell::new(start),
            tick: Cell::new(0),
            wall: Cell::new(None),
        }
    }

    /// Looks at the operating system's clock.
    pub(crate) fn update(&self) {
        let now = Instant::now();
        self.now.set(now);
        self.tick.set((now - self.start).as_millis() as u64);
        self.wall.set(None);
    }

    pub(crate) fn now(&self) -> Instant {
        self.now.get()
    }

    /// Read at most once per turn, and only in turns that ask.
    pub(crate) fn wall(&self) -> SystemTime {
        let wall = self.wall.get().unwrap_or_else(SystemTime::now);
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

    /// How long until a tick.
    pub(crate) fn until(&self, tick: u64) -> Duration {
        (self.start + Duration::from_millis(tick)).saturating_duration_since(self.now())
    }
}

/// Whole ticks that cover a duration.
pub(crate) fn ticks_up(duration: Duration) -> u64 {
    duration.as_secs() * 1_000 + u64::from(duration.subsec_nanos().div_ceil(1_000_000))
}

/// SplitMix64 (Steele, Lea, Flood 2014): jitter and choices, never keys.
pub(crate) struct Random(u64);

impl Random {
    /// Continues from `seed`, or from the operating system's generator.
    pub(crate) fn new(seed: Option<u64>) -> Random {
        Random(seed.unwrap_or_else(|| {
            let mut bytes = [0u8; 8];
            // SAFETY: eight bytes into a live array. Should it fail, the address space layout
            // still tells processes apart, which is all that jitter needs.
            unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
            u64::from_ne_bytes(bytes) ^ (&raw const bytes).addr() as u64
        }))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
}
