//! Settings of upstreams, beside their servers and the choice among them.

use std::time::Duration;

use toml::Spanned;
use toml::de::DeValue;

use super::Reader;
use crate::span::Placed;
use crate::units::{self, ValueError};
use crate::upstream_settings::UpstreamSettings;

impl Reader<'_> {
    /// Reads one of them.
    pub(super) fn upstream_setting(
        &mut self,
        key: &str,
        value: &Spanned<DeValue<'_>>,
        settings: &mut UpstreamSettings,
    ) {
        match key {
            "slow_start" => settings.slow_start = self.placed_duration(value),
            _ => {}
        }
    }

    /// A duration above zero.
    pub(super) fn placed_duration(
        &mut self,
        value: &Spanned<DeValue<'_>>,
    ) -> Option<Placed<Duration>> {
        let duration = self.unit_value(value, "duration", "\"30s\"", |text| {
            match units::parse_duration(text)? {
                duration if duration.is_zero() => Err(ValueError::new(
                    "duration",
                    "this time is above zero",
                    "write for example \"30s\", or leave it out",
                )),
                duration => Ok(duration),
            }
        })?;
        Some(Placed::new(duration, value.span()))
    }
}
