//! Policies of a route: decisions on a request before its action, in a fixed order, and changes of its response.
//!
//! A policy is compiled once for each configuration: for a request nothing is parsed or looked up by name. [`Notes`] are
//! for later phases of its request.

mod any_of;
mod api_keys;
mod basic_auth;
mod client_cert;
mod concurrency;
mod cors;
mod credentials;
mod early_hints;
mod forward_auth;
mod identity;
mod jwt;
mod limits;
mod memory;
mod proof;
mod prover;
mod rate_limit;
mod security_headers;
mod spelling;
mod token_facts;
mod user;
mod waiting;

use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use blitz_http::{ClientCertificate, Fields, PooledFuture, RequestHead};

use crate::client::ClientAddress;
use crate::edit::{Edit, FieldChange, apply_to_request};
use crate::rejection::Rejection;
use waiting::{Suspended, Waited};

pub use any_of::AnyOf;
pub use api_keys::{ApiKey, ApiKeys, KeySource, api_keys};
pub use basic_auth::{BasicAuth, Users, users};
pub use concurrency::{Concurrency, Permit};
pub use cors::{Cors, CorsSettings, Origin, preflight_method};
pub use early_hints::EarlyHints;
pub use forward_auth::{
    AuthCacheSettings, Authorizer, AuthorizerAnswer, AuthorizerAttempt, AuthorizerQuestion,
    ForwardAuth, ForwardAuthSettings, NoDecision,
};
pub use identity::{Identities, Identity};
pub use jwt::{
    Algorithm, Claim, ClaimDemand, FetchedKeys, Jwt, JwtKey, JwtSettings, KeyFetches, TokenSource,
    fetched_keys_in_use, key_fetches, key_set,
};
pub use limits::{CoreLimits, SharedLimits};
pub use prover::Prover;
pub use rate_limit::{OnStoreFailure, RateKey, RateLimit, RateLimitSettings, StoreUse};
pub use security_headers::SecurityHeaders;
pub use token_facts::TokenFacts;
pub use waiting::PolicyResponse;

/// The policies of a route, in the order in which they decide.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Policies(Box<[Policy]>);

/// A policy. Routes that inherit it share it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Policy {
    /// Adds fields to each response.
    SecurityHeaders(Arc<SecurityHeaders>),
    /// Responds to preflights, and adds the fields for scripts of other origins.
    Cors(Arc<Cors>),
    /// Tells browsers what a page will need.
    EarlyHints(Arc<EarlyHints>),
    /// Demands a proof of who the client is.
    Proof(Prover),
    /// Demands one of several proofs.
    AnyOf(Arc<AnyOf>),
    /// Has another service decide.
    ForwardAuth(Arc<ForwardAuth>),
    /// Limits requests per time.
    RateLimit(Arc<RateLimit>),
    /// Limits requests at a time.
    Concurrency(Arc<Concurrency>),
}

/// The request that policies decide on.
pub struct PolicyRequest<'a> {
    /// Its head.
    pub head: &'a RequestHead,
    /// Its client.
    pub client: ClientAddress,
    /// The certificate of the client, as the handshake has verified it.
    pub certificate: Option<&'a ClientCertificate>,
    /// The time; `None` leaves out what depends on it.
    pub clock: Option<fn() -> SystemTime>,
    /// The counts of this core. Without them nothing is limited.
    pub limits: Option<&'a CoreLimits>,
    /// The means to ask authorizers. Without it they let the request pass.
    pub authorizer: Option<&'a dyn Authorizer>,
}

/// Notes of policies for later phases of a request.
#[derive(Debug, Default)]
pub struct Notes<'p> {
    /// Changes of the final response, before those of `headers`.
    pub response_edits: Cow<'p, [Edit]>,
    /// The request counts among those under way until this is dropped, with or after its record.
    pub permit: Option<Permit>,
    /// Are sent when all checks have passed.
    pub early_hints: Option<&'p EarlyHints>,
    /// Changes of the request that tell its action who the client is.
    pub identities: Identities<'p>,
    /// The response of a rejected request in place of the gateway's own.
    pub response: Option<Box<PolicyResponse>>,
    /// Why an authorizer gave no decision, so that the request is rejected.
    pub no_decision: Option<Box<NoDecision>>,
    /// Why a token was refused, in words for operators; only if somebody is told.
    pub reason: Option<Box<str>>,
    /// The time before the policies waited.
    pub started: Option<Instant>,
    /// One of the policies waits.
    suspended: Option<Suspended<'p>>,
}

