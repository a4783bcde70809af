//! Listening sockets: the core accepts connections ahead of its tasks, up to a bound.

use std::collections::VecDeque;
use std::future::{pending, poll_fn};
use std::io;
use std::marker::PhantomData;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::table::Sockets;
use super::{Address, Socket};
use crate::core;
use crate::driver::{self, Driver, Handle, Keeper, Listening, UnixListener};
use crate::mailbox::Given;
use crate::timer::{sleep, timeout};

/// Most connections that are accepted ahead of [`Listener::accept`]; then accepting stops.
const AHEAD_MAX: usize = 256;

/// The longest pause of accepting while the core or the process has no room for another socket. It ends
/// earlier when a socket closes; the process may also have closed other descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// An address that is kept for the listeners of this process: until this is dropped, the kernel gives its
/// port to nobody who asks for a free one, and no other program can bind it alone. For a path it is the listener itself.
#[derive(Debug)]
pub struct Reservation {
    address: Address,
    keeper: Keeper,
}

impl Reservation {
    fn new((address, keeper): driver::Reserved) -> Reservation {
        Reservation { address, keeper }
    }

    /// The address, with the actual port.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Has clients of a path reach this listener, where until now another one of this process has it. All of them reach
    /// one of the two.
    ///
    /// # Errors
    /// The error of `rename(2)`.
    pub fn take_path(&self) -> io::Result<()> {
        match &self.keeper {
            Keeper::Port { .. } => Ok(()),
            Keeper::Path(listener) => listener.take_path(),
        }
    }
}

/// A listening socket of this core.
///
/// Each core binds its own (`SO_REUSEPORT`), and the kernel distributes connections among them. A unix
/// socket is bound once and shared by the cores.
#[derive(Debug)]
pub struct Listener {
    index: u32,
    address: Address,
    /// Removes the file of a unix socket when the last core drops it.
    unix: Option<Arc<UnixListener>>,
    local: PhantomData<Rc<()>>,
}

impl Listener {
    /// Checks that no other socket listens on `address`, which `SO_REUSEPORT` would hide, and keeps it
    /// for the cores; port 0 becomes a free one. Called once, before the cores bind. Waits for about a
    /// second while the address is in use: a process that was killed may still be releasing it.
    ///
    /// # Errors
    /// The error of `bind(2)`, in particular `AddrInUse`.
    pub fn reserve(address: &Address) -> io::Result<Reservation> {
        driver::reserve(address).map(Reservation::new)
    }

    /// [`Listener::reserve`] without the wait.
    ///
    /// # Errors
    /// The same.
    pub fn try_reserve(address: &Address) -> io::Result<Reservation> {
        driver::try_reserve(address).map(Reservation::new)
    }

    /// [`Listener::try_reserve`] for a unix socket that only the user of this process can connect to.
    ///
    /// # Errors
    /// The same.
    pub fn try_reserve_private(path: &Arc<PathBuf>) -> io::Result<Reservation> {
        driver::try_reserve_private(path).map(Reservation::new)
    }

    /// Keeps `address` where this process listens already, on it or on one that includes it. Programs of other users
    /// cannot have it; others of this user may.
    ///
    /// # Errors
    /// The error of `bind(2)`.
    pub fn reserve_shared(address: &Address) -> io::Result<Reservation> {
        driver::reserve_shared(address).map(Reservation::new)
    }

    /// Binds and listens.
    ///
    /// # Errors
    /// The error of `bind(2)` or `listen(2)`.
    pub fn bind(address: &Address) -> io::Result<Listener> {
        core::with(|core| {
            let mut sockets = core.sockets();
            let listening = sockets.table.driver.listen(address)?;
            Ok(Listener {
                index: (sockets.table.listeners).insert(&listening),
                address: listening.address,
                unix: listening.unix,
                local: PhantomData,
            })
        })
    }

    /// The bound address, with the actual port.
    pub fn local(&self) -> &Address {
        &self.address
    }

    /// From now on attempts to connect over TCP get no reply, and those to a unix socket fail. Connections that wait
    /// can still be accepted, so that none is reset when the listener is dropped.
    pub fn refuse_new(&self) {
        core::with(|core| {
            let mut sockets = core.sockets();
            let entry = &mut sockets.table.listeners.0[self.index as usize];
            entry.refusing = true;
            if let Some(unix) = &self.unix {
                unix.refuse_new();
            } else if let Some(handle) = entry.handle {
                sockets.table.driver.refuse_new(handle);
            }
        });
    }

