//! The line of a failed TLS connection.

use std::fmt::Display;
use std::net::SocketAddr;

use tracing::field::display;

use super::error::TlsError;
use super::refused;

/// Logs that the handshake of a client, or later its TLS connection, failed. `client` is `None` on a
/// unix socket.
pub(crate) fn log_client_failure(
    client: Option<SocketAddr>,
    server_name: Option<&str>,
    error: TlsError,
    cause: &dyn Display,
) {
    let client = client.map(display);
    tracing::debug!(client, server_name, rule = error.rule(), %cause, "TLS of a client failed");
}

/// Logs that a TLS connection to an upstream failed.
pub(crate) fn log_upstream_failure(
    address: Option<SocketAddr>,
    server_name: Option<&str>,
    error: TlsError,
    cause: &dyn Display,
) {
    let certificate = match (error, address) {
        (TlsError::Certificate(_), Some(address)) => refused::keep(address, server_name),
        _ => None,
    };
    let certificate = certificate.as_deref();
    let address = address.map(display);
    let rule = error.rule();
    tracing::debug!(address, server_name, rule, %cause, certificate, "TLS to an upstream failed");
}
