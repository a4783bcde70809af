//! Values: in one line, or lists with an item a line.

use toml_edit::{Array, Formatted, InlineTable, Key, RawString, Value};

use super::{comments, text};

/// Columns of a line with a list; longer lists have an item a line.
const WIDTH_MAX: usize = 100;

const INDENT: &str = "  ";

/// A line of the result.
#[derive(Debug)]
pub(super) struct FormattedLine<'a> {
    pub(super) text: String,
    pub(super) comment: Option<&'a str>,
}

impl<'a> FormattedLine<'a> {
    pub(super) fn new(text: impl Into<String>) -> FormattedLine<'a> {
        FormattedLine {
            text: text.into(),
            comment: None,
        }
    }
}

/// Writes values of a text.
#[derive(Clone, Copy)]
pub(super) struct Writer<'a> {
    pub(super) source: &'a str,
}

impl<'a> Writer<'a> {
    /// The lines of a value with the text before and behind it. Comments that have no place within it come before.
    pub(super) fn write(
        self,
        before: &str,
        path: &mut Vec<&'a str>,
        value: &'a Value,
        behind: &str,
        lines: &mut Vec<FormattedLine<'a>>,
    ) {
        let indent = &before[..before.len() - before.trim_start().len()];
        let inline = self.inline(path, value);
        let width = before.chars().count() + inline.chars().count() + behind.len();
        if let Value::Array(array) = value
            && (self.has_lines(array) || (width > WIDTH_MAX && !array.is_empty()))
        {
            return self.list(indent, before, path, array, behind, lines);
        }
        let mut found = Vec::new();
        self.comments(value, &mut found);
        let found = found.into_iter();
        lines.extend(found.map(|comment| FormattedLine::new(format!("{indent}{comment}"))));
        let text = match value {
            Value::String(string) => self.string(string, false),
            _ => inline,
        };
        lines.push(FormattedLine::new(format!("{before}{text}{behind}")));
    }

    /// Whether a list has comments, or its author has begun it with a line break.
    fn has_lines(self, array: &'a Array) -> bool {
        let mut found = Vec::new();
        self.comments_of_list(array, &mut found);
        let first = array.get(0);
        let is_broken = first.is_some_and(|first| self.prefix(first).contains('\n'));
        is_broken || !found.is_empty()
    }

    fn list(
        self,
        indent: &str,
        before: &str,
        path: &mut Vec<&'a str>,
        array: &'a Array,
        behind: &str,
        lines: &mut Vec<FormattedLine<'a>>,
    ) {
        lines.push(FormattedLine::new(format!("{before}[")));
        let start = lines.len();
        let inner = format!("{indent}{INDENT}");
        let mut behind_last = None;
        for item in array {
            let between = [behind_last.unwrap_or_default(), self.prefix(item)];
            gap(&inner, between, behind_last.is_some(), start, lines);
            self.write(&inner, path, item, ",", lines);
            behind_last = Some(self.suffix(item));
        }
        let between = [
            behind_last.unwrap_or_default(),
            self.raw(Some(array.trailing())),
        ];
        gap(&inner, between, behind_last.is_some(), start, lines);
        if lines.last().is_some_and(|line| line.text.is_empty()) {
            lines.pop();
        }
        lines.push(FormattedLine::new(format!("{indent}]{behind}")));
    }

    /// A value in one line, without its comments.
    fn inline(self, path: &mut Vec<&'a str>, value: &'a Value) -> String {
        match value {
            Value::String(string) => self.string(string, true),
            Value::Array(array) => {
                let items = array.iter().map(|item| self.inline(path, item));
                format!("[{}]", items.collect::<Vec<_>>().join(", "))
            }
            Value::InlineTable(table) if table.is_empty() => "{}".to_owned(),
            Value::InlineTable(table) => {
                let entries = entries_of(table).into_iter().map(|(keys, value)| {
                    let depth = path.len();
                    let name = text::dotted(path, &keys);
                    path.extend(keys);
                    let value = self.inline(path, value);
                    path.truncate(depth);
                    format!("{name} = {value}")
                });
                format!("{{ {} }}", entries.collect::<Vec<_>>().join(", "))
            }
            _ => self.written(value).to_owned(),
        }
    }

