//! Stream sockets: what the crates above hold, and the table behind it.

mod address;
mod commands;
mod entry;
mod events;
mod listener;
mod outgoing;
mod shortage;
mod slab;
mod table;

use std::future::poll_fn;
use std::io;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

pub use address::Address;
pub(crate) use entry::{Outcome, Parking, Pending};
pub use listener::Listener;
pub(crate) use slab::SocketKey;
pub(crate) use table::{SocketTable, Sockets};

use crate::buffer::{Chunk, Slice};
use crate::core;

/// One stream socket of this core. Dropping it cancels what is under way and closes at once,
/// without sending what is queued; see [`Socket::finish`] for the polite end.
#[derive(Debug)]
pub struct Socket {
    key: SocketKey,
    local: PhantomData<Rc<()>>,
}

impl Socket {
    fn new(key: SocketKey) -> Socket {
        Socket {
            key,
            local: PhantomData,
        }
    }

    /// Connects to `address`. Dropping the future gives the attempt up.
    ///
    /// # Errors
    /// What `connect(2)` reports, or that no descriptor is left.
    pub async fn connect(address: &Address) -> io::Result<Socket> {
        let socket = core::with(|core| core.sockets().connect(address).map(Socket::new))?;
        poll_fn(|cx| core::with(|core| core.sockets().poll_connected(socket.key, cx))).await?;
        Ok(socket)
    }

    /// The other end; `None` on a unix socket.
    pub fn peer(&self) -> Option<SocketAddr> {
        core::with(|core| core.sockets().peer(self.key))
    }

    /// This end; `None` on a unix socket.
    pub fn local(&self) -> Option<SocketAddr> {
        core::with(|core| core.sockets().local(self.key))
    }

    /// Most bytes that may be received and not yet taken (rule 1); 16 KiB at first, 0 to stop.
    /// Taking bytes opens the window again by as much. A smaller window holds back what comes
    /// later, not what the kernel was already asked for.
    pub fn set_window(&self, bytes: usize) {
        core::with(|core| core.sockets().set_window(self.key, bytes));
    }

