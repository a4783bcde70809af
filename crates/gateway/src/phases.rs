//! The life of a request: its phases, in order.

mod admit;
mod connect;
mod finish;
mod policy;
mod preflight;
mod reconnect;
mod relay;
mod respond;
mod retry;
mod send;
mod tunnel;

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use blitz_http::{ClientError, Exchange, PoolFuture, Response, Service};

use crate::grpc::{Call, poll_deadline};
use crate::record::{self, Ended};
use crate::rejection::Rejection;
use crate::request::Request;
use crate::service::GatewayService;
use crate::sites::SiteRoutes;
use crate::snapshot::Route;
use admit::admit;
use connect::{connect, pick};
use finish::{finish, reject, respond_unrouted};
use policy::{request_policy, response_policy};
use preflight::preflight;
use relay::relay;
use respond::{NoResponse, await_response};
use retry::prepare_retry;
use send::send;

impl<S: Service> Service for GatewayService<S> {
    fn call(self: &Rc<Self>, exchange: Exchange) -> impl Future<Output = ()> + 'static {
        life_of_a_request(Rc::clone(self), exchange)
    }
}

/// Carries one request to its upstream and the response back.
///
/// When the client leaves, the future is dropped, and with it the connection to the upstream. The
/// record is emitted in any case.
async fn life_of_a_request<S: Service>(gateway: Rc<GatewayService<S>>, mut exchange: Exchange) {
    let sites = gateway.sites();
    let routed = match preflight(&gateway, &sites, &mut exchange) {
        Ok(site) => route(site, &exchange),
        Err(rejection) => Err(rejection),
    };
    let routed = match routed {
        Ok(routed) => routed,
        Err(rejection) => return reject(&gateway, exchange, rejection),
    };
    let Some(route) = routed else {
        record::emit_unrouted(&gateway.observers, &exchange);
        if let Some(call) = Call::of(&exchange.request) {
            return respond_unrouted(&call, exchange);
        }
        return PoolFuture::new(gateway.fallback.call(exchange)).await;
    };
    let mut request = Request::new(&gateway, route, exchange);
    let mut deadline = request.kind.deadline();
    // The phases are not a future of their own, because it would be copied here.
    let admitted = admit(&gateway, route, &mut request)
        .and_then(|()| request_policy(&gateway, route, &mut request));
    let responded = match admitted {
        Ok(()) => {
            let mut attempts = pin!(attempt(&gateway, route, &mut request));
            poll_fn(|cx| match attempts.as_mut().poll(cx) {
                Poll::Pending => poll_deadline(&mut deadline, cx),
                ended => ended,
            })
            .await
        }
        Err(ended) => Err(ended),
    };
    let outcome =
        match responded.and_then(|response| response_policy(&gateway, &mut request, response)) {
            Ok(response) => {
                let half_close_timeout = gateway.options.limits.tunnel_half_close_timeout;
                relay(&mut request, response, deadline, half_close_timeout).await
            }
            Err(ended) => Err(ended),
        };
    finish(request, outcome);
}

/// The route of the site that matches; `None` is the fallback.
#[inline]
fn route<'a>(
    site: &'a SiteRoutes<Route>,
    exchange: &Exchange,
) -> Result<Option<&'a Route>, Rejection> {
    let head = &exchange.request;
    match (site.routes).find(head.path(), head.method, head.method_str()) {
        None if !site.has_fallback => Err(Rejection::UnknownPath),
        route => Ok(route),
    }
}

/// Sends the request until there is a final response, or nowhere left to send it.
async fn attempt<S>(
    gateway: &GatewayService<S>,
    route: &Route,
    request: &mut Request<'_>,
) -> Result<Response, Ended> {
    route.balancer.retries.note_request(request.record.started);
    loop {
        pick(gateway, route, request).await?;
        let Some(connection) = connect(route, request).await? else {
            continue;
        };
        let mut stream = send(gateway, route, request, connection)?;
        match await_response(gateway, request, &mut stream).await {
            Ok(response) => return Ok(response),
            Err(NoResponse::Client(ended)) => return Err(ended),
            Err(NoResponse::Upstream(error)) => {
                if matches!(error, ClientError::Reset { .. }) {
                    route.balancer.without_response(blitz_http::now());
                }
                prepare_retry(gateway, route, request, &error)?;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use blitz_http::ServiceFn;

    use super::*;

    fn size_of_output<A, B, Fut>(_: impl FnOnce(A, B) -> Fut) -> usize {
        size_of::<Fut>()
    }

    /// Each request of a core has one, so they count where many requests wait.
    #[test]
    fn the_future_of_a_request_is_small() {
        type Immediate = ServiceFn<fn(Exchange) -> std::future::Ready<()>>;
        let future = size_of_output(life_of_a_request::<Immediate>);
        assert!(future <= 2080, "it takes {future} bytes");
    }
}