    fn string(self, string: &'a Formatted<String>, is_inline: bool) -> String {
        let written = string.span().and_then(|span| self.source.get(span));
        text::string(written.unwrap_or_default(), string.value(), is_inline)
    }

    fn written(self, value: &Value) -> &'a str {
        let written = value.span().and_then(|span| self.source.get(span));
        written.unwrap_or_default()
    }

    /// The comments within a value, but for those that its list has between its items.
    fn comments(self, value: &'a Value, found: &mut Vec<&'a str>) {
        match value {
            Value::Array(array) => self.comments_of_list(array, found),
            Value::InlineTable(table) => self.comments_of_table(table, found),
            _ => {}
        }
    }

    fn comments_of_list(self, array: &'a Array, found: &mut Vec<&'a str>) {
        for item in array {
            found.extend(comments::within(self.prefix(item)));
            self.comments(item, found);
            found.extend(comments::within(self.suffix(item)));
        }
        found.extend(comments::within(self.raw(Some(array.trailing()))));
    }

    fn comments_of_table(self, table: &'a InlineTable, found: &mut Vec<&'a str>) {
        for (keys, value) in sorted(table.get_values()) {
            if let Some(last) = keys.last() {
                let decor = last.leaf_decor();
                found.extend(comments::within(self.raw(decor.prefix())));
                found.extend(comments::within(self.raw(decor.suffix())));
            }
            found.extend(comments::within(self.prefix(value)));
            self.comments(value, found);
            found.extend(comments::within(self.suffix(value)));
        }
        found.extend(comments::within(self.raw(Some(table.trailing()))));
    }

    fn prefix(self, value: &Value) -> &'a str {
        self.raw(value.decor().prefix())
    }

    pub(super) fn suffix(self, value: &Value) -> &'a str {
        self.raw(value.decor().suffix())
    }

    pub(super) fn raw(self, raw: Option<&RawString>) -> &'a str {
        let span = raw.and_then(RawString::span);
        span.and_then(|span| self.source.get(span))
            .unwrap_or_default()
    }
}

/// Keys with their value.
pub(super) type KeyedValue<'a> = (Vec<&'a Key>, &'a Value);

/// In the order of the file.
pub(super) fn sorted(mut values: Vec<KeyedValue<'_>>) -> Vec<KeyedValue<'_>> {
    values.sort_by_key(|(keys, _)| {
        keys.last()
            .and_then(|key| key.span())
            .map(|span| span.start)
    });
    values
}

fn entries_of(table: &InlineTable) -> Vec<(Vec<&str>, &Value)> {
    let mut entries = Vec::new();
    for (keys, value) in sorted(table.get_values()) {
        entries.push((keys.into_iter().map(Key::get).collect(), value));
    }
    entries
}

/// The text between two items, before and after the comma. A comment in the line of the first item stays there.
fn gap<'a>(
    indent: &str,
    between: [&'a str; 2],
    has_item: bool,
    start: usize,
    lines: &mut Vec<FormattedLine<'a>>,
) {
    let mut is_in_line = has_item;
    for part in between {
        let pieces = part.split('\n').count();
        for (at, piece) in part.split('\n').map(str::trim).enumerate() {
            is_in_line &= at == 0;
            let is_blank_line = piece.is_empty() && at > 0 && at + 1 < pieces;
            let has_lines = lines.len() > start;
            match lines.last_mut() {
                Some(last) if is_in_line && !piece.is_empty() && last.comment.is_none() => {
                    last.comment = Some(piece);
                }
                _ if !piece.is_empty() => {
                    lines.push(FormattedLine::new(format!("{indent}{piece}")));
                }
                Some(last) if is_blank_line && has_lines && !last.text.is_empty() => {
                    lines.push(FormattedLine::new(""));
                }
                _ => {}
            }
        }
    }
}
