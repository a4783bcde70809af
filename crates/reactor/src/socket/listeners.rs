//! The listeners of a core, which accepts connections ahead of its tasks, up to a bound.

mod entry;

use std::io;
use std::task::{Context, Poll};

use self::entry::ListenerEntry;
use super::sockets::Sockets;
use super::{Address, SocketKey};
use crate::driver::{self, Handle, Listening};
use crate::mailbox::Given;

pub(super) use self::entry::Listeners;

/// Most connections that are accepted ahead of [`Listener::accept`](super::Listener::accept); then accepting stops.
const AHEAD_MAX: usize = 256;

/// With less room connections are accepted one by one: the kernel accepts all that wait before it can be stopped, and
/// so many would take the descriptors of other cores and of the process.
const ROOM_FOR_MANY: usize = 256;

/// The result of accepting.
pub(super) enum Accepted {
    Socket(SocketKey),
    /// A connection waits, and the core has as many sockets as it may.
    NoRoom,
    /// The error number of `accept(2)`.
    Failed(i32),
}

impl Sockets<'_> {
    /// Binds and listens. Returns the index of the listener.
    pub(super) fn listen(&mut self, address: &Address) -> io::Result<(u32, Listening)> {
        let listening = self.table.driver.listen(address)?;
        Ok((self.table.listeners.insert(&listening), listening))
    }

    /// Gives no more connections of this listener to other cores. From now on attempts to connect over TCP get no reply.
    pub(super) fn refuse_new(&mut self, index: u32, is_tcp: bool) {
        let table = &mut *self.table;
        let entry = &mut table.listeners.0[index as usize];
        entry.refusing = true;
        if let Some(handle) = entry.handle
            && is_tcp
        {
            table.driver.refuse_new(handle);
        }
    }

    /// Handles an accepted connection, or the end of accepting.
    pub(super) fn accepted(&mut self, index: u32, result: Result<Handle, i32>, more: bool) {
        let room = self.room();
        let ahead_max = room.clamp(1, AHEAD_MAX);
        let result = match result {
            Ok(connection) => self.give(index, connection, room == 0).map(Ok),
            error => Some(error),
        };
        let table = &mut *self.table;
        let entry = &mut table.listeners.0[index as usize];
        entry.armed = more;
        entry.stopping &= more;
        match result {
            None => {}
            Some(Ok(connection)) if entry.closing => table.driver.close(connection),
            Some(Err(error)) if driver::is_cancelled(error) => {}
            Some(result) => entry.ahead.push_back(result),
        }
        if entry.closing && !more {
            let handle = entry.handle.take();
            handle
                .into_iter()
                .for_each(|handle| table.driver.close(handle));
        } else if more
            && !entry.stopping
            && (entry.ahead.len() >= ahead_max || room < ROOM_FOR_MANY)
            && let Some(handle) = entry.handle
        {
            entry.stopping = true;
            table.driver.cancel_accept(index, handle);
        }
        if let Some(waker) = entry.waker.take() {
            waker.wake();
        }
    }

    /// Gives an accepted connection to another core if this one is busy or full. Returns it if it stays here.
    fn give(&self, index: u32, connection: Handle, is_full: bool) -> Option<Handle> {
        let load = &self.core.load;
        let entry = &self.table.listeners.0[index as usize];
        if entry.closing || entry.refusing || !load.should_give(is_full) {
            return Some(connection);
        }
        let connection = match self.table.driver.detach(connection) {
            Ok(connection) => connection,
            Err(kept) => return Some(kept),
        };
        let listener = entry.address.clone();
        let given = Given {
            connection,
            giver: load.index(),
            listener,
        };
        match load.give(given, is_full, self.core.clock.now()) {
            Ok(()) => {
                self.core.counters.accepts_given.add(1);
                None
            }
            Err(given) => Some(given.connection.into_handle()),
        }
    }

    /// Takes a connection that another core has accepted, or one of its own back. If this core does not listen there any
    /// more, the other one may.
    #[cold]
    pub(crate) fn take(&mut self, given: Given) {
        let load = &self.core.load;
        let is_own = given.giver == load.index();
        let mut listeners = self.table.listeners.0.iter_mut();
        let is_open =
            |entry: &&mut ListenerEntry| !entry.closing && entry.address == given.listener;
        let Some(entry) = listeners.rfind(is_open) else {
            if !is_own {
                load.give_back(given);
            }
            return;
        };
        entry.refusing |= is_own;
        entry.ahead.push_back(Ok(given.connection.into_handle()));
        if let Some(waker) = entry.waker.take() {
            waker.wake();
        }
    }

    /// At the limit one connection is accepted nevertheless: idle ones are evicted only if there is one.
    pub(super) fn poll_accept(&mut self, index: u32, cx: &Context<'_>) -> Poll<Accepted> {
        let room = self.room();
        let at_limit = room == 0;
        let table = &mut *self.table;
        let entry = &mut table.listeners.0[index as usize];
        if at_limit && let Some(Ok(connection)) = entry.ahead.front().copied() {
            // Another core may have room by now.
            if self.give(index, connection, true).is_some() {
                return Poll::Ready(Accepted::NoRoom);
            }
            self.table.listeners.0[index as usize].ahead.pop_front();
            return self.poll_accept(index, cx);
        }
        let next = entry.ahead.pop_front();
        let ahead_max = if at_limit { 1 } else { AHEAD_MAX / 2 };
        if !entry.armed
            && !entry.closing
            && entry.ahead.len() < ahead_max
            && let Some(handle) = entry.handle
        {
            entry.armed = true;
            table.driver.accept(index, handle, room < ROOM_FOR_MANY);
        }
        match next {
            Some(Ok(handle)) => {
                self.core.counters.accepted.add(1);
                table.eviction.end_unmet_demand();
                let key = self.adopt(handle);
                self.arm_receive(key);
                Poll::Ready(Accepted::Socket(key))
            }
            Some(Err(error)) => Poll::Ready(Accepted::Failed(error)),
            None => {
                entry.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    pub(super) fn stop_accepting(&mut self, index: u32) {
        let table = &mut *self.table;
        let entry = &mut table.listeners.0[index as usize];
        if entry.armed
            && !entry.stopping
            && let Some(handle) = entry.handle
        {
            entry.stopping = true;
            table.driver.cancel_accept(index, handle);
        }
    }

    /// Stops accepting, closes the connections that were accepted ahead, and closes the listener.
    pub(super) fn close_listener(&mut self, index: u32) {
        let table = &mut *self.table;
        table.listeners.0[index as usize].closing = true;
        if table.listeners.0.iter().all(|entry| entry.closing) {
            self.core.load.stop_taking();
        }
        let entry = &mut table.listeners.0[index as usize];
        for connection in entry.ahead.drain(..).flatten() {
            table.driver.close(connection);
        }
        match entry.handle {
            Some(handle) if entry.armed => table.driver.cancel_accept(index, handle),
            _ => entry
                .handle
                .take()
                .into_iter()
                .for_each(|handle| table.driver.close(handle)),
        }
    }

    /// Closes all listeners, when the core ends.
    pub(crate) fn close_listeners(&mut self) {
        for index in 0..self.table.listeners.0.len() {
            if !self.table.listeners.0[index].closing {
                self.close_listener(index as u32);
            }
        }
    }

    /// Whether operations of listeners are still pending.
    pub(crate) fn listeners_pending(&self) -> bool {
        self.table.listeners.0.iter().any(|entry| entry.armed)
    }
}
