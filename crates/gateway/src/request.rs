//! Life of a request: `enter · route · admit · pick · connect · send · relay · finish`.
//!
//! The phases are modules, and this is the one place that knows their order.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use blitz_http::{
    BodyError, Connection, Exchange, Peer, PoolFuture, Pooled, RequestHead, Responder, Response,
    ResponseStream, Service, Upstream,
};

use crate::admit::{Refused, admit};
use crate::connect::{connect, pick};
use crate::core::{Core, Route};
use crate::counters::count;
use crate::entrance::turn;
use crate::finish::{finish, turn_away};
use crate::forward::{NoKey, WebSocket};
use crate::grpc::{self, Call, poll_deadline};
use crate::proxy_status::Failure;
use crate::relay::{NoResponse, Upload, await_response, relay};
use crate::retry::{Replay, may_be_sent_again, prepare_retry};
use crate::upstream::Tried;

/// Carries one request to its upstream and the answer back.
///
/// When the client goes away the future is dropped where it stands, and with it the connection to
/// the upstream: there is nothing to undo.
pub(crate) async fn life_of_a_request<F: Service>(core: Rc<Core<F>>, exchange: Exchange) {
    if let Some(turned) = turn(core.https_port, &core.options.trusted_proxies, &exchange) {
        return turn_away(exchange, &turned);
    }
    let Some(route) = core.routes.find(exchange.request.path()) else {
        count(|counters| counters.unrouted += 1);
        if let Some(call) = Call::of(&exchange.request) {
            return grpc::answer_unrouted(call, exchange);
        }
        return PoolFuture::new(core.fallback.call(exchange)).await;
    };
    count(|counters| counters.routed += 1);
    let mut request = Request::new(&core, exchange);
    let outcome = forward(&core, route, &mut request).await;
    finish(request, outcome);
}

async fn forward<F>(core: &Core<F>, route: &Route, request: &mut Request) -> Result<(), Ended> {
    admit(core, route, request)?;
    let mut deadline = request.call.and_then(Call::timer);
    let response = {
        let mut asking = pin!(ask(core, route, request));
        poll_fn(|cx| match asking.as_mut().poll(cx) {
            Poll::Pending => poll_deadline(&mut deadline, cx),
            answered => answered,
        })
        .await?
    };
    relay(core, request, response, deadline).await
}

/// Asks until there is an answer, or nobody left to ask.
async fn ask<F>(core: &Core<F>, route: &Route, request: &mut Request) -> Result<Response, Ended> {
    loop {
        let connection = loop {
            pick(core, route, request).await?;
            match connect(route, request).await? {
                Some(connection) => break connection,
                None => continue,
            }
        };
        let mut stream = send(core, request, connection)?;
        match await_response(core, request, &mut stream).await {
            Ok(response) => return Ok(response),
            Err(NoResponse::Client(ended)) => return Err(ended),
            Err(NoResponse::Upstream(error)) => prepare_retry(request, &error)?,
        }
    }
}

/// A request on its way to an upstream.
pub(crate) struct Request {
    pub(crate) head: Pooled<RequestHead>,
    pub(crate) upload: Upload,
    /// Gone once the answer has begun.
    pub(crate) responder: Option<Responder>,
    pub(crate) peer: Rc<Peer>,
    /// Set if it is a call of gRPC.
    pub(crate) call: Option<Call>,
    /// The WebSocket that it asks for and may have.
    pub(crate) websocket: Option<WebSocket>,
    pub(crate) tried: Tried,
    /// Where the current attempt goes.
    pub(crate) upstream: Option<Upstream>,
    /// What became of the last attempt to connect.
    pub(crate) connect_failure: Option<Failure>,
    /// Whether this is the second time that it is sent.
    pub(crate) retried: bool,
}

/// Why a request ended other than with a relayed response.
pub(crate) enum Ended {
    /// The gateway does not pass it on.
    Refused(Refused),
    /// No upstream answered it.
    Failed(Failure),
    /// Its own body failed.
    Client(BodyError),
    /// The answer had begun and could not be completed.
    CutOff,
}

impl Request {
    fn new<F>(core: &Core<F>, exchange: Exchange) -> Request {
        let Exchange {
            request: head,
            mut body,
            responder,
            peer,
        } = exchange;
        let call = Call::of(&head);
        if call.is_some_and(Call::streams) {
            body.disable_min_rate();
        }
        let may_upgrade = body.is_done() && responder.upgrade_requested();
        let websocket = match may_upgrade {
            true => WebSocket::wanted(&head),
            false => None,
        };
        let waits = !body.is_done() && responder.expects_continue();
        let hold = waits.then(|| blitz_http::sleep(core.options.continue_timeout));
        Request {
            head,
            upload: Upload::new(body, hold),
            responder: Some(responder),
            peer,
            call,
            websocket,
            tried: Tried::default(),
            upstream: None,
            connect_failure: None,
            retried: false,
        }
    }
}

/// The head leaves now, the body as it comes.
///
/// # Errors
/// It cannot be carried by that connection.
fn send<F>(
    core: &Core<F>,
    request: &mut Request,
    connection: Connection,
) -> Result<ResponseStream, Ended> {
    let protocol = connection.protocol();
    if let Some(call) = &mut request.call {
        call.prepare(
            &mut request.head,
            &mut request.upload,
            protocol,
            request.retried,
        )
        .map_err(Ended::Failed)?;
    }
    if let Some(websocket) = &mut request.websocket {
        let asked = websocket.ask(&mut request.head, protocol, blitz_http::random_u64);
        asked.map_err(|NoKey| Ended::Refused(Refused::WebSocketKey))?;
    }
    let length = request.upload.length();
    let (body, mut stream) = connection.request(&request.head, length);
    if request.retried {
        request.upload.send_again_to(body);
    } else {
        let bytes_max = core.options.client.limits.replay_bytes_max;
        let replay = Replay::of(&request.head, length, bytes_max, protocol);
        request.upload.send_to(body, replay);
    }
    if request.call.is_some() {
        stream.disable_min_rate();
    }
    if !may_be_sent_again(request, protocol) {
        request.head.reduce();
    }
    Ok(stream)
}
