//! What a connection sends and receives through: a socket, with TLS between or not.
//!
//! [`Transport`] has the operations of a [`Socket`], so that those who speak HTTP need not know
//! which it is. Clear text costs them one look at which it is.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use blitz_reactor::{Chunk, Parked, Resume, Slice, Socket};

use crate::conn::Protocol;
use crate::tls::{Tls, TlsError, TlsInfo};

/// A connection that bytes of a message go through. Dropping it closes at once.
pub(crate) enum Transport {
    Plain(Socket),
    Tls(Box<TlsTransport>),
}

/// A transport whose socket is parked in the reactor: all that is left of an idle connection.
pub(crate) enum ParkedTransport {
    Plain(Parked),
    Tls(Box<TlsTransport>),
}

/// A socket with TLS on it, at one place for as long as it lives.
pub(crate) struct TlsTransport {
    tls: Tls,
    received_first: bool,
    socket: SocketState,
}

enum SocketState {
    Active(Socket),
    Parked(Parked),
    /// On its way from one to the other.
    Taken,
}

impl Transport {
    /// A connection over TLS, at its beginning.
    pub(crate) fn secure(socket: Socket, tls: Tls) -> Transport {
        let socket = SocketState::Active(socket);
        Transport::Tls(Box::new(TlsTransport {
            tls,
            received_first: false,
            socket,
        }))
    }

    /// The next received bytes; `None` after the end, from then on. An error stays, too.
    #[inline(always)]
    pub(crate) fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Slice>>> {
        match self {
            Transport::Plain(socket) => socket.poll_recv(cx),
            Transport::Tls(secure) => secure.poll_recv(cx),
        }
    }

    /// Received bytes that wait to be taken, those of an incomplete record included.
    #[inline(always)]
    pub(crate) fn unread_bytes(&mut self) -> usize {
        match self {
            Transport::Plain(socket) => socket.unread_bytes(),
            Transport::Tls(secure) => secure.unread_bytes(),
        }
    }

    /// Whether decrypted content waits to be taken, which would not bring a parked socket back.
    #[inline(always)]
    pub(crate) fn holds_content(&self) -> bool {
        self.tls().is_some_and(Tls::holds_content)
    }

    /// Queues bytes; all that is queued in a turn leaves together, at its end.
    #[inline(always)]
    pub(crate) fn send(&mut self, chunk: Chunk) {
        match self {
            Transport::Plain(socket) => socket.send(chunk),
            Transport::Tls(secure) => secure.send(chunk),
        }
    }

    /// As [`Transport::send`], where it does not have to be quick.
    #[inline(never)]
    pub(crate) fn send_rarely(&mut self, chunk: impl Into<Chunk>) {
        self.send(chunk.into());
    }

    /// Bytes queued that the kernel has not taken.
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

    /// Says that we are to send next: see [`Transport::has_received_first`].
    pub(crate) fn expect_to_send_first(&mut self) {
        match self {
            Transport::Plain(socket) => socket.expect_to_send_first(),
            Transport::Tls(secure) => secure.received_first = secure.tls.holds_content(),
        }
    }

    /// Whether content arrived before the first byte that was sent since
    /// [`Transport::expect_to_send_first`] had left; over TLS only what had been there before, since
    /// tickets come whenever the server likes.
    pub(crate) fn has_received_first(&self) -> bool {
        match self {
            Transport::Plain(socket) => socket.has_received_first(),
            Transport::Tls(secure) => secure.received_first,
        }
    }

    /// Says how many bytes are held on behalf of the connection, beside those in the socket.
    pub(crate) fn note_held(&self, bytes: usize) {
        self.socket().note_held(bytes);
    }

    /// When the kernel last took a byte, or the oldest queued byte was queued.
    pub(crate) fn send_progress(&self) -> Instant {
        self.socket().send_progress()
    }

    /// Most bytes that may be received and not yet taken; of TLS, bytes of records.
    pub(crate) fn set_window(&self, bytes: usize) {
        self.socket().set_window(bytes);
    }

    /// Ends our direction after what is queued.
    pub(crate) fn shutdown_write(&mut self) {
        if let Transport::Tls(secure) = self {
            secure.send_close_notify();
        }
        self.socket().shutdown_write();
    }

