//! One file of the configuration: its name and its text.

use crate::model::Span;

/// One file of the configuration.
#[derive(Debug, Clone)]
pub struct Document {
    /// The name that diagnostics print.
    pub name: String,
    /// The whole text.
    pub text: String,
    /// Where its lines start.
    lines: Box<[usize]>,
}

impl Document {
    /// A document from its parts.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Document {
        let text = text.into();
        let breaks = text.match_indices('\n').map(|(at, _)| at + 1);
        Document {
            name: name.into(),
            lines: std::iter::once(0).chain(breaks).collect(),
            text,
        }
    }

    /// Line and column of an offset in bytes; both count from 1, columns in characters.
    #[must_use]
    pub fn position(&self, offset: usize) -> (usize, usize) {
        let mut end = offset.min(self.text.len());
        while !self.text.is_char_boundary(end) {
            end -= 1;
        }
        let line = self.line(end);
        let before = &self.text[self.lines[line]..end];
        (line + 1, before.chars().count() + 1)
    }

    /// The lines of a span: the number of the first one, from 1, its start, and their text without the last line break.
    pub(crate) fn lines_of(&self, span: &Span) -> (usize, usize, &str) {
        let (first, last) = (self.line(span.start), self.line(span.end));
        let start = self.lines[first];
        let end = self.lines.get(last + 1);
        let end = end.map_or(self.text.len(), |next| next - 1);
        (first + 1, start, self.slice(&(start..end)))
    }

    /// Where the line of an offset ends, without its line break.
    pub(crate) fn line_end(&self, offset: usize) -> usize {
        let rest = self.text.get(offset..).unwrap_or_default();
        let length = rest.find(['\r', '\n']).unwrap_or(rest.len());
        offset + rest[..length].trim_end().len()
    }

    /// The number of the line of an offset, from 0.
    fn line(&self, offset: usize) -> usize {
        // The first line starts at 0.
        self.lines.partition_point(|start| *start <= offset) - 1
    }

    /// A position as diagnostics print it: `line:column`.
    #[must_use]
    pub fn place(&self, offset: usize) -> String {
        let (line, column) = self.position(offset);
        format!("{line}:{column}")
    }

    /// The text of a span; empty if the span is outside of the text.
    #[must_use]
    pub fn slice(&self, span: &Span) -> &str {
        self.text.get(span.clone()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_count_characters() {
        let document = Document::new("a.toml", "a\n\u{e9}\u{e9}b\n");
        assert_eq!(document.position(0), (1, 1));
        assert_eq!(document.position(2), (2, 1));
        assert_eq!(document.position(6), (2, 3));
        // Inside of a character, and behind the end.
        assert_eq!(document.position(3), (2, 1));
        assert_eq!(document.position(100), (3, 1));
    }
}
