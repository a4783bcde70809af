//! Tokens that a route demands, signed by an issuer (RFC 7519, RFC 6750).

mod fetched;
mod json;
mod keys;
mod reason;
mod remembered;
mod settings;
#[cfg(test)]
mod tests;
mod token;

use std::hash::{Hash, Hasher};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::UNIX_EPOCH;

use blitz_http::RequestHead;
use serde_json::Value;

use self::settings::scalar;
use self::token::{TokenError, Verified, verify};
use super::credentials::{Found, has_second_scheme, of_authorization, of_cookies, of_query};
use super::memory::Owner;
use super::proof::{Proof, challenge};
use super::token_facts::TokenFacts;
use super::{Identity, PolicyRequest, set};
use crate::edit::Edit;
use crate::rejection::Rejection;

pub use fetched::{FetchedKeys, KeyFetches, fetched_keys_in_use, key_fetches};
pub use keys::{Algorithm, JwtKey, key_set};
pub use settings::{Claim, ClaimDemand, JwtSettings, TokenSource};

/// The policy.
#[derive(Debug)]
pub struct Jwt {
    settings: JwtSettings,
    /// Its number in the process: tokens that another one has verified do not count.
    number: u64,
    /// Removes the fields that it sets.
    removal: Box<[Edit]>,
}

impl PartialEq for Jwt {
    fn eq(&self, other: &Jwt) -> bool {
        self.settings == other.settings
    }
}

impl Eq for Jwt {}

impl Hash for Jwt {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.settings.hash(state);
    }
}

impl Jwt {
    /// The policy of these settings.
    #[must_use]
    pub fn new(settings: JwtSettings) -> Jwt {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let names = settings.forward.iter().map(|(name, _)| name);
        Jwt {
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            removal: names.map(|name| set(name, None)).collect(),
            settings,
        }
    }

    /// Whether requests without a token are served as well.
    #[must_use]
    pub fn is_optional(&self) -> bool {
        self.settings.is_optional
    }

