//! One file of the configuration: its name and its text.

use crate::model::Span;

/// One file of the configuration.
#[derive(Debug, Clone)]
pub struct Document {
    /// The name that diagnostics print.
    pub name: String,
    /// The whole text.
    pub text: String,
}

impl Document {
    /// A document from its parts.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Document {
        Document {
            name: name.into(),
            text: text.into(),
        }
    }

    /// Line and column of an offset in bytes; both count from 1, columns in characters.
    #[must_use]
    pub fn position(&self, offset: usize) -> (usize, usize) {
        let mut end = offset.min(self.text.len());
        while !self.text.is_char_boundary(end) {
            end -= 1;
        }
        let before = &self.text[..end];
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let line = before.matches('\n').count() + 1;
        (line, before[line_start..].chars().count() + 1)
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
