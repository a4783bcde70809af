//! The life of a request: its phases, in order.

mod admit;
mod answer;
mod authorize;
mod balance;
mod buffer;
mod connect;
mod deadline;
mod decompress;
mod endpoint;
mod file_first;
mod files;
mod finish;
mod hedge;
mod mirror;
mod policy;
mod preflight;
mod reconnect;
mod refused;
mod relay;
mod replace;
mod respond;
mod retry;
mod route;
mod send;
mod shed;
mod tunnel;
mod wait;

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use blitz_http::{ClientError, Exchange, PooledFuture, Service};
use blitz_site::{Ended, Endpoint};

use crate::request::Request;
use crate::route::{Action, Forward, ForwardRoute, Route};
use crate::service::GatewayService;
use crate::sites::SiteRoutes;
use crate::snapshot::CoreSnapshot;
use crate::upstream::Pick;
use admit::admit;
use answer::respond_answer;
use balance::{choice_of, next_address};
use buffer::buffer;
use connect::{connect, pick, take_ready};
use deadline::Deadline;
use endpoint::{pass_to_endpoint, pass_to_fallback};
use files::respond_file;
use finish::{finish, reject};
use hedge::{await_hedged, hedge_after};
use policy::{prepare, response_policy};
use preflight::preflight;
use relay::{relay, relay_whole};
use replace::replace_error;
use respond::{NoResponse, await_response};
use retry::{has_retried_status, prepare_retry, retry_response};
use route::{Rejected, Routed, route};
use send::{adapt, send};
use shed::{keep_permit, want_permit};
use wait::wait;

pub(crate) use admit::check_method;
pub(crate) use preflight::check_encryption;

impl<E: Endpoint> Service for GatewayService<E> {
    fn call(self: &Rc<Self>, exchange: Exchange) -> impl Future<Output = ()> + 'static {
        life_of_a_request(Rc::clone(self), exchange)
    }
}

/// Carries one request to its upstream and the response back.
///
/// When the client leaves, the future is dropped, and with it the connection to the upstream. The
/// record is emitted in any case.
#[expect(
    clippy::manual_async_fn,
    reason = "it would copy its arguments once more"
)]
fn life_of_a_request<E: Endpoint>(
    gateway: Rc<GatewayService<E>>,
    mut exchange: Exchange,
) -> impl Future<Output = ()> {
    async move {
        let snapshot = gateway.snapshot();
        let observers = snapshot.observers();
        // A block, so that its variables take no room in what follows.
        let (site, Routed { route, notes }) = {
            let (site, mut routed) = match find_route(&gateway, &snapshot, &mut exchange) {
                Ok(routed) => routed,
                Err(rejected) => return reject(&gateway, observers, exchange, rejected),
            };
            if routed.waits() {
                match wait(&gateway, &snapshot, site, &mut routed, exchange).await {
                    Some(waited) => exchange = waited,
                    None => return,
                }
            }
            (site, routed)
        };
        let Some(route) = route else {
            return pass_to_fallback(&gateway, observers, site, exchange).await;
        };
        let forward = match &route.action {
            Action::Forward(forward) => forward,
            Action::Answer(answer) => {
                let route = (route, answer, notes);
                return rest_of(respond_answer(&gateway, observers, site, route, exchange)).await;
            }
            Action::Files(files) => {
                let route = (route, files, notes);
                let answer = || respond_file(&gateway, observers, site, route, exchange);
                return PooledFuture::with(answer).await;
            }
            Action::Endpoint(maker) => {
                let route = (route, maker, notes);
                return pass_to_endpoint(&gateway, observers, site, route, exchange).await;
            }
        };
        let route = &forward_route(&gateway, &snapshot, route, forward);
        let mut request = Request::new(&gateway, observers, site, route, exchange, notes);
        request.choice = choice_of(&gateway, &snapshot, forward, &request);
        let mut deadline = Deadline::of(&request);
        // The phases are not a future of their own, because it would be copied here.
        let mut admitted = admit(&gateway, route, &mut request);
        if let (Ok(()), Some(max)) = (&admitted, forward.buffer) {
            admitted = buffer(&mut request, max).await;
        }
        let prepared = admitted.and_then(|()| prepare(&gateway, &snapshot, route, &mut request));
        let responded = match prepared {
            Ok(()) => {
                let mut attempts = pin!(attempt(&gateway, route, &mut request));
                poll_fn(|cx| match attempts.as_mut().poll(cx) {
                    Poll::Pending => deadline.poll(cx),
                    ended => ended,
                })
                .await
            }
            Err(ended) => Err(ended),
        };
        let outcome = match responded.and_then(|()| response_policy(&gateway, route, &mut request))
        {
            Ok(()) if replace_error(&mut request) || relay_whole(&mut request) => Ok(()),
            Ok(()) => relay(&gateway.options.limits, &mut request, deadline.after_head()).await,
            Err(ended) => Err(ended),
        };
        finish(&mut request, outcome);
    }
}

