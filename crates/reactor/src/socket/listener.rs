//! Listening sockets.

use std::future::{pending, poll_fn};
use std::io;
use std::marker::PhantomData;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use super::listeners::Accepted;
use super::{Address, Socket};
use crate::core;
use crate::driver::{self, Keeper, UnixListener};
use crate::timer::{sleep, timeout};

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
        let (index, bound) = core::with(|core| core.sockets().listen(address))?;
        Ok(Listener {
            index,
            address: bound.address,
            unix: bound.unix,
            local: PhantomData,
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
            core.sockets().refuse_new(self.index, self.unix.is_none());
            if let Some(unix) = &self.unix {
                unix.refuse_new();
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
                Accepted::Socket(key) => return Socket::new(key),
                // The client has closed the connection before it was accepted.
                Accepted::Failed(error) if driver::is_aborted_by_peer(error) => continue,
                // A core has shut it down for all, and no connection waits.
                Accepted::Failed(error) if self.is_shut_down(error) => pending().await,
                Accepted::Failed(error) if !driver::is_out_of_descriptors(error) => {
                    core::with(|core| core.resources.counters.accept_paused.add(1));
                    sleep(ACCEPT_PAUSE).await;
                    continue;
                }
                Accepted::Failed(_) | Accepted::NoRoom => {}
            }
            let since = core::with(|core| {
                core.resources.counters.accept_paused.add(1);
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
