//! The state that the cores of the generator share with the thread that leads them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::check::Evidence;
use super::live_latency::LiveLatency;

/// Never, as nanoseconds since the start.
const NEVER: u64 = u64::MAX;

/// Leads the cores: when the measured time begins and ends, and whether to stop before. All times are
/// nanoseconds since the start of the run. Cores only read it, so that it costs them nothing.
pub(super) struct RunControl {
    start: Instant,
    measure_from: AtomicU64,
    measure_until: AtomicU64,
    is_stopped: AtomicBool,
    may_end: AtomicBool,
    evidence: Mutex<Option<Evidence>>,
    progress: Vec<Progress>,
    /// Somebody looks at the run.
    is_watched: bool,
}

/// The counts of one core since its start, warm-up included. On a cache line of its own.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct Progress {
    pub(super) completed: AtomicU64,
    pub(super) errors: AtomicU64,
    pub(super) bytes: AtomicU64,
    /// Open connections.
    pub(super) connections: AtomicU64,
    /// Of correct responses, if somebody looks at the run.
    pub(super) latency: LiveLatency,
}

impl RunControl {
    /// `start` may lie ahead: the cores wait for it.
    pub(super) fn new(cores: usize, start: Instant, is_watched: bool) -> RunControl {
        RunControl {
            start,
            measure_from: AtomicU64::new(NEVER),
            measure_until: AtomicU64::new(NEVER),
            is_stopped: AtomicBool::new(false),
            may_end: AtomicBool::new(false),
            evidence: Mutex::new(None),
            progress: (0..cores).map(|_| Progress::default()).collect(),
            is_watched,
        }
    }

    pub(super) fn start(&self) -> Instant {
        self.start
    }

    /// Nanoseconds since the start.
    pub(super) fn since_start(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.start).as_nanos() as u64
    }

    /// Begins the measured time, which ends after `length` or with [`RunControl::stop`].
    pub(super) fn measure(&self, from: Instant, length: Option<Duration>) {
        let from = self.since_start(from);
        let until = length.map_or(NEVER, |length| from + length.as_nanos() as u64);
        self.measure_until.store(until, Ordering::Release);
        self.measure_from.store(from, Ordering::Release);
    }

    /// The start of the measured time; `None` during the warm-up.
    pub(super) fn measured_from(&self) -> Option<u64> {
        let from = self.measure_from.load(Ordering::Acquire);
        (from != NEVER).then_some(from)
    }

    /// Whether a moment lies in the measured time.
    #[inline]
    pub(super) fn is_measured(&self, at: u64) -> bool {
        at >= self.measure_from.load(Ordering::Relaxed)
            && at < self.measure_until.load(Ordering::Relaxed)
    }

    /// Whether the measured time has ended.
    #[inline]
    pub(super) fn is_over(&self, at: u64) -> bool {
        at >= self.measure_until.load(Ordering::Relaxed) || self.is_stopped()
    }

    /// The end of the measured time, if it is known.
    pub(super) fn measured_until(&self) -> Option<u64> {
        let until = self.measure_until.load(Ordering::Acquire);
        (until != NEVER).then_some(until)
    }

    #[inline]
    pub(super) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    /// Ends the run now. The measured time ends with it.
    pub(super) fn stop(&self) {
        self.end_measuring();
        self.is_stopped.store(true, Ordering::Release);
    }

    /// Ends the measured time now.
    pub(super) fn end_measuring(&self) {
        let now = self.since_start(Instant::now());
        self.measure_until.fetch_min(now, Ordering::AcqRel);
    }

    /// Lets the threads of the cores end: until then the kernel tells what they have used.
    pub(super) fn let_end(&self) {
        self.may_end.store(true, Ordering::Release);
    }

    pub(super) fn may_end(&self) -> bool {
        self.may_end.load(Ordering::Acquire)
    }

    /// Ends the run because of a wrong response. The first one is kept.
    pub(super) fn stop_with(&self, evidence: Evidence) {
        let mut kept = self.evidence.lock().unwrap_or_else(PoisonError::into_inner);
        kept.get_or_insert(evidence);
        drop(kept);
        self.stop();
    }

    pub(super) fn take_evidence(&self) -> Option<Evidence> {
        let mut kept = self.evidence.lock().unwrap_or_else(PoisonError::into_inner);
        kept.take()
    }

    pub(super) fn progress_of(&self, core: usize) -> &Progress {
        &self.progress[core]
    }

    #[inline]
    pub(super) fn is_watched(&self) -> bool {
        self.is_watched
    }

    /// The latencies of each core.
    pub(super) fn latencies(&self) -> impl Iterator<Item = &LiveLatency> {
        self.progress.iter().map(|core| &core.latency)
    }

    /// The sum of a count of all cores.
    pub(super) fn total(&self, of: impl Fn(&Progress) -> &AtomicU64) -> u64 {
        self.progress
            .iter()
            .map(|core| of(core).load(Ordering::Relaxed))
            .sum()
    }
}

impl Progress {
    /// Takes from a count that only the calling core writes.
    pub(super) fn subtract(count: &AtomicU64, amount: u64) {
        count.store(count.load(Ordering::Relaxed) - amount, Ordering::Relaxed);
    }

    /// Adds to a count that only the calling core writes.
    #[inline]
    pub(super) fn add(count: &AtomicU64, amount: u64) {
        count.store(count.load(Ordering::Relaxed) + amount, Ordering::Relaxed);
    }
}
