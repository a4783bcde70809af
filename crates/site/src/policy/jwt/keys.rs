//! Keys that verify tokens (RFC 7517, RFC 7518). Each key has its algorithms: a token never chooses one.

use std::collections::HashSet;
use std::fmt;

use aws_lc_rs::hmac;
use aws_lc_rs::signature::{self, RsaPublicKeyComponents, UnparsedPublicKey};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;

use super::json::{self, Object};

/// The most bytes of a file with keys.
pub(super) const KEY_SET_BYTES_MAX: usize = 256 * 1024;

/// The most keys of a set.
const KEYS_MAX: usize = 64;

/// Bits of the modulus of RSA keys.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=8192;

/// An algorithm of signatures (RFC 7518, section 3.1; RFC 8037).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "their names are those of the RFC")]
pub enum Algorithm {
    Hs256,
    Hs384,
    Hs512,
    Rs256,
    Rs384,
    Rs512,
    Ps256,
    Ps384,
    Ps512,
    Es256,
    Es384,
    EdDsa,
}

impl Algorithm {
    /// The algorithm with this name, which is case-sensitive.
    #[must_use]
    pub fn parse(name: &str) -> Option<Algorithm> {
        Some(match name {
            "HS256" => Algorithm::Hs256,
            "HS384" => Algorithm::Hs384,
            "HS512" => Algorithm::Hs512,
            "RS256" => Algorithm::Rs256,
            "RS384" => Algorithm::Rs384,
            "RS512" => Algorithm::Rs512,
            "PS256" => Algorithm::Ps256,
            "PS384" => Algorithm::Ps384,
            "PS512" => Algorithm::Ps512,
            "ES256" => Algorithm::Es256,
            "ES384" => Algorithm::Es384,
            // RFC 9864 gives the algorithm of the only curve a name of its own.
            "EdDSA" | "Ed25519" => Algorithm::EdDsa,
            _ => return None,
        })
    }

    /// The least bytes of a secret: as many as the hash has (RFC 7518, section 3.2); `None` if it takes no secret.
    fn secret_bytes_min(self) -> Option<usize> {
        match self {
            Algorithm::Hs256 => Some(32),
            Algorithm::Hs384 => Some(48),
            Algorithm::Hs512 => Some(64),
            _ => None,
        }
    }

    fn hmac(self) -> Option<hmac::Algorithm> {
        match self {
            Algorithm::Hs256 => Some(hmac::HMAC_SHA256),
            Algorithm::Hs384 => Some(hmac::HMAC_SHA384),
            Algorithm::Hs512 => Some(hmac::HMAC_SHA512),
            _ => None,
        }
    }

    fn rsa(self) -> Option<&'static signature::RsaParameters> {
        match self {
            Algorithm::Rs256 => Some(&signature::RSA_PKCS1_2048_8192_SHA256),
            Algorithm::Rs384 => Some(&signature::RSA_PKCS1_2048_8192_SHA384),
            Algorithm::Rs512 => Some(&signature::RSA_PKCS1_2048_8192_SHA512),
            Algorithm::Ps256 => Some(&signature::RSA_PSS_2048_8192_SHA256),
            Algorithm::Ps384 => Some(&signature::RSA_PSS_2048_8192_SHA384),
            Algorithm::Ps512 => Some(&signature::RSA_PSS_2048_8192_SHA512),
            _ => None,
        }
    }
}

/// A key, with the algorithms that it is used with.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct JwtKey {
    id: Option<String>,
    algorithms: Vec<Algorithm>,
    material: Material,
}

#[derive(Clone, PartialEq, Eq, Hash)]
enum Material {
    Secret(Vec<u8>),
    Rsa {
        modulus: Vec<u8>,
        exponent: Vec<u8>,
    },
    /// An uncompressed point.
    P256(Vec<u8>),
    P384(Vec<u8>),
    Ed25519(Vec<u8>),
}

/// Secrets are never shown.
impl fmt::Debug for JwtKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JwtKey")
            .field("id", &self.id)
            .field("algorithms", &self.algorithms)
            .finish_non_exhaustive()
    }
}

