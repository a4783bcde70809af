//! `basic_auth`, `api_keys`, `client_cert` and `satisfy`: who a client proves to be.

use std::sync::Arc;

use super::Jwt;
use crate::network_list::NetworkList;
use crate::span::{Placed, Span};

/// Names with passwords.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BasicAuth {
    /// The file with the users.
    pub users_file: Placed<String>,
    /// The realm that browsers show.
    pub realm: String,
    /// Names of fields in lower case that get the name of the user.
    pub forward: Vec<String>,
    /// Those of levels around a block `when`, which are demanded as well.
    pub also: Vec<Arc<Placed<BasicAuth>>>,
}

/// Keys of programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiKeys {
    /// The file with the hashes of the keys.
    pub file: Placed<String>,
    /// Where the key stands.
    pub sources: Vec<KeySource>,
    /// Names of fields in lower case that get the name of the key.
    pub forward: Vec<String>,
    /// Those of levels around a block `when`, which are demanded as well.
    pub also: Vec<Arc<Placed<ApiKeys>>>,
}

/// A certificate of the client, which the authorities of the site have issued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientCert {
    /// Whether it is demanded because the site has `client_ca`, which is then its place.
    pub is_implied: bool,
}

/// The key that writes one: `client_ca` of a site implies `client_cert` of its routes.
pub(super) fn writer_of(key: &'static str, cert: Option<&Arc<Placed<ClientCert>>>) -> &'static str {
    let is_implied = cert.is_some_and(|cert| cert.value.is_implied);
    match key {
        "client_cert" if is_implied => "tls.client_ca",
        key => key,
    }
}

/// Where a key stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    /// A field, in lower case.
    Header(String),
    /// A cookie.
    Cookie(String),
    /// A parameter of the query.
    Query(String),
}

/// Access keys of a level, one of which suffices.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Satisfy {
    /// Addresses of clients.
    pub allow: Option<Arc<Placed<NetworkList>>>,
    /// Names with passwords.
    pub basic_auth: Option<Arc<Placed<BasicAuth>>>,
    /// Signed tokens.
    pub jwt: Option<Arc<Placed<Jwt>>>,
    /// Keys of programs.
    pub api_keys: Option<Arc<Placed<ApiKeys>>>,
    /// Certificates of clients.
    pub client_cert: Option<Arc<Placed<ClientCert>>>,
    /// Those of outer levels, which are demanded as well.
    pub also: Vec<Arc<Placed<Satisfy>>>,
}

impl Satisfy {
    /// The keys, with the places of their values.
    pub fn written(&self) -> impl Iterator<Item = (&'static str, &Span)> {
        let all = [
            ("allow", self.allow.as_ref().map(|value| &value.span)),
            (
                "basic_auth",
                self.basic_auth.as_ref().map(|value| &value.span),
            ),
            ("jwt", self.jwt.as_ref().map(|value| &value.span)),
            ("api_keys", self.api_keys.as_ref().map(|value| &value.span)),
            (
                "client_cert",
                self.client_cert.as_ref().map(|value| &value.span),
            ),
        ];
        all.into_iter().filter_map(|(key, span)| Some((key, span?)))
    }
}

impl Placed<BasicAuth> {
    /// These demands and others.
    pub(crate) fn with(&self, other: Arc<Placed<BasicAuth>>) -> Placed<BasicAuth> {
        let mut both = self.clone();
        both.value.also.push(other);
        both
    }
}

impl Placed<ApiKeys> {
    /// These demands and others.
    pub(crate) fn with(&self, other: Arc<Placed<ApiKeys>>) -> Placed<ApiKeys> {
        let mut both = self.clone();
        both.value.also.push(other);
        both
    }
}

impl Placed<Satisfy> {
    /// These demands and others.
    pub(crate) fn with(&self, other: Arc<Placed<Satisfy>>) -> Placed<Satisfy> {
        let mut both = self.clone();
        both.value.also.push(other);
        both
    }
}
