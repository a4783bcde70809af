//! Passwords, keys of programs, and one of several proofs.

use std::path::PathBuf;
use std::sync::Arc;

use blitz_site::{
    AnyOf, ApiKeys, BasicAuth, KeySource, NetworkSet, Policy, Prover, api_keys as parse_keys, users,
};

use super::fields::{check_name, is_same_name};
use super::source::Source;
use super::{AppPolicy, Kind};
use crate::error::Error;

/// The field of a key by default.
const KEY_FIELD: &str = "x-api-key";

/// Demands a name with its password; see [`basic_auth`].
#[must_use]
pub struct BasicAuthPolicy {
    source: Option<Source>,
    realm: String,
}

/// Demands a name with its password (RFC 7617); other requests get 401. Passwords are checked on another thread, and
/// remembered for a while. An [`Identity`](crate::extract::Identity) has the name.
///
/// ```
/// use blitz::{App, extract::Identity, policy::basic_auth};
///
/// // As `htpasswd -B` writes it; the password is `secret`.
/// let users = "ann:$2b$04$YYK1zXSp3Zik6cp4.79XOe9lUmYbNOtRzr.LZfaXNKLl8kBYY8oBS";
/// let app = App::new()
///     .policy(basic_auth().users(users).realm("administration"))
///     .get("/", |who: Identity| format!("Hello, {}!", who.user().unwrap_or_default()));
/// # app.build().unwrap();
/// ```
pub fn basic_auth() -> BasicAuthPolicy {
    BasicAuthPolicy {
        source: None,
        realm: "site".to_owned(),
    }
}

impl BasicAuthPolicy {
    /// The file with the users, as `htpasswd` writes it. It is read when the policy is added to the app.
    pub fn users_file(mut self, path: impl Into<PathBuf>) -> BasicAuthPolicy {
        self.source = Some(Source::File(path.into()));
        self
    }

    /// The users as a text of the same form: lines of `NAME:HASH`.
    pub fn users(mut self, text: impl AsRef<[u8]>) -> BasicAuthPolicy {
        self.source = Some(Source::Text(text.as_ref().to_vec()));
        self
    }

    /// The name of what is protected, which browsers show. Default: `site`.
    pub fn realm(mut self, realm: impl Into<String>) -> BasicAuthPolicy {
        self.realm = realm.into();
        self
    }

    fn build(&self) -> Result<Kind, Error> {
        let source = self.source.as_ref().ok_or_else(|| {
            Error::new("`basic_auth` has no users")
                .with_remedy("Call `.users_file(..)` or `.users(..)`.")
        })?;
        let is_text = |c: char| c == ' ' || c.is_ascii_graphic();
        if !self.realm.chars().all(is_text) {
            let problem = "a realm has no control characters and none beyond ASCII";
            return Err(Error::new(problem).with_remedy("Write for example `administration`."));
        }
        let (users, note) = users(&source.read()?).map_err(|error| source.error(error))?;
        if let Some(note) = note {
            tracing::warn!("users of `basic_auth`: {note}; write them anew, with htpasswd -B");
        }
        let policy = BasicAuth::new(Arc::new(users), &self.realm);
        Ok(Kind::Shared(Policy::Proof(Prover::BasicAuth(Arc::new(
            policy,
        )))))
    }
}

impl From<BasicAuthPolicy> for AppPolicy {
    fn from(policy: BasicAuthPolicy) -> AppPolicy {
        AppPolicy(policy.build())
    }
}

/// Demands a key; see [`api_keys`].
#[must_use]
pub struct ApiKeysPolicy {
    source: Option<Source>,
    places: Vec<KeySource>,
    forward: Vec<String>,
}

/// Demands a key of a program; other requests get 401. The app has only hashes of keys. An
/// [`Identity`](crate::extract::Identity) has the name of the key.
///
/// ```
/// use blitz::{App, extract::Identity, policy::api_keys};
///
/// // SHA-256 of the key; `blitz api-key billing` makes both.
/// let keys = "billing:sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
/// let app = App::new()
///     .policy(api_keys().keys(keys).from_header("x-api-key"))
///     .get("/", |who: Identity| who.key().map(str::to_owned));
/// # app.build().unwrap();
/// ```
pub fn api_keys() -> ApiKeysPolicy {
    ApiKeysPolicy {
        source: None,
        places: Vec::new(),
        forward: Vec::new(),
    }
}

impl ApiKeysPolicy {
    /// The file with the hashes of the keys: lines of `NAME:sha256:HASH`. It is read when the policy is added to the app.
    pub fn file(mut self, path: impl Into<PathBuf>) -> ApiKeysPolicy {
        self.source = Some(Source::File(path.into()));
        self
    }

    /// The hashes as a text of the same form.
    pub fn keys(mut self, text: impl AsRef<[u8]>) -> ApiKeysPolicy {
        self.source = Some(Source::Text(text.as_ref().to_vec()));
        self
    }

    /// Takes the key from a field. The default is `X-API-Key`; in `Authorization` the key is a bearer token.
    pub fn from_header(mut self, name: &str) -> ApiKeysPolicy {
        self.places
            .push(KeySource::field(&name.to_ascii_lowercase()));
        self
    }

