//! Streams with a deadline each, in the order of the deadlines.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// With fewer entries, a search for those that no longer wait costs more than it frees.
const PRUNED_MIN: usize = 256;

/// A stream whose response was sent, and whose request is discarded.
#[derive(Clone, Copy)]
pub(in crate::conn) struct Discarded<Id> {
    pub(in crate::conn) id: Id,
    /// When the stream ends, even if bytes still arrive.
    pub(in crate::conn) until: Instant,
    /// The longest silence.
    pub(in crate::conn) silence: Duration,
    /// The bytes that had arrived at the last check.
    pub(in crate::conn) bytes: u64,
}

impl<Id: Copy> DueStreams<Discarded<Id>> {
    pub(in crate::conn) fn push_discarded(&mut self, stream: Discarded<Id>, now: Instant) {
        self.push(stream, stream.until.min(now + stream.silence));
    }

    /// No stream waits beyond this time.
    pub(in crate::conn) fn hasten(&mut self, until: Instant) {
        for (stream, due) in &mut self.0 {
            stream.until = until.min(stream.until);
            *due = until.min(*due);
        }
    }

    /// Postpones the next stream if bytes of it have arrived since the last check, and its time is not over. Returns
    /// whether it was postponed.
    pub(in crate::conn) fn renew(&mut self, bytes: u64, now: Instant) -> bool {
        let Some((stream, _)) = self.0.front().copied() else {
            return false;
        };
        if stream.bytes == bytes || stream.until <= now {
            return false;
        }
        self.0.pop_front();
        self.push_discarded(Discarded { bytes, ..stream }, now);
        true
    }
}

pub(in crate::conn) struct DueStreams<Id>(VecDeque<(Id, Instant)>);

impl<Id: Copy> DueStreams<Id> {
    pub(in crate::conn) fn new() -> DueStreams<Id> {
        DueStreams(VecDeque::new())
    }

    /// Adds a stream. Most are due after all others.
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
