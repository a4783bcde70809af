//! The transport of a connection: a socket, with or without TLS.
//!
//! [`Transport`] has the operations of a [`Socket`] and hides whether there is TLS. For clear text
//! it costs one branch.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use blitz_reactor::{Chunk, File, Parked, Resume, Slice, Socket};

use crate::conn::Protocol;
use crate::tls::{TlsError, TlsInfo, TlsStream};

/// The transport of an open connection. Dropping it closes the socket at once.
pub(crate) enum Transport {
    Plain(Socket),
    Tls(Box<TlsTransport>),
}

/// A transport whose socket is parked in the reactor, for an idle connection.
pub(crate) enum ParkedTransport {
    Plain(Parked),
    Tls(Box<TlsTransport>),
}

/// A socket with TLS. It stays in one allocation, active or parked.
pub(crate) struct TlsTransport {
    tls: TlsStream,
    received_first: bool,
    socket: SocketState,
}

enum SocketState {
    Active(Socket),
    Parked(Parked),
    /// While the socket changes between the two, or after the transport gave it away.
    Taken,
}

impl Transport {
    /// A new connection over TLS.
    pub(crate) fn secure(socket: Socket, tls: TlsStream) -> Transport {
        let socket = SocketState::Active(socket);
        Transport::Tls(Box::new(TlsTransport {
            tls,
            received_first: false,
            socket,
        }))
    }

    /// The next received bytes; `None` after the end. The end and errors are permanent.
    #[inline(always)]
    pub(crate) fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Slice>>> {
        match self {
            Transport::Plain(socket) => socket.poll_recv(cx),
            Transport::Tls(secure) => secure.poll_recv(cx),
        }
    }

    /// Length of the unread bytes, including those of an incomplete record.
    #[inline(always)]
    pub(crate) fn unread_bytes(&mut self) -> usize {
        match self {
            Transport::Plain(socket) => socket.unread_bytes(),
            Transport::Tls(secure) => secure.unread_bytes(),
        }
    }

    /// Length of the unread bytes that can be read: without those of an incomplete record, the rest of
    /// which the window must leave room for.
    #[inline(always)]
    pub(crate) fn unread_content(&mut self) -> usize {
        match self {
            Transport::Plain(socket) => socket.unread_bytes(),
            Transport::Tls(secure) => secure.unread_content(),
        }
    }

    /// Whether there is unread decrypted content. It would not resume a parked socket.
    #[inline(always)]
    pub(crate) fn holds_content(&self) -> bool {
        self.tls().is_some_and(TlsStream::holds_content)
    }

    /// Queues bytes. The reactor sends the queue at the end of the turn.
    #[inline(always)]
    pub(crate) fn send(&mut self, chunk: Chunk) {
        match self {
            Transport::Plain(socket) => socket.send(chunk),
            Transport::Tls(secure) => secure.send(chunk),
        }
    }

    /// Sends the queue at once if it is large.
    pub(crate) fn send_large(&mut self) {
        self.socket().send_large();
    }

    /// See [`File::poll_send`]; always `None` over TLS, which has to read what it encrypts.
    pub(crate) fn poll_send_file(
        &mut self,
        cx: &mut Context<'_>,
        file: &File,
        offset: u64,
        len: usize,
    ) -> Poll<io::Result<Option<usize>>> {
        match self {
            Transport::Plain(socket) => file.poll_send(socket, cx, offset, len),
            Transport::Tls(_) => Poll::Ready(Ok(None)),
        }
    }

    /// As [`Transport::send`], for rare cases: not inlined.
    #[inline(never)]
    pub(crate) fn send_rarely(&mut self, chunk: impl Into<Chunk>) {
        self.send(chunk.into());
    }

    /// Queued bytes that the kernel has not taken.
    #[inline(always)]
    pub(crate) fn queued(&self) -> usize {
        self.socket().queued()
    }

    /// Ready when at most `below` bytes are queued, or sending has failed.
    pub(crate) fn poll_send_room(
        &self,
        cx: &mut Context<'_>,
        below: usize,
    ) -> Poll<io::Result<()>> {
        self.socket().poll_send_room(cx, below)
    }

    /// Declares that our side sends next: see [`Transport::has_received_first`].
    pub(crate) fn expect_to_send_first(&mut self) {
        match self {
            Transport::Plain(socket) => socket.expect_to_send_first(),
            Transport::Tls(secure) => secure.expect_to_send_first(),
        }
    }

    /// Whether content arrived after [`Transport::expect_to_send_first`] and before our first byte
    /// was sent. Over TLS only content that was already there counts, since a server may send
    /// tickets at any time.
    pub(crate) fn has_received_first(&self) -> bool {
        match self {
            Transport::Plain(socket) => socket.has_received_first(),
            Transport::Tls(secure) => secure.received_first,
        }
    }

