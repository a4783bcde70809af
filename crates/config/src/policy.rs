//! Policies of a route: decisions on requests before its action, and changes of responses.

mod access;
mod cors;
mod forward_auth;
mod jwt;
mod limit;
mod security_headers;

use std::sync::Arc;

use crate::own::Own;
use crate::span::{Placed, Span};

pub use access::{ApiKeys, BasicAuth, ClientCert, KeySource, Satisfy};
pub use cors::{Cors, CorsOrigin};
pub use forward_auth::{AuthCache, ForwardAuth};
pub use jwt::{ClaimDemand, Jwt, JwtKeys, KeysUrl, Secret, TokenSource};
pub use limit::{Concurrency, OnFailure, RateKey, RateLimit};
pub use security_headers::SecurityHeaders;

/// Declares the policies once: what a level writes, what a route inherits, and the lists of both.
macro_rules! policies {
    ($($(#[$doc:meta])* $name:ident: $type:ty,)*) => {
        /// The policies of a route, including the inherited ones. `None` is off.
        #[derive(Debug, Clone, Default, PartialEq, Eq)]
        pub struct Policies {
            $($(#[$doc])* pub $name: Option<Arc<Placed<$type>>>,)*
        }

        impl Policies {
            /// The keys that are written, with the places of their values.
            pub fn written(&self) -> impl Iterator<Item = (&'static str, &Span)> {
                let all = [$((stringify!($name), self.$name.as_ref().map(|value| &value.span)),)*];
                let cert = self.client_cert.as_ref();
                let written = move |(key, span)| Some((access::writer_of(key, cert), span?));
                all.into_iter().filter_map(written)
            }

            /// The addresses of the values, which routes share that inherit the same ones.
            #[must_use]
            pub fn addresses(&self) -> Vec<(&'static str, usize)> {
                let address = |value: *const ()| value.addr();
                let all = [$((
                    stringify!($name),
                    self.$name.as_ref().map(|value| address(Arc::as_ptr(value).cast())),
                ),)*];
                all.into_iter().filter_map(|(key, address)| Some((key, address?))).collect()
            }
        }

        /// The policies that a level writes.
        #[derive(Debug, Clone, Default)]
        pub(crate) struct OwnPolicies {
            $(pub(crate) $name: Own<Arc<Placed<$type>>>,)*
        }

        impl OwnPolicies {
            /// Replaces the inherited ones.
            pub(crate) fn apply(&self, inherited: &mut Policies) {
                $(self.$name.apply(&mut inherited.$name);)*
            }
        }
    };
}

policies! {
    /// The most requests per time.
    rate_limit: RateLimit,
    /// The most requests at a time.
    concurrency: Concurrency,
    /// Requests of other origins that browsers may send, and whose responses they may read.
    cors: Cors,
    /// Lines of `Link` that browsers get before the response (RFC 8297).
    early_hints: Vec<String>,
    /// Signed tokens that requests need.
    jwt: Jwt,
    /// Fields that have browsers protect pages.
    security_headers: SecurityHeaders,
    /// Another service that decides.
    forward_auth: ForwardAuth,
    /// Names with passwords that requests need.
    basic_auth: BasicAuth,
    /// Keys that requests need.
    api_keys: ApiKeys,
    /// Certificates of clients that requests need.
    client_cert: ClientCert,
    /// Access keys, one of which suffices.
    satisfy: Satisfy,
}

impl Policies {
    /// The keys of which one suffices, with the places of their values: for each `satisfy`, those of outer levels first.
    pub fn alternatives(&self) -> impl Iterator<Item = (&'static str, &Span)> {
        let innermost = self.satisfy.iter();
        let outer = innermost.clone().flat_map(|any| &any.value.also);
        outer.chain(innermost).flat_map(|any| {
            let cert = any.value.client_cert.as_ref();
            let written = any.value.written();
            written.map(move |(key, span)| (access::writer_of(key, cert), span))
        })
    }
}

impl OwnPolicies {
    /// Whether a proof is demanded of who the client is.
    pub(crate) fn demand_proof(&self) -> bool {
        self.jwt.value().is_some()
            || self.basic_auth.value().is_some()
            || self.api_keys.value().is_some()
            || self.client_cert.value().is_some()
            || self.satisfy.value().is_some()
    }

    /// Those of a level. Its alternatives are demanded in addition to those of outer levels.
    pub(crate) fn apply_level(&self, inherited: &mut Policies) {
        let before = inherited.satisfy.clone();
        self.apply(inherited);
        if let (Own::Value(own), Some(before)) = (&self.satisfy, before) {
            inherited.satisfy = Some(Arc::new(own.with(before)));
        }
    }

    /// Those of a block `when`: what it demands is demanded in addition.
    pub(crate) fn apply_block(&self, inherited: &mut Policies) {
        let before = inherited.clone();
        self.apply_level(inherited);
        if let (Own::Value(own), Some(before)) = (&self.forward_auth, before.forward_auth) {
            inherited.forward_auth = Some(Arc::new(own.with(before)));
        }
        if let (Own::Value(own), Some(before)) = (&self.jwt, before.jwt)
            && !own.value.is_optional
        {
            inherited.jwt = Some(Arc::new(own.with(before)));
        }
        if let (Own::Value(own), Some(before)) = (&self.basic_auth, before.basic_auth) {
            inherited.basic_auth = Some(Arc::new(own.with(before)));
        }
        if let (Own::Value(own), Some(before)) = (&self.api_keys, before.api_keys) {
            inherited.api_keys = Some(Arc::new(own.with(before)));
        }
    }
}
