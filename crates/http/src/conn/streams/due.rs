//! Streams with a deadline each, in the order of the deadlines.

use std::collections::VecDeque;
use std::time::Instant;

/// Fewer entries are not worth the look at each.
const PRUNED_MIN: usize = 256;

pub(in crate::conn) struct DueStreams<Id>(VecDeque<(Id, Instant)>);

impl<Id: Copy> DueStreams<Id> {
    pub(in crate::conn) fn new() -> DueStreams<Id> {
        DueStreams(VecDeque::new())
    }

    /// Most are due after all others.
    pub(in crate::conn) fn push(&mut self, id: Id, due: Instant) {
        let earlier = self.0.iter().rposition(|(_, other)| *other <= due);
        self.0.insert(earlier.map_or(0, |at| at + 1), (id, due));
    }

    /// The next one, after those that no longer wait.
    pub(in crate::conn) fn next(&mut self, waits: impl Fn(Id) -> bool) -> Option<(Id, Instant)> {
        while let Some((id, due)) = self.0.front().copied() {
            if waits(id) {
                return Some((id, due));
            }
            self.0.pop_front();
        }
        None
    }

    /// The next one is due later.
    pub(in crate::conn) fn put_off(&mut self, due: Instant) {
        if let Some((id, _)) = self.0.pop_front() {
            self.0.push_back((id, due));
        }
    }

    /// None is due later than `due`.
    pub(in crate::conn) fn hasten(&mut self, due: Instant) {
        self.0.iter_mut().for_each(|(_, at)| *at = due.min(*at));
    }

    /// Forgets those that no longer wait, if there are many.
    pub(in crate::conn) fn prune(&mut self, waits: impl Fn(Id) -> bool) {
        if self.0.len() == self.0.capacity() && self.0.len() >= PRUNED_MIN {
            self.0.retain(|(id, _)| waits(*id));
        }
    }

    pub(in crate::conn) fn shrink_to(&mut self, capacity: usize) {
        self.0.shrink_to(capacity);
    }
}
