//! The user whose password policies have checked.

use blitz_http::RequestHead;

use super::basic_auth::user_of;
use super::{Policies, Policy, Prover};

impl Policies {
    /// The user of a request that these policies have let pass. Each password that a request has was checked.
    #[must_use]
    pub fn user(&self, head: &RequestHead) -> Option<String> {
        let checks_users = |prover: &Prover| matches!(prover, Prover::BasicAuth(_));
        let mut identities = self.of_identity();
        let is_checked = identities.any(|policy| match policy {
            Policy::Proof(prover) => checks_users(prover),
            Policy::AnyOf(any) => any.provers().any(checks_users),
            _ => false,
        });
        is_checked.then(|| user_of(head)).flatten()
    }
}
