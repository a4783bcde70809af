//! Phases `pick` and `connect`: an address of the upstream, and a connection to it.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use blitz_http::{ClientError, Connection, LocalShortage, RequestHead, Timer, TlsError, Upstream};
use blitz_site::{Ended, Failure};

use super::balance::next_address;
use super::reconnect::{reconnect, reconnect_unresolved};
use super::retry::response_timeout;
use crate::request::{ConnectFailure, Request};
use crate::request_kind::RequestKind;
use crate::route::ForwardRoute;
use crate::service::GatewayService;
use crate::upstream::{Balancer, Pick, failure_of_name};

/// Pause between checks for the first result of a name.
pub(super) const PENDING_PAUSE: Duration = Duration::from_millis(5);

/// Heads with more bytes use other HTTP/2 connections than the rest: servers such as nginx end the
/// connection when a field is longer than 8 KiB.
const LARGE_HEAD_BYTES: usize = 8 * 1024;

/// Chooses where the next attempt goes, if the balancer has not done so at once. Waits for the first result of a name as
/// long as for a connection.
///
/// # Errors
/// The name has no address, or all addresses that may be tried were tried.
pub(super) async fn pick<'a, E>(
    gateway: &GatewayService<E>,
    route: &ForwardRoute<'a>,
    request: &mut Request<'a>,
    mut pick: Pick,
) -> Result<(), Ended> {
    let mut waited = Duration::ZERO;
    loop {
        match pick {
            Pick::Upstream(upstream) => {
                request.go_to(upstream);
                return Ok(());
            }
            Pick::Unresolved(failure) => {
                if !reconnect_unresolved(gateway, request).await {
                    return Err(Ended::Failed(failure_of_name(failure)));
                }
            }
            Pick::Exhausted if request.connect_failure.is_none() => return Ok(()),
            Pick::Exhausted => {
                if !reconnect(gateway, route, request).await {
                    return exhausted(request);
                }
            }
            Pick::Pending if waited >= gateway.options.client.limits.connect_timeout => {
                return Err(Ended::Failed(Failure::DnsTimeout));
            }
            Pick::Pending => {
                blitz_http::sleep(PENDING_PAUSE).await;
                waited += PENDING_PAUSE;
            }
        }
        pick = next_address(route, request);
    }
}

/// A retry may go where the first attempt went, but not to an address that refused to connect.
fn exhausted(request: &mut Request<'_>) -> Result<(), Ended> {
    match request.connect_failure.take() {
        Some(failed) => {
            request.record.upstream = Some(failed.upstream);
            request.record.rule = failed.rule;
            Err(Ended::Failed(failed.failure))
        }
        None => Ok(()),
    }
}

/// A pooled connection that is there, for a usual request. A retry never takes one: it may be as stale as the first.
#[inline]
pub(super) fn take_ready(
    route: &ForwardRoute<'_>,
    request: &mut Request<'_>,
) -> Option<Connection> {
    let is_usual = matches!(request.kind, RequestKind::Plain | RequestKind::Call(_));
    if !is_usual || request.record.is_retried {
        return None;
    }
    let upstream = upstream_for(&request.head, request.record.upstream.as_ref()?);
    let connection = upstream.take_ready()?;
    let now = blitz_http::now();
    request.record.connected = Some(now);
    route.balancer().connected(upstream);
    route.balancer().sent(upstream, now);
    Some(connection)
}

#[inline]
pub(super) fn upstream_for<'u>(head: &RequestHead, upstream: &'u Upstream) -> &'u Upstream {
    match head.text_len() > LARGE_HEAD_BYTES {
        true => upstream.for_large_heads(),
        false => upstream,
    }
}

/// A pooled connection or a new one; `None` if none could be made, so that the next address is
/// tried. A retry never takes a pooled one: it may be as stale as the first.
///
/// # Errors
/// The upstream has as many connections and requests as it may have, or the gateway as many sockets:
/// with another address the client would only wait again.
pub(super) async fn connect<E>(
    gateway: &GatewayService<E>,
    route: &ForwardRoute<'_>,
    request: &mut Request<'_>,
) -> Result<Option<Connection>, Ended> {
    let limit = response_timeout(gateway, request);
    let record = &mut request.record;
    let Some(upstream) = record.upstream.as_ref() else {
        return Ok(None);
    };
    let upstream = upstream_for(&request.head, upstream);
    let kind = &request.kind;
    let is_retry = record.is_retried;
    let connected = {
        let mut connecting = pin!(async move {
            match kind {
                RequestKind::WebSocket(_) => upstream.checkout_for_websocket(is_retry).await,
                RequestKind::Upgrade(_) => upstream.checkout_for_upgrade(is_retry).await,
                _ if is_retry => upstream.connect().await,
                _ => upstream.checkout().await,
            }
        });
        let mut timer = None;
        poll_fn(|cx| match connecting.as_mut().poll(cx) {
            Poll::Pending => poll_limit(&mut timer, limit, upstream, cx),
            connected => connected,
        })
        .await
    };
    match connected {
        Ok(connection) => {
            let now = blitz_http::now();
            record.connected = Some(now);
            route.balancer().connected(upstream);
            route.balancer().sent(upstream, now);
            Ok(Some(connection))
        }
        Err(
            error @ (ClientError::Busy
            | ClientError::QueueFull
            | ClientError::LocalShortage(LocalShortage::Descriptors)),
        ) if !is_passed_over(&error, request.choice.is_some()) => {
            tracing::debug!(address = ?upstream.address(), %error, "at a limit of connections");
            let failure = Failure::from(&error);
            note_failure(route.balancer(), upstream, failure, &error);
            Err(Ended::Failed(failure))
        }
        Err(error) => {
            tracing::debug!(address = %upstream.address(), %error, "no connection to upstream");
            let is_of_address = matches!(health(&error), Health::Failed { .. });
            record.connect_failures = record.connect_failures.saturating_add(is_of_address.into());
            let failure = Failure::of_connection(upstream.address(), &error);
            note_failure(route.balancer(), upstream, failure, &error);
            request.reconnecting.note_failure(&error);
            let known = request.connect_failure.as_ref().map(|known| known.failure);
            if is_reported(failure, known, request.tried.is_first(upstream)) {
                request.connect_failure = Some(Box::new(ConnectFailure {
                    failure,
                    upstream: upstream.clone(),
                    rule: error.rule(),
                }));
            }
            request.record.note_connect_failure(failure.token());
            Ok(None)
        }
    }
}

