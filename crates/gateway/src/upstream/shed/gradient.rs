//! How many requests an upstream may have at a time: a limit that follows its response times.
//!
//! The algorithm is that of Netflix' `Gradient2` and of Envoy's adaptive concurrency: `limit' = limit × gradient +
//! headroom`, where the gradient is the time of a response without load over the time now, within 0.5 and 1. If more
//! requests are sent than the upstream works on, the others wait there, the time grows, and the limit falls. The headroom is
//! the square root of the limit, by which it rises again. For a limit of `L` and an upstream that works on `C` at a time, it
//! settles where `L - 1.25 C` is the square root of `L`: the upstream is always full, and a few requests wait there.
//!
//! Each core has a limit of its own, which is its share of the whole, with its share of the headroom. Cores see the same
//! times, so that the sum of their limits settles at the same number. Only the least limit of one request is for each core.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::unloaded::Unloaded;

/// How much longer than without load responses may take before the limit falls: response times vary.
const TOLERANCE: f64 = 1.25;

/// The least gradient: one step at most halves the limit.
const GRADIENT_MIN: f64 = 0.5;

/// The first limit of all cores together, and the least first one of a core.
const FIRST_LIMIT: f64 = 32.0;
const FIRST_LIMIT_MIN: f64 = 4.0;

/// The growth in a window, until the limit has fallen once.
const FIRST_GROWTH: f64 = 1.5;

/// Response times of a window that are kept, the latest ones; their median counts.
const SAMPLES_KEPT: usize = 64;

/// A window has at least so many response times, and lasts so long; two of them if they are longer.
const WINDOW_SAMPLES_MIN: u32 = 16;
const WINDOW_MIN: Duration = Duration::from_millis(50);

/// After this time fewer are enough.
const WINDOW_MAX: Duration = Duration::from_secs(1);
const SAMPLES_MIN: u32 = 4;

/// While the time without load is measured, a core sends this part of its limit.
const MEASURED_PART: f64 = 0.25;

/// A measurement lasts so many times without load, within these bounds, or until there are so many response times.
const MEASUREMENT_TIMES: u32 = 6;
const MEASUREMENT_MIN: Duration = Duration::from_millis(50);
const MEASUREMENT_MAX: Duration = Duration::from_secs(2);
const MEASUREMENT_SAMPLES: u32 = 16;

/// So few response times are a result, if the measurement has lasted long enough.
const MEASUREMENT_SAMPLES_MIN: u32 = 2;

/// The time without load is measured after a window in which so many requests found the limit reached, and not after a
/// single burst: a measurement sheds requests that the upstream could take.
const FULL_MIN: u32 = 8;

/// The bounds of a limit of a core.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Bounds {
    pub(super) min: f64,
    pub(super) max: f64,
    pub(super) cores: f64,
}

/// The limit of a core.
#[derive(Debug)]
pub(super) struct Gradient {
    bounds: Bounds,
    unloaded: Arc<Unloaded>,
    /// It changes only while requests find it reached: otherwise it holds nothing back.
    limit: f64,
    window: Window,
    /// It has never fallen.
    has_only_grown: bool,
    /// Requests that found it reached in this window.
    full: u32,
    /// There were enough of them in the window before.
    is_contended: bool,
    measurement: Option<Measurement>,
    /// The number of the last measurement.
    measured: u64,
}

/// A measurement of the time without load.
#[derive(Debug)]
struct Measurement {
    number: u64,
    window: Window,
}

/// The response times of requests that began in a span of time.
#[derive(Debug)]
struct Window {
    began: Instant,
    count: u32,
    micros: [u32; SAMPLES_KEPT],
}

impl Window {
    fn new(began: Instant) -> Window {
        Window {
            began,
            count: 0,
            micros: [0; SAMPLES_KEPT],
        }
    }

    /// Requests that began before it were under another limit.
    fn add(&mut self, started: Instant, time: Duration) {
        if started >= self.began {
            let micros = u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
            self.micros[self.count as usize % SAMPLES_KEPT] = micros;
            self.count = self.count.saturating_add(1);
        }
    }

    fn median(&mut self) -> Option<Duration> {
        let count = (self.count as usize).min(SAMPLES_KEPT);
        let kept = &mut self.micros[..count];
        if kept.is_empty() {
            return None;
        }
        let (_, median, _) = kept.select_nth_unstable(count / 2);
        Some(Duration::from_micros(u64::from(*median).max(1)))
    }
}

impl Gradient {
    pub(super) fn new(bounds: Bounds, unloaded: Arc<Unloaded>, now: Instant) -> Gradient {
        let first = (FIRST_LIMIT / bounds.cores).max(FIRST_LIMIT_MIN);
        Gradient {
            bounds,
            unloaded,
            limit: first.clamp(bounds.min, bounds.max),
            window: Window::new(now),
            has_only_grown: true,
            full: 0,
            is_contended: false,
            measurement: None,
            measured: 0,
        }
    }

