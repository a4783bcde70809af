//! The load of the cores that are started together: a core that is busy, or at its limit of sockets, gives
//! new connections to another one.
//!
//! The kernel distributes connections among the listeners of the cores by a hash of their addresses,
//! whatever the cores have to do. Without this module, a few large downloads that share a core make half
//! of all new connections slow while the other core is idle.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::driver::ThreadTime;
use crate::mailbox::{CoreMessage, Given, Mailbox};

/// The shortest measurement. The load of a core is that of its last one.
const MEASUREMENT_MIN: Duration = Duration::from_millis(50);

/// A load that is older says nothing: the core has been waiting since then, or it is blocked.
const AGE_MAX: Duration = Duration::from_millis(200);

/// Load from which on a core gives connections away. Loads are in thousandths of a processor.
const LOAD_MIN: u32 = 900;

/// The load of the taker is lower by at least this much.
const DIFFERENCE_MIN: u32 = 300;

/// Most connections that a core gives away per measurement, because those are not in the taker's load yet.
const GIVEN_MAX: u32 = 64;

/// The load of a thread that never waits.
const LOAD_MAX: u32 = 1_000;

/// The cores that are started together.
pub(crate) struct CoreGroup {
    /// When the first load was published.
    start: OnceLock<Instant>,
    cores: Vec<Published>,
    /// Busy cores give connections to others.
    is_balanced: bool,
}

/// The load of a core for other cores. The alignment keeps the values of two cores in different lines of
/// the cache.
#[derive(Default)]
#[repr(align(128))]
struct Published {
    /// Once the core has opened.
    mailbox: OnceLock<Arc<Mailbox>>,
    /// `None` unless the core takes connections. Only giving one locks it.
    taker: Mutex<Option<Arc<Mailbox>>>,
    load: AtomicU32,
    /// How many connections other cores may give until the next measurement.
    room: AtomicU32,
    /// The end of the measurement, in milliseconds since [`CoreGroup::start`].
    measured_ms: AtomicU64,
    /// The core waits for its driver.
    waits: AtomicBool,
}

/// The load of this core.
pub(crate) struct Load {
    group: Arc<CoreGroup>,
    index: usize,
    /// `None` in a group that is not balanced, and without procfs.
    time: Option<ThreadTime>,
    since: Cell<Sample>,
    load: Cell<u32>,
    /// Connections that were given away since the last measurement.
    given: Cell<u32>,
}

/// The start of a measurement.
#[derive(Clone, Copy)]
struct Sample {
    at: Instant,
    /// The time of the thread.
    busy: Duration,
}

impl CoreGroup {
    pub(crate) fn new(cores: usize) -> Arc<CoreGroup> {
        Arc::new(CoreGroup {
            start: OnceLock::new(),
            cores: (0..cores).map(|_| Published::default()).collect(),
            is_balanced: cores > 1,
        })
    }

    /// Simulated cores, which only forward datagrams to each other: they share a thread, whose time would not be
    /// theirs.
    #[cfg(feature = "simulation")]
    pub(crate) fn simulated(cores_max: usize) -> Arc<CoreGroup> {
        Arc::new(CoreGroup {
            start: OnceLock::new(),
            cores: (0..cores_max).map(|_| Published::default()).collect(),
            is_balanced: false,
        })
    }

    fn milliseconds(&self, now: Instant) -> u64 {
        let start = *self.start.get_or_init(|| now);
        now.saturating_duration_since(start).as_millis() as u64
    }
}

impl Published {
    /// The load at `now`; `None` if the core is blocked.
    fn load(&self, now_ms: u64) -> Option<u32> {
        let age = now_ms.saturating_sub(self.measured_ms.load(Ordering::Relaxed));
        if u128::from(age) < AGE_MAX.as_millis() {
            return Some(self.load.load(Ordering::Relaxed));
        }
        self.waits.load(Ordering::Relaxed).then_some(0)
    }

    fn post(&self, given: Given) -> Result<(), Given> {
        let taker = self.lock_taker();
        let Some(mailbox) = taker.as_ref() else {
            return Err(given);
        };
        let reserved = (self.room).fetch_update(Ordering::Relaxed, Ordering::Relaxed, |room| {
            room.checked_sub(1)
        });
        if reserved.is_err() {
            return Err(given);
        }
        match mailbox.post_by_event(CoreMessage::Take(Box::new(given))) {
            Err(CoreMessage::Take(given)) => Err(*given),
            _ => Ok(()),
        }
    }

