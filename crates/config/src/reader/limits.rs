//! Limits of a site, which are at most those of the process, and of an upstream.

use toml::Spanned;
use toml::de::DeValue;

use super::{Reader, entries};
use crate::keys::{self, Scope};
use crate::model::Configuration;
use crate::process::{Bytes, MessageLimits};
use crate::settings::ResponseLimits;
use crate::span::{Placed, Span};
use crate::units;

impl Reader<'_> {
    pub(super) fn site_limits(&mut self, value: &Spanned<DeValue<'_>>) -> MessageLimits {
        self.limits_in(value, Scope::SiteLimits)
    }

    fn limits_in(&mut self, value: &Spanned<DeValue<'_>>, scope: Scope) -> MessageLimits {
        let mut limits = MessageLimits::default();
        let DeValue::Table(table) = value.get_ref() else {
            let label = "write for example limits.head_max = \"8k\"";
            self.wrong_type(value.span(), value.get_ref(), "a table", label);
            return limits;
        };
        for entry in entries(table) {
            if let Some(key) = self.key(scope, &entry) {
                self.fill(&mut limits, key, entry.value);
            }
        }
        limits
    }

    /// Limits of the responses of an upstream.
    pub(super) fn upstream_limits(
        &mut self,
        value: &Spanned<DeValue<'_>>,
    ) -> Option<Placed<ResponseLimits>> {
        let limits = self.limits_in(value, Scope::UpstreamLimits);
        let limits = ResponseLimits {
            head_max: limits.head_max.map(|bytes| bytes.value.0),
            fields_max: limits.fields_max.map(|fields| fields.value),
        };
        Some(Placed::new(limits, value.span()))
    }

    /// Heads are received before their site is known.
    pub(super) fn limits_above_the_process(&mut self, configuration: &Configuration) {
        let process = numbers(&configuration.process.limits);
        for site in &configuration.sites {
            for ((name, own), (_, max)) in numbers(&site.limits).into_iter().zip(&process) {
                let Some((own, span)) = own else { continue };
                let max = match max {
                    Some((max, _)) => *max,
                    None => default(name),
                };
                if own <= max {
                    continue;
                }
                let max = match name {
                    "fields_max" => max.to_string(),
                    _ => units::size_text(&max.to_string()).unwrap_or_default(),
                };
                self.error(
                    "limit-of-process",
                    span,
                    format!("`{name}` of a site is more than that of the process, {max}"),
                    format!("write at most {max}, or raise limits.{name} at the top of the file"),
                );
            }
        }
    }
}

/// The limits that a site may have, with their places.
fn numbers(limits: &MessageLimits) -> [(&'static str, Option<(u64, Span)>); 4] {
    let bytes = |limit: &Option<Placed<Bytes>>| {
        let limit = limit.as_ref();
        limit.map(|bytes| (bytes.value.0, bytes.span.clone()))
    };
    let fields = limits.fields_max.as_ref();
    [
        ("head_max", bytes(&limits.head_max)),
        (
            "fields_max",
            fields.map(|fields| (fields.value, fields.span.clone())),
        ),
        ("request_line_max", bytes(&limits.request_line_max)),
        ("trailers_max", bytes(&limits.trailers_max)),
    ]
}

/// The limit of a process that says nothing.
fn default(name: &str) -> u64 {
    let key = keys::find(Scope::Limits, name).expect("sites have some keys of the process");
    units::parse_size(key.default).expect("its default is a size or a number")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_limits_of_sites_have_defaults() {
        for key in keys::of(Scope::SiteLimits) {
            assert!(default(key.name) > 0, "{}", key.name);
        }
    }
}
