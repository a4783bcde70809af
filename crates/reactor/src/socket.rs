//! Sockets of streams and datagrams: the handles for the crates above, and the tables behind them.

mod address;
mod commands;
mod connect;
mod datagram_commands;
mod datagram_table;
mod datagrams;
mod entry;
mod events;
mod eviction;
mod file_commands;
mod key;
mod lingering;
mod listener;
mod listeners;
mod outgoing;
mod ownership;
mod shortage;
mod slab;
mod sockets;
mod table;
mod train;
mod waiting_connects;
mod zone;

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use crate::buffer::{Chunk, Slice};
use crate::core;
use crate::driver::OpenPath;

pub use address::Address;
pub use datagrams::{DatagramGroup, DatagramSocket};
pub(crate) use entry::SocketAction;
pub(crate) use key::SocketKey;
pub use lingering::Lingering;
pub use listener::{Listener, Reservation};
pub(crate) use ownership::Parking;
pub use ownership::{Cause, Parked, Resume, Socket};
pub(crate) use sockets::Sockets;
pub(crate) use table::SocketTable;
pub(crate) use train::Forwarded;
pub use train::{Datagrams, Ecn, Train};
pub use zone::{NoInterface, parse_zoned};

impl Socket {
    /// The peer's address; `None` on a unix socket.
    pub fn peer(&self) -> Option<SocketAddr> {
        core::with(|core| core.sockets().peer(self.key))
    }

    /// Replaces the address that [`Socket::peer`] returns from now on, also on a unix socket: that of a client whose
    /// connection a proxy passes on.
    pub fn set_peer(&self, address: SocketAddr) {
        core::with(|core| core.sockets().set_peer(self.key, address));
    }

    /// The local address; `None` on a unix socket.
    pub fn local(&self) -> Option<SocketAddr> {
        core::with(|core| core.sockets().local(self.key))
    }

    /// Sends the queue at once if it is large, instead of at the end of the turn: the bytes are still in
    /// the cache, and there may be as many for each connection of the turn.
    pub fn send_large(&self) {
        core::with(|core| core.sockets().send_now(self.key));
    }

    /// Sets the receive window: most bytes that may be received and unread (rule 1). It is 16 KiB at
    /// first; 0 stops receiving. Reading bytes opens the window by their number. A smaller window does not
    /// affect the receive that is pending.
    pub fn set_window(&self, bytes: usize) {
        core::with(|core| core.sockets().set_window(self.key, bytes));
    }

