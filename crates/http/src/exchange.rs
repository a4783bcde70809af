//! One request and the means to answer it.

use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll};

use blitz_proto::h2::StreamId;
use blitz_proto::{BodyLength, RequestHead, ResponseHead};
use blitz_reactor::Chunk;

use crate::body::{RecvBody, SendBody, Tunnel};
use crate::error::{Refusal, content_of};
use crate::problem::accepts_problem;
use crate::recycle::Pooled;
use crate::serve::ServeOptions;
use crate::tls::TlsInfo;
use crate::{h1, h2};

/// Answers requests. One value serves all connections of a core.
pub trait Service: 'static {
    /// Takes one exchange. The future is dropped when the client goes away or a deadline passes;
    /// what must survive that belongs into a task of its own.
    ///
    /// The exchange lasts until the future is done and the answer is complete, so the answer may
    /// be finished by another task. A future that ends without an answer under way makes it a 500.
    fn call(self: &Rc<Self>, exchange: Exchange) -> impl Future<Output = ()> + 'static;
}

/// A service made of a function.
#[must_use]
pub fn service_fn<F, Fut>(call: F) -> ServiceFn<F>
where
    F: Fn(Exchange) -> Fut + 'static,
    Fut: Future<Output = ()> + 'static,
{
    ServiceFn(call)
}

/// See [`service_fn`].
pub struct ServiceFn<F>(F);

impl<F, Fut> Service for ServiceFn<F>
where
    F: Fn(Exchange) -> Fut + 'static,
    Fut: Future<Output = ()> + 'static,
{
    fn call(self: &Rc<Self>, exchange: Exchange) -> impl Future<Output = ()> + 'static {
        (self.0)(exchange)
    }
}

/// A request as it is handed to a [`Service`].
pub struct Exchange {
    /// The head; its memory returns to the core's pool when dropped.
    pub request: Pooled<RequestHead>,
    /// The content, possibly still to come.
    pub body: RecvBody,
    /// What the answer is given to.
    pub responder: Responder,
    /// Who asks; the requests of a connection share it.
    pub peer: Rc<Peer>,
}

impl Exchange {
    /// Answers a request with 503 because the core holds too many large heads.
    #[cold]
    pub(crate) fn refuse_head(self, options: &ServeOptions) {
        let refusal = Refusal::heads_memory();
        let asked = &self.request.fields;
        let as_problem = accepts_problem(asked) == Some(true);
        let (mut head, content) = content_of(refusal, asked, as_problem, options);
        self.responder.send(&mut head, content);
    }
}

/// Who is at the other end of the connection that a request came in on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Address of the client; `None` on a unix socket.
    pub remote: Option<SocketAddr>,
    /// Address of the listener; its IP may be unspecified. `None` on a unix socket.
    pub listener: Option<SocketAddr>,
    /// Whether the connection is encrypted.
    pub scheme: Scheme,
    /// What the TLS handshake has established; `None` in clear text.
    pub tls: Option<Rc<TlsInfo>>,
}

/// How the request came to us.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scheme {
    /// In clear text.
    #[default]
    Http,
    /// Over TLS or QUIC.
    Https,
}

impl Scheme {
    /// `http` or `https`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Scheme::Http => "http",
            Scheme::Https => "https",
        }
    }
}

/// Takes the answer to one request; exactly one final response can be given.
///
/// Framing (`Content-Length`, `Transfer-Encoding`, `Connection`) is this layer's: such fields in a
/// head are ignored and the given length decides. `Date`, and `Server` if the options name one,
/// are added where missing. Dropping it without an answer makes the answer a 500.
pub struct Responder {
    target: Target,
}

enum Target {
    /// Answered.
    Spent,
    /// An HTTP/1 connection, in the exchange of this number.
    H1(Rc<h1::Wire>, u32),
    /// A stream of an HTTP/2 connection.
    H2(Rc<h2::Wire>, StreamId),
}

impl Responder {
    pub(crate) fn h1(wire: Rc<h1::Wire>, exchange: u32) -> Responder {
        Responder {
            target: Target::H1(wire, exchange),
        }
    }

    pub(crate) fn h2(wire: Rc<h2::Wire>, stream: StreamId) -> Responder {
        Responder {
            target: Target::H2(wire, stream),
        }
    }

