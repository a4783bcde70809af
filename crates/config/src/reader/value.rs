//! Values: texts with variables, booleans, lists.

use toml::Spanned;
use toml::de::DeValue;

use super::Reader;
use crate::span::{Placed, Span};

/// A string, with its variables replaced.
pub(super) struct StringValue {
    pub(super) value: String,
    /// The same before its variables were replaced, if it has some.
    written: Option<String>,
    pub(super) span: Span,
    /// Parts of the value that have no placeholders, because they come from variables.
    pub(super) literals: Vec<Span>,
    /// Its characters are those of the file, behind one quote.
    is_verbatim: bool,
}

impl StringValue {
    /// The place of a part of it, or of all of it where the file has other characters.
    pub(super) fn part(&self, part: Span) -> Span {
        match self.is_verbatim {
            true => self.span.start + 1 + part.start..self.span.start + 1 + part.end,
            false => self.span.clone(),
        }
    }

    /// As it is written: diagnostics must not show the values of variables, which may be secret.
    pub(super) fn written(&self) -> &str {
        self.written.as_deref().unwrap_or(&self.value)
    }

    /// The text behind its first bytes.
    pub(super) fn behind(&self, start: usize) -> StringValue {
        let is_behind = |part: &&Span| part.end > start;
        let moved = |part: &Span| part.start.saturating_sub(start)..part.end - start;
        // Its quote stands where the first bytes end.
        let span = match self.is_verbatim {
            true => self.span.start + start..self.span.end,
            false => self.span.clone(),
        };
        StringValue {
            value: self.value.get(start..).unwrap_or_default().to_owned(),
            written: Some(self.written().to_owned()),
            literals: self.literals.iter().filter(is_behind).map(moved).collect(),
            is_verbatim: self.is_verbatim,
            span,
        }
    }

    pub(super) fn to_placed(&self) -> Placed<String> {
        Placed::new(self.value.clone(), self.span.clone())
    }

    pub(super) fn placed(self) -> Placed<String> {
        Placed {
            value: self.value,
            span: self.span,
        }
    }
}

impl Reader<'_> {
    /// A string. `example` is one that the key may have.
    pub(super) fn text(
        &mut self,
        value: &Spanned<DeValue<'_>>,
        example: &str,
    ) -> Option<StringValue> {
        match value.get_ref() {
            DeValue::String(text) => self.expanded(text, value.span()),
            other => {
                self.wrong_type(value.span(), other, "a text", &format!("write {example}"));
                None
            }
        }
    }

    /// The path of a file. A relative one begins at the folder of the file that has it.
    pub(super) fn file(
        &mut self,
        value: &Spanned<DeValue<'_>>,
        example: &str,
    ) -> Option<Placed<String>> {
        let text = self.text(value, example)?;
        let path = self.document.path_at(text.span.start, text.value);
        Some(Placed::new(path, text.span))
    }

    /// The text with its variables replaced.
    pub(super) fn expanded(&mut self, text: &str, span: Span) -> Option<StringValue> {
        let source = self.document.slice(&span);
        let inner = source.get(1..source.len().saturating_sub(1));
        let mut text = StringValue {
            value: text.to_owned(),
            written: None,
            literals: Vec::new(),
            is_verbatim: inner == Some(text),
            span,
        };
        match self.environment.expand(&text.value) {
            Ok(None) => Some(text),
            Ok(Some(expanded)) => {
                text.is_verbatim = false;
                text.written = Some(text.value);
                text.value = expanded.text;
                text.literals = expanded.literals;
                Some(text)
            }
            Err(error) => {
                self.error(
                    error.code,
                    text.part(error.part),
                    error.message,
                    error.label,
                );
                None
            }
        }
    }

    /// `true` or `false`, or a variable that is one of them.
    pub(super) fn boolean(&mut self, value: &Spanned<DeValue<'_>>) -> Option<bool> {
        match value.get_ref() {
            DeValue::Boolean(is_on) => return Some(*is_on),
            DeValue::String(text) if text.starts_with("${") => {
                let text = self.expanded(text, value.span())?;
                if let Ok(is_on) = text.value.parse() {
                    return Some(is_on);
                }
            }
            _ => {}
        }
        self.wrong_type(
            value.span(),
            value.get_ref(),
            "true or false",
            "write true or false",
        );
        None
    }

    /// The items of a list. A value in place of the list may be meant as its only item.
    pub(super) fn items<'v, 'i>(
        &mut self,
        value: &'v Spanned<DeValue<'i>>,
        example: &str,
        is_item: fn(&DeValue<'_>) -> bool,
    ) -> &'v [Spanned<DeValue<'i>>] {
        if let DeValue::Array(items) = value.get_ref() {
            return items;
        }
        let item = match is_item(value.get_ref()) {
            true => self.document.slice(&value.span()),
            false => example,
        };
        let label = format!("write [{item}]");
        self.wrong_type(value.span(), value.get_ref(), "a list", &label);
        if let DeValue::String(_) = value.get_ref() {
            self.repair(value.span(), format!("[{item}]"));
        }
        &[]
    }

    /// A list of strings.
    pub(super) fn texts(
        &mut self,
        value: &Spanned<DeValue<'_>>,
        example: &str,
    ) -> Vec<StringValue> {
        let is_item = |value: &DeValue<'_>| matches!(value, DeValue::String(_));
        let items = self.items(value, example, is_item);
        let mut texts = Vec::new();
        for item in items {
            match item.get_ref() {
                DeValue::Table(_) => self.not_yet(item.span(), "a table in this list"),
                _ => texts.extend(self.text(item, example)),
            }
        }
        texts
    }

    pub(super) fn wrong_type(
        &mut self,
        span: Span,
        found: &DeValue<'_>,
        wanted: &str,
        label: &str,
    ) {
        let message = format!("this must be {wanted}, and is {}", named(found));
        self.error("type", span, message, label);
    }
}

fn named(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) => "a number",
        DeValue::Float(_) => "a number with a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}
