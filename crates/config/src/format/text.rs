//! Keys and strings.

use std::fmt::Write;

/// A key: bare if it can be, else in quotes. Hosts always have quotes.
pub(super) fn key(path: &[&str], name: &str) -> String {
    let is_host = path == ["site"];
    let is_bare = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    match name.is_empty() || is_host || !name.bytes().all(is_bare) {
        true => quoted(name),
        false => name.to_owned(),
    }
}

/// The keys of a header or of a statement, below the table of `path`.
pub(super) fn dotted<'a>(path: &[&'a str], keys: &[&'a str]) -> String {
    let mut path = path.to_vec();
    let mut parts = Vec::new();
    for name in keys {
        parts.push(key(&path, name));
        path.push(name);
    }
    parts.join(".")
}

/// In `"…"`, or in `'…'` if that spares escapes.
fn quoted(name: &str) -> String {
    let is_plain = |c: char| c != '\'' && !c.is_control();
    match name.contains(['"', '\\']) && name.chars().all(is_plain) {
        true => format!("'{name}'"),
        false => basic(name),
    }
}

/// A string as it stands in the file, in the canonical form. `is_inline` is a place that has no line breaks.
pub(super) fn string(written: &str, value: &str, is_inline: bool) -> String {
    let is_multiline = written.starts_with("\"\"\"") || written.starts_with("'''");
    if is_multiline {
        return match is_inline || has_new_escapes(written) {
            true => basic(value),
            false => written.to_owned(),
        };
    }
    match written.starts_with('\'') {
        true if value.contains(['"', '\\']) => written.to_owned(),
        true => basic(value),
        false if has_new_escapes(written) => basic(value),
        false => written.to_owned(),
    }
}

/// Whether a string has escapes that TOML 1.0 does not have.
fn has_new_escapes(written: &str) -> bool {
    let mut chars = written.chars();
    while let Some(c) = chars.next() {
        if c == '\\' && matches!(chars.next(), Some('e' | 'x')) {
            return written.starts_with('"');
        }
    }
    false
}

fn basic(value: &str) -> String {
    let mut text = String::from("\"");
    for c in value.chars() {
        match c {
            '"' => text += "\\\"",
            '\\' => text += "\\\\",
            '\n' => text += "\\n",
            '\t' => text += "\\t",
            '\r' => text += "\\r",
            // Writing to a text does not fail.
            c if c.is_ascii_control() => drop(write!(text, "\\u{:04X}", u32::from(c))),
            c => text.push(c),
        }
    }
    text + "\""
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_quotes_where_they_need_them() {
        assert_eq!(
            dotted(&[], &["site", "localhost", "/a", "to"]),
            "site.\"localhost\".\"/a\".to"
        );
        assert_eq!(
            dotted(&["site"], &["localhost", "tls"]),
            "\"localhost\".tls"
        );
        assert_eq!(dotted(&["upstream"], &["app"]), "app");
        assert_eq!(key(&[], ""), "\"\"");
        assert_eq!(key(&["errors"], "5xx"), "5xx");
        assert_eq!(key(&[], "~/u/\\d+"), "'~/u/\\d+'");
        assert_eq!(key(&[], "a'\\"), "\"a'\\\\\"");
    }

    #[test]
    fn strings_are_those_of_toml_1_0() {
        assert_eq!(string("'a'", "a", false), "\"a\"");
        assert_eq!(string("'a\\d'", "a\\d", false), "'a\\d'");
        assert_eq!(string("\"\\u00e9\"", "é", false), "\"\\u00e9\"");
        assert_eq!(string("\"\\x41\\e\"", "A\u{1b}", false), "\"A\\u001B\"");
        assert_eq!(string("\"\\\\x41\"", "\\x41", false), "\"\\\\x41\"");
        assert_eq!(
            string("\"\"\"a\nb\"\"\"", "a\nb", false),
            "\"\"\"a\nb\"\"\""
        );
        assert_eq!(string("\"\"\"a\nb\"\"\"", "a\nb", true), "\"a\\nb\"");
    }
}
