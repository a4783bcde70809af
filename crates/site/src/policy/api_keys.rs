//! Keys that programs send with their requests. The gateway has their hashes only: a key has so many bits that nobody
//! finds it by its hash, so one round of SHA-256 suffices.

mod file;

use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::digest::{SHA256, digest};
use blitz_http::{Name, RequestHead};

use super::credentials::{
    Found, has_second_scheme, of_authorization, of_cookies, of_query, single,
};
use super::proof::{Proof, challenge, named};
use super::{Identity, PolicyRequest};
use crate::edit::{Edit, is_alias};
use crate::rejection::Rejection;

pub use file::{ApiKey, api_keys};

/// The most bytes of a key in a request.
const KEY_BYTES_MAX: usize = 1024;

/// Where a key stands in a request.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum KeySource {
    /// `Authorization: Bearer KEY`.
    Authorization,
    /// A field with this name.
    Field(String),
    /// A cookie with this name.
    Cookie(String),
    /// A parameter of the query with this name.
    Query(String),
}

/// The policy.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct ApiKeys {
    /// By their hashes.
    keys: Box<[KnownKey]>,
    sources: Box<[KeySource]>,
    /// Removes the fields that it sets.
    removal: Box<[Edit]>,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct KnownKey {
    hash: [u8; 32],
    /// The second from which it is refused.
    expires: Option<u64>,
    /// Empty if nobody asks for it.
    name: Box<str>,
    /// Tell the action its name.
    edits: Box<[Edit]>,
}

impl ApiKeys {
    /// The policy of these keys, which stand at one of these places. The fields with these names, in lower case, get the
    /// name of the key, and so do the notes of a request with `keeps_names`.
    #[must_use]
    pub fn new(
        keys: Vec<ApiKey>,
        sources: Vec<KeySource>,
        forward: &[String],
        keeps_names: bool,
    ) -> ApiKeys {
        let known = |key: ApiKey| KnownKey {
            hash: key.hash,
            expires: key.expires,
            edits: named(forward, Some(&key.name)),
            name: match keeps_names {
                true => key.name.into(),
                false => Box::default(),
            },
        };
        let mut keys: Vec<KnownKey> = keys.into_iter().map(known).collect();
        keys.sort_unstable_by_key(|key| key.hash);
        ApiKeys {
            keys: keys.into(),
            sources: sources.into(),
            removal: named(forward, None),
        }
    }

    /// The identity of a client without a key, if requests tell the action the names of keys.
    pub(super) fn nobody(&self) -> Option<Identity<'_>> {
        (!self.removal.is_empty()).then_some(Identity::None(&self.removal))
    }

    pub(super) fn challenge(&self) -> Edit {
        challenge("ApiKey realm=\"site\"".to_owned())
    }

    pub(super) fn prove(&self, request: &PolicyRequest<'_>) -> Result<Proof<'_>, Rejection> {
        if self.has_alias(request.head) {
            return Err(Rejection::SeveralCredentials);
        }
        let key = match self.find(request.head) {
            Found::None => return Ok(Proof::Missing),
            Found::Several => return Err(Rejection::SeveralCredentials),
            Found::One(key) => key,
        };
        if key.len() > KEY_BYTES_MAX {
            return Err(Rejection::InvalidApiKey);
        }
        let hash = digest(&SHA256, key);
        // The time of the search tells something about hashes only, which nobody can choose.
        let at = self
            .keys
            .binary_search_by(|known| known.hash.as_slice().cmp(hash.as_ref()));
        let known = at.ok().and_then(|at| self.keys.get(at));
        let known = known.ok_or_else(|| match has_second_scheme(key) {
            true => Rejection::SeveralCredentials,
            false => Rejection::InvalidApiKey,
        })?;
        if let (Some(clock), Some(expires)) = (request.clock, known.expires)
            && seconds(clock()) >= expires
        {
            return Err(Rejection::ApiKeyExpired);
        }
        let is_told = !known.edits.is_empty() || !known.name.is_empty();
        let identity = Identity::Key {
            name: &known.name,
            edits: &known.edits,
        };
        Ok(Proof::Valid(is_told.then_some(identity)))
    }

    /// Whether a key can stand in `Authorization` only.
    pub(super) fn needs_authorization(&self) -> bool {
        let mut sources = self.sources.iter();
        sources.all(|source| *source == KeySource::Authorization)
    }

    /// Whether a key can stand in a field that trailers may have as well.
    pub(super) fn takes_fields(&self) -> bool {
        let mut sources = self.sources.iter();
        sources.any(|source| matches!(source, KeySource::Field(_)))
    }

    /// Whether a field has another spelling of the name of a field with keys: its content would not be checked, and an
    /// application may take it for the key.
    fn has_alias(&self, head: &RequestHead) -> bool {
        self.sources.iter().any(|source| {
            let KeySource::Field(name) = source else {
                return false;
            };
            let mut fields = head.fields.iter();
            fields.any(|(field, _)| is_alias(field.as_bytes(), name.as_bytes()))
        })
    }

    fn find<'h>(&self, head: &'h RequestHead) -> Found<'h> {
        let sources = self.sources.iter();
        sources.fold(Found::None, |found, source| {
            found.and(match source {
                KeySource::Authorization => of_authorization(&head.fields, "Bearer"),
                KeySource::Field(name) => single(head.fields.get_all(name.as_str())),
                KeySource::Cookie(name) => of_cookies(&head.fields, name),
                KeySource::Query(name) => of_query(head.query(), name),
            })
        })
    }
}

impl KeySource {
    /// A field with this name.
    #[must_use]
    pub fn field(name: &str) -> KeySource {
        match Name::Authorization.as_str().eq_ignore_ascii_case(name) {
            true => KeySource::Authorization,
            false => KeySource::Field(name.to_owned()),
        }
    }
}

fn seconds(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_secs()
}
