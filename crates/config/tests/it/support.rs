//! Files as texts, and diagnostics in few lines.

use blitz_config::{Configuration, Diagnostic, Document, Environment, Severity, read};

/// The configuration of a text that has no mistakes.
pub(crate) fn valid(text: &str) -> Configuration {
    let (configuration, diagnostics) = read(&document(text), &environment());
    assert_eq!(diagnostics, [], "{text}");
    configuration
}

pub(crate) fn document(text: &str) -> Document {
    Document::new("blitz.toml", text)
}

pub(crate) fn environment() -> Environment {
    let variables = [
        ("JWT_SECRET", "secret"),
        ("APP", "http://h:3000"),
        ("YES", "true"),
    ];
    variables
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into_iter()
        .collect()
}

/// The diagnostics of a text: `line:column code: message`, the line, and the label below its part.
pub(crate) fn mistakes(text: &str) -> String {
    let document = document(text);
    let (_, diagnostics) = read(&document, &environment());
    let shown = |diagnostic: &Diagnostic| {
        let place = document.place(diagnostic.span.start);
        let (line, column) = document.position(diagnostic.span.start);
        let source = text.lines().nth(line - 1).unwrap_or_default();
        let warning = match diagnostic.severity {
            Severity::Error => "",
            Severity::Warning => "warning ",
        };
        let carets = "^".repeat(document.slice(&diagnostic.span).chars().count());
        format!(
            "{warning}{place} {}: {}\n  {source}\n  {}{carets} {}\n",
            diagnostic.code,
            diagnostic.message,
            " ".repeat(column - 1),
            diagnostic.label
        )
    };
    diagnostics.iter().map(shown).collect()
}