    /// The identity of a client without a token, if the policy tells anything about clients.
    pub(super) fn nobody(&self) -> Option<Identity<'_>> {
        self.tells_identity()
            .then_some(Identity::None(&self.removal))
    }

    /// Also without a field, so that no trailer of the client is taken for a claim.
    fn tells_identity(&self) -> bool {
        !self.removal.is_empty() || !self.settings.kept.is_empty() || self.settings.keeps_all
    }

    /// Whether a demanded token can stand in `Authorization` only.
    pub(super) fn needs_authorization(&self) -> bool {
        !self.settings.is_optional && self.settings.sources == [TokenSource::Authorization]
    }

    /// `WWW-Authenticate` (RFC 6750, section 3). A request without a token learns nothing but the scheme.
    pub(super) fn challenge(&self, rejection: Rejection) -> Edit {
        let error = match rejection {
            Rejection::SeveralTokens => ", error=\"invalid_request\"",
            Rejection::InvalidToken => ", error=\"invalid_token\"",
            Rejection::TokenExpired => {
                ", error=\"invalid_token\", error_description=\"the token has expired\""
            }
            Rejection::InsufficientScope => ", error=\"insufficient_scope\"",
            _ => "",
        };
        let mut value = format!("Bearer realm=\"site\"{error}");
        let scopes = &self.settings.scopes;
        if rejection == Rejection::InsufficientScope && !scopes.is_empty() {
            value += &format!(", scope=\"{}\"", scopes.join(" "));
        }
        challenge(value)
    }

    pub(super) fn prove(&self, request: &PolicyRequest<'_>) -> Result<Proof<'_>, Rejection> {
        let token = match self.find(request.head) {
            Found::None if self.settings.is_optional => return Ok(Proof::Valid(self.nobody())),
            Found::None => return Ok(Proof::Missing),
            Found::Several => return Err(Rejection::SeveralTokens),
            Found::One(token) => token,
        };
        let now = seconds(request);
        let Some(fetched) = &self.settings.fetched else {
            return self.prove_with(&self.settings.keys, 0, (token, now));
        };
        let set = fetched.latest();
        let set = set.as_ref().ok_or(Rejection::NoKeys)?;
        let proved = self.prove_with(&set.keys, set.number, (token, now));
        if matches!(proved, Err(Rejection::InvalidToken)) {
            fetched.note_refused(&set.keys, token);
        }
        proved
    }

    /// Why the token of a request is refused, in words for operators; `None` if it is not, or has none.
    pub(super) fn reason(&self, request: &PolicyRequest<'_>) -> Option<String> {
        let Found::One(token) = self.find(request.head) else {
            return None;
        };
        let now = seconds(request);
        let Some(fetched) = &self.settings.fetched else {
            return reason::reason(&self.settings, &self.settings.keys, token, now);
        };
        let set = fetched.latest();
        reason::reason(&self.settings, &set.as_ref()?.keys, token, now)
    }

    /// With keys of the set with this number.
    fn prove_with(
        &self,
        keys: &[JwtKey],
        set: u64,
        (token, now): (&[u8], Option<u64>),
    ) -> Result<Proof<'static>, Rejection> {
        let verifier = (self.number, set);
        let known = now.and_then(|now| remembered::find(verifier, token, now));
        let token = match known {
            Some(token) => token,
            None => self.verify(keys, verifier, token, now)?,
        };
        let identity = match self.tells_identity() {
            true => Some(Identity::Token(token)),
            false => self
                .settings
                .keeps_subject
                .then_some(Identity::Subject(token)),
        };
        Ok(Proof::Valid(identity))
    }

    /// Verifies a token that the core does not know.
    #[inline(never)]
    fn verify(
        &self,
        keys: &[JwtKey],
        verifier: Owner,
        token: &[u8],
        now: Option<u64>,
    ) -> Result<Rc<TokenFacts>, Rejection> {
        let verified = verify(&self.settings, keys, token, now);
        let verified = verified.map_err(|error| match error {
            TokenError::Expired => Rejection::TokenExpired,
            TokenError::Scope => Rejection::InsufficientScope,
            TokenError::Form if has_second_scheme(token) => Rejection::SeveralTokens,
            _ => Rejection::InvalidToken,
        })?;
        let Verified {
            claims,
            payload,
            expires,
        } = verified;
        let forward = self.settings.forward.iter();
        let edits = forward.map(|(name, claim)| {
            let value = claim.of(&claims).and_then(field_value);
            set(name, value.as_deref().map(str::as_bytes))
        });
        let kept = self.settings.kept.iter().filter_map(|claim| {
            let value = claim.of(&claims).and_then(field_value)?;
            Some((claim.0.as_str().into(), value.into()))
        });
        let edits = edits.collect();
        let kept = kept.collect();
        let subject = || field_value(claims.get("sub")?).map(String::into_boxed_str);
        let subject = self.settings.keeps_subject.then(subject).flatten();
        let facts = Rc::new(match self.settings.keeps_all {
            false => TokenFacts {
                edits,
                claims: kept,
                subject,
                payload: None,
            },
            true => TokenFacts {
                edits,
                claims: claims.iter().filter_map(told).collect(),
                subject,
                payload: String::from_utf8(payload).ok().map(String::into_boxed_str),
            },
        });
        if now.is_some() {
            let expires = expires.saturating_add(self.settings.leeway.as_secs());
            remembered::add(verifier, token, expires, Rc::clone(&facts));
        }
        Ok(facts)
    }

    fn find<'h>(&self, head: &'h RequestHead) -> Found<'h> {
        let sources = self.settings.sources.iter();
        sources.fold(Found::None, |found, source| {
            found.and(match source {
                TokenSource::Authorization => of_authorization(&head.fields, "Bearer"),
                TokenSource::Cookie(name) => of_cookies(&head.fields, name),
                TokenSource::Query(name) => of_query(head.query(), name),
            })
        })
    }
}

/// The time of the request in seconds since 1970.
fn seconds(request: &PolicyRequest<'_>) -> Option<u64> {
    request.clock.map(|clock| {
        let since = clock().duration_since(UNIX_EPOCH);
        since.unwrap_or_default().as_secs()
    })
}

/// The name of a claim with its text.
fn told((name, value): (&String, &Value)) -> Option<(Box<str>, Box<str>)> {
    Some((name.as_str().into(), field_value(value)?.into()))
}

/// The text of a claim for a field; `None` if a field cannot have it, or would have another meaning with it: the items of
/// a list are separated by commas, and large numbers are not exact.
fn field_value(value: &Value) -> Option<String> {
    let text = match value {
        Value::Array(list) => {
            let items = list.iter().map(scalar);
            let items: Vec<String> = items.collect::<Option<_>>()?;
            let is_item = |item: &String| !item.is_empty() && !item.contains(',');
            items.iter().all(is_item).then(|| items.join(","))?
        }
        value => scalar(value)?,
    };
    let is_kept = !text.is_empty() && text.trim() == text && !text.contains(char::is_control);
    is_kept.then_some(text)
}
