//! Tables with settings of the process.

use std::time::Duration;

use toml::Spanned;
use toml::de::DeValue;

use super::value::StringValue;
use super::{Entry, Reader, entries, redis};
use crate::keys::{Key, Kind, Scope};
use crate::process::{Bytes, ControlAddress, FieldTexts, Process, SettingsTable, Slot, Socket};
use crate::span::Placed;
use crate::units::{self, TimeLimit, ValueError};

impl Reader<'_> {
    /// Takes the settings of a table at the top of the file, if it is one of the process.
    pub(super) fn process(&mut self, entry: &Entry<'_, '_>, process: &mut Process) {
        let (scope, table): (Scope, &mut dyn SettingsTable) = match entry.name {
            "server" => (Scope::Server, &mut process.server),
            "log" => (Scope::Log, &mut process.log),
            "limits" => (Scope::Limits, &mut process.limits),
            "metrics" => (Scope::Metrics, &mut process.metrics),
            "control" => (Scope::Control, &mut process.control),
            "tracing" => (Scope::Tracing, &mut process.tracing),
            "redis" => (Scope::Redis, &mut process.redis),
            _ => return,
        };
        let value = entry.value;
        match value.get_ref() {
            DeValue::Table(keys) => {
                for entry in entries(keys) {
                    if let Some(key) = self.key(scope, &entry) {
                        self.fill(table, key, entry.value);
                    }
                }
                let has_collector = entries(keys).iter().any(|entry| entry.name == "otlp");
                if scope == Scope::Tracing && !has_collector {
                    let label = "write for example otlp = \"http://127.0.0.1:4317\"";
                    self.error("tracing-otlp", entry.key(), "`otlp` is missing", label);
                }
            }
            DeValue::String(_) if scope == Scope::Redis => {
                let url = self.text(value, redis::URL);
                process.redis.url = url.map(StringValue::placed);
            }
            DeValue::Boolean(false) if scope == Scope::Control => {
                let off = Placed::new(Socket::Off, value.span());
                process.control.socket = Some(off);
                let off = Placed::new(ControlAddress::Off, value.span());
                process.control.listen = Some(off);
            }
            other => {
                let name = entry.name;
                self.wrong_type(
                    value.span(),
                    other,
                    "a table",
                    &format!("write [{name}], and its keys below"),
                );
            }
        }
    }

    /// Reads a value, which stays as it is if the new one is wrong.
    pub(super) fn fill(
        &mut self,
        table: &mut dyn SettingsTable,
        key: &Key,
        value: &Spanned<DeValue<'_>>,
    ) {
        match table.slot(key.name) {
            Some(Slot::Switch(slot)) => put(slot, self.boolean(value), value),
            Some(Slot::Number(slot)) => put(slot, self.number(value, key), value),
            Some(Slot::Bytes(slot)) => put(slot, self.bytes(value, key), value),
            Some(Slot::Duration(slot)) => put(slot, self.time(value, key), value),
            Some(Slot::Limit(slot)) => put(slot, self.limit(value), value),
            Some(Slot::Text(slot)) => put(slot, self.one_of(value, key), value),
            Some(Slot::AccessLog(slot)) => put(slot, self.access_log(value), value),
            Some(Slot::Socket(slot)) => put(slot, self.socket(value), value),
            Some(Slot::Address(slot)) => put(slot, self.control_address(value), value),
            Some(Slot::Share(slot)) => put(slot, self.share(value), value),
            Some(Slot::FieldTexts(slot)) => put(slot, Some(self.field_texts(value)), value),
            None => {}
        }
    }

    /// A number, or a variable that is one.
    pub(super) fn number(&mut self, value: &Spanned<DeValue<'_>>, key: &Key) -> Option<u64> {
        let Kind::NumberTo(last) = key.kind else {
            return None;
        };
        self.number_to(value, last)
    }

    /// A number from one to the last one.
    pub(super) fn number_to(&mut self, value: &Spanned<DeValue<'_>>, last: u64) -> Option<u64> {
        self.number_between(value, 1, last)
    }

    /// A number from the first to the last one.
    pub(super) fn number_between(
        &mut self,
        value: &Spanned<DeValue<'_>>,
        first: u64,
        last: u64,
    ) -> Option<u64> {
        let digits = match value.get_ref() {
            DeValue::Integer(number) => number.as_str().replace('_', ""),
            DeValue::String(text) if text.starts_with("${") => {
                self.expanded(text, value.span())?.value
            }
            other => {
                self.wrong_type(value.span(), other, "a number", "write it without quotes");
                return None;
            }
        };
        let number = digits.parse().ok();
        let number = number.filter(|number| (first..=last).contains(number));
        if number.is_none() {
            let label = format!("write a number from {first} to {last}");
            self.error("number", value.span(), "this number is not possible", label);
        }
        number
    }

    fn bytes(&mut self, value: &Spanned<DeValue<'_>>, key: &Key) -> Option<Bytes> {
        let Kind::SizeTo(last) = key.kind else {
            return None;
        };
        let bytes = self.unit_value(value, "size", "\"64k\"", |text| {
            let bytes = units::parse_size(text)?;
            match (1..=last).contains(&bytes) {
                true => Ok(bytes),
                false => Err(ValueError::new(
                    "size",
                    "this size is not possible",
                    format!("write at most \"{}k\", and not 0", last / 1024),
                )),
            }
        })?;
        Some(Bytes(bytes))
    }

    pub(super) fn time(&mut self, value: &Spanned<DeValue<'_>>, key: &Key) -> Option<Duration> {
        let is_valid =
            |duration: Duration| key.kind != Kind::Seconds || duration.subsec_nanos() == 0;
        self.unit_value(
            value,
            "duration",
            "\"30s\"",
            |text| match units::parse_duration(text)? {
                duration if is_valid(duration) => Ok(duration),
                _ => Err(ValueError::new(
                    "duration",
                    "this has a part of a second",
                    "write whole seconds, such as \"60s\" or \"1h\"",
                )),
            },
        )
    }

    fn limit(&mut self, value: &Spanned<DeValue<'_>>) -> Option<TimeLimit> {
        self.unit_value(value, "duration", "\"30s\"", |text| match text {
            "forever" => Ok(TimeLimit::Forever),
            _ => units::parse_duration(text).map(TimeLimit::After),
        })
    }

    /// A text, of those that the key may have.
    pub(super) fn one_of(&mut self, value: &Spanned<DeValue<'_>>, key: &Key) -> Option<String> {
        let Kind::OneOf(texts) = key.kind else {
            return Some(self.text(value, "\"edge-1\"")?.value);
        };
        let all = format!("\"{}\"", texts.join("\", \""));
        let text = self.text(value, &all)?;
        if texts.contains(&text.value.as_str()) {
            return Some(text.value);
        }
        let message = format!("`{}` is no value of `{}`", text.written(), key.name);
        self.error("value", text.span, message, format!("write one of {all}"));
        None
    }

    fn socket(&mut self, value: &Spanned<DeValue<'_>>) -> Option<Socket> {
        match value.get_ref() {
            DeValue::Boolean(false) => Some(Socket::Off),
            _ => {
                let path = self.text(value, "\"/run/blitz/control.sock\", or false")?;
                Some(Socket::Path(path.value))
            }
        }
    }

    /// Values of fields by their names.
    fn field_texts(&mut self, value: &Spanned<DeValue<'_>>) -> FieldTexts {
        let mut texts = FieldTexts::default();
        let DeValue::Table(table) = value.get_ref() else {
            let label = "write for example { X-Api-Key = \"${KEY}\" }";
            self.wrong_type(value.span(), value.get_ref(), "a table", label);
            return texts;
        };
        for entry in entries(table) {
            let name = self.field_name(&entry, None);
            let text = self.text(entry.value, "\"value\"");
            let Some((name, text)) = name.zip(text) else {
                continue;
            };
            if texts.0.iter().any(|(known, _)| *known == name) {
                let message = format!("the field `{}` is defined twice", entry.name);
                self.error(
                    "defined-twice",
                    entry.key(),
                    message,
                    "case does not matter",
                );
                continue;
            }
            let is_visible = |byte: u8| byte == b'\t' || !byte.is_ascii_control();
            match text.value.bytes().all(is_visible) && text.value.trim() == text.value {
                true => texts.0.push((name, text.value)),
                false => {
                    let label = "leave out control characters, and spaces at its ends";
                    self.error(
                        "field-value",
                        text.span,
                        "a field cannot have this value",
                        label,
                    );
                }
            }
        }
        texts
    }

    fn control_address(&mut self, value: &Spanned<DeValue<'_>>) -> Option<ControlAddress> {
        match value.get_ref() {
            DeValue::Boolean(false) => Some(ControlAddress::Off),
            _ => {
                let address = self.text(value, "\"127.0.0.1:9180\", or false")?;
                Some(ControlAddress::On(address.value))
            }
        }
    }
}

fn put<T>(slot: &mut Option<Placed<T>>, read: Option<T>, value: &Spanned<DeValue<'_>>) {
    if let Some(read) = read {
        *slot = Some(Placed::new(read, value.span()));
    }
}
