//! Policies of a route, from its settings.

mod access;
mod forward_auth;
mod jwt;
mod security_headers;

use std::sync::Arc;

use blitz_config::{ClientKey, CorsOrigin, Policies as Settings};
use blitz_site::{
    Concurrency, Cors, CorsSettings, EarlyHints, Origin, Policies, Policy, RateKey, RateLimit,
    RateLimitSettings,
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
        policies.extend(rate_limit.map(|limit| rate_policy(&limit.value)));
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

fn rate_policy(settings: &blitz_config::RateLimit) -> Policy {
    Policy::RateLimit(Arc::new(RateLimit::new(RateLimitSettings {
        place: settings.place.clone(),
        count: settings.count,
        period: settings.period,
        burst: settings.burst,
        by: settings.by.iter().map(rate_key).collect(),
        dry_run: settings.dry_run,
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
