//! One request and the means to answer it.

use std::future::Future;
use std::net::SocketAddr;
use std::rc::Rc;

use blitz_proto::RequestHead;

use super::recv_body::RecvBody;
use super::responder::Responder;
use crate::error::{Refusal, refusal_response};
use crate::problem::accepts_problem;
use crate::recycle::Pooled;
use crate::serve::ServeOptions;
use crate::tls::TlsInfo;

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
    /// Takes the response.
    pub responder: Responder,
    /// The client; the requests of a connection share it.
    pub peer: Rc<Peer>,
}

impl Exchange {
    /// Answers a request with 503 because the core holds too many large heads.
    #[cold]
    pub(crate) fn refuse_head(self, options: &ServeOptions) {
        let refusal = Refusal::heads_memory();
        let asked = &self.request.fields;
        let as_problem = accepts_problem(asked) == Some(true);
        let (mut head, content) = refusal_response(refusal, asked, as_problem, options);
        self.responder.send(&mut head, content);
    }
}

/// The client of the connection that a request was received on.
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
