//! The service of a core: dispatches requests to handlers and sends their responses.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use blitz_http::{Chunk, Exchange, Name, PoolFuture, Responder, Status};

use crate::body::Body;
use crate::outcome::Outcome;
use crate::problem::{Problem, prefers_text};
use crate::request::Request;
use crate::response::{Content, Response};
use crate::site::{CoreSite, Site, dispatch};

/// A built app. It may be sent to any core, where [`on_core`](Service::on_core) makes the core's service.
#[derive(Clone)]
pub struct Service(pub(crate) Arc<Site>);

impl Service {
    /// Makes the service of the calling core; call it once per core.
    pub fn on_core(&self) -> Rc<CoreService> {
        Rc::new(CoreService {
            core: Rc::new(CoreSite::new(Arc::clone(&self.0))),
        })
    }
}

/// A built app on one core.
pub struct CoreService {
    core: Rc<CoreSite>,
}

impl blitz_http::Service for CoreService {
    fn call(self: &Rc<Self>, exchange: Exchange) -> impl Future<Output = ()> + 'static {
        let Exchange {
            request: head,
            body,
            responder,
            peer,
        } = exchange;
        let as_text = prefers_text(&head.fields);
        let (route, params) = self.core.site().find(&head);
        let core = Rc::clone(&self.core);
        let request = Request {
            head,
            params,
            route,
            body: Some(Body::new(body)),
            peer,
            core,
        };
        match caught(|| dispatch(request)) {
            Ok(Outcome::Ready(response)) => send(response, responder, as_text),
            Ok(Outcome::Later(handler)) => ResponseFuture::Awaited {
                handler,
                responder: Some(responder),
                as_text,
            },
            Err(response) => send(response, responder, as_text),
        }
    }
}

/// The future of a response; most are done before the first poll.
enum ResponseFuture {
    Done,
    Awaited {
        handler: PoolFuture<Response>,
        responder: Option<Responder>,
        as_text: bool,
    },
    Streaming(PoolFuture<()>),
}

impl Future for ResponseFuture {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        loop {
            match this {
                ResponseFuture::Done => return Poll::Ready(()),
                ResponseFuture::Awaited {
                    handler,
                    responder,
                    as_text,
                } => {
                    let response = match caught(|| Pin::new(handler).poll(cx)) {
                        Ok(polled) => ready!(polled),
                        Err(response) => response,
                    };
                    let Some(responder) = responder.take() else {
                        return Poll::Ready(());
                    };
                    let as_text = *as_text;
                    *this = send(response, responder, as_text);
                }
                ResponseFuture::Streaming(stream) => {
                    // After a panic the unfinished body is dropped, which aborts the response.
                    ready!(caught(|| Pin::new(stream).poll(cx)).unwrap_or(Poll::Ready(())));
                    *this = ResponseFuture::Done;
                }
            }
        }
    }
}

/// Sends a response; the content of a streamed one is sent by the returned future.
fn send(mut response: Response, responder: Responder, as_text: bool) -> ResponseFuture {
    if !response.is_complete() {
        let status = response.status();
        tracing::error!(%status, "a handler returned a redirect without a valid Location");
        response = Response::problem(Problem::new(Status::INTERNAL_SERVER_ERROR));
    }
    let (mut head, content) = response.into_parts();
    if head.status.is_informational() {
        tracing::error!(status = %head.status, "a handler returned an informational status");
        head.status = Status::INTERNAL_SERVER_ERROR;
    }
    match content {
        Content::Whole(chunk) => responder.send(&mut head, chunk),
        Content::Empty => responder.send(&mut head, Chunk::from("")),
        Content::Problem(problem) => {
            let (content_type, content) = problem.render(as_text);
            head.fields.set(Name::ContentType, content_type);
            responder.send(&mut head, content);
        }
        Content::Stream(stream) => {
            let body = responder.start(&mut head, stream.length);
            if !body.is_discarding() {
                return ResponseFuture::Streaming((stream.produce)(body));
            }
        }
    }
    ResponseFuture::Done
}

/// Runs code of the app. The panic hook logs a panic, and the response is a 500; the core continues.
fn caught<T>(run: impl FnOnce() -> T) -> Result<T, Response> {
    catch_unwind(AssertUnwindSafe(run))
        .map_err(|_| Response::problem(Problem::new(Status::INTERNAL_SERVER_ERROR)))
}
