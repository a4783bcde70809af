//! Certificates of clients, which the handshake has verified with the authorities of the site.

use super::PolicyRequest;
use super::proof::Proof;
use crate::rejection::Rejection;

/// A session, or its resumption, may outlive the certificate, so the time is checked for each request.
pub(super) fn prove<'p>(request: &PolicyRequest<'_>) -> Result<Proof<'p>, Rejection> {
    let Some(certificate) = request.certificate else {
        return Ok(Proof::Missing);
    };
    match request.clock.map(|clock| clock()) {
        Some(now) if certificate.has_expired(now) => Err(Rejection::ClientCertificateExpired),
        _ => Ok(Proof::Valid(None)),
    }
}
