//! Which requests an upstream gets that sheds load: those within its limit at once, some others after a short wait.
//!
//! It takes the time from its caller, and wakes nobody itself.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use blitz_config::{Importance, Shed};

use super::gradient::{Bounds, Gradient};
use super::unloaded::Unloaded;

/// The greatest limit of all cores together, if the configuration has none.
const LIMIT_MAX: u32 = 1_000;

/// The most requests of a core that wait, if the configuration has no number.
const QUEUE_MAX: u32 = 256;

/// The bounds of a wait without one in the configuration: a request waits at most as long as a response takes without
/// load, so that it has its response within twice that time and the part that the upstream needs for others.
const WAIT_MIN: Duration = Duration::from_millis(5);
const WAIT_MAX: Duration = Duration::from_secs(1);

/// The wait before there was a response.
const WAIT_UNKNOWN: Duration = Duration::from_millis(100);

/// Decides on requests to an upstream, on a core. `T` is a request that waits.
#[derive(Debug)]
pub(crate) struct Controller<T> {
    gradient: Gradient,
    in_flight: usize,
    /// Requests that wait, by importance, each in the order in which they came.
    waiting: [VecDeque<T>; Importance::ALL.len()],
    queue_max: usize,
    wait: Option<Duration>,
}

/// The decision on a request.
#[derive(Debug)]
pub(crate) enum Arrival<T> {
    /// It is sent, and counts until it [ends](Controller::end).
    Admitted,
    /// It waits for so long at most.
    Waits {
        wait: Duration,
        /// Another request gave up its place, and is shed.
        displaced: Option<T>,
    },
    /// It is shed.
    Shed,
}

impl<T> Controller<T> {
    /// For one of this many cores.
    pub(crate) fn new(
        settings: &Shed,
        cores: usize,
        unloaded: Arc<Unloaded>,
        now: Instant,
    ) -> Controller<T> {
        Controller {
            gradient: Gradient::new(bounds(settings, cores), unloaded, now),
            in_flight: 0,
            waiting: Default::default(),
            queue_max: settings.queue.unwrap_or(QUEUE_MAX) as usize,
            wait: settings.wait,
        }
    }

    /// Another configuration.
    pub(crate) fn set(&mut self, settings: &Shed, cores: usize) {
        self.gradient.set_bounds(bounds(settings, cores));
        self.queue_max = settings.queue.unwrap_or(QUEUE_MAX) as usize;
        self.wait = settings.wait;
    }

    /// Decides on a request. `waiter` makes what is kept of it while it waits.
    ///
    /// The newest one is served first: under overload the requests that are served have hardly waited, and those that
    /// have waited long are shed. Served in their order, all would wait as long as they may.
    pub(crate) fn arrive(
        &mut self,
        importance: Importance,
        now: Instant,
        waiter: impl FnOnce() -> T,
    ) -> Arrival<T> {
        self.gradient.proceed(now);
        let rank = importance as usize;
        let is_next = self.waiting[rank + 1..].iter().all(VecDeque::is_empty);
        if self.in_flight < self.gradient.limit() && is_next {
            self.in_flight += 1;
            return Arrival::Admitted;
        }
        self.gradient.note_full(now);
        let wait = self.wait();
        if wait.is_zero() {
            return Arrival::Shed;
        }
        let mut displaced = None;
        if self.waiting() >= self.queue_max {
            // The one that has waited longest among the least important ones is the least likely to be served.
            let least = self.waiting[..=rank]
                .iter_mut()
                .find(|of_rank| !of_rank.is_empty());
            displaced = least.and_then(VecDeque::pop_front);
            if displaced.is_none() {
                return Arrival::Shed;
            }
        }
        self.waiting[rank].push_back(waiter());
        Arrival::Waits { wait, displaced }
    }

    /// Whether a request that does not wait is sent now: the limit is not reached, and no other request waits.
    pub(crate) fn try_begin(&mut self, now: Instant) -> bool {
        self.gradient.proceed(now);
        let is_free = self.in_flight < self.gradient.limit() && self.waiting() == 0;
        self.in_flight += usize::from(is_free);
        is_free
    }

    /// The next request that waits and may be sent now. It counts as sent.
    pub(crate) fn next(&mut self) -> Option<T> {
        if self.in_flight >= self.gradient.limit() {
            return None;
        }
        let next = self.waiting.iter_mut().rev().find_map(VecDeque::pop_back)?;
        self.in_flight += 1;
        Some(next)
    }

    /// A request ends that was sent at `started`: with its response, or without one. Then its time counts only if it shows
    /// that the upstream is slow; a failure may be quick. Call [`next`](Controller::next) afterwards.
    pub(crate) fn end(&mut self, started: Instant, is_answered: bool, now: Instant) {
        self.in_flight = self.in_flight.saturating_sub(1);
        let unloaded = self.gradient.unloaded().unwrap_or(Duration::MAX);
        if is_answered || now.saturating_duration_since(started) > unloaded {
            self.gradient.note_response(started, now);
        } else {
            self.gradient.proceed(now);
        }
    }

    /// Takes out a request that does not wait any more. Whether it was there.
    pub(crate) fn leave(&mut self, importance: Importance, is_it: impl Fn(&T) -> bool) -> bool {
        let of_rank = &mut self.waiting[importance as usize];
        let place = of_rank.iter().position(is_it);
        place.and_then(|place| of_rank.remove(place)).is_some()
    }

    /// How long a request waits at most.
    fn wait(&self) -> Duration {
        let usual = || match self.gradient.unloaded() {
            Some(time) => time.clamp(WAIT_MIN, WAIT_MAX),
            None => WAIT_UNKNOWN,
        };
        self.wait.unwrap_or_else(usual)
    }

    /// How many requests wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.iter().map(VecDeque::len).sum()
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight
    }

    pub(crate) fn limit(&self) -> usize {
        self.gradient.usual_limit()
    }

    pub(crate) fn unloaded(&self) -> Option<Duration> {
        self.gradient.unloaded()
    }
}

/// The share of a core.
fn bounds(settings: &Shed, cores: usize) -> Bounds {
    let cores = cores.max(1) as f64;
    let max = f64::from(settings.max.unwrap_or(LIMIT_MAX)) / cores;
    Bounds {
        // A core without a request learns nothing.
        min: (f64::from(settings.min.unwrap_or(1)) / cores).max(1.0),
        max: max.max(1.0),
        cores,
    }
}
