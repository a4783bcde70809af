//! The demands of a route on tokens.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::fetched::FetchedKeys;
use super::json::Object;
use super::keys::JwtKey;

/// The demands of a route on tokens.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct JwtSettings {
    /// The keys, with their algorithms.
    pub keys: Vec<JwtKey>,
    /// Keys that are fetched, in place of the others.
    pub fetched: Option<Arc<FetchedKeys>>,
    /// Values of `iss`, one of which is demanded; none are any.
    pub issuers: Vec<String>,
    /// Values of `aud`, one of which is demanded; without them the token must have none.
    pub audiences: Vec<String>,
    /// Claims that are demanded.
    pub require: Vec<(Claim, ClaimDemand)>,
    /// Scopes that are demanded, all of them.
    pub scopes: Vec<String>,
    /// Names of request fields in lower case that get the values of claims.
    pub forward: Vec<(String, Claim)>,
    /// Claims whose values later policies and placeholders use.
    pub kept: Vec<Claim>,
    /// Whether the subject is kept as the name of the client.
    pub keeps_subject: bool,
    /// Whether all claims are told: the whole, and all whose values a field could have.
    pub keeps_all: bool,
    /// Where the token stands; several tokens are refused.
    pub sources: Vec<TokenSource>,
    /// How much the clocks of issuer and gateway may differ.
    pub leeway: Duration,
    /// Whether requests without a token are served as well.
    pub is_optional: bool,
}

/// Where a token stands in a request.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum TokenSource {
    /// `Authorization: Bearer TOKEN`.
    Authorization,
    /// A cookie with this name.
    Cookie(String),
    /// A parameter of the query with this name.
    Query(String),
}

/// The name of a claim. One that begins with a slash is a pointer to a member of a claim (RFC 6901).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Claim(pub String);

/// A demand on a claim.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ClaimDemand {
    /// It is there, and not `null`.
    Present,
    /// It is one of these texts, or a list with one of them.
    OneOf(Vec<String>),
}

impl Claim {
    pub(super) fn of<'c>(&self, claims: &'c Object) -> Option<&'c Value> {
        let Some(pointer) = self.0.strip_prefix('/') else {
            return claims.get(&self.0);
        };
        let (first, rest) = match pointer.split_once('/') {
            None => (pointer, ""),
            Some((first, _)) => (first, &pointer[first.len()..]),
        };
        let first = first.replace("~1", "/").replace("~0", "~");
        claims.get(&first)?.pointer(rest)
    }
}

impl ClaimDemand {
    pub(super) fn is_met(&self, value: Option<&Value>) -> bool {
        let Some(value) = value.filter(|value| !value.is_null()) else {
            return false;
        };
        let ClaimDemand::OneOf(texts) = self else {
            return true;
        };
        let is_one = |value: &Value| {
            let scalar = scalar(value);
            scalar.is_some_and(|scalar| texts.contains(&scalar))
        };
        match value {
            Value::Array(list) => list.iter().any(is_one),
            value => is_one(value),
        }
    }
}

/// From here on a number with a fraction may stand for several integers.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

/// The text of a value that is no list and no object. Numbers beyond 64 bits have none: as floating-point numbers they
/// would have that of others, and one client that of another one.
pub(super) fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) if number.is_f64() => {
            let is_exact = number
                .as_f64()
                .is_some_and(|number| number.abs() < EXACT_MAX);
            is_exact.then(|| number.to_string())
        }
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(value) => Some(value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}
