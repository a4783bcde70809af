//! Settings of upstreams, beside their servers and the choice among them.

use std::time::Duration;

use toml::Spanned;
use toml::de::DeValue;

use super::{Reader, entries};
use crate::keys::{FAILURES_MAX, Scope, TIMES_MAX};
use crate::span::Placed;
use crate::units;
use crate::upstream_settings::{Outlier, UpstreamSettings};

impl Reader<'_> {
    /// Reads one of them.
    pub(super) fn upstream_setting(
        &mut self,
        key: &str,
        value: &Spanned<DeValue<'_>>,
        settings: &mut UpstreamSettings,
    ) {
        match key {
            "outlier" => settings.outlier = self.outlier(value),
            "slow_start" => settings.slow_start = self.placed_duration(value),
            _ => {}
        }
    }

    /// `false`, or a table.
    fn outlier(&mut self, value: &Spanned<DeValue<'_>>) -> Option<Placed<Outlier>> {
        let mut outlier = Outlier::default();
        match value.get_ref() {
            DeValue::Table(table) => {
                let before = self.diagnostics.len();
                for entry in entries(table) {
                    let Some(entry) = self.known(Scope::Outlier, &entry) else {
                        continue;
                    };
                    match entry.name {
                        "failures" => {
                            let failures = self.number_to(entry.value, FAILURES_MAX);
                            outlier.failures = failures.map_or(0, |count| count as u32);
                        }
                        "latency" => {
                            let times = self.number_to(entry.value, TIMES_MAX);
                            outlier.latency = times.map(|times| times as u32);
                        }
                        _ => {
                            let time = self.placed_duration(entry.value);
                            outlier.time = time.map(|time| time.value).unwrap_or_default();
                        }
                    }
                }
                if self.diagnostics.len() != before {
                    return None;
                }
            }
            _ => outlier.is_on = self.boolean(value)?,
        }
        Some(Placed::new(outlier, value.span()))
    }

    /// A duration, which may be zero.
    pub(super) fn placed_duration(
        &mut self,
        value: &Spanned<DeValue<'_>>,
    ) -> Option<Placed<Duration>> {
        let duration = self.unit_value(value, "duration", "\"30s\"", units::parse_duration)?;
        Some(Placed::new(duration, value.span()))
    }
}
