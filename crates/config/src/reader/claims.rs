//! Claims of tokens where no route demands a token.

use std::collections::BTreeMap;

use super::Reader;
use crate::claims::{all_settings, of_placeholders, of_servers};
use crate::model::Configuration;
use crate::settings::Settings;
use crate::span::Span;

impl Reader<'_> {
    /// A limit would count all requests of a route without `jwt` together, a server would be chosen as without a value, and
    /// a placeholder that no token has a value for removes its field.
    pub(super) fn claims_without_tokens(&mut self, configuration: &Configuration) {
        // By place, because routes inherit the same text: the claim, and whether one of them has `jwt`.
        let mut placeholders: BTreeMap<(usize, usize), (String, bool)> = BTreeMap::new();
        let mut servers: BTreeMap<(usize, usize), (String, bool)> = BTreeMap::new();
        for site in &configuration.sites {
            for route in &site.routes {
                for settings in all_settings(route) {
                    let mut alternatives = settings.policies.alternatives();
                    let has_tokens = settings.policies.jwt.is_some()
                        || alternatives.any(|(key, _)| key == "jwt");
                    if let Some(limit) = &settings.policies.rate_limit
                        && !has_tokens
                        && let Some(claim) = limit.value.claims().next()
                    {
                        let message = format!(
                            "`jwt:{claim}` is a claim, and `{}` has no `jwt`",
                            route.key.value
                        );
                        let label = "write `jwt` there, or another `rate_limit`";
                        self.claim_error(limit.span.clone(), message, label);
                    }
                    self.users_without_proofs(settings, &route.key.value.to_string());
                    for (claim, span) in of_servers(settings) {
                        let place = servers.entry((span.start, span.end));
                        let (_, one_has) = place.or_insert_with(|| (claim.to_owned(), false));
                        *one_has |= has_tokens;
                    }
                    of_placeholders(settings, |claim, span| {
                        let place = placeholders.entry((span.start, span.end));
                        let (_, one_has) = place.or_insert_with(|| (claim.to_owned(), false));
                        *one_has |= has_tokens;
                    });
                }
            }
        }
        self.servers_without_tokens(servers);
        for ((start, end), (claim, has_tokens)) in placeholders {
            if !has_tokens {
                let message = format!("`{{jwt.{claim}}}` has no value without `jwt`");
                self.claim_error(start..end, message, "write `jwt` for this route too");
            }
        }
    }

    /// Claims that choose a server for no route with a token.
    fn servers_without_tokens(&mut self, servers: BTreeMap<(usize, usize), (String, bool)>) {
        for ((start, end), (claim, has_tokens)) in servers {
            if !has_tokens {
                let message = format!("`jwt:{claim}` is a claim, and no route to it has `jwt`");
                let label = "write `jwt` for the routes, or choose by another value";
                self.claim_error(start..end, message, label);
            }
        }
    }

    /// The same for a limit by the names of clients.
    fn users_without_proofs(&mut self, settings: &Settings, route: &str) {
        let policies = &settings.policies;
        let has_proof = policies.jwt.is_some()
            || policies.basic_auth.is_some()
            || policies.api_keys.is_some()
            || policies.client_cert.is_some()
            || policies.alternatives().next().is_some();
        if let Some(limit) = &policies.rate_limit
            && limit.value.is_by_user()
            && !has_proof
        {
            let message =
                format!("`user` is who a client has proved to be, and `{route}` demands no proof");
            let label = "write `basic_auth`, `api_keys`, `jwt` or `client_cert` there, or another `rate_limit`";
            self.claim_error(limit.span.clone(), message, label);
        }
    }

    /// One error for each place.
    fn claim_error(&mut self, span: Span, message: String, label: &str) {
        let mut errors = self.diagnostics.iter();
        if !errors.any(|error| error.code == "claim" && error.span == span) {
            self.error("claim", span, message, label);
        }
    }
}
