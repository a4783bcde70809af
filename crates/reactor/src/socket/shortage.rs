//! Exhausted receive memory: sockets wait for buffers, and the largest holder is shed (rule 2 and rule 4).

use std::time::Duration;

use super::SocketKey;
use super::entry::{InputEnd, SocketEntry, SocketState};
use super::sockets::{Sockets, wake};
use crate::driver::{NO_BUFFERS, Pending};

/// A core without a free buffer for this long sheds its largest holder. All sockets wait meanwhile.
const STARVED_TIME: Duration = Duration::from_millis(250);

/// The time between two sockets that are shed, so that the first can free its memory.
const SHED_PAUSE: Duration = Duration::from_millis(20);

/// The queue for buffers, and shedding.
impl Sockets<'_> {
    /// Starts receives of the sockets that wait for buffers, as far as buffers are free: first parked
    /// sockets, then the others, in order (rule 2). If no buffer becomes free in time, the largest holder
    /// is shed (rule 4).
    pub(crate) fn resume_starved(&mut self) {
        self.table.starved_were_resumed = false;
        if self.table.starved.is_empty() && self.table.starved_idle.is_empty() {
            self.table.starved_since = None;
            return;
        }
        let now = self.core.clock.now();
        let free = self.table.driver.buffers_ready(&self.core.pool);
        if free == 0 {
            let since = *self.table.starved_since.get_or_insert(now);
            if now - since >= STARVED_TIME {
                self.table.starved_since = Some(now + SHED_PAUSE - STARVED_TIME);
                self.shed_largest();
            }
            return;
        }
        self.table.starved_since = None;
        self.table.starved_were_resumed = true;
        for _ in 0..free {
            let table = &mut *self.table;
            let next = table
                .starved_idle
                .pop_front()
                .or_else(|| table.starved.pop_front());
            let Some(key) = next else { break };
            if let Some(entry) = self.table.slab.get_mut(key) {
                entry.receiving.starved = false;
                self.arm_receive(key);
            }
        }
    }

    /// When [`Sockets::resume_starved`] has to run again if no event comes earlier.
    pub(crate) fn starved_wait(&self) -> Option<Duration> {
        let none = self.table.starved.is_empty() && self.table.starved_idle.is_empty();
        // After some were resumed the next ones need not wait.
        let wait = match self.table.starved_were_resumed {
            true => Duration::ZERO,
            false => SHED_PAUSE,
        };
        (!none).then_some(wait)
    }

    pub(super) fn shed_largest(&mut self) {
        let table = &*self.table;
        let held = |key: &SocketKey| {
            let entry = table
                .slab
                .get(*key)
                .filter(|entry| entry.sending.failed == 0);
            entry.map_or(0, SocketEntry::held_bytes)
        };
        let largest = table.slab.keys().into_iter().max_by_key(held);
        // If owners hold all memory without having reported it, there is no socket to shed.
        if let Some(key) = largest.filter(|key| held(key) > 0) {
            self.core.counters.shed.add(1);
            self.fail(key, NO_BUFFERS);
        }
    }

    /// Fails a socket that has an owner; the owner's next call returns the error.
    pub(super) fn fail(&mut self, key: SocketKey, error: i32) {
        let table = &mut *self.table;
        let Some(entry) = table.slab.get_mut(key) else {
            return;
        };
        entry.receiving.discard();
        entry.held = 0;
        entry.receiving.end = InputEnd::Failed(error);
        entry.sending.failed = error;
        for operation in [Pending::RECEIVE, Pending::SEND] {
            if entry.pending.has(operation) {
                table.driver.cancel(key, entry.handle, operation);
            }
        }
        if matches!(entry.state, SocketState::Parked(_)) {
            table.to_resume.push_back(key);
        }
        wake(&mut entry.receiving.waker);
        wake(&mut entry.sending.waker);
    }
}
