//! Signed tokens.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use blitz_site::{
    Algorithm, Claim, ClaimDemand, Jwt, JwtKey, JwtSettings, Policy, Prover, TokenSource, key_set,
};

use super::source::Source;
use super::{AppPolicy, Kind};
use crate::error::Error;

/// How much the clocks of issuer and server may differ by default.
const LEEWAY: Duration = Duration::from_secs(30);

/// The most that a leeway may be: it lengthens the life of every token.
const LEEWAY_MAX: Duration = Duration::from_secs(600);

/// Demands a signed token; see [`jwt`].
pub struct JwtPolicy {
    settings: JwtSettings,
    algorithms: Vec<Algorithm>,
    secret: Option<Source>,
    key_set: Option<Source>,
    error: Option<Error>,
}

/// Demands a token that an issuer has signed (RFC 7519); other requests get 401 with `WWW-Authenticate` (RFC 6750).
///
/// An [`Identity`](crate::extract::Identity) has the claims. They also reach handlers as fields of the request, which no
/// client can set itself:
///
/// ```
/// use blitz::{App, Request, policy::jwt};
///
/// let policy = jwt()
///     .secret("a secret of 32 bytes or more, from a file")
///     .issuer("https://id.example/")
///     .forward("x-user", "sub");
/// let app = App::new().policy(policy).get("/", |request: Request| {
///     let user = request.fields().get_str("x-user").unwrap_or_default();
///     format!("Hello, {user}!")
/// });
/// # app.build().unwrap();
/// ```
pub fn jwt() -> JwtPolicy {
    JwtPolicy {
        settings: JwtSettings {
            leeway: LEEWAY,
            keeps_all: true,
            ..JwtSettings::default()
        },
        algorithms: Vec::new(),
        secret: None,
        key_set: None,
        error: None,
    }
}

impl JwtPolicy {
    /// A secret that the issuer has, too: at least 32 bytes for HS256.
    #[must_use]
    pub fn secret(mut self, secret: impl AsRef<[u8]>) -> JwtPolicy {
        self.secret = Some(Source::Text(secret.as_ref().to_vec()));
        self
    }

    /// The file with such a secret; a line end behind it does not count. It is read when the policy is added to the app.
    #[must_use]
    pub fn secret_file(mut self, path: impl Into<PathBuf>) -> JwtPolicy {
        self.secret = Some(Source::File(path.into()));
        self
    }

    /// Public keys as a JSON Web Key Set (RFC 7517).
    #[must_use]
    pub fn keys(mut self, key_set: impl AsRef<[u8]>) -> JwtPolicy {
        self.key_set = Some(Source::Text(key_set.as_ref().to_vec()));
        self
    }

    /// The file with such a set. It is read when the policy is added to the app.
    #[must_use]
    pub fn keys_file(mut self, path: impl Into<PathBuf>) -> JwtPolicy {
        self.key_set = Some(Source::File(path.into()));
        self
    }

