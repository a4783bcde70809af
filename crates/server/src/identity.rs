//! The identity of a client, as policies have verified it.

use std::rc::Rc;

use blitz_http::Status;
use blitz_site::TokenFacts;
use serde::de::DeserializeOwned;

use crate::problem::Problem;

/// The identity of the client, as the [policies](crate::policy) of the route have verified. Nothing in it comes from
/// a client without a proof.
///
/// A route whose policies demand no proof is an error at start.
///
/// ```
/// use blitz::{App, Problem, extract::Identity, policy::jwt};
/// use serde::Deserialize;
///
/// #[derive(Deserialize)]
/// struct Claims {
///     sub: String,
///     #[serde(default)]
///     roles: Vec<String>,
/// }
///
/// let whoami = |who: Identity| {
///     let claims: Claims = who.claims()?;
///     Ok::<_, Problem>(format!("{} with {} roles", claims.sub, claims.roles.len()))
/// };
/// let app = App::new()
///     .policy(jwt().secret("a secret of 32 bytes or more, from a file"))
///     .get("/", whoami);
/// # app.build().unwrap();
/// ```
#[derive(Debug, Clone, Default)]
pub struct Identity(pub(crate) Option<Rc<Proved>>);

/// The proofs of a client.
#[derive(Debug)]
pub(crate) struct Proved {
    pub(crate) token: Option<Rc<TokenFacts>>,
    pub(crate) user: Option<String>,
    pub(crate) key: Option<String>,
}

impl Identity {
    /// The user whose password the client has, of [`basic_auth`](crate::policy::basic_auth).
    pub fn user(&self) -> Option<&str> {
        self.0.as_ref()?.user.as_deref()
    }

    /// The name of the key that the client has, of [`api_keys`](crate::policy::api_keys).
    pub fn key(&self) -> Option<&str> {
        self.0.as_ref()?.key.as_deref()
    }

    /// A claim of the token, of [`jwt`](crate::policy::jwt), if its value is a text, a number, a boolean, or a list of
    /// them, which commas separate.
    pub fn claim(&self, name: &str) -> Option<&str> {
        let mut claims = self.token()?.claims.iter();
        let (_, value) = claims.find(|(known, _)| **known == *name)?;
        Some(value)
    }

    /// All claims of the token.
    ///
    /// # Errors
    /// 403, if there is no token or its claims do not match the type; the log has the reason.
    pub fn claims<T: DeserializeOwned>(&self) -> Result<T, Problem> {
        let forbidden = |detail| Problem::new(Status::FORBIDDEN).detail(detail);
        let payload = self.token().and_then(|token| token.payload.as_deref());
        let payload = payload.ok_or_else(|| forbidden("this needs a token"))?;
        serde_json::from_str(payload).map_err(|error| {
            tracing::debug!(%error, "the claims of a token do not match");
            forbidden("the claims of the token do not suffice")
        })
    }

    /// Whether the client has proved nothing: it has come by an address, or without an optional token.
    pub fn is_unknown(&self) -> bool {
        self.0.is_none()
    }

    fn token(&self) -> Option<&TokenFacts> {
        self.0.as_ref()?.token.as_deref()
    }
}