    /// The next received bytes; `None` after FIN, from then on. An error stays, too.
    pub fn poll_recv(&self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Slice>>> {
        core::with(|core| core.sockets().poll_receive(self.key, Some(cx)))
    }

    /// As [`Socket::poll_recv`].
    ///
    /// # Errors
    /// What `recv(2)` reports: mostly that the peer has reset the connection.
    pub async fn recv(&self) -> io::Result<Option<Slice>> {
        poll_fn(|cx| self.poll_recv(cx)).await
    }

    /// What [`Socket::recv`] would give without waiting.
    pub fn try_recv(&self) -> Option<io::Result<Option<Slice>>> {
        match core::with(|core| core.sockets().poll_receive(self.key, None)) {
            Poll::Ready(received) => Some(received),
            Poll::Pending => None,
        }
    }

    /// Puts bytes back: the next receive returns them first.
    pub fn unread(&self, slice: Slice) {
        if !slice.is_empty() {
            core::with(|core| core.sockets().unread(self.key, slice));
        }
    }

    /// Received bytes that wait to be taken.
    pub fn unread_bytes(&self) -> usize {
        core::with(|core| core.sockets().unread_bytes(self.key))
    }

    /// Queues bytes. All that is queued in a turn leaves together, in order, at its end; a
    /// failure is reported by [`Socket::send_room`].
    #[inline]
    pub fn send(&self, chunk: impl Into<Chunk>) {
        let chunk = chunk.into();
        if !chunk.is_empty() {
            core::with(|core| core.sockets().send(self.key, chunk));
        }
    }

    /// Bytes queued that the kernel has not taken.
    pub fn queued(&self) -> usize {
        core::with(|core| core.sockets().queued(self.key))
    }

    /// Ready when at most `below` bytes are queued, or sending has failed.
    pub fn poll_send_room(&self, cx: &mut Context<'_>, below: usize) -> Poll<io::Result<()>> {
        core::with(|core| core.sockets().poll_send_room(self.key, cx, below))
    }

    /// As [`Socket::poll_send_room`].
    ///
    /// # Errors
    /// What sending failed with; it stays.
    pub async fn send_room(&self, below: usize) -> io::Result<()> {
        poll_fn(|cx| self.poll_send_room(cx, below)).await
    }

    /// Says that the owner is to send next: see [`Socket::has_received_first`].
    pub fn expect_to_send_first(&self) {
        core::with(|core| core.sockets().expect_to_send_first(self.key));
    }

    /// Whether bytes arrived before the kernel had taken the first byte that was sent after
    /// [`Socket::expect_to_send_first`].
    pub fn has_received_first(&self) -> bool {
        core::with(|core| core.sockets().has_received_first(self.key))
    }

    /// Says how many received and queued bytes the owner holds because of this socket, beside those
    /// that the socket knows of. When the core holds all that it may, the one with the most is shed:
    /// its calls fail (rule 4).
    pub fn note_held(&self, bytes: usize) {
        core::with(|core| core.sockets().note_held(self.key, bytes));
    }

    /// When the kernel last took a byte, or the oldest queued byte was queued: what a deadline
    /// for stalled sends counts from.
    pub fn send_progress(&self) -> Instant {
        core::with(|core| core.sockets().send_progress(self.key))
    }

    /// Sends FIN after what is queued.
    pub fn shutdown_write(&self) {
        core::with(|core| core.sockets().shutdown_write(self.key));
    }

    /// The polite end, which needs no task (rule 16): sends what is queued, then FIN, discards
    /// at most 64 KiB or 2 s of input, closes. A close with unread input would destroy the
    /// answer that was just sent.
    pub fn finish(self) {
        core::with(|core| core.sockets().finish(self.key));
        std::mem::forget(self);
    }

    /// Closes with RST, after what is queued, if that leaves within 2 s.
    pub fn abort(self) {
        core::with(|core| core.sockets().abort(self.key));
        std::mem::forget(self);
    }

    /// Gives the socket into the core's keeping until bytes, FIN or an error arrive, or
    /// the time `within` is over; then `resume` gets it back, once (rule 5).
    #[inline]
    pub fn park(self, resume: Rc<dyn Resume>, tag: u64, within: Duration) -> Parked {
        core::with(|core| core.sockets().park(self.key, resume, tag, within));
        let parked = Parked(self.key);
        std::mem::forget(self);
        parked
    }

    /// As [`Socket::park`], but for no longer than until the deadline of the last time.
    pub fn park_again(self, resume: Rc<dyn Resume>, tag: u64, within: Duration) -> Parked {
        core::with(|core| core.sockets().park_again(self.key, resume, tag, within));
        let parked = Parked(self.key);
        std::mem::forget(self);
        parked
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // A core that is gone has closed its sockets.
        core::try_with(|core| core.sockets().close(self.key));
    }
}

/// Gets a parked socket back.
pub trait Resume {
    /// Called on the socket's core with what [`Socket::park`] was given.
    fn resume(self: Rc<Self>, socket: Socket, tag: u64, cause: Cause);
}

/// Why a parked socket came back.
#[derive(Debug)]
pub enum Cause {
    /// The next received bytes.
    Received(Slice),
    /// FIN or an error waits in [`Socket::recv`].
    Ended,
    /// The deadline has passed.
    Expired,
}

/// Names a parked socket; dropping it does nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Parked(SocketKey);

impl Parked {
    /// Takes the socket back, if it is still parked and has nothing to say.
    pub fn unpark(self) -> Option<Socket> {
        // The handler may own anything, so it is dropped outside the borrow.
        let resume = core::with(|core| core.sockets().unpark(self.0))?;
        drop(resume);
        Some(Socket::new(self.0))
    }
}

/// Hands a socket to its handler. Called with no table borrowed.
#[inline]
pub(crate) fn resume(parking: Parking, key: SocketKey, cause: Cause) {
    parking.resume.resume(Socket::new(key), parking.tag, cause);
}