    /// The next connection.
    ///
    /// While the core has as many sockets as it may (rule 20), or the process has no descriptor left,
    /// accepting is paused, and the sockets that have been idle longest are evicted. If none is idle, new
    /// connections wait in the kernel's backlog.
    pub async fn accept(&self) -> Socket {
        loop {
            let accepted =
                poll_fn(|cx| core::with(|core| core.sockets().poll_accept(self.index, cx)));
            match accepted.await {
                Accepted::Socket(socket) => return socket,
                // The client has closed the connection before it was accepted.
                Accepted::Failed(error) if driver::is_aborted_by_peer(error) => continue,
                // A core has shut it down for all, and no connection waits.
                Accepted::Failed(error) if self.is_shut_down(error) => pending().await,
                Accepted::Failed(error) if !driver::is_out_of_descriptors(error) => {
                    core::with(|core| core.counters.accept_paused.add(1));
                    sleep(ACCEPT_PAUSE).await;
                    continue;
                }
                Accepted::Failed(_) | Accepted::NoRoom => {}
            }
            let since = core::with(|core| {
                core.counters.accept_paused.add(1);
                let mut sockets = core.sockets();
                sockets.stop_accepting(self.index);
                sockets.request_room_for_many()
            });
            let room = poll_fn(|cx| core::with(|core| core.sockets().poll_room(since, cx)));
            // Without room in time, the loop looks again.
            let _ = timeout(ACCEPT_PAUSE, room).await;
        }
    }

    fn is_shut_down(&self, error: i32) -> bool {
        let refuses = self.unix.as_ref().is_some_and(|unix| unix.refuses());
        refuses && !driver::is_out_of_descriptors(error)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        core::try_with(|core| core.sockets().close_listener(self.index));
    }
}

/// The result of accepting.
enum Accepted {
    Socket(Socket),
    /// A connection waits, and the core has as many sockets as it may.
    NoRoom,
    /// The error number of `accept(2)`.
    Failed(i32),
}

/// The listeners of a core. They are few, so their indexes are not reused.
#[derive(Default)]
pub(super) struct Listeners(Vec<ListenerEntry>);

struct ListenerEntry {
    address: Address,
    /// `None` once it is closed.
    handle: Option<Handle>,
    /// An accept is pending.
    armed: bool,
    closing: bool,
    /// Other cores may have closed theirs already, so that they get no connection of this one.
    refusing: bool,
    /// The accept was cancelled; its last report is outstanding.
    stopping: bool,
    /// Accepted ahead of the task.
    ahead: VecDeque<Result<Handle, i32>>,
    waker: Option<Waker>,
}

impl Listeners {
    fn insert(&mut self, listening: &Listening) -> u32 {
        self.0.push(ListenerEntry {
            address: listening.address.clone(),
            handle: Some(listening.handle),
            armed: false,
            closing: false,
            refusing: false,
            stopping: false,
            ahead: VecDeque::new(),
            waker: None,
        });
        (self.0.len() - 1) as u32
    }

    /// Closes all listeners after a failure.
    pub(super) fn close_all(&mut self, driver: &mut Driver) {
        for entry in &mut self.0 {
            let ahead = entry.ahead.drain(..).flatten();
            ahead
                .chain(entry.handle.take())
                .for_each(|handle| driver.close(handle));
        }
    }
}

impl Sockets<'_> {
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
            && entry.ahead.len() >= ahead_max
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
    fn poll_accept(&mut self, index: u32, cx: &Context<'_>) -> Poll<Accepted> {
        let at_limit = self.at_limit();
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
            table.driver.accept(index, handle);
        }
        match next {
            Some(Ok(handle)) => {
                self.core.counters.accepted.add(1);
                table.eviction.end_unmet_demand();
                let key = self.adopt(handle);
                self.arm_receive(key);
                Poll::Ready(Accepted::Socket(Socket::new(key)))
            }
            Some(Err(error)) => Poll::Ready(Accepted::Failed(error)),
            None => {
                entry.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    fn stop_accepting(&mut self, index: u32) {
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
