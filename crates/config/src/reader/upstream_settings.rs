//! Settings of upstreams, beside their servers and the choice among them.

use std::time::Duration;

use toml::Spanned;
use toml::de::DeValue;

use super::{Entry, Reader, entries};
use crate::keys::{CONNECTIONS_MAX, FAILURES_MAX, Scope, TIMES_MAX};
use crate::span::Placed;
use crate::units::{self, StatusPattern};
use crate::upstream_settings::{Outlier, Queue, Retry, UpstreamSettings};

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
            "connections_max" => {
                let max = self.number_to(value, CONNECTIONS_MAX);
                settings.connections_max = max.map(|max| Placed::new(max, value.span()));
            }
            "hedge" => settings.hedge = self.time_limit(value),
            "queue" => settings.queue = self.queue(value),
            "retry" => settings.retry = self.retry(value),
            "health" => settings.health = self.health(value),
            "shed" => settings.shed = self.shed(value),
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

    fn queue(&mut self, value: &Spanned<DeValue<'_>>) -> Option<Placed<Queue>> {
        let label = "write for example queue.timeout = \"1s\"";
        let mut queue = Queue::default();
        for entry in self.setting_entries(value, label)? {
            let Some(entry) = self.known(Scope::Queue, &entry) else {
                continue;
            };
            match entry.name {
                "max" => queue.max = self.number_to(entry.value, CONNECTIONS_MAX),
                _ => queue.timeout = self.time_limit(entry.value).map(|limit| limit.value),
            }
        }
        Some(Placed::new(queue, value.span()))
    }

    fn retry(&mut self, value: &Spanned<DeValue<'_>>) -> Option<Placed<Retry>> {
        let label = "write for example retry.on = [502, 503, 504]";
        let mut retry = Retry::default();
        for entry in self.setting_entries(value, label)? {
            let Some(entry) = self.known(Scope::Retry, &entry) else {
                continue;
            };
            match entry.name {
                "on" => retry.on = self.retried_statuses(entry.value),
                _ => retry.budget = self.share(entry.value),
            }
        }
        Some(Placed::new(retry, value.span()))
    }

    /// The keys of a table.
    fn setting_entries<'v, 'i>(
        &mut self,
        value: &'v Spanned<DeValue<'i>>,
        label: &str,
    ) -> Option<Vec<Entry<'v, 'i>>> {
        if let DeValue::Table(table) = value.get_ref() {
            return Some(entries(table));
        }
        self.wrong_type(value.span(), value.get_ref(), "a table", label);
        None
    }

    /// Statuses of errors.
    fn retried_statuses(&mut self, value: &Spanned<DeValue<'_>>) -> Vec<StatusPattern> {
        let is_status =
            |value: &DeValue<'_>| matches!(value, DeValue::String(_) | DeValue::Integer(_));
        let mut statuses = Vec::new();
        for item in self.items(value, "502", is_status) {
            let status = match item.get_ref() {
                DeValue::Integer(number) => units::parse_status(number.as_str()),
                _ => match self.text(item, "502, or \"5xx\"") {
                    Some(text) => units::parse_status(&text.value),
                    None => continue,
                },
            };
            match status {
                Ok(status) => statuses.push(status),
                Err(_) => self.error(
                    "status",
                    item.span(),
                    "this is no status of an error",
                    "write for example 503, or \"5xx\" for all from 500",
                ),
            }
        }
        statuses
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
