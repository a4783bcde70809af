//! The service of a core: dispatches requests to handlers and sends their responses.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use blitz_http::{
    Chunk, LogLimit, Name, Peer, PoolFuture, Pooled, PooledFuture, RequestHead, Scheme, Status,
};
use blitz_site::compress::Compressing;
use blitz_site::{
    AppClient, AppParts, ClientAddress, Edit, Ended, Endpoint, Exchange, FieldChange, Notes,
    PolicyRequest, PolicyResponse, Rejection, Responder, SentContent, apply_to_request,
};

use crate::body::Body;
use crate::identity::{Identity, Proved};
use crate::middleware::ensure_request_id;
use crate::outcome::Outcome;
use crate::policy::RoutePolicies;
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

/// An app without a site.
impl blitz_http::Service for CoreService {
    fn call(self: &Rc<Self>, exchange: blitz_http::Exchange) -> impl Future<Output = ()> + 'static {
        self.respond(Exchange {
            request: exchange.request,
            body: exchange.body,
            responder: Responder::unrecorded(exchange.responder),
            peer: exchange.peer,
            client: None,
            received: None,
        })
    }
}

impl Endpoint for CoreService {
    fn call<'a>(self: Rc<Self>, exchange: Exchange<'a>) -> Option<PooledFuture<'a, ()>> {
        match self.respond(exchange) {
            ResponseFuture::Done => None,
            rest => Some(PooledFuture::new(rest)),
        }
    }
}

impl CoreService {
    fn respond<'a>(&self, exchange: Exchange<'a>) -> ResponseFuture<'a> {
        let Exchange {
            request: head,
            body,
            responder,
            peer,
            client,
            received,
        } = exchange;
        let as_text = prefers_text(&head.fields);
        let (route, params) = self.core.site.find(&head);
        let core = Rc::clone(&self.core.data);
        let request = Request {
            head,
            params,
            route,
            body: Some(Body::new(body, received)),
            peer,
            core,
            identity: Identity::default(),
        };
        if self.core.site.policies(route).is_some() {
            let guarded = Guarded {
                request,
                responder,
                client,
                as_text,
            };
            let guarded = guard(Rc::clone(&self.core), guarded);
            return ResponseFuture::Rest(PooledFuture::new(guarded));
        }
        respond(&self.core, request, responder, as_text)
    }
}

/// Calls the handler, and sends its response.
#[inline(always)]
fn respond<'a>(
    core: &Rc<CoreSite>,
    request: Request,
    responder: Responder<'a>,
    as_text: bool,
) -> ResponseFuture<'a> {
    match caught(|| dispatch(core, request)) {
        Ok(Outcome::Ready(response)) => send(response, responder, as_text),
        Ok(Outcome::Later(handler)) => ResponseFuture::Awaited {
            handler,
            responder: Some(responder),
            as_text,
        },
        Err(response) => send(response, responder, as_text),
    }
}

/// A request that policies decide on.
struct Guarded<'a> {
    request: Request,
    responder: Responder<'a>,
    /// `None` is the peer.
    client: Option<&'a AppClient>,
    as_text: bool,
}

/// Lets the policies of the route decide, then calls the handler or rejects the request.
async fn guard(core: Rc<CoreSite>, guarded: Guarded<'_>) {
    let Guarded {
        mut request,
        responder,
        client,
        as_text,
    } = guarded;
    let Some(route) = core.site.policies(request.route) else {
        return;
    };
    let mut notes = Notes::default();
    let client = client.copied().unwrap_or_else(|| client_of(&request.peer));
    if let Some(headers) = route.policies.security_headers() {
        let is_secure = client.is_secure;
        notes.edit_response(headers.edits(is_secure));
    }
    let decided = decide(&core, route, &mut request, client.address, &mut notes).await;
    if !route.response_edits.is_empty() {
        notes.edit_response(&route.response_edits[..]);
    }
    let response = notes.response.take();
    if route.sets_request_id {
        let id = ensure_request_id(&mut request);
        notes.edit_response(vec![Edit {
            name: "x-request-id".into(),
            change: FieldChange::Set(vec![id]),
        }]);
    }
    let head = &mut request.head;
    let compression = route.compression.as_deref();
    let compressing = compression
        .map(|compression| Compressing::of(compression, &head.fields, head.method, head.version));
    if decided.is_ok() && route.tells_identity {
        request.identity = identity(route, head, &notes);
    }
    notes.identify(&mut head.fields);
    if !route.request_edits.is_empty() {
        apply_to_request(&route.request_edits, &mut head.fields);
    }
    let parts = AppParts {
        edits: &notes.response_edits,
        pages: responder.pages(),
    };
    let mut responder = responder
        .compressing(compressing.as_ref())
        .with_app_parts(Some(&parts));
    if let Err(rejection) = decided {
        if rejection == Rejection::PolicyPanicked {
            log_panic(request.route());
        }
        return match response {
            Some(response) => {
                let PolicyResponse { mut head, content } = *response;
                responder.send_rejected(rejection, &mut head, content);
            }
            None => reject(rejection, responder, as_text),
        };
    }
    if let Some(hints) = notes.early_hints {
        responder.early_hints(hints);
    }
    respond_guarded(&core, request, responder, as_text).await;
}

/// As [`respond`], so that requests without policies have it without a call.
#[inline(never)]
fn respond_guarded<'a>(
    core: &Rc<CoreSite>,
    request: Request,
    responder: Responder<'a>,
    as_text: bool,
) -> ResponseFuture<'a> {
    respond(core, request, responder, as_text)
}

