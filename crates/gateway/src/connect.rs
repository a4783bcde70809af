//! Phases `pick` and `connect`: an address of the upstream, and a connection to it.

use std::time::Duration;

use blitz_http::{ClientError, Connection};

use crate::core::{Core, Route};
use crate::counters::count;
use crate::proxy_status::Failure;
use crate::request::{Ended, Request};
use crate::upstream::Pick;

/// How often a name whose first answer is still on its way is looked at.
const PENDING_PAUSE: Duration = Duration::from_millis(5);

/// Chooses where the next attempt goes, waiting for a name's first answer as for a connection.
///
/// # Errors
/// The name has no address, or all that may be tried were tried.
pub(crate) async fn pick<F>(
    core: &Core<F>,
    route: &Route,
    request: &mut Request,
) -> Result<(), Ended> {
    let mut waited = Duration::ZERO;
    loop {
        match route.endpoint.pick(&mut request.tried, blitz_http::now()) {
            Pick::Upstream(upstream) => {
                request.upstream = Some(upstream);
                return Ok(());
            }
            Pick::Unresolved(failure) => return Err(Ended::Failed(failure.into())),
            Pick::Exhausted => return exhausted(request),
            Pick::Pending if waited >= core.options.client.limits.connect_timeout => {
                return Err(Ended::Failed(Failure::DnsTimeout));
            }
            Pick::Pending => {
                blitz_http::sleep(PENDING_PAUSE).await;
                waited += PENDING_PAUSE;
            }
        }
    }
}

/// A retry may go where the first attempt went; an address that refused to connect is not asked
/// again.
fn exhausted(request: &Request) -> Result<(), Ended> {
    match request.connect_failure {
        Some(failure) => Err(Ended::Failed(failure)),
        None => Ok(()),
    }
}

/// A pooled connection or a new one; `None` if none could be made, so that the next address is
/// tried. A retry never takes a pooled one: it may be as stale as the first.
///
/// # Errors
/// The upstream has as many connections and requests as it may have: another address would only
/// make the client wait again.
pub(crate) async fn connect(
    route: &Route,
    request: &mut Request,
) -> Result<Option<Connection>, Ended> {
    let Some(upstream) = request.upstream.as_ref() else {
        return Ok(None);
    };
    let connected = match (&request.websocket, request.retried) {
        (Some(_), retried) => upstream.checkout_for_websocket(retried).await,
        (None, true) => upstream.connect().await,
        (None, false) => upstream.checkout().await,
    };
    match connected {
        Ok(connection) => Ok(Some(connection)),
        Err(error @ (ClientError::Busy | ClientError::QueueFull)) => {
            tracing::debug!(address = ?upstream.address(), %error, "upstream is at its limit");
            Err(Ended::Failed(Failure::from(&error)))
        }
        Err(error) => {
            tracing::debug!(address = ?upstream.address(), %error, "upstream not reached");
            count(|counters| counters.connect_failures += 1);
            if !matches!(error, ClientError::NoExtendedConnect) {
                route.endpoint.failed(upstream, blitz_http::now());
            }
            let failure = Failure::from(&error);
            request.connect_failure = Some(more_telling(request.connect_failure, failure));
            Ok(None)
        }
    }
}

/// Of the failures at several addresses of an upstream, the one to speak of: the last, unless an
/// earlier one came as far as TLS. What listens on one address of `localhost` often does not on the
/// other.
fn more_telling(known: Option<Failure>, last: Failure) -> Failure {
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
    fn a_certificate_that_was_refused_is_not_forgotten_for_a_port_that_is_closed() {
        let (tls, closed) = (Failure::TlsCertificateError, Failure::ConnectionRefused);
        assert_eq!(more_telling(Some(tls), closed), tls);
        assert_eq!(more_telling(Some(closed), tls), tls);
        assert_eq!(
            more_telling(Some(tls), Failure::TlsProtocolError),
            Failure::TlsProtocolError
        );
        assert_eq!(
            more_telling(Some(Failure::ConnectionTimeout), closed),
            closed
        );
        assert_eq!(more_telling(None, closed), closed);
    }
}
