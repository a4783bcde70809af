//! Phase `hedge`: a request whose response head takes long is sent a second time, to another server. The first head wins,
//! and the other attempt is cancelled.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use blitz_config::TimeLimit;
use blitz_http::{
    BodyLength, ClientError, Pooled, RequestHead, RequestOptions, Response, ResponseEvent,
    ResponseHead, ResponseStream, Upstream,
};
use blitz_site::{Failure, Responder, count};

use super::connect::{note_failure, upstream_for};
use super::policy::edit_response;
use super::respond::{NoResponse, await_response};
use super::retry::is_within_budget;
use crate::request::Request;
use crate::request_kind::RequestKind;
use crate::route::ForwardRoute;
use crate::service::GatewayService;
use crate::target::Target;
use crate::upstream::{Balancer, Choice, Pick, Processed, Tried};

/// After which time the request is sent a second time; `None` if it never is.
#[inline]
pub(super) fn hedge_after(route: &ForwardRoute<'_>, request: &Request<'_>) -> Option<Duration> {
    let choice = request.choice.as_ref()?;
    match choice.group().hedges {
        true => time_of(route, request, choice),
        false => None,
    }
}

#[inline(never)]
fn time_of(
    route: &ForwardRoute<'_>,
    request: &Request<'_>,
    choice: &Choice<'_>,
) -> Option<Duration> {
    let TimeLimit::After(after) = choice.settings()?.hedge.as_ref()?.value else {
        return None;
    };
    let is_alone = matches!(request.kind, RequestKind::Plain)
        && matches!(request.upload.length(), BodyLength::Empty);
    let is_left = request.repeats.perhaps_processed < route.forward.retries;
    (is_alone && is_left && request.head.is_idempotent()).then_some(after)
}

/// The second attempt of a request.
struct Hedge<'a> {
    /// At the server of this attempt.
    choice: Box<Choice<'a>>,
    tried: Tried,
    target: &'a Target,
    balancer: &'a Rc<Balancer>,
    upstream: Upstream,
}

/// The attempt with the first response head.
enum Winner {
    First(Response),
    /// With the time when it had a connection.
    Second(Response, Instant),
    /// Neither has one.
    None(ClientError),
}

/// As [`await_response`], with a second attempt if there is none after this time.
pub(super) async fn await_hedged<'a, E>(
    gateway: &GatewayService<E>,
    route: &ForwardRoute<'a>,
    request: &mut Request<'a>,
    mut first: ResponseStream,
    after: Duration,
) -> Result<(), NoResponse> {
    let early = {
        let mut timer = blitz_http::sleep(after);
        let mut awaited = pin!(await_response(gateway, request, &mut first));
        poll_fn(|cx| match awaited.as_mut().poll(cx) {
            Poll::Ready(responded) => Poll::Ready(Some(responded)),
            Poll::Pending => Pin::new(&mut timer).poll(cx).map(|()| None),
        })
        .await
    };
    if let Some(responded) = early {
        return responded;
    }
    let Some(hedge) = begin(route, request) else {
        return await_response(gateway, request, &mut first).await;
    };
    request.repeats.perhaps_processed += 1;
    request.record.note_retry("hedge");
    count(|counters| counters.hedges += 1);
    let has_sent = Cell::new(false);
    let winner = race(gateway, route, request, first, &hedge, &has_sent).await;
    request.record.attempts += u8::from(has_sent.get());
    match winner {
        Winner::First(response) => request.response = Some(response),
        Winner::Second(response, connected) => {
            count(|counters| counters.hedges_won += 1);
            go_over(route, request, hedge, connected);
            request.response = Some(response);
        }
        Winner::None(error) => {
            if let Some(choice) = &mut request.choice {
                choice.note_tried(&hedge.choice);
            }
            return Err(NoResponse::Upstream(error));
        }
    }
    Ok(())
}

/// Chooses another server, if there is one, and the budget has a retry left.
fn begin<'a>(route: &ForwardRoute<'a>, request: &Request<'a>) -> Option<Hedge<'a>> {
    let may_go = request.has_other(route) && is_within_budget(route, request, Processed::Perhaps);
    let mut choice = request.choice.as_ref().filter(|_| may_go)?.another();
    let mut tried = Tried::default();
    let Pick::Upstream(upstream) = choice.pick(&mut tried, blitz_http::now()) else {
        return None;
    };
    let (target, balancer) = choice.server()?;
    Some(Hedge {
        upstream: request.with_header(upstream),
        choice,
        tried,
        target,
        balancer,
    })
}