    /// Whether the kernel has certainly taken no byte that was sent after
    /// [`Transport::expect_to_send_first`]. Over TLS `false` also if a record arrived before that.
    pub(crate) fn has_sent_nothing(&self) -> bool {
        self.socket().has_sent_nothing()
    }

    /// Reports the bytes held for the connection outside of the socket.
    pub(crate) fn note_held(&self, bytes: usize) {
        self.socket().note_held(bytes);
    }

    /// Declares that the rest of a request's head is awaited, of the next request since the connection
    /// was parked if `is_next`: it may be evicted (rule 20).
    #[cold]
    pub(crate) fn await_request(&self, is_next: bool) {
        self.socket().await_request(is_next);
    }

    /// The time at which the kernel last took a byte, or the oldest queued byte was queued.
    pub(crate) fn send_progress(&self) -> Instant {
        self.socket().send_progress()
    }

    /// Sets the maximum of unread bytes; over TLS, bytes of records.
    pub(crate) fn set_window(&self, bytes: usize) {
        self.socket().set_window(bytes);
    }

    /// Closes our direction after the queued bytes.
    pub(crate) fn shutdown_write(&mut self) {
        if let Transport::Tls(secure) = self {
            secure.send_close_notify();
        }
        self.socket().shutdown_write();
    }

    /// Closes gracefully: sends the queue, close_notify and FIN, and discards input.
    #[inline(always)]
    pub(crate) fn finish(self) {
        match self {
            Transport::Plain(socket) => socket.finish(),
            Transport::Tls(secure) => secure.finish(),
        }
    }

    /// Closes with RST after the queued bytes.
    pub(crate) fn abort(self) {
        match self {
            Transport::Plain(socket) => socket.abort(),
            Transport::Tls(mut secure) => secure.take_socket().abort(),
        }
    }

    /// The peer's address; `None` on a unix socket.
    #[inline(always)]
    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        self.socket().peer()
    }

    /// The result of the handshake; `None` in clear text.
    #[inline(always)]
    pub(crate) fn info(&self) -> Option<&Rc<TlsInfo>> {
        self.tls()?.info()
    }

    /// The protocol that ALPN negotiated; HTTP/1.1 in clear text.
    pub(crate) fn protocol(&self) -> Protocol {
        let alpn = self.info().and_then(|info| info.alpn.as_deref());
        Protocol::of_alpn(alpn)
    }

    /// Whether the connection ended without close_notify, as after an attack. In clear text
    /// truncation cannot be detected; over TLS the peer announces the end (RFC 8446, section 6.1).
    pub(crate) fn is_truncated(&self) -> bool {
        self.tls().is_some_and(TlsStream::is_truncated)
    }

    /// Whether TLS will receive nothing more, so that the connection must not be parked.
    #[inline(always)]
    pub(crate) fn has_ended(&self) -> bool {
        self.tls().is_some_and(TlsStream::has_ended)
    }

    /// Whether the connection has no unread and no queued bytes, and is still open (rule 11).
    pub(crate) fn is_untouched(&mut self) -> bool {
        self.unread_bytes() == 0 && self.queued() == 0 && !self.has_ended()
    }

    /// The failure of TLS, if any.
    pub(crate) fn failure(&self) -> Option<TlsError> {
        self.tls()?.failure()
    }

    /// The TLS session, if there is one.
    #[inline(always)]
    pub(crate) fn tls(&self) -> Option<&TlsStream> {
        match self {
            Transport::Plain(_) => None,
            Transport::Tls(secure) => Some(&secure.tls),
        }
    }

    /// The TLS session and its socket, to advance a handshake.
    pub(crate) fn secure_parts(&mut self) -> Option<(&mut TlsStream, &Socket)> {
        match self {
            Transport::Plain(_) => None,
            Transport::Tls(secure) => Some(secure.parts()),
        }
    }

    /// Parks the socket in the reactor until it receives something or the timeout expires.
    #[inline(always)]
    pub(crate) fn park(
        self,
        resume: Rc<dyn Resume>,
        tag: u64,
        within: Duration,
    ) -> ParkedTransport {
        match self {
            Transport::Plain(socket) => ParkedTransport::Plain(socket.park(resume, tag, within)),
            Transport::Tls(secure) => ParkedTransport::Tls(secure.park(resume, tag, within)),
        }
    }

    /// As [`Transport::park`], for a connection that has been idle since before (rule 20).
    #[cold]
    pub(crate) fn park_idle(
        self,
        resume: Rc<dyn Resume>,
        tag: u64,
        within: Duration,
    ) -> ParkedTransport {
        match self {
            Transport::Plain(socket) => {
                ParkedTransport::Plain(socket.park_idle(resume, tag, within))
            }
            Transport::Tls(mut secure) => {
                let parked = secure.take_socket().park_idle(resume, tag, within);
                secure.socket = SocketState::Parked(parked);
                ParkedTransport::Tls(secure)
            }
        }
    }

    /// As [`Transport::park_idle`], but at most until the deadline of the previous parking.
    #[cold]
    pub(crate) fn park_again(
        self,
        resume: Rc<dyn Resume>,
        tag: u64,
        within: Duration,
    ) -> ParkedTransport {
        match self {
            Transport::Plain(socket) => {
                ParkedTransport::Plain(socket.park_again(resume, tag, within))
            }
            Transport::Tls(mut secure) => {
                let parked = secure.take_socket().park_again(resume, tag, within);
                secure.socket = SocketState::Parked(parked);
                ParkedTransport::Tls(secure)
            }
        }
    }

    #[inline(always)]
    fn socket(&self) -> &Socket {
        match self {
            Transport::Plain(socket) => socket,
            Transport::Tls(secure) => secure.socket.active(),
        }
    }
}

