//! The sockets of a core during a command, and the functions that commands, events and shortage share.

use std::cell::RefMut;
use std::rc::Rc;
use std::task::Waker;
use std::time::Duration;

use super::SocketKey;
use super::entry::{SocketEntry, SocketState};
use super::ownership::{Parking, Resume};
use super::table::{SocketTable, keep};
use crate::buffer::LARGE_BYTES;
use crate::driver::{Handle, Pending};
use crate::resources::CoreResources;
use crate::timer::{TimerTarget, ticks_up};

/// How long a closing socket may take to send its queue before a reset.
pub(super) const RESET_TIME: Duration = Duration::from_secs(2);

/// The table, borrowed for one command, and the resources of its core.
pub(crate) struct Sockets<'a> {
    pub(crate) table: RefMut<'a, SocketTable>,
    pub(crate) core: &'a CoreResources,
}

/// Shared by commands and events.
impl Sockets<'_> {
    /// Adds an accepted or connecting socket.
    pub(super) fn adopt(&mut self, handle: Handle) -> SocketKey {
        let clock = &self.core.clock;
        let entry = SocketEntry::new(handle, clock.now(), clock.tick());
        let key = self.table.slab.insert(entry);
        self.table.driver.register(key, handle);
        key
    }

    /// The tick at which the time `within` will have passed.
    #[inline]
    pub(super) fn deadline(&self, within: Duration) -> u64 {
        // Plus one, because the current tick has partly passed.
        self.core.clock.tick() + ticks_up(within) + 1
    }

    /// Sets the deadline of a socket; only an earlier one changes the timer wheel.
    pub(super) fn set_deadline(&mut self, key: SocketKey, within: Duration) {
        let deadline = self.deadline(within);
        let entry = self.table.entry(key);
        entry.deadline = deadline;
        if !entry.is_scheduled() {
            self.schedule_deadline(key);
        }
    }

    #[cold]
    pub(super) fn schedule_deadline(&mut self, key: SocketKey) {
        let entry = self.table.entry(key);
        let mut wheel = self.core.wheel.borrow_mut();
        if let Some((timer, _)) = entry.timer {
            wheel.cancel(timer);
        }
        let timer = wheel.insert(entry.deadline, TimerTarget::Socket(key));
        entry.timer = Some((timer, entry.deadline));
    }

    pub(super) fn take_parking(&mut self, key: SocketKey) -> Option<Parking> {
        let entry = self.table.slab.get_mut(key)?;
        match std::mem::replace(&mut entry.state, SocketState::Owned) {
            SocketState::Parked(parking) => Some(parking),
            other => {
                entry.state = other;
                None
            }
        }
    }

    pub(super) fn reset(&mut self, key: SocketKey) {
        let handle = self.table.entry(key).handle;
        self.table.driver.reset_on_close(handle);
        self.close(key);
    }

    /// Cancels the pending operations and closes the socket after their last completions.
    pub(super) fn close(&mut self, key: SocketKey) {
        let table = &mut *self.table;
        let Some(entry) = table.slab.get_mut(key) else {
            return;
        };
        if let Some((timer, _)) = entry.timer.take() {
            self.core.wheel.borrow_mut().cancel(timer);
        }
        let state = std::mem::replace(&mut entry.state, SocketState::Closing);
        if matches!(state, SocketState::Lingering { .. }) {
            table.lingering.closed();
        }
        entry.receiving.waker = None;
        wake(&mut entry.sending.waker);
        entry.receiving.discard();
        if entry.pending.is_empty() {
            return self.remove(key);
        }
        // The send queue stays until the last completion, because the kernel may still read it.
        for operation in [
            Pending::RECEIVE,
            Pending::SEND,
            Pending::CONNECT,
            Pending::ROOM,
        ] {
            if entry.pending.has(operation) {
                table.driver.cancel(key, entry.handle, operation);
            }
        }
    }

    pub(super) fn remove(&mut self, key: SocketKey) {
        let table = &mut *self.table;
        let Some(mut entry) = table.slab.remove(key) else {
            return;
        };
        if let Some(mut queue) = entry.sending.queue.take() {
            queue.clear(&mut table.to_drop);
            keep(&mut table.queues, queue);
        }
        table.driver.close(entry.handle);
        if table.eviction.is_tracking {
            self.note_closed(entry.is_evicted);
        }
    }

    pub(super) fn list_for_sending(&mut self, key: SocketKey) {
        let table = &mut *self.table;
        let entry = table
            .slab
            .get_mut(key)
            .expect("a handle refers to a live socket");
        if !entry.sending.listed && !entry.pending.has(Pending::SEND) {
            entry.sending.listed = true;
            table.to_send.push(key);
        }
    }

    /// Starts a receive, if the window has room and none is pending.
    pub(super) fn arm_receive(&mut self, key: SocketKey) {
        let table = &mut *self.table;
        let Some(entry) = table.slab.get_mut(key) else {
            return;
        };
        let room = entry.receiving.room(self.core.pool.fair_share());
        let busy = entry.pending.has(Pending::RECEIVE) || entry.pending.has(Pending::CONNECT);
        if room > 0 && !busy && !matches!(entry.state, SocketState::Closing) {
            entry.pending.add(Pending::RECEIVE);
            let is_large = entry.receiving.wants_large() && !self.core.pool.is_scarce();
            entry.receiving.is_large = is_large;
            match is_large {
                true => {
                    let limit = entry.receiving.window.min(LARGE_BYTES);
                    table.driver.receive_large(key, entry.handle, limit);
                }
                false => table.driver.receive(key, entry.handle, room),
            }
        }
    }

    pub(super) fn remove_if_done(&mut self, key: SocketKey) {
        let entry = self.table.entry(key);
        if matches!(entry.state, SocketState::Closing) && entry.pending.is_empty() {
            self.remove(key);
        }
    }

    /// Whether completions are outstanding.
    pub(crate) fn anything_pending(&self) -> bool {
        self.table.len() > 0 || self.listeners_pending() || self.table.datagrams.len() > 0
    }

    /// Closes every socket. Returns the handlers of parked sockets, to be dropped outside the borrow.
    pub(crate) fn close_all(&mut self) -> Vec<Rc<dyn Resume>> {
        let mut handlers = Vec::new();
        for key in self.table.slab.keys() {
            if let Some(parking) = self.take_parking(key) {
                handlers.push(parking.resume);
            }
            let closing = self
                .table
                .slab
                .get(key)
                .is_some_and(|e| matches!(e.state, SocketState::Closing));
            if !closing {
                self.close(key);
            }
        }
        handlers
    }
}

/// Wakes a task. Allowed while the table is borrowed, because waking only queues the task.
pub(super) fn wake(waker: &mut Option<Waker>) {
    if let Some(waker) = waker.take() {
        waker.wake();
    }
}