impl JwtKey {
    /// A secret that issuer and gateway share, for these algorithms; none is HS256.
    ///
    /// # Errors
    /// The problem and its remedy.
    pub fn secret(secret: &[u8], algorithms: &[Algorithm]) -> Result<JwtKey, (String, String)> {
        let algorithms = match algorithms {
            [] => vec![Algorithm::Hs256],
            algorithms => algorithms.to_vec(),
        };
        for algorithm in &algorithms {
            let Some(min) = algorithm.secret_bytes_min() else {
                return Err((
                    "a secret is for HS256, HS384 and HS512 only".to_owned(),
                    "write `keys_file` for public keys".to_owned(),
                ));
            };
            if secret.len() < min {
                return Err((
                    format!("the secret has {} bytes, and needs {min}", secret.len()),
                    format!(
                        "make one with `openssl rand -hex {}`",
                        min.div_ceil(2).max(32)
                    ),
                ));
            }
        }
        Ok(JwtKey {
            id: None,
            algorithms,
            material: Material::Secret(secret.to_vec()),
        })
    }

    /// A secret for HS256, however short it is.
    #[must_use]
    pub fn any_secret(secret: &[u8]) -> JwtKey {
        JwtKey {
            id: None,
            algorithms: vec![Algorithm::Hs256],
            material: Material::Secret(secret.to_vec()),
        }
    }

    /// Whether a token with this algorithm and key identifier may be signed with it. `is_known` says that a key has this
    /// identifier; otherwise those without one are meant.
    pub(super) fn is_candidate(
        &self,
        algorithm: Algorithm,
        id: Option<&str>,
        is_known: bool,
    ) -> bool {
        let has_id = match (id, &self.id) {
            (None, _) => true,
            (Some(id), Some(own)) => id == own,
            (Some(_), None) => !is_known,
        };
        has_id && self.algorithms.contains(&algorithm)
    }

    pub(super) fn has_id(&self, id: &str) -> bool {
        self.id.as_deref() == Some(id)
    }

    /// Whether the signature is one of this message. Its time does not depend on a secret.
    pub(super) fn verifies(&self, algorithm: Algorithm, message: &[u8], signature: &[u8]) -> bool {
        let verified = match (&self.material, algorithm) {
            (Material::Secret(secret), _) => {
                let Some(algorithm) = algorithm.hmac() else {
                    return false;
                };
                let key = hmac::Key::new(algorithm, secret);
                hmac::verify(&key, message, signature)
            }
            (Material::Rsa { modulus, exponent }, _) => {
                let Some(parameters) = algorithm.rsa() else {
                    return false;
                };
                let key = RsaPublicKeyComponents {
                    n: modulus,
                    e: exponent,
                };
                key.verify(parameters, message, signature)
            }
            (Material::P256(point), Algorithm::Es256) => {
                UnparsedPublicKey::new(&signature::ECDSA_P256_SHA256_FIXED, point)
                    .verify(message, signature)
            }
            (Material::P384(point), Algorithm::Es384) => {
                UnparsedPublicKey::new(&signature::ECDSA_P384_SHA384_FIXED, point)
                    .verify(message, signature)
            }
            (Material::Ed25519(key), Algorithm::EdDsa) => {
                UnparsedPublicKey::new(&signature::ED25519, key).verify(message, signature)
            }
            _ => return false,
        };
        verified.is_ok()
    }
}

