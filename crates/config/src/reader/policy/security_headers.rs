//! `security_headers`: `true`, or a table of the fields that differ.

use std::sync::Arc;
use std::time::Duration;

use toml::Spanned;
use toml::de::DeValue;

use super::super::{Entry, Reader, entries};
use crate::keys::{self, Kind, Scope};
use crate::own::Own;
use crate::policy::SecurityHeaders;
use crate::span::{Placed, Span};
use crate::units::ValueError;

/// The shortest time that lists of browsers take.
const PRELOAD_MIN: Duration = Duration::from_secs(365 * 24 * 3600);

/// The most bytes of a value: all clients have room for so much.
const VALUE_BYTES_MAX: usize = 4096;

impl Reader<'_> {
    pub(super) fn security_headers(
        &mut self,
        value: &Spanned<DeValue<'_>>,
    ) -> Option<Arc<Placed<SecurityHeaders>>> {
        let before = self.diagnostics.len();
        let mut headers = SecurityHeaders::default();
        let mut preload = None;
        match value.get_ref() {
            DeValue::Table(table) => {
                for entry in entries(table) {
                    let Some(entry) = self.known(Scope::SecurityHeaders, &entry) else {
                        continue;
                    };
                    if entry.name == "hsts_preload" {
                        preload = Some(entry.value.span());
                    }
                    self.security_header(&entry, &mut headers);
                }
            }
            DeValue::Boolean(_) => {}
            other => {
                let label = "write true, false, or a table with the fields that differ";
                self.wrong_type(value.span(), other, "true, false or a table", label);
            }
        }
        if let Some(span) = preload {
            self.check_preload(&headers, &span);
        }
        (self.diagnostics.len() == before).then(|| Arc::new(Placed::new(headers, value.span())))
    }

    fn security_header(&mut self, entry: &Entry<'_, '_>, headers: &mut SecurityHeaders) {
        let value = entry.value;
        let key = keys::find(Scope::SecurityHeaders, entry.name);
        let field = match entry.name {
            "hsts" => {
                let time = |reader: &mut Self| key.and_then(|key| reader.time(value, key));
                self.own(value, time).apply(&mut headers.hsts);
                return;
            }
            "hsts_subdomains" => &mut headers.hsts_subdomains,
            "hsts_preload" => &mut headers.hsts_preload,
            "nosniff" => &mut headers.nosniff,
            "replace" => &mut headers.replace,
            _ => return self.security_text(entry, headers),
        };
        *field = self.boolean(value).unwrap_or(*field);
    }

    fn security_text(&mut self, entry: &Entry<'_, '_>, headers: &mut SecurityHeaders) {
        let value = entry.value;
        let key = keys::find(Scope::SecurityHeaders, entry.name);
        let text: Own<String> = self.own(value, |reader| match key.map(|key| key.kind) {
            Some(Kind::OneOf(words)) => reader.word(value, words),
            _ => reader.header_text(value),
        });
        let upper = |text: &String| text.to_ascii_uppercase();
        match (entry.name, &text) {
            // `off` as in other places of the language.
            (_, Own::Value(off)) if off == "off" => {
                Own::Removed.apply(&mut headers.frame);
            }
            ("frame", Own::Value(frame)) => headers.frame = Some(upper(frame)),
            ("frame", _) => text.apply(&mut headers.frame),
            ("csp", _) => text.apply(&mut headers.csp),
            ("referrer", _) => text.apply(&mut headers.referrer),
            ("opener", _) => text.apply(&mut headers.opener),
            _ => text.apply(&mut headers.permissions),
        }
    }

    /// One of these words.
    fn word(&mut self, value: &Spanned<DeValue<'_>>, words: &[&str]) -> Option<String> {
        let quoted: Vec<_> = words.iter().map(|word| format!("\"{word}\"")).collect();
        let label = match quoted.split_last() {
            Some((last, others)) => format!("write {} or {last}", others.join(", ")),
            None => String::new(),
        };
        let text = self.text(value, &quoted[0])?;
        self.parsed(&text, |text| match words.contains(&text) {
            true => Ok(text.to_owned()),
            false => Err(ValueError::new(
                "security-headers",
                "there is no such value",
                label,
            )),
        })
    }

    /// The value of a field.
    fn header_text(&mut self, value: &Spanned<DeValue<'_>>) -> Option<String> {
        let text = self.text(value, "\"default-src 'self'\"")?;
        self.parsed(&text, |text| {
            let problem = |problem: String, remedy: &str| {
                Err(ValueError::new("security-headers", problem, remedy))
            };
            let text = text.trim();
            if text.is_empty() {
                return problem("the value is empty".to_owned(), "write false for none");
            }
            if text.len() > VALUE_BYTES_MAX {
                let message = format!("the value has more than {VALUE_BYTES_MAX} bytes");
                return problem(message, "shorten it");
            }
            // RFC 9110, section 5.5. None of these fields has other characters than those of ASCII.
            match text.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
                true => Ok(text.to_owned()),
                false => problem(
                    "the value has characters that the field cannot have".to_owned(),
                    "write it on one line, in ASCII",
                ),
            }
        })
    }

    /// Lists of browsers take a host only with all of this (hstspreload.org).
    fn check_preload(&mut self, headers: &SecurityHeaders, span: &Span) {
        let is_long = headers.hsts.is_some_and(|time| time >= PRELOAD_MIN);
        if headers.hsts_preload && !(is_long && headers.hsts_subdomains) {
            self.error(
                "security-headers",
                span.clone(),
                "lists of browsers would not take the host",
                "write hsts_subdomains = true as well, and hsts = \"365d\" or more",
            );
        }
    }
}
