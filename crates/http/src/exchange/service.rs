//! One request and the means to respond to it.

use std::future::Future;
use std::rc::Rc;

use blitz_proto::RequestHead;

use super::peer::Peer;
use super::recv_body::RecvBody;
use super::refusal::LoggedRefusal;
use super::responder::Responder;
use crate::error::{Refusal, refusal_response};
use crate::options::ServeOptions;
use crate::problem::accepts_problem;
use crate::recycle::Pooled;
use crate::refused::{Refused, RefusedRequest, tell};

/// Responds to requests. One value serves all connections of a core.
pub trait Service: 'static {
    /// Takes one exchange. The future is dropped when the client goes away or a deadline passes;
    /// what must survive that belongs into a task of its own.
    ///
    /// The exchange lasts until the future is done and the response is complete, so another task may
    /// finish the response. A future that ends before its response has begun makes it a 500.
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
    /// Responds to a request with 503 because the core holds too many large heads.
    #[cold]
    pub(crate) fn refuse_head(self, options: &ServeOptions) {
        let refusal = Refusal::heads_memory();
        let asked = &self.request.fields;
        let as_problem = accepts_problem(asked) == Some(true);
        let (mut head, content) = refusal_response(refusal, asked, as_problem, options);
        let logged = LoggedRefusal {
            request: Some(&self.request),
            is_whole: true,
            response: Some(&head),
            version: self.request.version,
            peer: self.peer.remote,
        };
        logged.log(refusal, options);
        tell(options, || {
            Refused::Request(RefusedRequest {
                head: Some(&self.request),
                refusal,
                status: Some(head.status),
                content_bytes: content.len(),
                version: self.request.version,
                peer: &self.peer,
            })
        });
        self.responder.send(&mut head, content);
    }
}