    /// Sends an interim response: 100, 103 and their like, not 101. Clients of HTTP/1.0 do not
    /// get it (RFC 9110, section 15.2).
    pub fn informational(&mut self, head: &ResponseHead) {
        match &self.target {
            Target::H1(wire, exchange) => wire.send_informational(*exchange, head),
            Target::H2(wire, stream) => wire.send_informational(*stream, head),
            Target::Spent => {}
        }
    }

    /// Whether the client waits for `100 Continue` (RFC 9110, section 10.1.1). Reading the body
    /// sends it; a gateway rather passes on its upstream's.
    #[must_use]
    pub fn expects_continue(&self) -> bool {
        match &self.target {
            Target::H1(wire, exchange) => wire.expects_continue(*exchange),
            Target::H2(wire, stream) => wire.expects_continue(*stream),
            Target::Spent => false,
        }
    }

    /// Whether the request asks for a protocol that a [`Tunnel`] can carry (RFC 9110, section
    /// 7.8), so that [`Responder::upgrade`] may be called.
    #[must_use]
    pub fn upgrade_requested(&self) -> bool {
        match &self.target {
            Target::H1(wire, exchange) => wire.upgrade_requested(*exchange),
            Target::H2(wire, stream) => wire.upgrade_requested(*stream),
            Target::Spent => false,
        }
    }

    /// Sends the head of the answer; the content follows through the returned body. With
    /// [`BodyLength::Empty`] the answer is complete.
    ///
    /// # Panics
    /// If the status is informational: see [`Responder::informational`] and
    /// [`Responder::upgrade`].
    pub fn start(mut self, head: &mut ResponseHead, length: BodyLength) -> SendBody {
        assert!(
            !head.status.is_informational(),
            "a final response has a final status"
        );
        match self.spend() {
            Target::H1(wire, exchange) => h1::Wire::start_response(wire, exchange, head, length),
            Target::H2(wire, stream) => h2::Wire::start_response(wire, stream, head, length),
            Target::Spent => unreachable!("only answering spends it, and takes it away"),
        }
    }

    /// Sends a complete answer: the quickest way for content that is at hand.
    ///
    /// # Panics
    /// If the status is informational.
    pub fn send(mut self, head: &mut ResponseHead, content: impl Into<Chunk>) {
        assert!(
            !head.status.is_informational(),
            "a final response has a final status"
        );
        match self.spend() {
            Target::H1(wire, exchange) => wire.send_response(exchange, head, content.into()),
            Target::H2(wire, stream) => wire.send_response(stream, head, content.into()),
            Target::Spent => unreachable!("only answering spends it, and takes it away"),
        }
    }

    /// Sends 101 (or 2xx to CONNECT) and leaves HTTP. Bytes that the client sent meanwhile are the
    /// first that the tunnel yields.
    ///
    /// # Panics
    /// If the request did not ask for it: see [`Responder::upgrade_requested`].
    #[must_use]
    pub fn upgrade(mut self, head: &mut ResponseHead) -> Tunnel {
        match self.spend() {
            Target::H1(wire, exchange) => h1::Wire::start_tunnel(wire, exchange, head),
            Target::H2(wire, stream) => h2::Wire::start_tunnel(wire, stream, head),
            Target::Spent => unreachable!("only answering spends it, and takes it away"),
        }
    }

    /// Ends the exchange without an answer: the connection is reset.
    pub fn abort(mut self) {
        match self.spend() {
            Target::H1(wire, exchange) => wire.abort(exchange),
            Target::H2(wire, stream) => wire.abort(stream),
            Target::Spent => {}
        }
    }

    /// Resolves when the client went away or the exchange ended otherwise. The service's own
    /// future is dropped then; this is for tasks that work on its behalf.
    pub async fn closed(&self) {
        poll_fn(|cx| self.poll_closed(cx)).await;
    }

    /// [`Responder::closed`] for hand-written futures.
    pub fn poll_closed(&self, cx: &mut Context<'_>) -> Poll<()> {
        match &self.target {
            Target::H1(wire, exchange) => wire.poll_closed(*exchange, cx),
            Target::H2(wire, stream) => wire.poll_closed(*stream, cx),
            Target::Spent => Poll::Ready(()),
        }
    }

    fn spend(&mut self) -> Target {
        std::mem::replace(&mut self.target, Target::Spent)
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        match &self.target {
            Target::H1(wire, exchange) => wire.drop_responder(*exchange),
            Target::H2(wire, stream) => wire.drop_responder(*stream),
            Target::Spent => {}
        }
    }
}
