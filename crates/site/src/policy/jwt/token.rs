//! Tokens: signed claims in the compact form (RFC 7515, RFC 7519), checked by the advice of RFC 8725.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;

use super::json::{self, Object};
use super::keys::{Algorithm, JwtKey};
use super::settings::{Claim, ClaimDemand, JwtSettings};

/// The most bytes of a token.
pub(super) const TOKEN_BYTES_MAX: usize = 8 * 1024;

/// The most bytes of a key identifier.
const KEY_ID_BYTES_MAX: usize = 256;

/// How many keys may be tried for a token that names none.
const CANDIDATES_MAX: usize = 8;

/// The latest time of a claim: integers up to it are exact in every implementation of JSON.
const TIME_MAX: f64 = 9_007_199_254_740_991.0;

/// Types of tokens that are accepted (RFC 8725, section 3.11): tokens of other purposes are no proof of access.
const TYPES: [&str; 4] = ["JWT", "at+jwt", "application/at+jwt", "application/jwt"];

/// Members of headers that would have to be understood, or bring a key with them.
const REFUSED_MEMBERS: [&str; 8] = ["crit", "b64", "zip", "enc", "cty", "jwk", "jku", "x5u"];

/// Why a token is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TokenError {
    /// It is no signed token in the compact form, or it is too large.
    Form,
    /// A member of its header is refused.
    Header,
    /// No key has its algorithm and its key identifier.
    Key,
    Signature,
    /// A claim has the wrong type, is missing, or is there twice.
    Claims,
    Expired,
    /// `nbf` or `iat` are in the future.
    NotYet,
    Issuer,
    Audience,
    /// It lacks a scope, or a claim that is demanded.
    Scope,
}

/// A token that was verified.
pub(super) struct Verified {
    pub(super) claims: Object,
    /// The claims as the issuer has written them.
    pub(super) payload: Vec<u8>,
    /// The second from which it is refused, without leeway.
    pub(super) expires: u64,
}

/// Verifies a token at this time, in seconds since 1970; without a time it is not compared with the token.
pub(super) fn verify(
    settings: &JwtSettings,
    keys: &[JwtKey],
    token: &[u8],
    now: Option<u64>,
) -> Result<Verified, TokenError> {
    if token.len() > TOKEN_BYTES_MAX {
        return Err(TokenError::Form);
    }
    let mut parts = token.split(|byte| *byte == b'.');
    let (Some(header), Some(payload), Some(signature), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(TokenError::Form);
    };
    let message = &token[..header.len() + 1 + payload.len()];
    let header = json::object(&decode(header)?).ok_or(TokenError::Header)?;
    let signature = decode(signature)?;
    let payload = decode(payload)?;
    check_signature(keys, &header, message, &signature)?;
    let claims = json::object(&payload).ok_or(TokenError::Claims)?;
    let expires = check_claims(settings, &claims, now)?;
    Ok(Verified {
        claims,
        payload,
        expires,
    })
}

/// The key identifier of a token, whatever else is wrong with it.
pub(super) fn key_id(token: &[u8]) -> Option<String> {
    let header = token.split(|byte| *byte == b'.').next()?;
    let header = header.get(..header.len().min(TOKEN_BYTES_MAX))?;
    match json::object(&decode(header).ok()?)?.get("kid") {
        Some(Value::String(id)) if id.len() <= KEY_ID_BYTES_MAX => Some(id.clone()),
        _ => None,
    }
}

/// Padding, white space and the other alphabet are refused, and so are bits behind the last byte.
pub(super) fn decode(part: &[u8]) -> Result<Vec<u8>, TokenError> {
    let decoded = URL_SAFE_NO_PAD.decode(part);
    let decoded = decoded.map_err(|_| TokenError::Form)?;
    match decoded.is_empty() {
        true => Err(TokenError::Form),
        false => Ok(decoded),
    }
}