impl ParkedTransport {
    /// Takes the socket from the reactor, if it is still parked and has received nothing. The
    /// caller then calls [`ParkedTransport::unpark`].
    pub(crate) fn unpark_socket(&self) -> Option<Socket> {
        match self {
            ParkedTransport::Plain(parked) => parked.unpark(),
            ParkedTransport::Tls(secure) => match &secure.socket {
                SocketState::Parked(parked) => parked.unpark(),
                SocketState::Active(_) | SocketState::Taken => None,
            },
        }
    }

    /// The transport again, with the socket that the reactor has returned.
    pub(crate) fn unpark(self, socket: Socket) -> Transport {
        match self {
            ParkedTransport::Plain(_) => Transport::Plain(socket),
            ParkedTransport::Tls(mut secure) => {
                secure.socket = SocketState::Active(socket);
                Transport::Tls(secure)
            }
        }
    }
}

/// These functions are not inlined, so that TLS does not slow down clear text.
impl TlsTransport {
    fn parts(&mut self) -> (&mut TlsStream, &Socket) {
        (&mut self.tls, self.socket.active())
    }

    #[inline(never)]
    fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Slice>>> {
        let (tls, socket) = self.parts();
        tls.poll_recv(socket, cx)
    }

    #[inline(never)]
    fn unread_bytes(&mut self) -> usize {
        let (tls, socket) = self.parts();
        tls.unread_bytes(socket)
    }

    #[inline(never)]
    fn unread_content(&mut self) -> usize {
        let (tls, socket) = self.parts();
        tls.unread_content(socket)
    }

    #[inline(never)]
    fn send(&mut self, chunk: Chunk) {
        let (tls, socket) = self.parts();
        tls.send(socket, &chunk);
        // The encrypted copy is in the socket's queue.
        drop(chunk);
    }

    fn expect_to_send_first(&mut self) {
        self.received_first = self.tls.holds_content();
        self.socket.active().expect_to_send_first();
    }

    fn send_close_notify(&mut self) {
        let (tls, socket) = self.parts();
        tls.send_close_notify(socket);
    }

    #[inline(never)]
    fn finish(mut self: Box<Self>) {
        self.send_close_notify();
        self.take_socket().finish();
    }

    #[inline(never)]
    fn park(mut self: Box<Self>, resume: Rc<dyn Resume>, tag: u64, within: Duration) -> Box<Self> {
        let parked = self.take_socket().park(resume, tag, within);
        self.socket = SocketState::Parked(parked);
        self
    }

    fn take_socket(&mut self) -> Socket {
        match std::mem::replace(&mut self.socket, SocketState::Taken) {
            SocketState::Active(socket) => socket,
            SocketState::Parked(_) | SocketState::Taken => {
                unreachable!("a transport has its socket")
            }
        }
    }
}

impl SocketState {
    fn active(&self) -> &Socket {
        match self {
            SocketState::Active(socket) => socket,
            SocketState::Parked(_) | SocketState::Taken => {
                unreachable!("a transport has its socket")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An idle connection over TLS also has rustls's own heap memory: keys and the secrets that
    /// they are derived from.
    #[test]
    fn idle_connections_are_small() {
        assert!(size_of::<Transport>() <= 16 && size_of::<ParkedTransport>() <= 16);
        let bytes = size_of::<TlsTransport>();
        assert!(bytes <= 2048, "TLS on a socket takes {bytes} bytes");
    }
}
