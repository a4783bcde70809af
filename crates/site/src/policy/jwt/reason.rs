//! Why a token is refused, in words for operators: clients learn less. The words never have the token itself, and what it
//! says is quoted and cut.

use serde_json::Value;

use super::json::{self, Object};
use super::keys::{Algorithm, JwtKey};
use super::settings::{JwtSettings, scalar};
use super::token::{TokenError, decode, has_scope, verify};

/// The most characters of a value of a token that are shown.
const SHOWN_MAX: usize = 100;

/// The reason; `None` if the token is accepted.
pub(super) fn reason(
    settings: &JwtSettings,
    keys: &[JwtKey],
    token: &[u8],
    now: Option<u64>,
) -> Option<String> {
    let error = verify(settings, keys, token, now).err()?;
    let mut parts = token.split(|byte| *byte == b'.');
    let mut part = || json::object(&decode(parts.next()?).ok()?);
    let (header, claims) = (part().unwrap_or_default(), part().unwrap_or_default());
    let now = now.unwrap_or_default();
    let of = |name: &str| shown(claims.get(name));
    Some(match error {
        TokenError::Form => "it is no signed token in the compact form, or it is too large".to_owned(),
        TokenError::Header => format!(
            "its header is not accepted: `typ` is {}, `alg` is {}, and its members are {}",
            shown(header.get("typ")),
            shown(header.get("alg")),
            names(&header)
        ),
        TokenError::Key => key(keys, &header),
        TokenError::Signature => "its signature is not one of the key".to_owned(),
        TokenError::Claims if !claims.contains_key("exp") => "it has no claim `exp`".to_owned(),
        TokenError::Claims => {
            "one of its claims `exp`, `nbf`, `iat`, `iss`, `aud`, `sub` and `jti` has the wrong type, or one is there \
             twice"
                .to_owned()
        }
        TokenError::Expired => format!("it has expired: `exp` is {}, and now is {now}", of("exp")),
        TokenError::NotYet => format!(
            "it is not valid yet: `nbf` is {}, `iat` is {}, and now is {now}",
            of("nbf"),
            of("iat")
        ),
        TokenError::Issuer => format!(
            "its issuer `iss` is {}, and the route expects {}",
            of("iss"),
            expected(&settings.issuers)
        ),
        TokenError::Audience if settings.audiences.is_empty() => {
            format!("it is for the audience {}, and the route has no `audience`", of("aud"))
        }
        TokenError::Audience => format!(
            "its audience `aud` is {}, and the route expects {}",
            of("aud"),
            expected(&settings.audiences)
        ),
        TokenError::Scope => scope(settings, &claims),
    })
}

fn key(keys: &[JwtKey], header: &Object) -> String {
    let algorithm = shown(header.get("alg"));
    let known = header.get("alg").and_then(Value::as_str);
    if known.and_then(Algorithm::parse).is_none() {
        return format!("its algorithm {algorithm} is not supported");
    }
    match header.get("kid").and_then(Value::as_str) {
        Some(id) if !keys.iter().any(|key| key.has_id(id)) => format!(
            "no key has its key id {}, and none without an id is for its algorithm {algorithm}",
            shown(header.get("kid"))
        ),
        _ => format!("no key is for its algorithm {algorithm}"),
    }
}

fn scope(settings: &JwtSettings, claims: &Object) -> String {
    let mut scopes = settings.scopes.iter();
    if let Some(missing) = scopes.find(|scope| !has_scope(claims, scope)) {
        return format!("it lacks the scope {missing:?}");
    }
    let mut require = settings.require.iter();
    match require.find(|(claim, demand)| !demand.is_met(claim.of(claims))) {
        Some((claim, _)) => format!(
            "its claim {:?} is {}, which `require` does not take",
            claim.0,
            shown(claim.of(claims))
        ),
        None => "it lacks a scope or a claim".to_owned(),
    }
}

fn expected(values: &[String]) -> String {
    let values: Vec<String> = values.iter().map(|value| format!("{value:?}")).collect();
    values.join(" or ")
}

fn names(object: &Object) -> String {
    let names: Vec<&str> = object.keys().map(String::as_str).collect();
    cut(&names.join(", "))
}

/// A value of the token, quoted, and no longer than a line may be.
fn shown(value: Option<&Value>) -> String {
    match value {
        None => "missing".to_owned(),
        Some(Value::String(text)) => cut(text),
        Some(Value::Array(list)) => {
            let items: Vec<String> = list.iter().filter_map(scalar).collect();
            cut(&items.join(", "))
        }
        Some(value) => scalar(value).unwrap_or_else(|| "no text".to_owned()),
    }
}

fn cut(text: &str) -> String {
    let start: String = text.chars().take(SHOWN_MAX).collect();
    match start.len() == text.len() {
        true => format!("{text:?}"),
        false => format!("{:?}", start + "…"),
    }
}
