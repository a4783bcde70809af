//! Policies that demand a proof of who the client is: what they have in common.

use std::sync::Arc;

use blitz_http::PooledFuture;
use tracing::Level;

use super::client_cert;
use super::proof::Proof;
use super::waiting::Waited;
use super::{ApiKeys, BasicAuth, Identity, Jwt, Notes, PolicyRequest, set};
use crate::edit::Edit;
use crate::rejection::Rejection;

/// Seconds after which a client may try again whose password could not be checked.
const RETRY_AFTER: &[u8] = b"1";

/// The same while there are no keys for tokens.
const KEYS_RETRY_AFTER: &[u8] = b"5";

/// The target of lines about the ends of requests, which tell the reason.
const LINES: &str = "blitz_site::record";

/// A policy that demands a proof.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Prover {
    /// A name with its password.
    BasicAuth(Arc<BasicAuth>),
    /// A signed token.
    Jwt(Arc<Jwt>),
    /// A key.
    ApiKeys(Arc<ApiKeys>),
    /// A certificate, which the client has proved to have in its handshake.
    ClientCert,
}

impl Prover {
    /// The key of the configuration.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Prover::BasicAuth(_) => "basic_auth",
            Prover::Jwt(_) => "jwt",
            Prover::ApiKeys(_) => "api_keys",
            Prover::ClientCert => "client_ca",
        }
    }

    /// Whether the proof can stand in `Authorization` only, so that no request has two such proofs.
    #[must_use]
    pub fn needs_authorization(&self) -> bool {
        match self {
            Prover::BasicAuth(_) => true,
            Prover::Jwt(policy) => policy.needs_authorization(),
            Prover::ApiKeys(policy) => policy.needs_authorization(),
            Prover::ClientCert => false,
        }
    }

    /// Whether the proof can stand in a field that trailers may have as well.
    pub(super) fn takes_fields(&self) -> bool {
        match self {
            Prover::ApiKeys(policy) => policy.takes_fields(),
            Prover::BasicAuth(_) | Prover::Jwt(_) | Prover::ClientCert => false,
        }
    }

    /// Looks for a proof, and checks it.
    ///
    /// # Errors
    /// There is one, and it is not accepted.
    pub(super) fn prove<'p>(&'p self, request: &PolicyRequest<'_>) -> Result<Proof<'p>, Rejection> {
        match self {
            Prover::BasicAuth(policy) => policy.prove(request),
            Prover::Jwt(policy) => policy.prove(request),
            Prover::ApiKeys(policy) => policy.prove(request),
            Prover::ClientCert => client_cert::prove(request),
        }
    }

    /// Notes why a proof is refused, if somebody is told: at DEBUG, or without a clock, which is an explanation.
    #[cold]
    pub(super) fn note_reason(
        &self,
        rejection: Rejection,
        request: &PolicyRequest<'_>,
        notes: &mut Notes<'_>,
    ) {
        let is_of_token = matches!(
            rejection,
            Rejection::InvalidToken | Rejection::TokenExpired | Rejection::InsufficientScope
        );
        let is_told = || request.clock.is_none() || tracing::enabled!(target: LINES, Level::DEBUG);
        if let (Prover::Jwt(policy), true) = (self, is_of_token && is_told()) {
            notes.reason = policy.reason(request).map(Box::from);
        }
    }

    /// The identity of a client without such a proof: fields that the policy sets are removed.
    pub(super) fn nobody(&self) -> Option<Identity<'_>> {
        match self {
            Prover::ClientCert => None,
            Prover::BasicAuth(policy) => policy.nobody(),
            Prover::Jwt(policy) => policy.nobody(),
            Prover::ApiKeys(policy) => policy.nobody(),
        }
    }

    /// `WWW-Authenticate` of a request that is rejected for this reason; `None` if no field of a request is a proof.
    pub(super) fn challenge(&self, rejection: Rejection) -> Option<Edit> {
        match self {
            Prover::BasicAuth(policy) => Some(policy.challenge()),
            Prover::Jwt(policy) => Some(policy.challenge(rejection)),
            Prover::ApiKeys(policy) => Some(policy.challenge()),
            Prover::ClientCert => None,
        }
    }

    /// Why a request without such a proof is rejected.
    fn missing(&self) -> Rejection {
        match self {
            Prover::BasicAuth(_) => Rejection::NoCredentials,
            Prover::Jwt(_) => Rejection::NoToken,
            Prover::ApiKeys(_) => Rejection::NoApiKey,
            Prover::ClientCert => Rejection::NoClientCertificate,
        }
    }

    /// Demands the proof.
    pub(super) fn decide<'p>(
        &'p self,
        request: &PolicyRequest<'_>,
        notes: &mut Notes<'p>,
    ) -> Result<Option<PooledFuture<'p, Waited>>, Rejection> {
        let proof = match self.prove(request) {
            Ok(Proof::Missing) => Err(self.missing()),
            proof => proof,
        };
        match proof {
            Ok(Proof::Valid(identity)) => {
                notes.identities.add(identity);
                Ok(None)
            }
            Ok(Proof::Pending(checked)) => Ok(Some(PooledFuture::new(async move {
                match checked.await {
                    Ok(identity) => Waited {
                        identities: identity.into_iter().collect(),
                        ..Waited::default()
                    },
                    Err(rejection) => refused(rejection, std::slice::from_ref(self)),
                }
            }))),
            Ok(Proof::Missing) => Ok(None),
            Err(rejection) => {
                self.note_reason(rejection, request, notes);
                notes.edit_response(edits_of_refusal(rejection, std::slice::from_ref(self)));
                Err(rejection)
            }
        }
    }
}

/// The end of a wait that rejects the request.
pub(super) fn refused(rejection: Rejection, provers: &[Prover]) -> Waited {
    Waited {
        rejection: Some(rejection),
        response_edits: edits_of_refusal(rejection, provers),
        ..Waited::default()
    }
}

/// The changes of the response to a request that is rejected: the challenges of all that it could prove (RFC 9110,
/// section 11.6.1), each in a line of its own, which clients read more reliably than a list.
pub(super) fn edits_of_refusal(rejection: Rejection, provers: &[Prover]) -> Vec<Edit> {
    match rejection {
        Rejection::AuthenticationBusy => vec![set("retry-after", Some(RETRY_AFTER))],
        Rejection::NoKeys => vec![set("retry-after", Some(KEYS_RETRY_AFTER))],
        _ => provers
            .iter()
            .filter_map(|prover| prover.challenge(rejection))
            .collect(),
    }
}