/// Whether a request with several servers goes to another one at once. It waits in the queue of one of them only.
fn is_passed_over(error: &ClientError, has_others: bool) -> bool {
    has_others && matches!(error, ClientError::QueueFull)
}

/// Ready when making a connection has taken longer than a response may: with a server that is silent, a request is no
/// longer with one that accepts no connection. Time in which no connection may be made does not count.
fn poll_limit(
    timer: &mut Option<Timer>,
    limit: Duration,
    upstream: &Upstream,
    cx: &mut Context<'_>,
) -> Poll<Result<Connection, ClientError>> {
    if limit >= upstream.connect_timeout() {
        return Poll::Pending;
    }
    loop {
        let timer = timer.get_or_insert_with(|| blitz_http::sleep(limit));
        ready!(Pin::new(&mut *timer).poll(cx));
        if !upstream.is_at_limit() {
            return Poll::Ready(Err(ClientError::ConnectTimedOut));
        }
        timer.reset(blitz_http::now() + limit);
    }
}

/// Tells the balancer what the error says about the address.
pub(super) fn note_failure(
    balancer: &Balancer,
    upstream: &Upstream,
    failure: Failure,
    error: &ClientError,
) {
    match health(error) {
        Health::Healthy => balancer.connected(upstream),
        Health::Unknown => balancer.undecided(upstream, blitz_http::now()),
        Health::Failed { is_slow } => {
            balancer.failed(upstream, failure, is_slow, blitz_http::now());
        }
    }
}

/// The health of an address, as an error shows it.
#[derive(Debug, PartialEq, Eq)]
enum Health {
    /// Its connections work, but this request needs another kind of them.
    Healthy,
    /// Nothing: no connection was tried, or this machine lacked a resource.
    Unknown,
    /// `is_slow`: the failure takes time, because nothing answers.
    Failed { is_slow: bool },
}

fn health(error: &ClientError) -> Health {
    match error {
        ClientError::NoExtendedConnect => Health::Healthy,
        ClientError::Busy | ClientError::QueueFull | ClientError::LocalShortage(_) => {
            Health::Unknown
        }
        ClientError::ConnectTimedOut
        | ClientError::Unreachable
        | ClientError::TlsHandshake(TlsError::TimedOut) => Health::Failed { is_slow: true },
        _ => Health::Failed { is_slow: false },
    }
}

/// Whether to report `failure` rather than the `known` one, if no address can be connected to. It is that
/// at the first address: of `localhost` an operator expects 127.0.0.1. But a failure of TLS says more
/// than others, because an application often listens on one address of `localhost` only.
pub(super) fn is_reported(
    failure: Failure,
    known: Option<Failure>,
    is_first_address: bool,
) -> bool {
    let is_of_tls = |failure: Failure| failure.token().starts_with("tls_");
    match known {
        None => true,
        Some(known) if is_of_tls(known) == is_of_tls(failure) => is_first_address,
        Some(_) => is_of_tls(failure),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tls_failure_or_that_at_the_first_address_is_reported() {
        let (tls, refused) = (Failure::TlsCertificateError, Failure::ConnectionRefused);
        assert!(is_reported(refused, None, true));
        assert!(!is_reported(refused, Some(refused), false));
        assert!(is_reported(tls, Some(refused), false));
        assert!(!is_reported(refused, Some(tls), false));
        assert!(!is_reported(Failure::TlsProtocolError, Some(tls), false));
        // A retry goes to the first address last.
        assert!(!is_reported(refused, Some(tls), true));
        assert!(is_reported(refused, Some(refused), true));
    }

    #[test]
    fn an_address_is_not_avoided_because_this_machine_lacks_something() {
        let lacks_ports = ClientError::LocalShortage(LocalShortage::Ports);
        assert_eq!(health(&lacks_ports), Health::Unknown);
        let failed = |is_slow| Health::Failed { is_slow };
        assert_eq!(health(&ClientError::Refused), failed(false));
        assert_eq!(health(&ClientError::ConnectTimedOut), failed(true));
    }
}
