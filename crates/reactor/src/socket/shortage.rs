//! What happens when the receive memory of the core runs out (rules 2 and 4).

use std::time::Duration;

use super::SocketKey;
use super::entry::{End, Entry, Pending, Role};
use super::table::{Sockets, wake};
use crate::driver::NO_BUFFERS;

/// A core that has no buffer for this long sheds its largest holder. Everybody waits meanwhile.
const STARVED_TIME: Duration = Duration::from_millis(250);

/// How long it waits for the effect before it sheds the next.
const SHED_PAUSE: Duration = Duration::from_millis(20);

/// Waiting in line, and shedding.
impl Sockets<'_> {
    /// Gives buffers that have come back to those who wait for them, first come first served
    /// (rule 2). While none come back, the largest holder is shed (rule 4).
    pub(crate) fn feed_starved(&mut self) {
        self.table.starved_are_fed = false;
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
        self.table.starved_are_fed = true;
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

    /// When [`Sockets::feed_starved`] must look again even if nothing happens.
    pub(crate) fn starved_wait(&self) -> Option<Duration> {
        let none = self.table.starved.is_empty() && self.table.starved_idle.is_empty();
        // Those behind the ones that were just fed need not wait for anything.
        let wait = match self.table.starved_are_fed {
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
            entry.map_or(0, Entry::holds)
        };
        let largest = table.slab.keys().into_iter().max_by_key(held);
        // Where handlers hold it all and have not said so there is nobody to shed.
        if let Some(key) = largest.filter(|key| held(key) > 0) {
            self.core.counters.shed.add(1);
            self.fail(key, NO_BUFFERS);
        }
    }

    /// Ends a socket under its owner, who learns of it from the next call.
    pub(super) fn fail(&mut self, key: SocketKey, error: i32) {
        let table = &mut *self.table;
        let Some(entry) = table.slab.get_mut(key) else {
            return;
        };
        entry.receiving.discard();
        entry.held = 0;
        entry.receiving.end = End::Failed(error);
        entry.sending.failed = error;
        for operation in [Pending::RECEIVE, Pending::SEND] {
            if entry.pending.has(operation) {
                table.driver.cancel(key, entry.handle, operation);
            }
        }
        if matches!(entry.role, Role::Parked(_)) {
            table.to_resume.push_back(key);
        }
        wake(&mut entry.receiving.waker);
        wake(&mut entry.sending.waker);
    }
}