impl<'a> PolicyRequest<'a> {
    /// The name of the client, as policies before have verified, or else the subject of its certificate.
    fn user<'n>(&self, notes: &'n Notes<'_>) -> Option<&'n str>
    where
        'a: 'n,
    {
        let subject = || {
            let certificate = self.certificate?;
            let now = self.clock?();
            (!certificate.has_expired(now)).then(|| certificate.subject())?
        };
        Identity::user(&notes.identities).or_else(subject)
    }
}

impl Policies {
    /// These policies, in any order.
    #[must_use]
    pub fn new(mut policies: Vec<Policy>) -> Policies {
        policies.sort_by_key(Policy::rank);
        Policies(policies.into())
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The fields that each response gets, also those of requests that are refused before a policy decides.
    #[inline]
    #[must_use]
    pub fn security_headers(&self) -> Option<&SecurityHeaders> {
        match self.0.first() {
            Some(Policy::SecurityHeaders(headers)) => Some(headers),
            _ => None,
        }
    }

    /// Whether preflights are taken by the route of the request that they are about.
    #[must_use]
    pub fn takes_preflights(&self) -> bool {
        self.0
            .iter()
            .any(|policy| matches!(policy, Policy::Cors(_)))
    }

    /// Those that demand or tell who the client is.
    pub fn of_identity(&self) -> impl Iterator<Item = &Policy> {
        let is_of_identity = |policy: &&Policy| {
            matches!(
                policy,
                Policy::Proof(_) | Policy::AnyOf(_) | Policy::ForwardAuth(_)
            )
        };
        self.0.iter().filter(is_of_identity)
    }

    /// Whether credentials can stand in a field that trailers may have as well. A trailer is none, and an upstream
    /// could take it for those that were checked.
    #[must_use]
    pub fn take_fields(&self) -> bool {
        self.of_identity().any(|policy| match policy {
            Policy::Proof(prover) => prover.takes_fields(),
            Policy::AnyOf(any) => any.provers().any(Prover::takes_fields),
            // An authorizer decides by any of them.
            _ => true,
        })
    }

    /// The authorizers that they ask.
    pub fn authorizers(&self) -> impl Iterator<Item = &ForwardAuthSettings> {
        self.0.iter().filter_map(|policy| match policy {
            Policy::ForwardAuth(auth) => Some(auth.settings()),
            _ => None,
        })
    }

    /// Whether another route demands a proof of identity that this one does not, or tells another one.
    #[must_use]
    pub fn lack_identity_of(&self, other: &Policies) -> bool {
        let has = |policy: &Policy| self.of_identity().any(|own| own == policy);
        other.of_identity().any(|policy| !has(policy))
    }

    /// Decides on a request. If a policy waits, [`Notes::wait`] goes on. A policy that panics fails the request, and the
    /// core goes on.
    ///
    /// # Errors
    /// A policy responds in place of the action. The response is that of the rejection, with the changes in the notes.
    pub fn decide<'p>(
        &'p self,
        request: &PolicyRequest<'_>,
        notes: &mut Notes<'p>,
    ) -> Result<(), Rejection> {
        self.decide_from(0, request, notes)
    }

    /// The decisions of the policies from this index on, up to one that waits.
    fn decide_from<'p>(
        &'p self,
        first: usize,
        request: &PolicyRequest<'_>,
        notes: &mut Notes<'p>,
    ) -> Result<(), Rejection> {
        let decided = catch_unwind(AssertUnwindSafe(|| self.run_from(first, request, notes)));
        // The notes that were made are lists of changes, each of which is complete.
        decided.unwrap_or(Err(Rejection::PolicyPanicked))
    }

    fn run_from<'p>(
        &'p self,
        first: usize,
        request: &PolicyRequest<'_>,
        notes: &mut Notes<'p>,
    ) -> Result<(), Rejection> {
        for (index, policy) in self.0.iter().enumerate().skip(first) {
            let waiting: Option<PooledFuture<'p, Waited>> = match policy {
                // They are for every response, so they are noted before all checks.
                Policy::SecurityHeaders(_) => Ok(None),
                Policy::Cors(cors) => cors.decide(request, notes).map(|()| None),
                Policy::EarlyHints(hints) => {
                    notes.early_hints = hints.for_request(request.head);
                    Ok(None)
                }
                Policy::Proof(prover) => prover.decide(request, notes),
                Policy::AnyOf(any) => any.decide(request, notes),
                Policy::ForwardAuth(auth) => auth.decide(request, notes),
                Policy::RateLimit(limit) => limit.decide(request, notes).map(|()| None),
                Policy::Concurrency(limit) => limit.decide(request, notes).map(|()| None),
            }?;
            if let Some(waiting) = waiting {
                notes.suspended = Some(Suspended {
                    policies: self,
                    next: index + 1,
                    waiting,
                });
                return Ok(());
            }
        }
        Ok(())
    }
}

