//! Tables with settings of the process.

use std::time::Duration;

use toml::Spanned;
use toml::de::DeValue;

use super::{Entry, Reader, entries};
use crate::keys::{Key, Kind, Scope};
use crate::model::Placed;
use crate::process::{Bytes, Process, Socket};
use crate::settings::TimeLimit;
use crate::units::{self, ValueError};

/// A table of settings that takes the values of its keys.
pub(crate) trait Fill {
    /// Takes the value of a key, unless it is wrong.
    fn fill(&mut self, reader: &mut Reader<'_>, key: &Key, value: &Spanned<DeValue<'_>>);
}

/// A type of a setting.
pub(crate) trait ReadValue: Sized {
    fn read(reader: &mut Reader<'_>, key: &Key, value: &Spanned<DeValue<'_>>) -> Option<Self>;
}

impl Reader<'_> {
    /// Takes the settings of a table at the top of the file, if it is one of the process.
    pub(super) fn process(&mut self, entry: &Entry<'_, '_>, process: &mut Process) {
        let (scope, table): (Scope, &mut dyn Fill) = match entry.name {
            "server" => (Scope::Server, &mut process.server),
            "log" => (Scope::Log, &mut process.log),
            "limits" => (Scope::Limits, &mut process.limits),
            "control" => (Scope::Control, &mut process.control),
            _ => return,
        };
        let value = entry.value;
        match value.get_ref() {
            DeValue::Table(keys) => {
                for entry in entries(keys) {
                    if let Some(key) = self.key(scope, &entry) {
                        table.fill(self, key, entry.value);
                    }
                }
            }
            DeValue::Boolean(false) if scope == Scope::Control => {
                let off = Placed::new(Socket::Off, value.span());
                process.control.socket = Some(off);
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

    pub(crate) fn read_value<T: ReadValue>(
        &mut self,
        key: &Key,
        value: &Spanned<DeValue<'_>>,
    ) -> Option<Placed<T>> {
        let read = T::read(self, key, value)?;
        Some(Placed::new(read, value.span()))
    }

    /// A number, or a variable that is one.
    fn number(&mut self, value: &Spanned<DeValue<'_>>, last: u64) -> Option<u64> {
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
        let number = number.filter(|number| (1..=last).contains(number));
        if number.is_none() {
            let label = format!("write a number from 1 to {last}");
            self.error("number", value.span(), "this number is not possible", label);
        }
        number
    }
}

impl ReadValue for bool {
    fn read(reader: &mut Reader<'_>, _: &Key, value: &Spanned<DeValue<'_>>) -> Option<bool> {
        reader.boolean(value)
    }
}

impl ReadValue for u64 {
    fn read(reader: &mut Reader<'_>, key: &Key, value: &Spanned<DeValue<'_>>) -> Option<u64> {
        match key.kind {
            Kind::NumberTo(last) => reader.number(value, last),
            _ => None,
        }
    }
}

impl ReadValue for Bytes {
    fn read(reader: &mut Reader<'_>, key: &Key, value: &Spanned<DeValue<'_>>) -> Option<Bytes> {
        let Kind::SizeTo(last) = key.kind else {
            return None;
        };
        let bytes = reader.unit_value(value, "size", "\"64k\"", |text| {
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
}

impl ReadValue for Duration {
    fn read(reader: &mut Reader<'_>, key: &Key, value: &Spanned<DeValue<'_>>) -> Option<Duration> {
        let is_valid =
            |duration: Duration| key.kind != Kind::Seconds || duration.subsec_nanos() == 0;
        reader.unit_value(
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
}

impl ReadValue for TimeLimit {
    fn read(reader: &mut Reader<'_>, _: &Key, value: &Spanned<DeValue<'_>>) -> Option<TimeLimit> {
        reader.unit_value(value, "duration", "\"30s\"", |text| match text {
            "forever" => Ok(TimeLimit::Forever),
            _ => units::parse_duration(text).map(TimeLimit::After),
        })
    }
}

impl ReadValue for String {
    fn read(reader: &mut Reader<'_>, key: &Key, value: &Spanned<DeValue<'_>>) -> Option<String> {
        let Kind::OneOf(texts) = key.kind else {
            return Some(reader.text(value, "\"edge-1\"")?.value);
        };
        let all = format!("\"{}\"", texts.join("\", \""));
        let text = reader.text(value, &all)?;
        if texts.contains(&text.value.as_str()) {
            return Some(text.value);
        }
        let message = format!("`{}` is no value of `{}`", text.written(), key.name);
        reader.error("value", text.span, message, format!("write one of {all}"));
        None
    }
}

impl ReadValue for Socket {
    fn read(reader: &mut Reader<'_>, _: &Key, value: &Spanned<DeValue<'_>>) -> Option<Socket> {
        match value.get_ref() {
            DeValue::Boolean(false) => Some(Socket::Off),
            _ => {
                let path = reader.text(value, "\"/run/blitz/control.sock\", or false")?;
                Some(Socket::Path(path.value))
            }
        }
    }
}
