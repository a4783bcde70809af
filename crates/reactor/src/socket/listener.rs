//! Listening sockets: accepting goes on by itself until a bound is met.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, IntoRawFd, RawFd};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::table::Sockets;
use super::unix::{UnixListener, unix_listener};
use super::{Address, RawAddress, Socket};
use crate::core;
use crate::sys;
use crate::timer::sleep;

/// Connections that are accepted ahead of [`Listener::accept`]; then accepting stops.
const AHEAD_MAX: usize = 256;

/// How long accepting rests when the core or the process can hold no more.
const REST: Duration = Duration::from_millis(20);

/// A listening socket of this core.
///
/// Each core binds its own (`SO_REUSEPORT`), and the kernel spreads the connections. A unix
/// socket is bound once and shared.
#[derive(Debug)]
pub struct Listener {
    index: u32,
    address: Address,
    /// Keeps the file of a unix socket.
    _unix: Option<Arc<UnixListener>>,
    local: PhantomData<Rc<()>>,
}

impl Listener {
    /// Makes sure that nobody else listens on `address`, which `SO_REUSEPORT` would hide, and
    /// settles port 0 to a free one. Called once, before the cores bind.
    ///
    /// # Errors
    /// What `bind(2)` reports, above all `AddrInUse`.
    pub fn reserve(address: &Address) -> io::Result<Address> {
        match address {
            Address::Tcp(_) => {
                let fd = sys::listen(address, false, true)?;
                let raw = RawAddress::ask(fd.as_raw_fd(), libc::getsockname)?;
                Ok(raw.to_ip().map_or_else(|| address.clone(), Address::Tcp))
            }
            Address::Unix(path) => unix_listener(path).map(|_| address.clone()),
        }
    }

    /// Binds and starts to listen.
    ///
    /// # Errors
    /// What `bind(2)` and `listen(2)` report.
    pub fn bind(address: &Address) -> io::Result<Listener> {
        core::with(|core| {
            let mut sockets = core.sockets();
            let nonblocking = sockets.table.driver.nonblocking();
            let (fd, unix) = match address {
                Address::Tcp(_) => (sys::listen(address, true, nonblocking)?, None),
                Address::Unix(path) => {
                    let unix = unix_listener(path)?;
                    let fd = unix.fd.try_clone()?;
                    sys::set_nonblocking(&fd, nonblocking)?;
                    (fd, Some(unix))
                }
            };
            let raw = RawAddress::ask(fd.as_raw_fd(), libc::getsockname)?;
            let address = raw.to_ip().map_or_else(|| address.clone(), Address::Tcp);
            let index = sockets.table.listeners.insert(fd.into_raw_fd());
            Ok(Listener {
                index,
                address,
                _unix: unix,
                local: PhantomData,
            })
        })
    }

    /// Where it listens, with the port that was settled.
    pub fn local(&self) -> &Address {
        &self.address
    }

    /// The next connection.
    ///
    /// While the core holds as many sockets as it may (rule 20), or the process has no
    /// descriptor left, accepting rests and is tried again; the kernel's backlog holds the
    /// newcomers.
    pub async fn accept(&self) -> Socket {
        loop {
            if !core::with(|core| core.sockets().at_limit()) {
                let accepted =
                    poll_fn(|cx| core::with(|core| core.sockets().poll_accept(self.index, cx)));
                match accepted.await {
                    Ok(socket) => return socket,
                    // The newcomer was gone before it was accepted.
                    Err(libc::ECONNABORTED | libc::EINTR | libc::EPROTO) => continue,
                    Err(_) => {}
                }
            }
            core::with(|core| {
                core.counters.accept_paused.add(1);
                core.sockets().stop_accepting(self.index);
            });
            sleep(REST).await;
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        core::try_with(|core| core.sockets().close_listener(self.index));
    }
}

/// The listeners of a core. They are few, so they keep their places.
#[derive(Default)]
pub(super) struct Listeners(Vec<Entry>);

struct Entry {
    fd: RawFd,
    /// An accept is under way.
    armed: bool,
    closing: bool,
    /// The accept was cancelled; its last report is on the way.
    stopping: bool,
    /// Accepted and not yet asked for.
    ahead: VecDeque<Result<RawFd, i32>>,
    waker: Option<Waker>,
}

impl Listeners {
    fn insert(&mut self, fd: RawFd) -> u32 {
        self.0.push(Entry {
            fd,
            armed: false,
            closing: false,
            stopping: false,
            ahead: VecDeque::new(),
            waker: None,
        });
        (self.0.len() - 1) as u32
    }

