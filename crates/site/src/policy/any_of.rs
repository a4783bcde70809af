//! Several proofs of a client, one of which suffices.

use std::sync::Arc;

use blitz_http::PooledFuture;

use super::proof::{Checked, Proof};
use super::prover::{Prover, edits_of_refusal, refused};
use super::waiting::Waited;
use super::{Notes, PolicyRequest};
use crate::client::ClientAddress;
use crate::network_set::NetworkSet;
use crate::rejection::Rejection;

/// The policy. **Invariant: each proof that a request has is checked, and an invalid one refuses the request**, whatever
/// else it proves. So no request passes with a wrong password that its upstream would take for checked.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct AnyOf {
    /// Clients that need no further proof.
    allow: Box<[Arc<NetworkSet>]>,
    provers: Box<[Prover]>,
}

impl AnyOf {
    /// The policy with these alternatives.
    #[must_use]
    pub fn new(allow: Vec<Arc<NetworkSet>>, provers: Vec<Prover>) -> AnyOf {
        AnyOf {
            allow: allow.into(),
            provers: provers.into(),
        }
    }

    pub(super) fn provers(&self) -> impl Iterator<Item = &Prover> {
        self.provers.iter()
    }

    /// Whether the client has an address that suffices.
    fn is_allowed(&self, client: ClientAddress) -> bool {
        let client = match client {
            ClientAddress::Address(address) => Some(address),
            ClientAddress::Unix => None,
            ClientAddress::Unknown => return false,
        };
        self.allow.iter().any(|set| set.contains(client))
    }

    pub(super) fn decide<'p>(
        &'p self,
        request: &PolicyRequest<'_>,
        notes: &mut Notes<'p>,
    ) -> Result<Option<PooledFuture<'p, Waited>>, Rejection> {
        let mut is_proved = self.is_allowed(request.client);
        let mut pending = Vec::new();
        for prover in &self.provers {
            match prover.prove(request) {
                Ok(Proof::Valid(identity)) => {
                    is_proved = true;
                    notes.identities.add(identity);
                }
                Ok(Proof::Missing) => notes.identities.add(prover.nobody()),
                Ok(Proof::Pending(checked)) => pending.push(checked),
                Err(rejection) => {
                    prover.note_reason(rejection, request, notes);
                    notes.edit_response(edits_of_refusal(rejection, &self.provers));
                    return Err(rejection);
                }
            }
        }
        if !pending.is_empty() {
            return Ok(Some(PooledFuture::new(self.wait(pending))));
        }
        match is_proved {
            true => Ok(None),
            false => {
                let rejection = Rejection::NoProof;
                notes.edit_response(edits_of_refusal(rejection, &self.provers));
                Err(rejection)
            }
        }
    }

    async fn wait(&self, pending: Vec<PooledFuture<'_, Checked>>) -> Waited {
        let mut identities = Vec::new();
        for checked in pending {
            match checked.await {
                Ok(identity) => identities.extend(identity),
                Err(rejection) => return refused(rejection, &self.provers),
            }
        }
        Waited {
            identities,
            ..Waited::default()
        }
    }
}
