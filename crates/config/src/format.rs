//! The formatter: the same tables, values and comments in the canonical form.
//!
//! **Invariant: the result means the same.** [`format`] reads its own result again, and gives it away only if all values
//! and all comments are in it. Keys that the language does not have are kept like others.

mod arrangement;
mod comments;
mod outline;
mod text;
mod value;

use std::collections::HashMap;

use toml::de::{DeTable, DeValue};

use crate::diagnostic::{Diagnostic, Severity};
use crate::document::Document;
use crate::environment::Environment;
use crate::reader::read;
use crate::span::Span;

/// The text of a file in the canonical form, in TOML 1.0.
///
/// # Errors
/// The file is not TOML: its mistakes.
pub fn format(document: &Document, environment: &Environment) -> Result<String, Vec<Diagnostic>> {
    let text = document.text.trim_start_matches('\u{feff}');
    let parsed = toml_edit::Document::parse(text)
        .map_err(|error| mistakes(document, environment, &error))?;
    let outline = outline::Outline::new(text, &parsed);
    let formatted = arrangement::arranged(&outline);
    match means_the_same(text, &formatted) {
        true => Ok(formatted),
        false => Err(vec![Diagnostic::error(
            "format",
            0..0,
            "the formatter would change the meaning of this file",
            "it stays as it is; please report it",
        )]),
    }
}

/// The errors of the reader for a file with errors of syntax.
fn mistakes(
    document: &Document,
    environment: &Environment,
    error: &toml_edit::TomlError,
) -> Vec<Diagnostic> {
    let (_, mut diagnostics) = read(document, environment);
    diagnostics.retain(|diagnostic| diagnostic.severity == Severity::Error);
    if diagnostics.is_empty() {
        let span: Span = error.span().unwrap_or_default();
        let message = error.message().to_owned();
        diagnostics.push(Diagnostic::error(
            "syntax",
            span,
            message,
            "this is not TOML",
        ));
    }
    diagnostics
}

fn means_the_same(before: &str, after: &str) -> bool {
    let (Ok(old), Ok(new)) = (DeTable::parse(before), DeTable::parse(after)) else {
        return false;
    };
    is_same_table(old.get_ref(), new.get_ref()) && counted(before) == counted(after)
}

/// The comments of a text, and how often each one is in it.
fn counted(text: &str) -> HashMap<&str, usize> {
    let mut counts = HashMap::new();
    for comment in comments::of_text(text) {
        *counts.entry(comment).or_default() += 1;
    }
    counts
}

fn is_same_table(a: &DeTable<'_>, b: &DeTable<'_>) -> bool {
    let is_there = |(key, value): (&toml::Spanned<_>, &toml::Spanned<DeValue<'_>>)| {
        let key: &toml::de::DeString<'_> = key.get_ref();
        let other = b.get(key.as_ref());
        other.is_some_and(|other| is_same(value.get_ref(), other.get_ref()))
    };
    a.len() == b.len() && a.iter().all(is_there)
}

fn is_same(a: &DeValue<'_>, b: &DeValue<'_>) -> bool {
    match (a, b) {
        (DeValue::String(a), DeValue::String(b)) => a == b,
        (DeValue::Integer(a), DeValue::Integer(b)) => {
            (a.as_str(), a.radix()) == (b.as_str(), b.radix())
        }
        (DeValue::Float(a), DeValue::Float(b)) => a.as_str() == b.as_str(),
        (DeValue::Boolean(a), DeValue::Boolean(b)) => a == b,
        (DeValue::Datetime(a), DeValue::Datetime(b)) => a == b,
        (DeValue::Array(a), DeValue::Array(b)) => {
            let mut pairs = a.iter().zip(b.iter());
            a.len() == b.len() && pairs.all(|(a, b)| is_same(a.get_ref(), b.get_ref()))
        }
        (DeValue::Table(a), DeValue::Table(b)) => is_same_table(a, b),
        _ => false,
    }
}
