//! Deadlines that are not rounded to ticks.

use std::collections::BTreeMap;
use std::task::Waker;
use std::time::Instant;

/// The precise timers of a core that have not fired yet. A core has few of them.
pub(crate) struct Alarms {
    pending: BTreeMap<AlarmKey, Waker>,
    next: u64,
}

/// The deadline, and a number that no other alarm of the core has.
pub(crate) type AlarmKey = (Instant, u64);

impl Alarms {
    pub(crate) fn new() -> Alarms {
        Alarms {
            pending: BTreeMap::new(),
            next: 0,
        }
    }

    pub(crate) fn insert(&mut self, at: Instant, waker: Waker) -> AlarmKey {
        let key = (at, self.next);
        self.next += 1;
        self.pending.insert(key, waker);
        key
    }

    /// Wakes another task at the deadline; false if it has passed.
    pub(crate) fn retarget(&mut self, key: AlarmKey, waker: &Waker) -> bool {
        let entry = self.pending.get_mut(&key);
        entry.is_some_and(|entry| {
            entry.clone_from(waker);
            true
        })
    }

    pub(crate) fn cancel(&mut self, key: AlarmKey) {
        self.pending.remove(&key);
    }

    /// The first deadline.
    pub(crate) fn next_at(&self) -> Option<Instant> {
        self.pending.first_key_value().map(|(&(at, _), _)| at)
    }

    /// Wakes the tasks whose deadlines have passed.
    pub(crate) fn fire(&mut self, now: Instant) {
        while let Some(entry) = self.pending.first_entry()
            && entry.key().0 <= now
        {
            entry.remove().wake();
        }
    }
}