/// The keys of a set, and notes on those that are left out. Without `algorithms` a key has the one that it names, or
/// that of its curve; RSA is RS256 then, and a secret HS256.
///
/// # Errors
/// The problem: the set cannot be used.
pub fn key_set(
    bytes: &[u8],
    algorithms: &[Algorithm],
) -> Result<(Vec<JwtKey>, Vec<String>), String> {
    if bytes.len() > KEY_SET_BYTES_MAX {
        return Err(format!("a key set has at most {KEY_SET_BYTES_MAX} bytes"));
    }
    let set = json::object(bytes).ok_or("this is no JSON object with distinct members")?;
    let Some(Value::Array(list)) = set.get("keys") else {
        return Err("the key set has no list `keys`".to_owned());
    };
    if list.len() > KEYS_MAX {
        return Err(format!("a key set has at most {KEYS_MAX} keys"));
    }
    let (mut keys, mut notes, mut ids) = (Vec::new(), Vec::new(), HashSet::new());
    for (at, key) in list.iter().enumerate() {
        let Value::Object(key) = key else {
            return Err(format!("key {} is no object", at + 1));
        };
        let id = text(key, "kid").map_err(|problem| format!("key {}: {problem}", at + 1))?;
        if let Some(id) = id
            && !ids.insert(id.to_owned())
        {
            return Err(format!("two keys have the `kid` {id:?}"));
        }
        let name = id.map_or_else(|| format!("key {}", at + 1), |id| format!("key {id:?}"));
        match self::key(key, id, algorithms).map_err(|problem| format!("{name}: {problem}"))? {
            Ok(key) => keys.push(key),
            Err(reason) => notes.push(format!("{name} is not used: {reason}")),
        }
    }
    match keys.is_empty() {
        true => Err(match notes.as_slice() {
            [] => "the key set has no key".to_owned(),
            notes => notes.join("; "),
        }),
        false => Ok((keys, notes)),
    }
}

/// The same for a set that others see, too: secrets in it are left out.
pub(super) fn public_key_set(
    bytes: &[u8],
    algorithms: &[Algorithm],
) -> Result<(Vec<JwtKey>, Vec<String>), String> {
    let (mut keys, mut notes) = key_set(bytes, algorithms)?;
    let count = keys.len();
    keys.retain(|key| !matches!(key.material, Material::Secret(_)));
    if keys.len() < count {
        let secrets = "secrets of a set that everybody may read are not used";
        if keys.is_empty() {
            return Err(secrets.to_owned());
        }
        notes.push(secrets.to_owned());
    }
    Ok((keys, notes))
}

/// A key, or why it is left out.
type Read = Result<JwtKey, String>;

fn key(key: &Object, id: Option<&str>, algorithms: &[Algorithm]) -> Result<Read, String> {
    if text(key, "use")?.is_some_and(|purpose| purpose != "sig") {
        return Ok(Err("its `use` is not \"sig\"".to_owned()));
    }
    if let Some(operations) = key.get("key_ops") {
        let Value::Array(operations) = operations else {
            return Err("`key_ops` is no list".to_owned());
        };
        let mut operations = operations.iter();
        if !operations.any(|operation| operation.as_str() == Some("verify")) {
            return Ok(Err("its `key_ops` lack \"verify\"".to_owned()));
        }
    }
    let Some(kind) = text(key, "kty")? else {
        return Err("`kty` is missing".to_owned());
    };
    let named = match text(key, "alg")? {
        None => None,
        Some(name) => match Algorithm::parse(name) {
            Some(algorithm) => Some(algorithm),
            None => return Ok(Err(format!("its `alg` {name:?} is not supported"))),
        },
    };
    let (material, of_kind, default) = match material(key, kind)? {
        Ok(material) => material,
        Err(reason) => return Ok(Err(reason)),
    };
    if kind != "oct" && key.contains_key("d") {
        return Err("it is private; the file needs the public part only".to_owned());
    }
    if let Some(named) = named
        && !of_kind.contains(&named)
    {
        return Err("its `alg` is none of its `kty`".to_owned());
    }
    let used = match (named, algorithms) {
        (Some(named), []) => vec![named],
        (None, []) => vec![default],
        (Some(named), allowed) => allowed.iter().copied().filter(|a| *a == named).collect(),
        (None, allowed) => allowed
            .iter()
            .copied()
            .filter(|algorithm| of_kind.contains(algorithm))
            .collect(),
    };
    if used.is_empty() {
        return Ok(Err("it is for none of the `algorithms`".to_owned()));
    }
    if let Material::Secret(secret) = &material {
        JwtKey::secret(secret, &used).map_err(|(problem, _)| problem)?;
    }
    Ok(Ok(JwtKey {
        id: id.map(str::to_owned),
        algorithms: used,
        material,
    }))
}