    /// The algorithms of signatures. Default: HS256 of a secret, and for public keys those of the keys.
    #[must_use]
    pub fn algorithms<'t>(mut self, names: impl IntoIterator<Item = &'t str>) -> JwtPolicy {
        for name in names {
            match Algorithm::parse(name) {
                Some(algorithm) => self.algorithms.push(algorithm),
                None => {
                    let problem = format!("`{name}` is no algorithm of signatures");
                    self.error.get_or_insert(Error::new(problem));
                }
            }
        }
        self
    }

    /// Accepts this value of `iss`; of several, any.
    #[must_use]
    pub fn issuer(mut self, issuer: impl Into<String>) -> JwtPolicy {
        self.settings.issuers.push(issuer.into());
        self
    }

    /// Accepts this value of `aud`; of several, any. Without one the token must have none.
    #[must_use]
    pub fn audience(mut self, audience: impl Into<String>) -> JwtPolicy {
        self.settings.audiences.push(audience.into());
        self
    }

    /// Demands a scope.
    #[must_use]
    pub fn scope(mut self, scope: impl Into<String>) -> JwtPolicy {
        self.settings.scopes.push(scope.into());
        self
    }

    /// Demands a claim, with any value but `null`. A name that begins with a slash is a pointer (RFC 6901).
    #[must_use]
    pub fn require(mut self, claim: impl Into<String>) -> JwtPolicy {
        let demand = (Claim(claim.into()), ClaimDemand::Present);
        self.settings.require.push(demand);
        self
    }

    /// Demands a claim with one of these values, or a list with one of them.
    #[must_use]
    pub fn require_one_of<T: Into<String>>(
        mut self,
        claim: impl Into<String>,
        values: impl IntoIterator<Item = T>,
    ) -> JwtPolicy {
        let values = values.into_iter().map(Into::into).collect();
        let demand = (Claim(claim.into()), ClaimDemand::OneOf(values));
        self.settings.require.push(demand);
        self
    }

    /// Sets a field of the request to the value of a claim. A value that the client sends in it is removed, in any spelling.
    #[must_use]
    pub fn forward(mut self, field: &str, claim: impl Into<String>) -> JwtPolicy {
        let name = field.to_ascii_lowercase();
        let mut test = blitz_http::Fields::default();
        if test.try_append(name.as_str(), "x").is_err() || name == "host" {
            let problem = format!("`{field}` is no field for a claim");
            self.error.get_or_insert(Error::new(problem));
        }
        self.settings.forward.push((name, Claim(claim.into())));
        self
    }

    /// Takes the token from a cookie, in place of `Authorization`.
    #[must_use]
    pub fn from_cookie(mut self, name: impl Into<String>) -> JwtPolicy {
        self.settings.sources.push(TokenSource::Cookie(name.into()));
        self
    }

    /// Takes the token from a parameter of the query, in place of `Authorization`.
    #[must_use]
    pub fn from_query(mut self, name: impl Into<String>) -> JwtPolicy {
        self.settings.sources.push(TokenSource::Query(name.into()));
        self
    }

    /// Takes the token from `Authorization`, which is the default, beside other places.
    #[must_use]
    pub fn from_header(mut self) -> JwtPolicy {
        self.settings.sources.push(TokenSource::Authorization);
        self
    }

    /// How much the clocks of issuer and server may differ, at most 10 minutes. Default: 30 s.
    #[must_use]
    pub fn leeway(mut self, leeway: Duration) -> JwtPolicy {
        if leeway > LEEWAY_MAX {
            let error = Error::new("a leeway is at most 10 minutes");
            self.error.get_or_insert(error);
        }
        self.settings.leeway = leeway;
        self
    }

    /// Serves requests without a token as well; those with an invalid one get 401.
    #[must_use]
    pub fn optional(mut self) -> JwtPolicy {
        self.settings.is_optional = true;
        self
    }

    fn read_keys(&self) -> Result<Vec<JwtKey>, Error> {
        match (&self.secret, &self.key_set) {
            (Some(secret), None) => {
                let content = secret.read()?;
                let bytes = match secret {
                    Source::File(_) => without_line_end(&content),
                    Source::Text(_) => &content,
                };
                let key = JwtKey::secret(bytes, &self.algorithms);
                Ok(vec![key.map_err(|error| secret.error(error))?])
            }
            (None, Some(source)) => {
                let keys = key_set(&source.read()?, &self.algorithms);
                let (keys, notes) = keys.map_err(|problem| {
                    let remedy = "write a JSON Web Key Set with public keys (RFC 7517)";
                    source.error((problem, remedy.to_owned()))
                })?;
                for note in notes {
                    tracing::warn!("a key set for tokens: {note}");
                }
                Ok(keys)
            }
            (None, None) => Err(
                Error::new("the keys of the tokens are missing").with_remedy(
                    "Call `.secret_file(..)`, `.keys_file(..)`, `.secret(..)` or `.keys(..)`.",
                ),
            ),
            (Some(_), Some(_)) => Err(Error::new(
                "a secret and public keys contradict each other: keep one of them",
            )),
        }
    }
}

/// Editors and `echo` end a file with a line end.
fn without_line_end(content: &[u8]) -> &[u8] {
    let content = content.strip_suffix(b"\n").unwrap_or(content);
    content.strip_suffix(b"\r").unwrap_or(content)
}

impl From<JwtPolicy> for AppPolicy {
    fn from(mut policy: JwtPolicy) -> AppPolicy {
        if let Some(error) = policy.error.take() {
            return AppPolicy(Err(error));
        }
        let keys = policy.read_keys();
        let mut settings = policy.settings;
        if settings.sources.is_empty() {
            settings.sources.push(TokenSource::Authorization);
        }
        AppPolicy(keys.map(|keys| {
            settings.keys = keys;
            Kind::Shared(Policy::Proof(Prover::Jwt(Arc::new(Jwt::new(settings)))))
        }))
    }
}