    /// Takes the key from a cookie.
    pub fn from_cookie(mut self, name: impl Into<String>) -> ApiKeysPolicy {
        self.places.push(KeySource::Cookie(name.into()));
        self
    }

    /// Takes the key from a parameter of the query.
    pub fn from_query(mut self, name: impl Into<String>) -> ApiKeysPolicy {
        self.places.push(KeySource::Query(name.into()));
        self
    }

    /// Sets a field of the request to the name of the key. A value that the client sends in it is removed, in any spelling.
    pub fn forward(mut self, field: &str) -> ApiKeysPolicy {
        self.forward.push(field.to_ascii_lowercase());
        self
    }

    fn build(mut self) -> Result<Kind, Error> {
        let source = self.source.as_ref().ok_or_else(|| {
            Error::new("`api_keys` has no keys").with_remedy("Call `.file(..)` or `.keys(..)`.")
        })?;
        for (at, name) in self.forward.iter().enumerate() {
            check_name(name)?;
            if self.forward[..at]
                .iter()
                .any(|known| is_same_name(known, name))
            {
                let problem = format!("the field `{name}` gets the name of the key twice");
                return Err(Error::new(problem).with_remedy("Keep one of the two spellings."));
            }
        }
        let keys = parse_keys(&source.read()?).map_err(|error| source.error(error))?;
        if self.places.is_empty() {
            self.places.push(KeySource::field(KEY_FIELD));
        }
        let policy = ApiKeys::new(keys, self.places, &self.forward, true);
        Ok(Kind::Shared(Policy::Proof(Prover::ApiKeys(Arc::new(
            policy,
        )))))
    }
}

impl From<ApiKeysPolicy> for AppPolicy {
    fn from(policy: ApiKeysPolicy) -> AppPolicy {
        AppPolicy(policy.build())
    }
}

/// Demands one of several proofs; see [`any_of`].
#[must_use]
pub struct AnyOfPolicy {
    allow: Vec<Arc<NetworkSet>>,
    provers: Vec<Prover>,
    error: Option<Error>,
}

/// Demands one of several proofs of who the client is, each of which suffices. The others are checked as well if the
/// request has them, and a wrong one refuses it.
///
/// ```
/// use blitz::{App, policy::{allow, any_of, jwt}};
///
/// let token = jwt().secret("a secret of 32 bytes or more, from a file");
/// let app = App::new()
///     .policy(any_of().or(allow().networks(["10.0.0.0/8"])).or(token))
///     .get("/", || "Hello, World!");
/// # app.build().unwrap();
/// ```
pub fn any_of() -> AnyOfPolicy {
    AnyOfPolicy {
        allow: Vec::new(),
        provers: Vec::new(),
        error: None,
    }
}

impl AnyOfPolicy {
    /// Adds a proof: [`allow`](super::allow), [`basic_auth`], [`api_keys`] or [`jwt`](super::jwt).
    pub fn or(mut self, policy: impl Into<AppPolicy>) -> AnyOfPolicy {
        let error = match policy.into().0 {
            Ok(Kind::Allow(networks)) => {
                self.allow.push(networks);
                return self;
            }
            Ok(Kind::Shared(Policy::Proof(Prover::Jwt(jwt)))) if jwt.is_optional() => {
                let remedy = "Leave its `.optional()` out, or `any_of`.";
                Error::new("every request passes: one of the tokens is optional")
                    .with_remedy(remedy)
            }
            Ok(Kind::Shared(Policy::Proof(prover))) => {
                self.provers.push(prover);
                return self;
            }
            Ok(_) => {
                let remedy = "Add `allow`, `basic_auth`, `api_keys` or `jwt` to it.";
                Error::new("`any_of` has a policy that proves nothing about the client")
                    .with_remedy(remedy)
            }
            Err(error) => error,
        };
        self.error.get_or_insert(error);
        self
    }
}

impl From<AnyOfPolicy> for AppPolicy {
    fn from(policy: AnyOfPolicy) -> AppPolicy {
        if let Some(error) = policy.error {
            return AppPolicy(Err(error));
        }
        if policy.allow.len() + policy.provers.len() < 2 {
            let error = Error::new("one of several suffices, and `any_of` has not two of them");
            return AppPolicy(Err(error.with_remedy("Add another one with `.or(..)`.")));
        }
        let any = AnyOf::new(policy.allow, policy.provers);
        AppPolicy(Ok(Kind::Shared(Policy::AnyOf(Arc::new(any)))))
    }
}

/// Two demanded proofs that stand in the same field, which a request has once.
pub(super) fn one_authorization<'p>(
    policies: impl Iterator<Item = &'p Policy>,
) -> Result<(), Error> {
    let of_authorization = policies.filter_map(|policy| match policy {
        Policy::Proof(prover) if prover.needs_authorization() => Some(prover.name()),
        _ => None,
    });
    let names: Vec<&str> = of_authorization.collect();
    match *names {
        [first, second, ..] => {
            let problem = format!(
                "no request passes: `{first}` and `{second}` both need the field Authorization"
            );
            let remedy = "Join them with `any_of`, or take one of them from another place.";
            Err(Error::new(problem).with_remedy(remedy))
        }
        _ => Ok(()),
    }
}