fn check_signature(
    keys: &[JwtKey],
    header: &Object,
    message: &[u8],
    signature: &[u8],
) -> Result<(), TokenError> {
    if REFUSED_MEMBERS
        .iter()
        .any(|name| header.contains_key(*name))
    {
        return Err(TokenError::Header);
    }
    match header.get("typ") {
        None => {}
        Some(Value::String(kind)) if TYPES.iter().any(|one| one.eq_ignore_ascii_case(kind)) => {}
        Some(_) => return Err(TokenError::Header),
    }
    let Some(Value::String(algorithm)) = header.get("alg") else {
        return Err(TokenError::Header);
    };
    let algorithm = Algorithm::parse(algorithm).ok_or(TokenError::Key)?;
    let id = match header.get("kid") {
        None => None,
        Some(Value::String(id)) if id.len() <= KEY_ID_BYTES_MAX => Some(id.as_str()),
        Some(_) => return Err(TokenError::Header),
    };
    let is_known = id.is_some_and(|id| keys.iter().any(|key| key.has_id(id)));
    let candidates = keys
        .iter()
        .filter(|key| key.is_candidate(algorithm, id, is_known));
    let mut candidates = candidates.take(CANDIDATES_MAX).peekable();
    if candidates.peek().is_none() {
        return Err(TokenError::Key);
    }
    match candidates.any(|key| key.verifies(algorithm, message, signature)) {
        true => Ok(()),
        false => Err(TokenError::Signature),
    }
}

/// Returns `exp`.
fn check_claims(
    settings: &JwtSettings,
    claims: &Object,
    now: Option<u64>,
) -> Result<u64, TokenError> {
    let expires = time(claims, "exp")?.ok_or(TokenError::Claims)?;
    let begins = [time(claims, "nbf")?, time(claims, "iat")?];
    if let Some(now) = now {
        let leeway = settings.leeway.as_secs();
        if now >= expires.saturating_add(leeway) {
            return Err(TokenError::Expired);
        }
        let latest = now.saturating_add(leeway);
        if begins.into_iter().flatten().any(|begins| begins > latest) {
            return Err(TokenError::NotYet);
        }
    }
    for name in ["sub", "jti"] {
        text(claims, name)?;
    }
    let issuer = text(claims, "iss")?;
    let is_issuer = |known: &String| issuer == Some(known);
    if !settings.issuers.is_empty() && !settings.issuers.iter().any(is_issuer) {
        return Err(TokenError::Issuer);
    }
    check_audience(settings, claims)?;
    let has_scopes = settings.scopes.iter().all(|scope| has_scope(claims, scope));
    let meets = |(claim, demand): &(Claim, ClaimDemand)| demand.is_met(claim.of(claims));
    match has_scopes && settings.require.iter().all(meets) {
        true => Ok(expires),
        false => Err(TokenError::Scope),
    }
}

/// A token for others is refused, also where no audience is known (RFC 7519, section 4.1.3): "If the principal processing
/// the claim does not identify itself with a value in the "aud" claim when this claim is present, then the JWT MUST be
/// rejected."
fn check_audience(settings: &JwtSettings, claims: &Object) -> Result<(), TokenError> {
    let is_own = |audience: &str| settings.audiences.iter().any(|own| own == audience);
    match claims.get("aud") {
        None if settings.audiences.is_empty() => Ok(()),
        None => Err(TokenError::Audience),
        Some(Value::String(audience)) if is_own(audience) => Ok(()),
        Some(Value::String(_)) => Err(TokenError::Audience),
        Some(Value::Array(list)) => {
            let mut found = false;
            for audience in list {
                let audience = audience.as_str().ok_or(TokenError::Claims)?;
                found |= is_own(audience);
            }
            match found {
                true => Ok(()),
                false => Err(TokenError::Audience),
            }
        }
        Some(_) => Err(TokenError::Claims),
    }
}

/// `scope` is a text with words (RFC 8693, section 4.2); others write `scp`, also as a list.
pub(super) fn has_scope(claims: &Object, scope: &str) -> bool {
    let has = |value: &Value| match value {
        Value::String(text) => text.split(' ').any(|one| one == scope),
        Value::Array(list) => list.iter().any(|one| one.as_str() == Some(scope)),
        _ => false,
    };
    ["scope", "scp"]
        .iter()
        .any(|name| claims.get(*name).is_some_and(has))
}

/// Seconds since 1970, perhaps with a fraction, which is cut off.
fn time(claims: &Object, name: &str) -> Result<Option<u64>, TokenError> {
    let Some(value) = claims.get(name) else {
        return Ok(None);
    };
    let number = match value {
        Value::Number(number) => number.as_f64(),
        _ => None,
    };
    match number {
        Some(number) if (0.0..=TIME_MAX).contains(&number) => Ok(Some(number as u64)),
        _ => Err(TokenError::Claims),
    }
}

fn text<'c>(claims: &'c Object, name: &str) -> Result<Option<&'c String>, TokenError> {
    match claims.get(name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(TokenError::Claims),
    }
}
