//! Phases `pick` and `connect`: an address of the upstream, and a connection to it.

use std::time::Duration;

use blitz_http::{ClientError, Connection, LocalShortage};

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
fn exhausted(request: &Request<'_>) -> Result<(), Ended> {
    match request.connect_failure {
        Some(failure) => Err(Ended::Failed(failure)),
        None => Ok(()),
    }
}

/// A pooled connection or a new one; `None` if none could be made, so that the next address is
/// tried. A retry never takes a pooled one: it may be as stale as the first.
///
/// # Errors
/// The upstream has as many connections and requests as it may have, or the gateway as many sockets:
/// with another address the client would only wait again.
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
        Err(
            error @ (ClientError::Busy
            | ClientError::QueueFull
            | ClientError::LocalShortage(LocalShortage::Descriptors)),
        ) => {
            tracing::debug!(address = ?upstream.address(), %error, "at a limit of connections");
            Err(Ended::Failed(Failure::from(&error)))
        }
        Err(error) => {
            tracing::debug!(address = %upstream.address(), %error, "no connection to upstream");
            record.connect_failures = record.connect_failures.saturating_add(1);
            if is_of_address(&error) {
                route.balancer.failed(upstream, blitz_http::now());
            }
            let failure = Failure::of_connection(upstream.address(), &error);
            request.connect_failure = Some(more_specific(request.connect_failure, failure));
            Ok(None)
        }
    }
}

/// Whether other requests should avoid the address. Its connections work if only this request needs
/// another kind of them, or if this machine lacked a resource.
fn is_of_address(error: &ClientError) -> bool {
    !matches!(
        error,
        ClientError::NoExtendedConnect | ClientError::LocalShortage(_)
    )
}

/// The failure to report of those at several addresses: the last, unless an earlier one was about
/// TLS. An application often listens on one address of `localhost` only.
fn more_specific(known: Option<Failure>, last: Failure) -> Failure {
    let is_of_tls = |failure: &Failure| {
        matches!(
            failure,
            Failure::TlsCertificateError | Failure::TlsAlertReceived | Failure::TlsProtocolError
        )
    };
    match known.filter(is_of_tls) {
        Some(known) if !is_of_tls(&last) => known,
        _ => last,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_not_avoided_because_this_machine_lacks_something() {
        let lacks_ports = ClientError::LocalShortage(LocalShortage::Ports);
        assert!(!is_of_address(&lacks_ports));
        assert!(is_of_address(&ClientError::Refused));
        assert!(is_of_address(&ClientError::ConnectTimedOut));
    }

    #[test]
    fn a_tls_failure_is_reported_rather_than_a_later_refused_connection() {
        let (tls, closed) = (Failure::TlsCertificateError, Failure::ConnectionRefused);
        assert_eq!(more_specific(Some(tls), closed), tls);
        assert_eq!(more_specific(Some(closed), tls), tls);
        assert_eq!(
            more_specific(Some(tls), Failure::TlsProtocolError),
            Failure::TlsProtocolError
        );
        assert_eq!(
            more_specific(Some(Failure::ConnectionTimeout), closed),
            closed
        );
        assert_eq!(more_specific(None, closed), closed);
    }
}
