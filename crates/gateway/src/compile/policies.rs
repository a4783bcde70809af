//! Policies of a route, from its settings.

mod jwt;

use std::sync::Arc;

use blitz_config::{CorsOrigin, Policies as Settings};
use blitz_site::{Cors, CorsSettings, EarlyHints, Origin, Policies, Policy};

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
        if let Some(jwt) = &settings.jwt {
            self.jwt(jwt, &mut policies);
        }
        Policies::new(policies)
    }
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