    /// Closes what is left after a failure.
    pub(super) fn close_descriptors(&mut self) {
        for entry in &mut self.0 {
            entry.ahead.drain(..).flatten().for_each(sys::close);
            if entry.fd >= 0 {
                sys::close(std::mem::replace(&mut entry.fd, -1));
            }
        }
    }
}

impl Sockets<'_> {
    /// Takes in a connection, or the end of accepting.
    pub(super) fn accepted(&mut self, index: u32, result: Result<RawFd, i32>, more: bool) {
        let most_ahead = self
            .core
            .sockets_max
            .saturating_sub(self.table.len())
            .min(AHEAD_MAX);
        let table = &mut *self.table;
        let entry = &mut table.listeners.0[index as usize];
        entry.armed = more;
        entry.stopping &= more;
        match result {
            Ok(fd) if entry.closing => sys::close(fd),
            Err(libc::ECANCELED | libc::EAGAIN) => {}
            result => entry.ahead.push_back(result),
        }
        if entry.closing && !more && entry.fd >= 0 {
            let fd = std::mem::replace(&mut entry.fd, -1);
            table.driver.forget(fd);
            sys::close(fd);
        } else if more && !entry.stopping && entry.ahead.len() >= most_ahead {
            entry.stopping = true;
            table.driver.cancel_accept(index, entry.fd);
        }
        if let Some(waker) = entry.waker.take() {
            waker.wake();
        }
    }

    /// The core holds as many sockets as it may.
    fn at_limit(&self) -> bool {
        self.table.len() >= self.core.sockets_max
    }

    fn poll_accept(&mut self, index: u32, cx: &Context<'_>) -> Poll<Result<Socket, i32>> {
        let table = &mut *self.table;
        let entry = &mut table.listeners.0[index as usize];
        let next = entry.ahead.pop_front();
        if !entry.armed && !entry.closing && entry.ahead.len() < AHEAD_MAX / 2 {
            entry.armed = true;
            table.driver.accept(index, entry.fd);
        }
        match next {
            Some(Ok(fd)) => {
                self.core.counters.accepted.add(1);
                let key = self.adopt(fd);
                self.arm_receive(key);
                Poll::Ready(Ok(Socket::new(key)))
            }
            Some(Err(error)) => Poll::Ready(Err(error)),
            None => {
                entry.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    fn stop_accepting(&mut self, index: u32) {
        let table = &mut *self.table;
        let entry = &mut table.listeners.0[index as usize];
        if entry.armed && !entry.stopping {
            entry.stopping = true;
            table.driver.cancel_accept(index, entry.fd);
        }
    }

    /// Stops accepting, refuses what was accepted ahead, and closes.
    pub(super) fn close_listener(&mut self, index: u32) {
        let table = &mut *self.table;
        let entry = &mut table.listeners.0[index as usize];
        entry.closing = true;
        for fd in entry.ahead.drain(..).flatten() {
            sys::close(fd);
        }
        if entry.armed {
            table.driver.cancel_accept(index, entry.fd);
        } else if entry.fd >= 0 {
            table.driver.forget(entry.fd);
            sys::close(std::mem::replace(&mut entry.fd, -1));
        }
    }

    /// Closes all listeners, for the end of the core.
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
