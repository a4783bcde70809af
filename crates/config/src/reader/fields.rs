//! `headers` and `request_headers`: changes of fields.

use std::sync::Arc;

use toml::Spanned;
use toml::de::DeValue;

use super::own::OwnMap;
use super::template::{TemplateKind, is_token};
use super::{Entry, Reader, entries};
use crate::pattern::PathPattern;
use crate::settings::{FieldChange, FieldRule};
use crate::span::{Placed, Span};
use crate::suggestion;
use crate::template::{Template, TemplatePart};
use crate::units::ValueError;

/// Fields that belong to the connection and to the framing of messages (RFC 9110, sections 7.6.1 and 10.1.1).
const RESERVED: [&str; 8] = [
    "connection",
    "content-length",
    "expect",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

const VALUE: &str =
    "\"value\", [\"several\"], { default = \"value\" }, { add = \"value\" } or false";

impl Reader<'_> {
    /// A map of changes. `with_host` says that `Host` has a key of its own.
    pub(super) fn fields(
        &mut self,
        value: &Spanned<DeValue<'_>>,
        pattern: &PathPattern,
        host_key: Option<&str>,
    ) -> OwnMap<String, FieldRule> {
        let mut rules: OwnMap<String, FieldRule> = OwnMap::default();
        let table = match value.get_ref() {
            DeValue::Table(table) => table,
            DeValue::Boolean(false) => {
                rules.is_removed = true;
                return rules;
            }
            other => {
                let label = "write for example headers.Cache-Control = \"no-cache\"";
                self.wrong_type(value.span(), other, "a table", label);
                return rules;
            }
        };
        for entry in entries(table) {
            let Some(name) = self.field_name(&entry, host_key) else {
                continue;
            };
            let Some(change) = self.field_change(entry.value, pattern) else {
                continue;
            };
            let is_same = |(_, rule): &&(String, Arc<FieldRule>)| rule.name == name;
            if let Some((_, first)) = rules.entries.iter().find(is_same) {
                let place = self.document.place(first.change.span.start);
                self.error(
                    "defined-twice",
                    entry.key(),
                    format!("the field `{}` is defined twice", entry.name),
                    format!("case does not matter; the first value is at {place}"),
                );
                continue;
            }
            let change = Placed::new(change, entry.value.span());
            let rule = FieldRule {
                name: name.clone(),
                change,
            };
            rules.entries.push((name, Arc::new(rule)));
        }
        rules.entries.sort_by(|(a, _), (b, _)| a.cmp(b));
        rules
    }

    /// The name of a field in lower case.
    pub(super) fn field_name(
        &mut self,
        entry: &Entry<'_, '_>,
        host_key: Option<&str>,
    ) -> Option<String> {
        self.field_name_at(entry.name, entry.key(), host_key)
    }

    /// The name of a field that stands at this place, in lower case.
    pub(super) fn field_name_at(
        &mut self,
        written: &str,
        place: Span,
        host_key: Option<&str>,
    ) -> Option<String> {
        let name = written.to_ascii_lowercase();
        if !is_token(&name) {
            self.error(
                "field-name",
                place,
                format!("`{written}` is no name of a field"),
                "write letters, digits and hyphens, such as Cache-Control",
            );
            return None;
        }
        // CGI and WSGI know no difference between the two.
        if RESERVED.contains(&name.replace('_', "-").as_str()) {
            self.error(
                "reserved-field",
                place,
                format!("`{written}` belongs to the connection"),
                "leave it out; it is set for each connection",
            );
            return None;
        }
        if let Some(key) = host_key
            && name == "host"
        {
            self.error(
                "reserved-field",
                place,
                format!("`{written}` has a key of its own"),
                format!("write {key} = \"keep\", \"upstream\" or a name"),
            );
            return None;
        }
        Some(name)
    }

    fn field_change(
        &mut self,
        value: &Spanned<DeValue<'_>>,
        pattern: &PathPattern,
    ) -> Option<FieldChange> {
        match value.get_ref() {
            DeValue::Boolean(false) => Some(FieldChange::Remove),
            DeValue::String(_) => {
                let template = self.field_value(value, pattern)?;
                Some(FieldChange::Set(vec![template]))
            }
            DeValue::Array(items) => {
                let values = items.iter().map(|item| self.field_value(item, pattern));
                let values = values.collect::<Option<Vec<_>>>()?;
                if values.is_empty() {
                    let message = "this field has no values";
                    self.error(
                        "field-value",
                        value.span(),
                        message,
                        "write false to remove it",
                    );
                    return None;
                }
                Some(FieldChange::Set(values))
            }
            DeValue::Table(table) => {
                let entries = entries(table);
                let [entry] = entries.as_slice() else {
                    let message = "a change of a field has one key";
                    let label = "write { default = \"value\" } or { add = \"value\" }";
                    self.error("field-value", value.span(), message, label);
                    return None;
                };
                let change = match entry.name {
                    "default" => FieldChange::Default,
                    "add" => FieldChange::Add,
                    name => {
                        let words = ["default", "add"].into_iter();
                        let label = match suggestion::nearest(name, words) {
                            Some(other) => format!("did you mean `{other}`?"),
                            None => format!("write {VALUE}"),
                        };
                        let message = format!("unknown key `{name}` in a change of a field");
                        self.error("unknown-key", entry.key(), message, label);
                        return None;
                    }
                };
                self.field_value(entry.value, pattern).map(change)
            }
            other => {
                self.wrong_type(value.span(), other, "a text", &format!("write {VALUE}"));
                None
            }
        }
    }

    fn field_value(
        &mut self,
        value: &Spanned<DeValue<'_>>,
        pattern: &PathPattern,
    ) -> Option<Template> {
        let text = self.text(value, "\"value\"")?;
        let template = self.template(&text, pattern, TemplateKind::Other)?;
        let is_control = |c: char| c.is_control() && c != '\t';
        let has_control = |part: &TemplatePart| matches!(part, TemplatePart::Text(text) if text.contains(is_control));
        // RFC 9110, section 5.5.
        if template.parts().iter().any(has_control) {
            let message = "the value of a field has a control character";
            self.error("control", text.span, message, "leave it out");
            return None;
        }
        Some(template)
    }
}

/// The name of a field in lower case, which is none of the connection, and not `Host`.
pub(super) fn check_field_name(text: &str) -> Result<String, ValueError> {
    let name = text.to_ascii_lowercase();
    let spelled = name.replace('_', "-");
    if !is_token(&name) {
        return Err(ValueError::new(
            "field-name",
            format!("`{text}` is no name of a field"),
            "write letters, digits and hyphens, such as Remote-User",
        ));
    }
    if RESERVED.contains(&spelled.as_str()) || spelled == "host" {
        return Err(ValueError::new(
            "reserved-field",
            format!("`{text}` belongs to the connection"),
            "leave it out; it is set for each connection",
        ));
    }
    Ok(name)
}
