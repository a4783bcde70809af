//! Connecting a stream socket.

use std::future::poll_fn;
use std::io;
use std::time::Duration;

use super::waiting_connects::WaitKey;
use super::{Address, Socket, SocketKey};
use crate::core;
use crate::driver;
use crate::timer::timeout;

/// The time between two attempts of the first one: the process may also have closed other descriptors.
const RETRY_PAUSE: Duration = Duration::from_millis(20);

impl Socket {
    /// Connects to `address`. Dropping the future cancels the attempt.
    ///
    /// At the limit of sockets, those that have been idle longest are evicted (rule 20). While no
    /// descriptor is left, the connection waits for one.
    ///
    /// # Errors
    /// The error of `socket(2)` or `connect(2)`.
    pub async fn connect(address: &Address) -> io::Result<Socket> {
        let socket = open(address).await?;
        socket.connected().await
    }

    /// As [`Socket::connect`], within this time. The wait for a descriptor may take as long again: it says
    /// nothing about the address, so it takes no time from the attempt.
    ///
    /// # Errors
    /// Also `TimedOut`, or EMFILE if there was no descriptor in this time ([`LocalShortage`](crate::LocalShortage)).
    pub async fn connect_within(address: &Address, within: Duration) -> io::Result<Socket> {
        let Ok(opened) = timeout(within, open(address)).await else {
            return Err(driver::out_of_descriptors());
        };
        let connected = timeout(within, opened?.connected()).await;
        connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }

    async fn connected(self) -> io::Result<Socket> {
        poll_fn(|cx| core::with(|core| core.sockets().poll_connected(self.key, cx))).await?;
        Ok(self)
    }
}

/// Opens a socket and starts to connect it. While no descriptor is left, waits for one.
///
/// # Errors
/// Another error of `socket(2)`.
async fn open(address: &Address) -> io::Result<Socket> {
    let opened = match core::with(|core| core.sockets().connect_unless_others_wait(address)) {
        Some(opened) => opened,
        // Allocated separately, since this is rare and large.
        None => Box::pin(wait_and_open(address)).await,
    };
    opened.map(Socket::new)
}

async fn wait_and_open(address: &Address) -> io::Result<SocketKey> {
    let queued = QueuedConnect::last(address);
    loop {
        let woken = poll_fn(|cx| core::with(|core| core.sockets().poll_woken(queued.0, cx)));
        if core::with(|core| core.sockets().is_first(queued.0)) {
            // If no socket closes in time, it tries again.
            let _ = timeout(RETRY_PAUSE, woken).await;
            core::with(|core| core.sockets().open_waiting());
        } else {
            woken.await;
        }
        if let Some(opened) = core::with(|core| core.sockets().take_opened(queued.0)) {
            return opened;
        }
    }
}

/// A position in the queue of connections that wait. Dropping it leaves the queue.
struct QueuedConnect(WaitKey);

impl QueuedConnect {
    fn last(address: &Address) -> QueuedConnect {
        QueuedConnect(core::with(|core| core.sockets().wait_to_connect(address)))
    }
}

impl Drop for QueuedConnect {
    fn drop(&mut self) {
        core::try_with(|core| core.sockets().leave(self.0));
    }
}