    /// The polite end: what is queued, then the end of TLS and FIN, while input is discarded.
    #[inline(always)]
    pub(crate) fn finish(self) {
        match self {
            Transport::Plain(socket) => socket.finish(),
            Transport::Tls(secure) => secure.finish(),
        }
    }

    /// Closes with RST, after what is queued.
    pub(crate) fn abort(self) {
        match self {
            Transport::Plain(socket) => socket.abort(),
            Transport::Tls(mut secure) => secure.take_socket().abort(),
        }
    }

    /// The other end; `None` on a unix socket.
    #[inline(always)]
    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        self.socket().peer()
    }

    /// What was agreed upon in the handshake; `None` in clear text.
    #[inline(always)]
    pub(crate) fn info(&self) -> Option<&Rc<TlsInfo>> {
        self.tls()?.info()
    }

    /// What was agreed upon in the handshake.
    pub(crate) fn protocol(&self) -> Protocol {
        match self.info() {
            Some(info) if info.is_h2() => Protocol::Http2,
            Some(_) | None => Protocol::Http1,
        }
    }

    /// Whether the connection ended without a word of the peer's, as an attacker could have it: in
    /// clear text nobody can tell, in TLS the peer says when it has ended (RFC 8446, section 6.1).
    pub(crate) fn is_truncated(&self) -> bool {
        self.tls().is_some_and(Tls::is_truncated)
    }

    /// Whether TLS will receive nothing more, so that parking would wait in vain.
    #[inline(always)]
    pub(crate) fn has_ended(&self) -> bool {
        self.tls().is_some_and(Tls::has_ended)
    }

    /// Whether nothing waits to be taken or to leave, and more may come (rule 11).
    pub(crate) fn is_untouched(&mut self) -> bool {
        self.unread_bytes() == 0 && self.queued() == 0 && !self.has_ended()
    }

    /// Why TLS failed, if it did.
    pub(crate) fn failure(&self) -> Option<TlsError> {
        self.tls()?.failure()
    }

    /// The TLS session, if there is one.
    #[inline(always)]
    pub(crate) fn tls(&self) -> Option<&Tls> {
        match self {
            Transport::Plain(_) => None,
            Transport::Tls(secure) => Some(&secure.tls),
        }
    }

    /// The TLS session and its socket, for those who carry on a handshake.
    pub(crate) fn secure_parts(&mut self) -> Option<(&mut Tls, &Socket)> {
        match self {
            Transport::Plain(_) => None,
            Transport::Tls(secure) => Some(secure.parts()),
        }
    }

    /// Leaves the socket to the reactor until something arrives or the time is over.
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

    /// As [`Transport::park`], but for no longer than until the deadline of the last time.
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
    /// Takes the socket back, if it is still parked and has nothing to say. The rest follows with
    /// [`ParkedTransport::unpark`].
    pub(crate) fn unpark_socket(&self) -> Option<Socket> {
        match self {
            ParkedTransport::Plain(parked) => parked.unpark(),
            ParkedTransport::Tls(secure) => match &secure.socket {
                SocketState::Parked(parked) => parked.unpark(),
                SocketState::Active(_) | SocketState::Taken => None,
            },
        }
    }

    /// Puts the connection together again with its socket, which has come back.
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

/// What is not inlined, so that clear text stays as quick as if there were no TLS.
impl TlsTransport {
    fn parts(&mut self) -> (&mut Tls, &Socket) {
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
    fn send(&mut self, chunk: Chunk) {
        let (tls, socket) = self.parts();
        tls.send(socket, &chunk);
        // Encrypted, it is somewhere else.
        drop(chunk);
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

    /// Beside this an idle connection over TLS has what rustls keeps of its own: keys and the
    /// secrets they come from.
    #[test]
    fn idle_connections_are_small() {
        assert!(size_of::<Transport>() <= 16 && size_of::<ParkedTransport>() <= 16);
        let bytes = size_of::<TlsTransport>();
        assert!(bytes <= 2048, "TLS on a socket takes {bytes} bytes");
    }
}
