//! Lines of a terminal.

use blitz_http::log_text::is_invisible;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// The look of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Tone {
    #[default]
    Plain,
    /// A title.
    Strong,
    /// Of less weight.
    Dim,
    /// It needs attention.
    Warning,
    /// It failed.
    Bad,
}

impl Tone {
    /// The parameter of the escape sequence.
    fn code(self) -> &'static str {
        match self {
            Tone::Plain => "",
            Tone::Strong => "1",
            Tone::Dim => "2",
            Tone::Warning => "33",
            Tone::Bad => "31",
        }
    }
}

/// A line that is made of texts, none of which has control characters.
#[derive(Debug, Default)]
pub(crate) struct Line(Vec<(Tone, String)>);

impl Line {
    pub(crate) fn of(tone: Tone, text: &str) -> Line {
        let mut line = Line::default();
        line.add(tone, text);
        line
    }

    pub(crate) fn add(&mut self, tone: Tone, text: &str) {
        self.0.push((tone, printable(text)));
    }

    /// Adds spaces up to a column.
    pub(crate) fn pad_to(&mut self, column: usize) {
        let missing = column.saturating_sub(self.width());
        self.0.push((Tone::Plain, " ".repeat(missing)));
    }

    pub(crate) fn width(&self) -> usize {
        self.0.iter().map(|(_, text)| text.width()).sum()
    }

    /// The line on a terminal, cut at its right side and without spaces there.
    pub(crate) fn text(&self, columns: usize, has_colour: bool) -> String {
        let mut out = String::new();
        let mut left = columns;
        for (tone, text) in &self.0 {
            let text = cut(text, left);
            left -= text.width();
            match has_colour && *tone != Tone::Plain && !text.is_empty() {
                true => out += &format!("\x1b[{}m{text}\x1b[0m", tone.code()),
                false => out += &text,
            }
        }
        out.truncate(out.trim_end().len());
        out
    }
}

/// A text without characters that a terminal would obey or hide.
fn printable(text: &str) -> String {
    let is_obeyed = |letter: char| letter.is_control() || is_invisible(letter);
    let letters = text.chars();
    letters
        .map(|letter| {
            if is_obeyed(letter) {
                '\u{fffd}'
            } else {
                letter
            }
        })
        .collect()
}

/// The text, or its beginning and an ellipsis if it is wider.
pub(crate) fn cut(text: &str, columns: usize) -> String {
    if text.width() <= columns {
        return text.to_owned();
    }
    let mut out = String::new();
    let mut left = columns.saturating_sub(1);
    for letter in text.chars() {
        let width = letter.width().unwrap_or_default();
        if width > left {
            break;
        }
        left -= width;
        out.push(letter);
    }
    if columns > 0 {
        out.push('…');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_never_exceed_the_terminal() {
        let mut line = Line::of(Tone::Strong, "日本語");
        line.pad_to(8);
        line.add(Tone::Bad, "failed");
        assert_eq!(line.width(), 14);
        for columns in 0..20 {
            assert!(line.text(columns, false).width() <= columns);
        }
        assert_eq!(line.text(14, false), "日本語  failed");
        assert_eq!(line.text(11, false), "日本語  fa…");
        assert_eq!(line.text(5, false), "日本…");
    }

    #[test]
    fn only_a_terminal_gets_colours() {
        let mut line = Line::of(Tone::Plain, "a ");
        line.add(Tone::Bad, "b");
        assert_eq!(line.text(80, true), "a \x1b[31mb\x1b[0m");
        assert_eq!(line.text(80, false), "a b");
    }

    #[test]
    fn control_characters_are_replaced() {
        let line = Line::of(Tone::Plain, "a\x1b[2Jb\n\u{9b}\u{202e}");
        let expected = "a\u{fffd}[2Jb\u{fffd}\u{fffd}\u{fffd}";
        assert_eq!(line.text(80, false), expected);
    }
}