    fn lock_taker(&self) -> MutexGuard<'_, Option<Arc<Mailbox>>> {
        self.taker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Load {
    /// Must be called on the thread of the core.
    pub(crate) fn new(
        group: Arc<CoreGroup>,
        index: usize,
        mailbox: &Arc<Mailbox>,
        now: Instant,
    ) -> Load {
        // Set before any core runs. A simulated core may have an index beyond its group.
        if let Some(core) = group.cores.get(index) {
            let _ = core.mailbox.set(Arc::clone(mailbox));
        }
        let is_balanced = group.is_balanced;
        let time = is_balanced.then(ThreadTime::of_this_thread).flatten();
        if time.is_some() {
            *group.cores[index].lock_taker() = Some(Arc::clone(mailbox));
        }
        let since = Sample {
            at: now,
            busy: time.as_ref().and_then(ThreadTime::read).unwrap_or_default(),
        };
        Load {
            group,
            index,
            time,
            since: Cell::new(since),
            load: Cell::new(0),
            given: Cell::new(0),
        }
    }

    /// The number of cores of the group.
    pub(crate) fn cores(&self) -> usize {
        self.group.cores.len()
    }

    /// The mailbox of another core of the group.
    pub(crate) fn mailbox(&self, core: usize) -> Option<&Arc<Mailbox>> {
        self.group.cores.get(core)?.mailbox.get()
    }

    /// Publishes whether the core waits.
    #[inline]
    pub(crate) fn set_waits(&self, waits: bool) {
        if self.time.is_some() {
            self.published().waits.store(waits, Ordering::Relaxed);
        }
    }

    /// Measures the load if the last measurement is long enough ago. `room` returns how many sockets the
    /// core may still have.
    #[inline]
    pub(crate) fn measure(&self, now: Instant, room: impl FnOnce() -> usize) {
        if let Some(time) = &self.time
            && now.saturating_duration_since(self.since.get().at) >= MEASUREMENT_MIN
        {
            self.measure_now(now, time, room());
        }
    }

    #[cold]
    fn measure_now(&self, now: Instant, time: &ThreadTime, room: usize) {
        let Some(busy) = time.read() else {
            return;
        };
        let since = self.since.replace(Sample { at: now, busy });
        let elapsed = now.saturating_duration_since(since.at).as_micros();
        let busy = busy.saturating_sub(since.busy).as_micros();
        let load = (busy * 1_000 / elapsed.max(1)).min(u128::from(LOAD_MAX)) as u32;
        self.load.set(load);
        self.given.set(0);
        let published = self.published();
        published.load.store(load, Ordering::Relaxed);
        // The other half is for the connections that this core accepts itself until the next measurement.
        let for_others = u32::try_from(room / 2).unwrap_or(u32::MAX);
        published.room.store(for_others, Ordering::Relaxed);
        let now_ms = self.group.milliseconds(now);
        published.measured_ms.store(now_ms, Ordering::Relaxed);
    }

    /// Whether this core should give a new connection away. `is_full` means that it is at its limit of
    /// sockets.
    #[inline]
    pub(crate) fn should_give(&self, is_full: bool) -> bool {
        let is_busy = self.load.get() >= LOAD_MIN && self.given.get() < GIVEN_MAX;
        (is_busy || is_full) && self.time.is_some()
    }

    /// Posts a new connection to the least loaded core.
    ///
    /// # Errors
    /// The connection, if no core is better.
    #[cold]
    pub(crate) fn give(&self, given: Given, is_full: bool, now: Instant) -> Result<(), Given> {
        let now_ms = self.group.milliseconds(now);
        let others = self.group.cores.iter().enumerate();
        let others = others
            .filter(|(index, core)| *index != self.index && core.room.load(Ordering::Relaxed) > 0);
        let loads = others.filter_map(|(_, core)| Some((core.load(now_ms)?, core)));
        let Some((load, core)) = loads.min_by_key(|(load, _)| *load) else {
            return Err(given);
        };
        let load_max = match is_full {
            true => LOAD_MAX,
            false => self.load.get().saturating_sub(DIFFERENCE_MIN),
        };
        if load > load_max {
            return Err(given);
        }
        core.post(given)?;
        self.given.set(self.given.get() + 1);
        Ok(())
    }

    /// The core's number in its group.
    pub(crate) fn index(&self) -> usize {
        self.index
    }

    /// Posts a connection to the core that has given it. It is closed if that one has ended.
    #[cold]
    pub(crate) fn give_back(&self, given: Given) {
        if let Some(giver) = self.mailbox(given.giver) {
            let _ = giver.post_by_event(CoreMessage::Take(Box::new(given)));
        }
    }

    /// From now on, no core gives this one a connection. Those that were given before are in its mailbox.
    pub(crate) fn stop_taking(&self) {
        if self.time.is_some() {
            *self.published().lock_taker() = None;
        }
    }

    fn published(&self) -> &Published {
        &self.group.cores[self.index]
    }
}