/// The key itself, the algorithms of its kind, and the one that it has without `alg`; or why it is left out.
type MaterialOfKind = (Material, &'static [Algorithm], Algorithm);

fn material(key: &Object, kind: &str) -> Result<Result<MaterialOfKind, String>, String> {
    Ok(Ok(match kind {
        "RSA" => (rsa(key)?, RSA, Algorithm::Rs256),
        "EC" => match text(key, "crv")? {
            Some("P-256") => (Material::P256(point(key, 32)?), P256, Algorithm::Es256),
            Some("P-384") => (Material::P384(point(key, 48)?), P384, Algorithm::Es384),
            other => return Ok(Err(format!("its curve {other:?} is not supported"))),
        },
        "OKP" => match text(key, "crv")? {
            Some("Ed25519") => (
                Material::Ed25519(exactly(key, "x", 32)?),
                ED25519,
                Algorithm::EdDsa,
            ),
            other => return Ok(Err(format!("its curve {other:?} is not supported"))),
        },
        "oct" => (Material::Secret(bytes(key, "k")?), SECRET, Algorithm::Hs256),
        other => return Ok(Err(format!("its `kty` {other:?} is not supported"))),
    }))
}

const RSA: &[Algorithm] = &[
    Algorithm::Rs256,
    Algorithm::Rs384,
    Algorithm::Rs512,
    Algorithm::Ps256,
    Algorithm::Ps384,
    Algorithm::Ps512,
];
const P256: &[Algorithm] = &[Algorithm::Es256];
const P384: &[Algorithm] = &[Algorithm::Es384];
const ED25519: &[Algorithm] = &[Algorithm::EdDsa];
const SECRET: &[Algorithm] = &[Algorithm::Hs256, Algorithm::Hs384, Algorithm::Hs512];

fn rsa(key: &Object) -> Result<Material, String> {
    let without_zeros = |bytes: Vec<u8>| {
        let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
        bytes[zeros..].to_vec()
    };
    let modulus = without_zeros(bytes(key, "n")?);
    let exponent = without_zeros(bytes(key, "e")?);
    let unused = modulus
        .first()
        .map_or(0, |byte| byte.leading_zeros() as usize);
    let bits = modulus.len() * 8 - unused;
    if !RSA_BITS.contains(&bits) {
        return Err(format!(
            "its modulus has {bits} bits, and needs {} to {}",
            RSA_BITS.start(),
            RSA_BITS.end()
        ));
    }
    let is_odd = |bytes: &[u8]| bytes.last().is_some_and(|byte| byte % 2 == 1);
    let is_one = exponent == [1];
    if !is_odd(&exponent) || is_one || exponent.len() > 4 || !is_odd(&modulus) {
        return Err("this is no RSA key".to_owned());
    }
    Ok(Material::Rsa { modulus, exponent })
}

/// An uncompressed point, which is one of the curve.
fn point(key: &Object, bytes: usize) -> Result<Vec<u8>, String> {
    let mut point = vec![4];
    point.extend(exactly(key, "x", bytes)?);
    point.extend(exactly(key, "y", bytes)?);
    let parsed = match bytes {
        32 => UnparsedPublicKey::new(&signature::ECDSA_P256_SHA256_FIXED, &point).parse(),
        _ => UnparsedPublicKey::new(&signature::ECDSA_P384_SHA384_FIXED, &point).parse(),
    };
    match parsed {
        Ok(_) => Ok(point),
        Err(_) => Err("its point is not on the curve".to_owned()),
    }
}

fn exactly(key: &Object, name: &str, count: usize) -> Result<Vec<u8>, String> {
    let value = bytes(key, name)?;
    match value.len() == count {
        true => Ok(value),
        false => Err(format!(
            "`{name}` has {} bytes, and needs {count}",
            value.len()
        )),
    }
}

fn bytes(key: &Object, name: &str) -> Result<Vec<u8>, String> {
    let Some(value) = text(key, name)? else {
        return Err(format!("`{name}` is missing"));
    };
    URL_SAFE_NO_PAD
        .decode(value)
        .map_err(|_| format!("`{name}` is no base64url without padding"))
}

fn text<'k>(key: &'k Object, name: &str) -> Result<Option<&'k str>, String> {
    match key.get(name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(format!("`{name}` is no text")),
    }
}