/// Awaits the response of both attempts. The one that is dropped here is cancelled: its connection is closed, or its stream
/// reset.
async fn race<'a, E>(
    gateway: &GatewayService<E>,
    route: &ForwardRoute<'a>,
    request: &mut Request<'a>,
    first: ResponseStream,
    hedge: &Hedge<'a>,
    has_sent: &Cell<bool>,
) -> Winner {
    let group = route.forward.group.as_ref();
    let own_head = group.is_some_and(|group| group.sends_own_host).then(|| {
        let mut head = RequestHead::clone(&request.head);
        head.set_authority(&hedge.target.authority);
        head
    });
    let options = request.rules.map(|rules| rules.timeouts);
    let upstream = request.record.upstream.clone();
    let began = blitz_http::now();
    let sent_first = request.record.connected.unwrap_or(request.record.started);
    let Request {
        head,
        responder,
        repeats,
        ..
    } = request;
    let head = own_head.as_ref().unwrap_or(head);
    let mut second = pin!(send(hedge, head, options, has_sent));
    let (mut first, mut is_second_over) = (Some(first), false);
    let mut failed = None;
    let winner = poll_fn(|cx| {
        if let Some(stream) = &mut first {
            let interim = |mut head: Pooled<ResponseHead>| {
                repeats.has_interim = true;
                edit_response(gateway, &mut head);
                if let Some(responder) = responder {
                    Responder::informational(responder, &head);
                }
            };
            match poll_final(stream, interim, cx) {
                Poll::Ready(Ok(response)) => return Poll::Ready(Winner::First(response)),
                Poll::Ready(Err(error)) => {
                    first = None;
                    failed = Some(error);
                }
                Poll::Pending => {}
            }
        }
        if !is_second_over && let Poll::Ready(responded) = second.as_mut().poll(cx) {
            is_second_over = true;
            match responded {
                Ok((response, connected)) => {
                    return Poll::Ready(Winner::Second(response, connected));
                }
                Err(error) => note_error(hedge, &error, has_sent.get(), began),
            }
        }
        match (&first, is_second_over) {
            (None, true) => Poll::Ready(Winner::None(
                failed.take().unwrap_or(ClientError::Cancelled),
            )),
            _ => Poll::Pending,
        }
    })
    .await;
    if let (Winner::Second(..), None, Some(upstream)) = (&winner, &first, &upstream) {
        note_unanswered(route.balancer(), upstream, sent_first);
    }
    winner
}

/// Sends the request a second time, and awaits its final response. Interim ones are those of the first attempt.
async fn send(
    hedge: &Hedge<'_>,
    head: &RequestHead,
    options: Option<RequestOptions>,
    has_sent: &Cell<bool>,
) -> Result<(Response, Instant), ClientError> {
    let upstream = upstream_for(head, &hedge.upstream);
    let connection = match upstream.take_ready() {
        Some(connection) => connection,
        None => upstream.checkout().await?,
    };
    let now = blitz_http::now();
    hedge.balancer.connected(upstream);
    hedge.balancer.sent(upstream, now);
    has_sent.set(true);
    let (_, mut stream) = connection.request(head, BodyLength::Empty);
    if let Some(options) = options {
        stream.set_options(options);
    }
    Ok((stream.response().await?, now))
}

fn poll_final(
    stream: &mut ResponseStream,
    mut interim: impl FnMut(Pooled<ResponseHead>),
    cx: &mut Context<'_>,
) -> Poll<Result<Response, ClientError>> {
    loop {
        match stream.poll_next(cx) {
            Poll::Ready(Ok(ResponseEvent::Final(response))) => return Poll::Ready(Ok(response)),
            Poll::Ready(Ok(ResponseEvent::Informational(head))) => interim(head),
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            Poll::Pending => return Poll::Pending,
        }
    }
}

/// Tells the balancer of the second attempt what its error says.
fn note_error(hedge: &Hedge<'_>, error: &ClientError, has_sent: bool, since: Instant) {
    tracing::debug!(address = %hedge.upstream.address(), %error, "a second attempt failed");
    if has_sent {
        return note_unanswered(hedge.balancer, &hedge.upstream, since);
    }
    let failure = Failure::of_connection(hedge.upstream.address(), error);
    note_failure(hedge.balancer, &hedge.upstream, failure, error);
}

/// Tells the balancer of an attempt that no response came.
fn note_unanswered(balancer: &Balancer, upstream: &Upstream, since: Instant) {
    let now = blitz_http::now();
    let time = now.saturating_duration_since(since);
    balancer.unanswered(upstream, time, true, now);
}

/// From now on the request is at the server of its second attempt.
fn go_over<'a>(
    route: &ForwardRoute<'a>,
    request: &mut Request<'a>,
    hedge: Hedge<'a>,
    connected: Instant,
) {
    let Hedge {
        choice,
        tried,
        target,
        balancer,
        upstream,
    } = hedge;
    route.balancer.set(balancer);
    if let Some(rewriting) = &mut request.rewriting {
        rewriting.set_upstream(&target.authority);
    }
    request.choice = Some(choice);
    request.tried = tried;
    request.record.upstream = Some(upstream);
    request.record.connected = Some(connected);
}
