//! `jwt`: signed tokens (RFC 7519).

mod keys_url;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::span::Placed;

pub use keys_url::KeysUrl;

/// Demands on tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Jwt {
    /// The keys that verify them.
    pub keys: JwtKeys,
    /// The file with the authorities for the server of a URL; without it those of the system.
    pub keys_ca: Option<Placed<String>>,
    /// Names of algorithms; none are those of the keys.
    pub algorithms: Vec<&'static str>,
    /// Values of `iss`; none are any.
    pub issuers: Vec<String>,
    /// Values of `aud`.
    pub audiences: Vec<String>,
    /// Claims with what they have to be.
    pub require: Vec<(String, ClaimDemand)>,
    /// Scopes, all of them.
    pub scopes: Vec<String>,
    /// Names of fields in lower case, with the claims whose values they get.
    pub forward: Vec<(String, String)>,
    /// Where the token stands.
    pub sources: Vec<TokenSource>,
    /// How much the clocks may differ, in whole seconds.
    pub leeway: Duration,
    /// Whether requests without a token are served as well.
    pub is_optional: bool,
    /// Those of levels around a block `when`, which are demanded as well.
    pub also: Vec<Arc<Placed<Jwt>>>,
}

/// The keys that verify tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JwtKeys {
    /// A secret.
    Secret(Placed<Secret>),
    /// A file with a secret.
    SecretFile(Placed<String>),
    /// A file with a key set.
    KeysFile(Placed<String>),
    /// A key set that is fetched.
    KeysUrl(Placed<KeysUrl>),
}

/// A text that is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// A demand on a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimDemand {
    /// There.
    Present,
    /// One of these texts, or a list with one of them.
    OneOf(Vec<String>),
}

/// Where a token stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenSource {
    /// `Authorization: Bearer`.
    Header,
    /// A cookie.
    Cookie(String),
    /// A parameter of the query.
    Query(String),
}

impl Placed<Jwt> {
    /// These demands and others.
    pub(crate) fn with(&self, other: Arc<Placed<Jwt>>) -> Placed<Jwt> {
        let mut both = self.clone();
        both.value.also.push(other);
        both
    }
}
