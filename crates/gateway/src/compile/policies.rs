//! Policies of a route, from its settings.

mod access;
mod forward_auth;
mod jwt;
mod security_headers;

use std::sync::Arc;

use aws_lc_rs::hmac;
use blitz_config::{
    ClientKey, CorsOrigin, OnFailure, Placed, Policies as Settings, RateKey as Key, Redis,
};
use blitz_site::{
    Concurrency, Cors, CorsSettings, EarlyHints, OnStoreFailure, Origin, Policies, Policy, Prover,
    RateKey, RateLimit, RateLimitSettings, StoreUse,
};

use self::security_headers::security_headers;
use super::Compiler;

impl<'a> Compiler<'a, '_> {
    /// The policies of these settings. One that cannot be used adds a diagnostic.
    pub(super) fn policies(&mut self, settings: &'a Settings) -> Policies {
        let mut policies = Vec::new();
        policies.extend(settings.cors.as_ref().map(|cors| cors_policy(&cors.value)));
        policies.extend(settings.early_hints.as_ref().map(|links| {
            let hints = EarlyHints::new(links.value.clone());
            Policy::EarlyHints(Arc::new(hints))
        }));
        let headers = settings.security_headers.as_ref();
        policies.extend(headers.map(|headers| security_headers(&headers.value)));
        let rate_limit = settings.rate_limit.as_ref();
        policies.extend(rate_limit.map(|limit| rate_policy(&limit.value, self.hash_key)));
        policies.extend(settings.concurrency.as_ref().map(|limit| {
            let limit = Concurrency::new(&limit.value.place, limit.value.max);
            Policy::Concurrency(Arc::new(limit))
        }));
        if let Some(jwt) = &settings.jwt {
            self.jwt(jwt, &mut policies);
        }
        if let Some(auth) = &settings.forward_auth {
            self.forward_auth(auth, &mut policies);
        }
        if let Some(basic_auth) = &settings.basic_auth {
            self.basic_auth(basic_auth, &mut policies);
        }
        if let Some(api_keys) = &settings.api_keys {
            self.api_keys(api_keys, &mut policies);
        }
        if settings.client_cert.is_some() {
            policies.push(Policy::Proof(Prover::ClientCert));
        }
        if let Some(any) = &settings.satisfy {
            self.any_of(any, &mut policies);
        }
        self.one_authorization(settings);
        Policies::new(policies)
    }
}

fn rate_key(key: &ClientKey) -> RateKey {
    match key {
        ClientKey::Client => RateKey::Client,
        ClientKey::Header(name) => RateKey::Header(name.as_str().into()),
        ClientKey::Cookie(name) => RateKey::Cookie(name.as_str().into()),
    }
}

/// The key for hashes of clients and other values: processes have the same one if they have the same password and prefix,
/// and who reads the names of keys in Redis without the password learns no values.
pub(super) fn hash_key(redis: &Redis) -> [u64; 2] {
    let text = |text: &Option<Placed<String>>| text.as_ref().map(|text| text.value.clone());
    let url = text(&redis.url).unwrap_or_default();
    let authority = url.split_once("://").map_or("", |(_, rest)| rest);
    let authority = authority.split('/').next().unwrap_or_default();
    let userinfo = authority
        .rsplit_once('@')
        .map_or("", |(userinfo, _)| userinfo);
    let password = userinfo
        .split_once(':')
        .map_or("", |(_, password)| password);
    let prefix = text(&redis.prefix).unwrap_or_default();
    let key = hmac::Key::new(hmac::HMAC_SHA256, password.as_bytes());
    let digest = hmac::sign(&key, format!("blitz rate limits\n{prefix}").as_bytes());
    let part = |at: usize| {
        let bytes = digest.as_ref().get(at..at + 8);
        bytes.map_or(0, |bytes| {
            bytes
                .iter()
                .fold(0, |key, byte| key << 8 | u64::from(*byte))
        })
    };
    [part(0), part(8)]
}

fn rate_policy(settings: &blitz_config::RateLimit, hash_key: [u64; 2]) -> Policy {
    let key = |key: &Key| match key {
        Key::Request(key) => rate_key(key),
        Key::Claim(name) => RateKey::Claim(name.as_str().into()),
        Key::User => RateKey::User,
    };
    Policy::RateLimit(Arc::new(RateLimit::new(RateLimitSettings {
        place: settings.place.clone(),
        count: settings.count,
        period: settings.period,
        burst: settings.burst,
        by: settings.by.iter().map(key).collect(),
        dry_run: settings.dry_run,
        store: settings.store.map(|on_failure| StoreUse {
            hash_key,
            on_failure: match on_failure {
                OnFailure::LocalShare => OnStoreFailure::LocalShare,
                OnFailure::Open => OnStoreFailure::Open,
                OnFailure::Closed => OnStoreFailure::Closed,
            },
        }),
    })))
}

fn cors_policy(settings: &blitz_config::Cors) -> Policy {
    let origin = |origin: &CorsOrigin| match origin {
        CorsOrigin::Any => Origin::Any,
        CorsOrigin::Exact(text) => Origin::Exact(text.clone()),
        CorsOrigin::Subdomains { before, after } => Origin::Subdomains {
            before: before.clone(),
            after: after.clone(),
        },
    };
    Policy::Cors(Arc::new(Cors::new(&CorsSettings {
        origins: settings.origins.iter().map(origin).collect(),
        methods: settings.methods.clone(),
        headers: settings.headers.clone(),
        expose: settings.expose.clone(),
        credentials: settings.credentials,
        max_age: settings.max_age,
    })))
}
