//! Phases `pick` and `connect`: an address of the upstream, and a connection to it.

use std::time::Duration;

use blitz_http::{ClientError, Connection};

use crate::proxy_status::Failure;
use crate::record::Ended;
use crate::request::Request;
use crate::service::{GatewayService, Route};
use crate::upstream::Pick;

/// Pause between checks for the first result of a name.
const PENDING_PAUSE: Duration = Duration::from_millis(5);

/// Heads with more bytes use other HTTP/2 connections than the rest: servers such as nginx end the
/// connection when a field is longer than 8 KiB.
const LARGE_HEAD_BYTES: usize = 8 * 1024;

/// Chooses where the next attempt goes. Waits for the first result of a name as long as for a
/// connection.
///
/// # Errors
/// The name has no address, or all addresses that may be tried were tried.
pub(super) async fn pick<S>(
    gateway: &GatewayService<S>,
    route: &Route,
    request: &mut Request<'_>,
) -> Result<(), Ended> {
    let mut waited = Duration::ZERO;
    loop {
        match route.balancer.pick(&mut request.tried, blitz_http::now) {
            Pick::Upstream(upstream) => {
                request.record.upstream = Some(upstream);
                return Ok(());
            }
            Pick::Unresolved(failure) => return Err(Ended::Failed(failure.into())),
            Pick::Exhausted => return exhausted(request),
            Pick::Pending if waited >= gateway.options.client.limits.connect_timeout => {
                return Err(Ended::Failed(Failure::DnsTimeout));
            }
            Pick::Pending => {
                blitz_http::sleep(PENDING_PAUSE).await;
                waited += PENDING_PAUSE;
            }
        }
    }
}

/// A retry may go where the first attempt went, but not to an address that refused to connect.
fn exhausted(request: &mut Request<'_>) -> Result<(), Ended> {
    let Some((failure, rule)) = request.connect_failure else {
        return Ok(());
    };
    request.record.rule = rule;
    Err(Ended::Failed(failure))
}

/// A pooled connection or a new one; `None` if none could be made, so that the next address is
/// tried. A retry never takes a pooled one: it may be as stale as the first.
///
/// # Errors
/// The upstream has as many connections and requests as it may have: with another address the
/// client would only wait again.
pub(super) async fn connect(
    route: &Route,
    request: &mut Request<'_>,
) -> Result<Option<Connection>, Ended> {
    let record = &mut request.record;
    let Some(upstream) = record.upstream.as_ref() else {
        return Ok(None);
    };
    let upstream = match request.head.text_len() > LARGE_HEAD_BYTES {
        true => upstream.for_large_heads(),
        false => upstream,
    };
    let connected = match (request.kind.is_websocket(), record.is_retried) {
        (true, is_retry) => upstream.checkout_for_websocket(is_retry).await,
        (false, true) => upstream.connect().await,
        (false, false) => upstream.checkout().await,
    };
    match connected {
        Ok(connection) => {
            record.connected = Some(blitz_http::now());
            Ok(Some(connection))
        }
        Err(error @ (ClientError::Busy | ClientError::QueueFull)) => {
            tracing::debug!(address = ?upstream.address(), %error, "upstream is at its limit");
            Err(Ended::Failed(Failure::from(&error)))
        }
        Err(error) => {
            tracing::debug!(address = %upstream.address(), %error, "no connection to upstream");
            record.connect_failures = record.connect_failures.saturating_add(1);
            if !matches!(error, ClientError::NoExtendedConnect) {
                route.balancer.failed(upstream, blitz_http::now());
            }
            let failure = Failure::of_connection(upstream.address(), &error);
            if is_more_specific(failure, request.connect_failure) {
                request.connect_failure = Some((failure, error.rule()));
            }
            Ok(None)
        }
    }
}

/// Whether to report this failure in place of that at an earlier address: always, unless only the
/// earlier one is about TLS. An application often listens on one address of `localhost` only.
fn is_more_specific(last: Failure, known: Option<(Failure, Option<&str>)>) -> bool {
    let is_of_tls = |failure: Failure| failure.token().starts_with("tls_");
    is_of_tls(last) || !known.is_some_and(|(known, _)| is_of_tls(known))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tls_failure_is_reported_rather_than_a_later_refused_connection() {
        let (tls, closed) = (Failure::TlsCertificateError, Failure::ConnectionRefused);
        for (known, last, is_reported) in [
            (Some(tls), closed, false),
            (Some(closed), tls, true),
            (Some(tls), Failure::TlsProtocolError, true),
            (Some(Failure::ConnectionTimeout), closed, true),
            (None, closed, true),
        ] {
            let known = known.map(|failure| (failure, None));
            assert_eq!(is_more_specific(last, known), is_reported, "{last:?}");
        }
    }
}
