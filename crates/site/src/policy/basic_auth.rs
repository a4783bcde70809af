//! Names with passwords (RFC 7617), which are checked on another thread and remembered for a while.

mod form;
mod hash;
mod remembered;
#[cfg(test)]
mod tests;
mod users;
mod verifier;

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use blitz_http::{PooledFuture, RequestHead};

use self::remembered::Digest;
use self::verifier::Question;
use super::credentials::{Found, has_second_scheme, of_authorization};
use super::proof::{Proof, challenge, named};
use super::{Identity, PolicyRequest};
use crate::edit::Edit;
use crate::rejection::Rejection;

pub use users::{Users, users};

/// The most bytes of name and password. Some hashes take time with the square of the length.
const CREDENTIALS_BYTES_MAX: usize = 1024;

/// The policy.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct BasicAuth {
    users: Arc<Users>,
    challenge: String,
    /// Names of fields in lower case that get the name of the user.
    forward: Box<[String]>,
    /// Removes them.
    removal: Box<[Edit]>,
    /// Whether the names of users are kept for others than the action.
    keeps_names: bool,
}

/// A name with the password that a client says.
struct Credentials {
    name: Vec<u8>,
    password: Vec<u8>,
}

impl BasicAuth {
    /// The policy for these users. The realm is what browsers show; it has no control characters.
    #[must_use]
    pub fn new(users: Arc<Users>, realm: &str) -> BasicAuth {
        let realm = realm.replace('\\', "\\\\").replace('"', "\\\"");
        BasicAuth {
            users,
            challenge: format!("Basic realm=\"{realm}\", charset=\"UTF-8\""),
            forward: Box::default(),
            removal: Box::default(),
            keeps_names: false,
        }
    }

    /// The same, and the fields with these names, in lower case, get the name of the user.
    #[must_use]
    pub fn forwarding(mut self, fields: &[String]) -> BasicAuth {
        self.forward = fields.into();
        self.removal = named(fields, None);
        self
    }

    /// The same, and the notes of a request have the name of its user, if `keeps_names`.
    #[must_use]
    pub fn keeping_names(mut self, keeps_names: bool) -> BasicAuth {
        self.keeps_names = keeps_names;
        self
    }

    /// The identity of a client without a password, if requests tell the action the names of users.
    pub(super) fn nobody(&self) -> Option<Identity<'_>> {
        (!self.removal.is_empty()).then_some(Identity::None(&self.removal))
    }

    /// The identity of the user with this name, if somebody asks for it. A name that a field cannot have is not told:
    /// without the spaces around it, it would be that of another user.
    fn identity(&self, name: &[u8]) -> Option<Identity<'static>> {
        if self.forward.is_empty() && !self.keeps_names {
            return None;
        }
        let name = str::from_utf8(name).ok();
        let name = name.filter(|name| !name.is_empty() && name.trim() == *name);
        let edits = named(&self.forward, name).into();
        match name {
            Some(name) => Some(Identity::User {
                name: name.into(),
                edits,
            }),
            None => (!self.forward.is_empty()).then_some(Identity::Verified(edits)),
        }
    }

    pub(super) fn challenge(&self) -> Edit {
        challenge(self.challenge.clone())
    }

    pub(super) fn prove<'p>(&'p self, request: &PolicyRequest<'_>) -> Result<Proof<'p>, Rejection> {
        let text = match of_authorization(&request.head.fields, "Basic") {
            Found::None => return Ok(Proof::Missing),
            Found::Several => return Err(Rejection::SeveralCredentials),
            Found::One(text) => text,
        };
        let credentials = Credentials::decode(text);
        let credentials = credentials.ok_or_else(|| match has_second_scheme(text) {
            true => Rejection::SeveralCredentials,
            false => Rejection::InvalidCredentials,
        })?;
        let user = self.users.find(&credentials.name);
        let is_known = user.is_some();
        // A name has no colon, and a line has one.
        let line = user.map_or(&*credentials.name, |user| user.line());
        let digest = remembered::digest(line, &credentials.password);
        if is_known && request.clock.is_some() && remembered::is_known(&digest, blitz_http::now()) {
            return Ok(Proof::Valid(self.identity(&credentials.name)));
        }
        let question = Question {
            hashes: self.users.hashes_for(user),
            password: credentials.password.into(),
            digest,
            is_known,
            client: request.client.network(),
        };
        let identity = self.identity(&credentials.name);
        Ok(Proof::Pending(PooledFuture::new(async move {
            verifier::verify(question).await.map(|()| identity)
        })))
    }
}

/// The name in the credentials of a request whose password was checked.
pub(super) fn user_of(head: &RequestHead) -> Option<String> {
    let Found::One(text) = of_authorization(&head.fields, "Basic") else {
        return None;
    };
    let Credentials { name, .. } = Credentials::decode(text)?;
    String::from_utf8(name).ok()
}

impl Credentials {
    /// `None` if they are none: not base64, without a colon, or with control characters, which neither part may have.
    fn decode(text: &[u8]) -> Option<Credentials> {
        if text.len() > CREDENTIALS_BYTES_MAX * 4 / 3 {
            return None;
        }
        let mut name = STANDARD.decode(text).ok()?;
        let colon = name.iter().position(|byte| *byte == b':')?;
        if name.iter().any(u8::is_ascii_control) {
            return None;
        }
        let password = name.split_off(colon).split_off(1);
        Some(Credentials { name, password })
    }
}

impl Digest {
    fn is(&self, other: &Digest) -> bool {
        aws_lc_rs::constant_time::verify_slices_are_equal(&self.0, &other.0).is_ok()
    }
}