/// The site and the route that take the request.
#[inline]
fn find_route<'a, E>(
    gateway: &GatewayService<E>,
    snapshot: &'a CoreSnapshot,
    exchange: &mut Exchange,
) -> Result<(&'a SiteRoutes, Routed<'a>), Rejected<'a>> {
    let found = snapshot
        .sites()
        .find(&exchange.request, exchange.peer.listener);
    let site = preflight(gateway, found, exchange)
        .map_err(|rejection| Rejected::unrouted(rejection, found))?;
    Ok((site, route(gateway, snapshot, site, exchange)?))
}

#[inline(always)]
fn forward_route<'a, E>(
    gateway: &'a GatewayService<E>,
    snapshot: &'a CoreSnapshot,
    route: &'a Route,
    forward: &'a Forward,
) -> ForwardRoute<'a> {
    let balancer = snapshot.balancer(forward.upstream, &gateway.upstreams);
    ForwardRoute::new(route, forward, balancer)
}

async fn rest_of(rest: Option<PooledFuture<'_, ()>>) {
    if let Some(rest) = rest {
        rest.await;
    }
}

/// Sends the request until it has a final response, or nowhere left to send it.
async fn attempt<'a, E>(
    gateway: &GatewayService<E>,
    route: &ForwardRoute<'a>,
    request: &mut Request<'a>,
) -> Result<(), Ended> {
    request.retries(route).note_request(request.record.started);
    request.record.note_contact(&request.head);
    loop {
        match next_address(route, request) {
            Pick::Upstream(upstream) => request.go_to(upstream),
            none => pick(gateway, route, request, none).await?,
        }
        if let Some(waits) = want_permit(route, request)? {
            keep_permit(route, request, waits.await)?;
        }
        let connection = match take_ready(route, request) {
            Some(connection) => connection,
            None => match connect(gateway, route, request).await? {
                Some(connection) => connection,
                None => continue,
            },
        };
        adapt(request, &connection)?;
        let responded = {
            let mut stream = send(gateway, route, request, connection);
            match hedge_after(route, request) {
                None => await_response(gateway, request, &mut stream).await,
                Some(after) => {
                    PooledFuture::new(await_hedged(gateway, route, request, stream, after)).await
                }
            }
        };
        match responded {
            Ok(()) if !has_retried_status(request) => return Ok(()),
            Ok(()) => {
                let is_given_up = PooledFuture::new(retry_response(gateway, route, request));
                if !is_given_up.await {
                    return Ok(());
                }
            }
            Err(NoResponse::Client(ended)) => return Err(ended),
            Err(NoResponse::Upstream(error)) => {
                note_unanswered(route, request, &error);
                if matches!(error, ClientError::Reset { .. }) {
                    route.balancer().without_response(blitz_http::now());
                }
                prepare_retry(gateway, route, request, &error)?;
            }
        }
    }
}

/// Tells the balancer that no response came.
#[cold]
fn note_unanswered(route: &ForwardRoute<'_>, request: &Request<'_>, error: &ClientError) {
    let record = &request.record;
    let (Some(upstream), now) = (&record.upstream, blitz_http::now()) else {
        return;
    };
    let since = record.connected.unwrap_or(record.started);
    let time = now.saturating_duration_since(since);
    route
        .balancer()
        .unanswered(upstream, time, !error.is_unprocessed(), now);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size_of_output<A, B, Fut>(_: impl FnOnce(A, B) -> Fut) -> usize {
        size_of::<Fut>()
    }

    /// Each request of a core has one, so they count where many requests wait. The memory of futures comes in steps of
    /// 128 bytes.
    #[test]
    fn the_future_of_a_request_is_small() {
        let future = size_of_output(life_of_a_request::<blitz::CoreService>);
        assert!(future <= 17 * 128, "it takes {future} bytes");
    }
}
