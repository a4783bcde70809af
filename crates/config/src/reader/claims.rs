//! Claims of tokens where no route demands a token.

use std::collections::BTreeMap;

use super::Reader;
use crate::claims::{all_settings, of_placeholders};
use crate::model::Configuration;
use crate::span::Span;

impl Reader<'_> {
    /// A limit would count all requests of a route without `jwt` together, and a placeholder that no token has a value
    /// for removes its field.
    pub(super) fn claims_without_tokens(&mut self, configuration: &Configuration) {
        // By place, because routes inherit the same text: the claim, and whether one of them has `jwt`.
        let mut placeholders: BTreeMap<(usize, usize), (String, bool)> = BTreeMap::new();
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
                    of_placeholders(settings, |claim, span| {
                        let place = placeholders.entry((span.start, span.end));
                        let (_, one_has) = place.or_insert_with(|| (claim.to_owned(), false));
                        *one_has |= has_tokens;
                    });
                }
            }
        }
        for ((start, end), (claim, has_tokens)) in placeholders {
            if !has_tokens {
                let message = format!("`{{jwt.{claim}}}` has no value without `jwt`");
                self.claim_error(start..end, message, "write `jwt` for this route too");
            }
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