/// The client of a connection.
fn client_of(peer: &Peer) -> AppClient {
    let remote = peer.remote.map(|remote| remote.ip());
    AppClient {
        address: remote.map_or(ClientAddress::Unix, ClientAddress::Address),
        is_secure: peer.scheme == Scheme::Https,
    }
}

/// The order of the decisions is that of the gateway.
async fn decide<'p>(
    core: &CoreSite,
    route: &'p RoutePolicies,
    request: &mut Request,
    client: ClientAddress,
    notes: &mut Notes<'p>,
) -> Result<(), Rejection> {
    if !route.access.admits(client) {
        return Err(Rejection::Forbidden);
    }
    let asked = PolicyRequest {
        head: &request.head,
        client,
        certificate: request.peer.handshake_certificate(),
        clock: Some(blitz_http::wall_clock),
        limits: core.limits.as_ref(),
        authorizer: None,
    };
    route.policies.decide(&asked, notes)?;
    if notes.is_suspended() {
        notes.wait(&asked).await?;
    }
    match (route.body_bytes_max, &mut request.body) {
        (Some(bytes_max), Some(body)) => body.limit(bytes_max),
        _ => Ok(()),
    }
}

/// The identity of the client, whose proofs were checked.
fn identity(route: &RoutePolicies, head: &RequestHead, notes: &Notes<'_>) -> Identity {
    let proved = Proved {
        token: notes.token().cloned(),
        user: route.policies.user(head),
        key: notes.key().map(str::to_owned),
    };
    let is_known = proved.token.is_some() || proved.user.is_some() || proved.key.is_some();
    Identity(is_known.then(|| Rc::new(proved)))
}

/// Logs that a policy of this route has panicked, so often at most as the limit says.
#[cold]
fn log_panic(route: &str) {
    static LIMIT: LogLimit = LogLimit::new();
    if let Some(omitted) = LIMIT.allow(Rejection::PolicyPanicked.rule(), "", blitz_http::now()) {
        tracing::error!(route, omitted, "a policy has panicked");
    }
}

/// Responds in place of the handler.
fn reject(rejection: Rejection, responder: Responder<'_>, as_text: bool) {
    let mut head = Pooled::response(rejection.status());
    if head.status.forbids_content() {
        return responder.send_rejected(rejection, &mut head, Chunk::from(""));
    }
    let (content_type, content) = match responder.page(head.status) {
        Some(page) => (page.content_type, Chunk::from(page.content.clone())),
        None => {
            let problem = Problem::new(head.status).detail(rejection.detail());
            let (content_type, content) = problem.render(as_text);
            (content_type, Chunk::from(content))
        }
    };
    head.fields.set(Name::ContentType, content_type);
    responder.send_rejected(rejection, &mut head, content);
}

/// The future of a response; most are done before the first poll.
enum ResponseFuture<'a> {
    Done,
    Rest(PooledFuture<'a, ()>),
    Awaited {
        handler: PoolFuture<Response>,
        responder: Option<Responder<'a>>,
        as_text: bool,
    },
    Streaming {
        stream: PoolFuture<Ended>,
        sent: Option<SentContent<'a>>,
    },
}

impl Future for ResponseFuture<'_> {
    type Output = ();

    #[inline(always)]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        loop {
            match this {
                ResponseFuture::Done => return Poll::Ready(()),
                ResponseFuture::Rest(rest) => {
                    ready!(Pin::new(rest).poll(cx));
                    *this = ResponseFuture::Done;
                }
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
                ResponseFuture::Streaming { stream, sent } => {
                    // After a panic the unfinished body is dropped, which aborts the response.
                    let polled = caught(|| Pin::new(stream).poll(cx));
                    let ended = ready!(polled.unwrap_or(Poll::Ready(Ended::Aborted)));
                    if let Some(sent) = sent.take() {
                        sent.end(ended);
                    }
                    *this = ResponseFuture::Done;
                }
            }
        }
    }
}

/// Sends a response; the content of a streamed one is sent by the returned future.
fn send<'a>(mut response: Response, responder: Responder<'a>, as_text: bool) -> ResponseFuture<'a> {
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
        Content::Whole(chunk) => {
            if let Some(rest) = responder.send_long(&mut head, chunk) {
                return ResponseFuture::Rest(rest);
            }
        }
        Content::Empty => responder.send(&mut head, Chunk::from("")),
        Content::Problem(problem) => {
            let page = problem
                .is_bare()
                .then(|| responder.page(head.status))
                .flatten();
            let (content_type, content) = match page {
                Some(page) => (page.content_type, Chunk::from(page.content.clone())),
                None => {
                    let (content_type, content) = problem.render(as_text);
                    (content_type, Chunk::from(content))
                }
            };
            head.fields.set(Name::ContentType, content_type);
            responder.send(&mut head, content);
        }
        Content::File(file) => {
            if let Some(rest) = file.send(responder, head) {
                return ResponseFuture::Rest(rest);
            }
        }
        Content::Stream(stream) => {
            let Some((body, sent)) = responder.start_content(&mut head, stream.length) else {
                return ResponseFuture::Done;
            };
            if body.is_discarding() {
                sent.end(Ended::Complete);
            } else {
                let stream = (stream.produce)(body);
                let sent = Some(sent);
                return ResponseFuture::Streaming { stream, sent };
            }
        }
    }
    ResponseFuture::Done
}

/// Runs code of the app. The panic hook logs a panic, and the response is a 500; the core continues.
#[inline(always)]
fn caught<T>(run: impl FnOnce() -> T) -> Result<T, Response> {
    catch_unwind(AssertUnwindSafe(run))
        .map_err(|_| Response::problem(Problem::new(Status::INTERNAL_SERVER_ERROR)))
}