impl Policy {
    /// Its place in the order.
    fn rank(&self) -> u8 {
        match self {
            Policy::SecurityHeaders(_) => 0,
            Policy::Cors(_) => 5,
            Policy::EarlyHints(_) => 60,
            Policy::Proof(Prover::ClientCert) => 15,
            Policy::Proof(Prover::BasicAuth(_)) => 20,
            Policy::Proof(Prover::ApiKeys(_)) => 25,
            Policy::AnyOf(_) => 28,
            Policy::Proof(Prover::Jwt(_)) => 30,
            Policy::RateLimit(limit) if limit.is_of_identity() => 35,
            // After what can be decided here.
            Policy::ForwardAuth(_) => 40,
            Policy::RateLimit(_) => 10,
            Policy::Concurrency(_) => 50,
        }
    }
}

impl<'p> Notes<'p> {
    /// The last token that policies have verified.
    #[must_use]
    pub fn token(&self) -> Option<&Rc<TokenFacts>> {
        self.identities
            .iter()
            .rev()
            .find_map(|identity| match identity {
                Identity::Token(token) => Some(token),
                _ => None,
            })
    }

    /// The name of the key that the client has proved to have.
    #[must_use]
    pub fn key(&self) -> Option<&'p str> {
        self.identities.iter().find_map(|identity| match identity {
            Identity::Key { name, .. } if !name.is_empty() => Some(*name),
            _ => None,
        })
    }

    /// Makes the changes of the request that tell who the client is.
    pub fn identify(&self, fields: &mut Fields) {
        for identity in self.identities.iter() {
            apply_to_request(identity.edits(), fields);
        }
    }

    /// The value of a claim that a policy has verified.
    #[must_use]
    pub fn claim(&self, name: &str) -> Option<&str> {
        Identity::claim(&self.identities, name)
    }

    /// Adds changes of the final response.
    pub fn edit_response(&mut self, edits: impl Into<Cow<'p, [Edit]>>) {
        let edits = edits.into();
        match self.response_edits.is_empty() {
            true => self.response_edits = edits,
            false => self.response_edits.to_mut().extend(edits.into_owned()),
        }
    }
}

/// `None` removes the field.
fn set(name: &str, value: Option<&[u8]>) -> Edit {
    let lines = value.map(<[u8]>::to_vec).into_iter().collect();
    Edit {
        name: name.into(),
        change: FieldChange::Set(lines),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use blitz_http::Method;

    use super::*;

    fn panics() -> SystemTime {
        panic!("the clock of a test")
    }

    #[test]
    fn a_policy_that_panics_fails_its_request_with_the_changes_of_those_before_it() {
        let cors = Cors::new(&CorsSettings {
            origins: vec![Origin::Any],
            ..CorsSettings::default()
        });
        let jwt = Jwt::new(JwtSettings {
            keys: vec![JwtKey::secret(&[7; 32], &[]).unwrap()],
            sources: vec![TokenSource::Authorization],
            leeway: Duration::ZERO,
            ..JwtSettings::default()
        });
        let policies = Policies::new(vec![
            Policy::Proof(Prover::Jwt(Arc::new(jwt))),
            Policy::Cors(Arc::new(cors)),
        ]);
        let mut head = RequestHead::new(Method::Get, "/");
        let decide = |head: &RequestHead| {
            let request = PolicyRequest {
                head,
                client: ClientAddress::Unix,
                certificate: None,
                clock: Some(panics),
                limits: None,
                authorizer: None,
            };
            let mut notes = Notes::default();
            let decided = policies.decide(&request, &mut notes);
            (decided, notes.response_edits.len())
        };
        let (decided, edits) = decide(&head);
        assert_eq!(decided, Err(Rejection::NoToken));
        assert!(edits > 1);
        head.fields.append("authorization", "Bearer a.b.c");
        let (decided, _) = decide(&head);
        assert_eq!(decided, Err(Rejection::PolicyPanicked));
    }
}
