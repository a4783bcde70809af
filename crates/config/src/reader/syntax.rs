//! Errors of TOML, with the intended text where that is clear.

use std::ops::ControlFlow;

use toml::de::Error;

use super::Reader;
use crate::keys::{self, Scope};
use crate::span::Span;

impl Reader<'_> {
    /// Breaks unless the text that starts there has the tables and keys that were meant.
    pub(super) fn syntax_errors(&mut self, errors: &[Error], start: usize) -> ControlFlow<()> {
        let mut doubled_until = 0;
        let mut flow = ControlFlow::Continue(());
        for error in errors {
            let span = error.span().unwrap_or_default();
            let span = span.start + start..span.end + start;
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
                _ if self.is_foreign(span.start) => {
                    self.foreign_syntax(span.start);
                    return ControlFlow::Break(());
                }
                _ if self.document.text[span.start..].starts_with('/') => self.path_quotes(&span),
                message => {
                    let label = match message.contains("escaped value") {
                        true => "in \"…\" write \\\\ for a backslash; in '…' it stands for itself",
                        false => "this is not TOML",
                    };
                    self.error("syntax", span, message, label);
                    flow = ControlFlow::Break(());
                }
            }
        }
        flow
    }

    /// Whether this is in a line of nginx or Caddy, whose other lines would be mistakes too. In TOML an equals sign or a
    /// dot follows a bare key.
    fn is_foreign(&self, at: usize) -> bool {
        let line = &self.document.text[self.line(at)];
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let is_word = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.:*".contains(&byte);
        let begins =
            !word.is_empty() && word.bytes().all(is_word) && !rest.trim_start().starts_with('=');
        begins && (line.ends_with(';') || line.ends_with('{'))
    }

    /// The line at this place, without spaces around it.
    fn line(&self, at: usize) -> Span {
        let text = &self.document.text;
        let start = text[..at].rfind('\n').map_or(0, |end| end + 1);
        let end = text[start..]
            .find('\n')
            .map_or(text.len(), |end| start + end);
        let line = &text[start..end];
        let start = start + (line.len() - line.trim_start().len());
        start..start + line.trim().len()
    }

    /// Names a host and a server of the foreign text, so that the repair can be copied.
    fn foreign_syntax(&mut self, at: usize) {
        let text = &self.document.text;
        let server = match text.lines().any(|line| line.trim_end().ends_with(';')) {
            true => "nginx",
            false => "Caddy",
        };
        let behind = |word: &str| {
            let mut words = text.split_whitespace();
            words.find(|found| *found == word)?;
            words.next().map(|value| value.trim_end_matches(';'))
        };
        let before_brace = || {
            let mut blocks = text
                .lines()
                .filter_map(|line| line.trim().strip_suffix(" {"));
            blocks.find(|name| name.contains('.') && !name.contains(' '))
        };
        let host = behind("server_name").or_else(before_brace);
        let to = behind("proxy_pass").or_else(|| behind("reverse_proxy"));
        let (scheme, rest) = to.map_or(("http", "127.0.0.1:3000"), |to| {
            to.split_once("://").unwrap_or(("http", to))
        });
        let authority = rest.split('/').next().unwrap_or_default();
        let label = format!(
            "write [site.\"{}\"], and in the next line to = \"{scheme}://{authority}\"",
            host.unwrap_or("app.example")
        );
        let message = format!("this is a line of {server}, and Blitz reads TOML");
        self.error("foreign-syntax", self.line(at), message, label);
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
        let is_setting = |name: &str| keys::is_built(Scope::Route, name);
        // The rest may be a table of the setting: `/api.errors.404`.
        let is_start = |(dot, _): &(usize, &str)| {
            let rest = &key[dot + 1..];
            is_setting(rest.split('.').next().unwrap_or_default())
        };
        let repaired = match key.match_indices('.').find(is_start) {
            Some((dot, _)) => format!("\"{}\"{}", &key[..dot], &key[dot..]),
            None => format!("\"{key}\""),
        };
        let span = span.start..span.start + key.len();
        let label = format!("write `{repaired}`");
        self.error("path-quotes", span.clone(), "a path needs quotes", label);
        self.repair(span, repaired);
    }
}
