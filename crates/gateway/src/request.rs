//! Life of a request: `enter · admit · route · pick · connect · send · relay · finish`.
//!
//! The phases are modules, and this is the one place that knows their order.

use std::rc::Rc;

use blitz_http::{
    BodyError, Connection, Exchange, Peer, PoolFuture, Pooled, Protocol, RequestHead, Responder,
    ResponseStream, Service, Upstream,
};

use crate::admit::{Refused, admit};
use crate::connect::{connect, pick};
use crate::core::{Core, Route};
use crate::counters::count;
use crate::entrance::turn;
use crate::finish::{finish, turn_away};
use crate::forward::{WebSocket, wanted_websocket};
use crate::proxy_status::Failure;
use crate::relay::{NoResponse, Upload, await_response, relay};
use crate::retry::{Replay, prepare_retry};
use crate::upstream::Tried;

/// Carries one request to its upstream and the answer back.
///
/// When the client goes away the future is dropped where it stands, and with it the connection to
/// the upstream: there is nothing to undo.
pub(crate) async fn life_of_a_request<F: Service>(core: Rc<Core<F>>, exchange: Exchange) {
    if let Some(turned) = turn(core.https_port, &exchange) {
        return turn_away(exchange, &turned);
    }
    let Some(route) = core.routes.find(exchange.request.path()) else {
        count(|counters| counters.unrouted += 1);
        return PoolFuture::new(core.fallback.call(exchange)).await;
    };
    count(|counters| counters.routed += 1);
    let mut request = Request::new(&core, route, exchange);
    let outcome = forward(&core, route, &mut request).await;
    finish(request, outcome);
}

async fn forward<F>(core: &Core<F>, route: &Route, request: &mut Request) -> Result<(), Ended> {
    admit(core, route, request)?;
    let response = loop {
        let connection = loop {
            pick(core, route, request).await?;
            match connect(route, request).await {
                Some(connection) => break connection,
                None => continue,
            }
        };
        let mut stream = send(request, connection);
        match await_response(core, request, &mut stream).await {
            Ok(response) => break response,
            Err(NoResponse::Client(error)) => return Err(Ended::Client(error)),
            Err(NoResponse::Upstream(error)) => prepare_retry(request, &error)?,
        }
    };
    relay(core, request, response).await
}

/// A request on its way to an upstream.
pub(crate) struct Request {
    pub(crate) head: Pooled<RequestHead>,
    pub(crate) upload: Upload,
    /// Gone once the answer has begun.
    pub(crate) responder: Option<Responder>,
    pub(crate) peer: Rc<Peer>,
    /// Whether it asks for a WebSocket that it may have.
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
    fn new<F>(core: &Core<F>, route: &Route, exchange: Exchange) -> Request {
        let Exchange {
            request: head,
            body,
            responder,
            peer,
        } = exchange;
        let may_upgrade = body.is_done()
            && responder.upgrade_requested()
            && route.target.protocol == Protocol::Http1;
        let websocket = wanted_websocket(&head).filter(|_| may_upgrade);
        let waits = !body.is_done() && responder.expects_continue();
        let hold = waits.then(|| blitz_http::sleep(core.options.continue_timeout));
        let replay = Replay::of(
            &head,
            body.length(),
            core.options.client.limits.replay_bytes_max,
            route.target.protocol,
        );
        Request {
            head,
            upload: Upload::new(body, replay, hold),
            responder: Some(responder),
            peer,
            websocket,
            tried: Tried::default(),
            upstream: None,
            connect_failure: None,
            retried: false,
        }
    }
}

/// The head leaves now, the body as it comes.
fn send(request: &mut Request, connection: Connection) -> ResponseStream {
    let (body, stream) = connection.request(&request.head, request.upload.length());
    if request.retried {
        request.upload.send_again_to(body);
    } else {
        request.upload.send_to(body);
    }
    stream
}