    pub(super) fn set_bounds(&mut self, bounds: Bounds) {
        self.bounds = bounds;
        self.limit = self.limit.clamp(bounds.min, bounds.max);
    }

    /// How many requests there may be now; at least one.
    pub(super) fn limit(&self) -> usize {
        let part = match self.measurement {
            Some(_) => MEASURED_PART,
            None => 1.0,
        };
        // It is at least 0.
        ((self.limit * part) as usize).max(1)
    }

    /// The limit without the measurement that may be under way.
    pub(super) fn usual_limit(&self) -> usize {
        (self.limit as usize).max(1)
    }

    pub(super) fn unloaded(&self) -> Option<Duration> {
        self.unloaded.get()
    }

    /// Notes that a request found the limit reached. The time without load is measured then, from time to time.
    pub(super) fn note_full(&mut self, now: Instant) {
        self.full = self.full.saturating_add(1);
        if self.is_contended && self.measurement.is_none() {
            self.begin_measurement(now);
        }
    }

    /// Notes a response, or the end of a request that was slow without one.
    pub(super) fn note_response(&mut self, started: Instant, now: Instant) {
        let time = now.saturating_duration_since(started);
        self.window.add(started, time);
        if let Some(measurement) = &mut self.measurement {
            measurement.window.add(started, time);
        }
        self.proceed(now);
    }

    /// Ends windows and measurements whose time has come.
    pub(super) fn proceed(&mut self, now: Instant) {
        if self.measurement.is_some() {
            self.end_measurement(now);
        } else {
            self.end_window(now);
        }
    }

    fn begin_measurement(&mut self, now: Instant) {
        let number = self.unloaded.measurement(now);
        if number > self.measured {
            self.measured = number;
            self.measurement = Some(Measurement {
                number,
                window: Window::new(now),
            });
        }
    }

    fn end_measurement(&mut self, now: Instant) {
        let longest = match self.unloaded.get() {
            Some(time) => time * MEASUREMENT_TIMES,
            None => MEASUREMENT_MAX,
        };
        let longest = longest.clamp(MEASUREMENT_MIN, MEASUREMENT_MAX);
        let Some(measurement) = &mut self.measurement else {
            return;
        };
        let window = &mut measurement.window;
        let is_over = now.saturating_duration_since(window.began) >= longest;
        if window.count < MEASUREMENT_SAMPLES && !is_over {
            return;
        }
        let number = measurement.number;
        // An upstream that takes longer than the measurement has become slower.
        let time = match window.count >= MEASUREMENT_SAMPLES_MIN {
            true => window.median(),
            false => self.unloaded.get().map(|time| time * 2),
        };
        if let Some(time) = time {
            self.unloaded.renew(number, time);
        }
        self.measurement = None;
        self.begin_window(now);
    }

    fn end_window(&mut self, now: Instant) {
        let elapsed = now.saturating_duration_since(self.window.began);
        let unloaded = self.unloaded.get().unwrap_or_default();
        let least = WINDOW_MIN.max(unloaded * 2).min(WINDOW_MAX);
        let is_over = match self.window.count {
            count if count >= WINDOW_SAMPLES_MIN => elapsed >= least,
            count => count >= SAMPLES_MIN && elapsed >= WINDOW_MAX,
        };
        if !is_over {
            return;
        }
        let Some(time) = self.window.median() else {
            return;
        };
        match self.full {
            // The limit holds nothing back, and the times are the usual ones.
            0 => self.unloaded.follow(time),
            _ => self.adapt(time),
        }
        self.is_contended = self.full >= FULL_MIN;
        self.begin_window(now);
    }

    fn adapt(&mut self, time: Duration) {
        // The first measurement is about to begin.
        let Some(unloaded) = self.unloaded.get() else {
            return;
        };
        let gradient = TOLERANCE * unloaded.as_secs_f64() / time.as_secs_f64();
        let gradient = gradient.clamp(GRADIENT_MIN, 1.0);
        self.has_only_grown &= gradient >= 1.0;
        let Bounds { min, max, cores } = self.bounds;
        let headroom = (self.limit * cores).sqrt() / cores;
        let next = match self.has_only_grown {
            true => (self.limit * FIRST_GROWTH).max(self.limit + headroom),
            false => self.limit * gradient + headroom,
        };
        self.limit = next.clamp(min, max);
    }

    fn begin_window(&mut self, now: Instant) {
        self.window = Window::new(now);
        self.full = 0;
    }
}
