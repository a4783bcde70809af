//! Policies of a route, from its settings.

use std::sync::Arc;

use blitz_config::{CorsOrigin, Policies as Settings};
use blitz_site::{Cors, CorsSettings, EarlyHints, Origin, Policies, Policy};

/// The policies of these settings.
pub(super) fn policies(settings: &Settings) -> Policies {
    let cors = settings.cors.as_ref().map(|cors| self::cors(&cors.value));
    let early_hints = settings.early_hints.as_ref().map(|links| {
        let hints = EarlyHints::new(links.value.clone());
        Policy::EarlyHints(Arc::new(hints))
    });
    let all = [cors, early_hints];
    Policies::new(all.into_iter().flatten().collect())
}

fn cors(settings: &blitz_config::Cors) -> Policy {
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
