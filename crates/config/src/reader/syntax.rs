//! Errors of TOML, and what was meant where that is clear.

use std::ops::ControlFlow;

use toml::de::Error;

use super::Reader;
use crate::model::Span;

impl Reader<'_> {
    /// Breaks unless the text has the tables and keys that were meant.
    pub(super) fn syntax_errors(&mut self, errors: &[Error]) -> ControlFlow<()> {
        let mut doubled_until = 0;
        let mut flow = ControlFlow::Continue(());
        for error in errors {
            let span = error.span().unwrap_or_default();
            // Keys below a table that is defined twice are not mistakes of their own.
            if span.start < doubled_until {
                continue;
            }
            match error.message() {
                "duplicate key" => {
                    if self.is_in_header(&span) {
                        doubled_until = self.next_header(span.end);
                    }
                    self.twice(&span);
                }
                _ if self.document.text[span.start..].starts_with('/') => self.path_quotes(&span),
                message => {
                    self.error("syntax", span, message, "this is not TOML");
                    flow = ControlFlow::Break(());
                }
            }
        }
        flow
    }

    /// Whether a key is a part of a header such as `[site."a.example"]`.
    fn is_in_header(&self, span: &Span) -> bool {
        let before = &self.document.text[..span.start];
        let line = before.rsplit('\n').next().unwrap_or_default();
        line.trim_start().starts_with('[')
    }

    /// Where the next header begins, or the text ends.
    fn next_header(&self, from: usize) -> usize {
        let text = &self.document.text;
        let next = text[from..].find("\n[");
        next.map_or(text.len(), |at| from + at + 1)
    }

    fn twice(&mut self, span: &Span) {
        let raw = self.document.slice(span).to_owned();
        let first = self.document.text.find(&raw).unwrap_or(span.start);
        let first = self.document.place(first);
        let name = raw.trim_matches(['"', '\'']);
        if self.is_in_header(span) && name.starts_with('/') {
            return self.error(
                "two-forms",
                span.clone(),
                format!("the route `{name}` is written in two forms"),
                format!("it begins at {first}; write all of it here"),
            );
        }
        self.error(
            "defined-twice",
            span.clone(),
            format!("`{name}` is defined twice"),
            format!("second definition; the first is at {first}"),
        );
    }

    fn path_quotes(&mut self, span: &Span) {
        let rest = &self.document.text[span.start..];
        let end = rest.find([' ', '\t', '=', ']', '\n']);
        let key = &rest[..end.unwrap_or(rest.len())];
        self.error(
            "path-quotes",
            span.start..span.start + key.len(),
            "a path needs quotes",
            format!("write `\"{key}\"`"),
        );
    }
}
