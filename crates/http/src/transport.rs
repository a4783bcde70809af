//! What a connection sends and receives through: a socket, with TLS between or not.
//!
//! [`Transport`] has the operations of a [`Socket`], so that those who speak HTTP need not know
//! which it is. Clear text costs them one look at an empty place.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use blitz_reactor::{Chunk, Parked, Resume, Slice, Socket};

use crate::tls::{Tls, TlsError, TlsInfo};

/// A connection that bytes of a message go through. Dropping it closes at once.
pub(crate) struct Transport {
    socket: Socket,
    tls: Option<Box<Tls>>,
}

/// A transport whose socket is parked in the reactor: all that is left of an idle connection.
pub(crate) enum Resting {
    Plain(Parked),
    /// The session knows the socket's place, so that an entry in a table stays small.
    Tls(Box<Tls>),
}

impl Transport {
    #[inline(always)]
    pub(crate) fn plain(socket: Socket) -> Transport {
        Transport { socket, tls: None }
    }

    pub(crate) fn secure(socket: Socket, tls: Box<Tls>) -> Transport {
        Transport {
            socket,
            tls: Some(tls),
        }
    }

    /// The next received bytes; `None` after the end, from then on. An error stays, too.
    #[inline(always)]
    pub(crate) fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Slice>>> {
        match &mut self.tls {
            None => self.socket.poll_recv(cx),
            Some(tls) => tls.poll_recv(&self.socket, cx),
        }
    }

    /// Received bytes that wait to be taken, those of an incomplete record included.
    #[inline(always)]
    pub(crate) fn unread_bytes(&mut self) -> usize {
        match &mut self.tls {
            None => self.socket.unread_bytes(),
            Some(tls) => tls.unread_bytes(&self.socket),
        }
    }

    /// Queues bytes; all that is queued in a turn leaves together, at its end.
    #[inline(always)]
    pub(crate) fn send(&mut self, chunk: Chunk) {
        match &mut self.tls {
            None => self.socket.send(chunk),
            Some(tls) => tls.send(&self.socket, &chunk),
        }
    }

    /// Bytes queued that the kernel has not taken.
    #[inline(always)]
    pub(crate) fn queued(&self) -> usize {
        self.socket.queued()
    }

    /// Ready when at most `below` bytes are queued, or sending has failed.
    pub(crate) fn poll_send_room(
        &self,
        cx: &mut Context<'_>,
        below: usize,
    ) -> Poll<io::Result<()>> {
        self.socket.poll_send_room(cx, below)
    }

    /// When the kernel last took a byte, or the oldest queued byte was queued.
    pub(crate) fn send_progress(&self) -> Instant {
        self.socket.send_progress()
    }

    /// Most bytes that may be received and not yet taken; of TLS, bytes of records.
    pub(crate) fn set_window(&self, bytes: usize) {
        self.socket.set_window(bytes);
    }

    /// Ends our direction after what is queued.
    pub(crate) fn shutdown_write(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify(&self.socket);
        }
        self.socket.shutdown_write();
    }

    /// The polite end: what is queued, then the end of TLS and FIN, while input is discarded.
    #[inline(always)]
    pub(crate) fn finish(mut self) {
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify(&self.socket);
        }
        self.socket.finish();
    }

    /// Closes with RST, after what is queued.
    pub(crate) fn abort(self) {
        self.socket.abort();
    }

    /// The other end; `None` on a unix socket.
    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        self.socket.peer()
    }

    /// What was agreed upon in the handshake; `None` in clear text.
    #[inline(always)]
    pub(crate) fn info(&self) -> Option<&Rc<TlsInfo>> {
        self.tls.as_ref()?.info()
    }

    /// Whether the peer's end of input can be told from an attacker's who cut the connection: in
    /// clear text nobody can, in TLS the peer has said so (RFC 8446, section 6.1).
    pub(crate) fn is_truncated(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.is_truncated())
    }

    /// Whether TLS will receive nothing more, so that parking would wait in vain.
    #[inline(always)]
    pub(crate) fn has_ended(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.has_ended())
    }

    /// Whether nothing waits to be taken or to leave, and more may come (rule 11).
    pub(crate) fn is_untouched(&mut self) -> bool {
        self.unread_bytes() == 0 && self.queued() == 0 && !self.has_ended()
    }

    /// Why TLS failed, if it did.
    pub(crate) fn failure(&self) -> Option<TlsError> {
        self.tls.as_ref()?.failure()
    }

    /// The TLS session, if there is one.
    #[inline(always)]
    pub(crate) fn tls(&self) -> Option<&Tls> {
        self.tls.as_deref()
    }

    /// The TLS session and its socket, for those who carry on a handshake.
    pub(crate) fn secure_parts(&mut self) -> Option<(&mut Tls, &Socket)> {
        let tls = self.tls.as_deref_mut()?;
        Some((tls, &self.socket))
    }

    /// Puts TLS between, at the beginning of a connection.
    pub(crate) fn secure_with(&mut self, tls: Box<Tls>) {
        assert!(self.tls.is_none(), "one layer of TLS is enough");
        self.tls = Some(tls);
    }

    /// Leaves the socket to the reactor until something arrives or the time is over.
    #[inline(always)]
    pub(crate) fn park(self, resume: Rc<dyn Resume>, tag: u64, within: Duration) -> Resting {
        let parked = self.socket.park(resume, tag, within);
        match self.tls {
            None => Resting::Plain(parked),
            Some(mut tls) => {
                tls.parked = Some(parked);
                Resting::Tls(tls)
            }
        }
    }
}

impl Resting {
    /// Takes the socket back, if it is still parked and has nothing to say. The rest follows with
    /// [`Resting::wake`].
    pub(crate) fn unpark(&self) -> Option<Socket> {
        match self {
            Resting::Plain(parked) => parked.unpark(),
            Resting::Tls(tls) => tls.parked.and_then(Parked::unpark),
        }
    }

    /// Puts the connection together again with its socket, which has come back.
    pub(crate) fn wake(self, socket: Socket) -> Transport {
        match self {
            Resting::Plain(_) => Transport::plain(socket),
            Resting::Tls(tls) => Transport::secure(socket, tls),
        }
    }
}
