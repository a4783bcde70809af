//! The files of a configuration: their names and their texts.

use crate::span::Span;

/// The main file of a configuration, and the files that it includes. Their texts follow each other, so that a place is an
/// offset in all of them.
#[derive(Debug, Clone)]
pub struct Document {
    /// The name of the main file, as diagnostics print it.
    pub name: String,
    /// All texts.
    pub text: String,
    /// Where their lines start.
    lines: Vec<usize>,
    /// In their order.
    included: Vec<IncludedFile>,
}

/// A file that is included.
#[derive(Debug, Clone)]
struct IncludedFile {
    start: usize,
    name: String,
    folder: String,
}

impl Document {
    /// A document of one file.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Document {
        let text = text.into();
        Document {
            name: name.into(),
            lines: line_starts(&text, 0),
            text,
            included: Vec::new(),
        }
    }

    /// Adds a file. Relative paths in it begin at the folder, which is empty for that of the main file.
    pub fn include(&mut self, name: impl Into<String>, folder: impl Into<String>, text: &str) {
        // Each file begins with a line of its own.
        if !self.text.ends_with('\n') {
            self.text.push('\n');
            self.lines.push(self.text.len());
        }
        let start = self.text.len();
        self.lines.pop();
        self.lines.extend(line_starts(text, start));
        self.text.push_str(text);
        self.included.push(IncludedFile {
            start,
            name: name.into(),
            folder: folder.into(),
        });
    }

    /// The texts of the main file and of the included ones, each with its start.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (usize, &str)> {
        let starts = || self.included.iter().map(|included| included.start);
        let ends = starts().chain([self.text.len()]);
        let parts = std::iter::once(0).chain(starts()).zip(ends);
        parts.map(|(start, end)| (start, &self.text[start..end]))
    }

    /// The name of the file at this offset.
    #[must_use]
    pub fn name_at(&self, offset: usize) -> &str {
        self.included_at(offset)
            .map_or(&self.name, |included| &included.name)
    }

    /// The path with which the configuration names a file that is written so at this offset.
    pub(crate) fn path_at(&self, offset: usize, written: String) -> String {
        match self.included_at(offset) {
            Some(included) if !included.folder.is_empty() && !written.starts_with('/') => {
                format!("{}/{written}", included.folder.trim_end_matches('/'))
            }
            _ => written,
        }
    }

    /// Whether this offset is in an included file.
    pub(crate) fn is_included(&self, offset: usize) -> bool {
        self.included_at(offset).is_some()
    }

    fn included_at(&self, offset: usize) -> Option<&IncludedFile> {
        let after = self
            .included
            .partition_point(|included| included.start <= offset);
        Some(&self.included[after.checked_sub(1)?])
    }

    /// Line and column in the file of an offset in bytes; both count from 1, columns in characters.
    #[must_use]
    pub fn position(&self, offset: usize) -> (usize, usize) {
        let mut end = offset.min(self.text.len());
        while !self.text.is_char_boundary(end) {
            end -= 1;
        }
        let line = self.line(end);
        let before = &self.text[self.lines[line]..end];
        (line - self.first_line(end) + 1, before.chars().count() + 1)
    }

    /// The lines of a span: the number of the first one, from 1, its start, and their text without the last line break.
    pub(crate) fn lines_of(&self, span: &Span) -> (usize, usize, &str) {
        let (first, last) = (self.line(span.start), self.line(span.end));
        let start = self.lines[first];
        let end = self.lines.get(last + 1);
        let end = end.map_or(self.text.len(), |next| next - 1);
        let number = first - self.first_line(span.start) + 1;
        (number, start, self.slice(&(start..end)))
    }

    /// The number of the line of an offset among all, from 0.
    fn line(&self, offset: usize) -> usize {
        // The first line starts at 0.
        self.lines.partition_point(|start| *start <= offset) - 1
    }

    /// The number of the first line of the file at this offset.
    fn first_line(&self, offset: usize) -> usize {
        self.included_at(offset)
            .map_or(0, |included| self.line(included.start))
    }

    /// A position as diagnostics print it: `line:column`, behind the name of its file if there are several.
    #[must_use]
    pub fn place(&self, offset: usize) -> String {
        let (line, column) = self.position(offset);
        match self.included_at(offset) {
            None if self.included.is_empty() => format!("{line}:{column}"),
            None => format!("{}:{line}:{column}", self.name),
            Some(included) => format!("{}:{line}:{column}", included.name),
        }
    }

    /// The text of a span; empty if the span is outside of the text.
    #[must_use]
    pub fn slice(&self, span: &Span) -> &str {
        self.text.get(span.clone()).unwrap_or_default()
    }
}

/// Where the lines of a text start that starts there.
fn line_starts(text: &str, start: usize) -> Vec<usize> {
    let breaks = text.match_indices('\n').map(|(at, _)| start + at + 1);
    std::iter::once(start).chain(breaks).collect()
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

    #[test]
    fn lines_count_in_each_file() {
        for (main, start) in [("a\nb\n", 4), ("a\nb", 4), ("", 1)] {
            let mut document = Document::new("main.toml", main);
            document.include("x.toml", "sites", "c\nd = 1");
            document.include("y.toml", "", "\ne\n");
            assert_eq!(document.name_at(start - 1), "main.toml", "{main:?}");
            assert_eq!(document.place(start), "x.toml:1:1", "{main:?}");
            assert_eq!(document.place(start + 2), "x.toml:2:1", "{main:?}");
            assert_eq!(document.place(start + 4), "x.toml:2:3", "{main:?}");
            let second = start + "c\nd = 1\n".len();
            assert_eq!(document.place(second + 1), "y.toml:2:1", "{main:?}");
            assert_eq!(
                document.lines_of(&(second + 1..second + 2)),
                (2, second + 1, "e")
            );
            assert_eq!(document.path_at(start, "a.html".to_owned()), "sites/a.html");
            assert_eq!(document.path_at(start, "/a.html".to_owned()), "/a.html");
            assert_eq!(document.path_at(0, "a.html".to_owned()), "a.html");
            let parts: Vec<_> = document.parts().map(|(start, _)| start).collect();
            assert_eq!(parts, [0, start, second], "{main:?}");
        }
    }
}