    /// The next received bytes; `None` after FIN. Later calls return the same end or error.
    pub fn poll_recv(&self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Slice>>> {
        core::with(|core| core.sockets().poll_receive(self.key, Some(cx)))
    }

    /// As [`Socket::poll_recv`].
    ///
    /// # Errors
    /// The error of `recv(2)`, mostly that the peer has reset the connection.
    pub async fn recv(&self) -> io::Result<Option<Slice>> {
        poll_fn(|cx| self.poll_recv(cx)).await
    }

    /// As [`Socket::recv`], without waiting; `None` if nothing is readable.
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

    /// The number of received and unread bytes.
    pub fn unread_bytes(&self) -> usize {
        core::with(|core| core.sockets().unread_bytes(self.key))
    }

    /// Queues bytes. All bytes that are queued in a turn are sent together, in order, at its end;
    /// [`Socket::send_room`] reports a failure.
    #[inline]
    pub fn send(&self, chunk: impl Into<Chunk>) {
        let chunk = chunk.into();
        if !chunk.is_empty() {
            core::with(|core| core.sockets().send(self.key, chunk));
        }
    }

    /// The number of queued bytes that the kernel has not taken.
    #[inline(always)]
    pub fn queued(&self) -> usize {
        core::with(|core| core.sockets().queued(self.key))
    }

    /// Ready when at most `below` bytes are queued, or with the error if sending has failed.
    pub fn poll_send_room(&self, cx: &mut Context<'_>, below: usize) -> Poll<io::Result<()>> {
        core::with(|core| core.sockets().poll_send_room(self.key, cx, below))
    }

    /// As [`Socket::poll_send_room`].
    ///
    /// # Errors
    /// The error that sending has failed with; later calls return it again.
    pub async fn send_room(&self, below: usize) -> io::Result<()> {
        poll_fn(|cx| self.poll_send_room(cx, below)).await
    }

    /// See [`File::poll_send`](crate::File::poll_send).
    pub(crate) fn poll_send_file(
        &self,
        cx: &Context<'_>,
        file: &OpenPath,
        offset: u64,
        len: usize,
    ) -> Poll<io::Result<Option<usize>>> {
        core::with(|core| {
            let mut sockets = core.sockets();
            sockets.poll_send_file(self.key, cx, file, offset, len)
        })
    }

    /// Declares that the owner sends next: see [`Socket::has_received_first`].
    pub fn expect_to_send_first(&self) {
        core::with(|core| core.sockets().expect_to_send_first(self.key));
    }

    /// Whether bytes arrived before the kernel took the first byte that was sent after
    /// [`Socket::expect_to_send_first`].
    pub fn has_received_first(&self) -> bool {
        core::with(|core| core.sockets().has_received_first(self.key))
    }

    /// Whether the kernel has certainly taken no byte that was sent after [`Socket::expect_to_send_first`].
    pub fn has_sent_nothing(&self) -> bool {
        core::with(|core| core.sockets().has_sent_nothing(self.key))
    }

    /// Sets the number of received and queued bytes that the owner holds for this socket, in addition to
    /// those in the socket. When the core's memory is exhausted, the socket with the most is shed: its
    /// calls fail (rule 4).
    pub fn note_held(&self, bytes: usize) {
        core::with(|core| core.sockets().note_held(self.key, bytes));
    }

    /// When the kernel last took a byte, or the oldest queued byte was queued. Deadlines for stalled sends
    /// start at this time.
    pub fn send_progress(&self) -> Instant {
        core::with(|core| core.sockets().send_progress(self.key))
    }

    /// Sends the queue, then FIN.
    pub fn shutdown_write(&self) {
        core::with(|core| core.sockets().shutdown_write(self.key));
    }

    /// Closes gracefully, without a task (rule 16): sends the queue, then FIN, discards input as
    /// [`Lingering`] allows, and closes. A close with unread input would send RST, which can destroy the
    /// response at the peer.
    pub fn finish(self) {
        // A core that has ended has closed its sockets.
        core::try_with(|core| core.sockets().finish(self.key));
        std::mem::forget(self);
    }

    /// Closes with RST, after sending the queue if that takes at most 2 s.
    pub fn abort(self) {
        core::with(|core| core.sockets().abort(self.key));
        std::mem::forget(self);
    }

    /// Declares that the owner waits for the rest of a request's head, until it receives again. The
    /// socket counts as idle since it was last parked or accepted, or since now if `is_next` (rule 20).
    /// If it is evicted, its operations fail with ECONNABORTED.
    pub fn await_request(&self, is_next: bool) {
        core::with(|core| core.sockets().await_request(self.key, is_next));
    }

    /// Parks the socket: the core owns it until bytes, FIN or an error arrive, or the time `within` is
    /// over; then `resume` gets it back, once (rule 5).
    #[inline]
    pub fn park(self, resume: Rc<dyn Resume>, tag: u64, within: Duration) -> Parked {
        core::with(|core| core.sockets().park(self.key, resume, tag, within));
        let parked = Parked(self.key);
        std::mem::forget(self);
        parked
    }

    /// As [`Socket::park`], for a socket that has been idle since it was last parked or accepted
    /// (rule 20).
    pub fn park_idle(self, resume: Rc<dyn Resume>, tag: u64, within: Duration) -> Parked {
        core::with(|core| core.sockets().park_idle(self.key, resume, tag, within));
        let parked = Parked(self.key);
        std::mem::forget(self);
        parked
    }

    /// As [`Socket::park_idle`], but at most until the deadline of the previous time.
    pub fn park_again(self, resume: Rc<dyn Resume>, tag: u64, within: Duration) -> Parked {
        core::with(|core| core.sockets().park_again(self.key, resume, tag, within));
        let parked = Parked(self.key);
        std::mem::forget(self);
        parked
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // A core that has ended has closed its sockets.
        core::try_with(|core| core.sockets().close(self.key));
    }
}

impl Parked {
    /// Takes the socket back, if it is still parked and not readable.
    pub fn unpark(self) -> Option<Socket> {
        // The handler may own sockets, so it is dropped outside the borrow.
        let resume = core::with(|core| core.sockets().unpark(self.0))?;
        drop(resume);
        Some(Socket::new(self.0))
    }
}

/// Passes a socket to its handler. Called while the table is not borrowed.
#[inline]
pub(crate) fn resume(parking: Parking, key: SocketKey, cause: Cause) {
    parking.resume.resume(Socket::new(key), parking.tag, cause);
}
