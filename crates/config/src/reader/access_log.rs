//! `log.access`: `false`, a destination, or a table.

use toml::Spanned;
use toml::de::DeValue;

use super::value::StringValue;
use super::{Reader, entries};
use crate::access_log::{AccessLog, AccessLogWhen, LoggedStatus, Share};
use crate::keys::Scope;
use crate::span::Placed;
use crate::units;

const DESTINATION: &str = "\"stdout\", \"journal\", \"syslog:/dev/log\", or a file";
const STATUSES: &str = "\"5xx\"";

impl Reader<'_> {
    pub(super) fn access_log(&mut self, value: &Spanned<DeValue<'_>>) -> Option<AccessLog> {
        let table = match value.get_ref() {
            DeValue::Boolean(false) => return Some(AccessLog::default()),
            DeValue::Table(table) => table,
            DeValue::Boolean(true) => {
                let label = format!("write where its lines go: {DESTINATION}");
                self.wrong_type(
                    value.span(),
                    value.get_ref(),
                    "a destination or false",
                    &label,
                );
                return None;
            }
            _ => {
                return Some(AccessLog {
                    to: Some(self.text(value, DESTINATION)?.placed()),
                    ..AccessLog::default()
                });
            }
        };
        let before = self.diagnostics.len();
        let mut log = AccessLog::default();
        for entry in entries(table) {
            let Some(key) = self.key(Scope::AccessLog, &entry) else {
                continue;
            };
            let value = entry.value;
            match key.name {
                "to" => log.to = self.text(value, DESTINATION).map(StringValue::placed),
                "format" => log.format = self.one_of(value, key),
                "fields" => log.fields = Some(self.placed_texts(value, "\"status\"")),
                "handshakes" => log.handshakes = self.boolean(value),
                "redact" => log.redact = Some(self.placed_texts(value, "\"query\"")),
                "when" => log.when = self.access_log_when(value),
                _ => log.sample = self.share(value),
            }
        }
        if log.to.is_none() && self.diagnostics.len() == before {
            let label = format!("write for example {{ to = \"stdout\" }}: {DESTINATION}");
            self.error("access-log-to", value.span(), "`to` is missing", label);
        }
        (self.diagnostics.len() == before).then_some(log)
    }

    fn placed_texts(&mut self, value: &Spanned<DeValue<'_>>, example: &str) -> Vec<Placed<String>> {
        let texts = self.texts(value, example);
        texts.into_iter().map(StringValue::placed).collect()
    }

    fn access_log_when(&mut self, value: &Spanned<DeValue<'_>>) -> AccessLogWhen {
        let mut when = AccessLogWhen::default();
        let DeValue::Table(table) = value.get_ref() else {
            let label = "write for example { status = [\"5xx\"], slower = \"1s\" }";
            self.wrong_type(value.span(), value.get_ref(), "a table", label);
            return when;
        };
        for entry in entries(table) {
            let Some(key) = self.key(Scope::AccessLogWhen, &entry) else {
                continue;
            };
            match key.name {
                "status" => when.statuses = self.logged_statuses(entry.value),
                _ => {
                    let duration = units::parse_duration;
                    when.slower = self.unit_value(entry.value, "duration", "\"1s\"", duration);
                }
            }
        }
        when
    }

    fn logged_statuses(&mut self, value: &Spanned<DeValue<'_>>) -> Vec<LoggedStatus> {
        let is_status =
            |value: &DeValue<'_>| matches!(value, DeValue::String(_) | DeValue::Integer(_));
        let items = self.items(value, STATUSES, is_status).iter();
        items.filter_map(|item| self.logged_status(item)).collect()
    }

    /// A status, or all of a class.
    pub(super) fn logged_status(&mut self, item: &Spanned<DeValue<'_>>) -> Option<LoggedStatus> {
        let status = match item.get_ref() {
            DeValue::Integer(number) => LoggedStatus::parse(number.as_str()),
            _ => LoggedStatus::parse(&self.text(item, STATUSES)?.value),
        };
        if status.is_none() {
            self.error(
                "status",
                item.span(),
                "this is no status of a response",
                "write for example 404, or \"5xx\" for all from 500",
            );
        }
        status
    }

    pub(super) fn share(&mut self, value: &Spanned<DeValue<'_>>) -> Option<Share> {
        let text = match value.get_ref() {
            DeValue::Float(number) => number.as_str().replace('_', ""),
            DeValue::Integer(number) => number.as_str().replace('_', ""),
            DeValue::String(text) if text.starts_with("${") => {
                self.expanded(text, value.span())?.value
            }
            other => {
                let label = "write for example 0.01 for one of a hundred";
                self.wrong_type(value.span(), other, "a number from 0 to 1", label);
                return None;
            }
        };
        let share = text.parse().ok().and_then(Share::new);
        if share.is_none() {
            let label = "write a number from 0 to 1, such as 0.01 for one of a hundred";
            self.error("number", value.span(), "this share is not possible", label);
        }
        share
    }
}
