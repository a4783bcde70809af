//! Parts of request heads as log lines have them: short, and without control characters.

use blitz_proto::RequestHead;

/// Longest method in a line.
const METHOD_MAX: usize = 32;

/// Longest host in a line.
const HOST_MAX: usize = 255;

/// Longest path in a line.
const PATH_MAX: usize = 512;

/// The method; the start of one that is longer than any that is registered.
#[must_use]
pub fn method(head: &RequestHead) -> &str {
    start_of(head.method_str(), METHOD_MAX)
}

/// The host and its port.
#[must_use]
pub fn host(head: &RequestHead) -> Option<&str> {
    head.authority().map(|host| start_of(host, HOST_MAX))
}

/// The path without its query. Control characters, quotation marks and spaces, which would end the value, are escaped.
#[must_use]
pub fn path(head: &RequestHead) -> String {
    let path = head.raw_path();
    let start = start_of(path, PATH_MAX);
    let dots = if start.len() < path.len() { "..." } else { "" };
    format!("{}{dots}", escape(start))
}

fn escape(path: &str) -> String {
    path.escape_debug().to_string().replace(' ', "\\u{20}")
}

/// Whether a character that is no control character separates lines, turns the direction of what follows, or has no
/// width: in a line nobody would see it, or see another text.
#[must_use]
pub fn is_invisible(c: char) -> bool {
    matches!(
        c,
        '\u{ad}'
            | '\u{61c}'
            | '\u{180e}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}'
    )
}

/// At most this many bytes, whole characters.
#[must_use]
pub fn start_of(text: &str, max: usize) -> &str {
    let mut end = max.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_one_value() {
        let escaped = escape("/a status=200 b=\"c\"\n");
        assert_eq!(escaped, r#"/a\u{20}status=200\u{20}b=\"c\"\n"#);
    }

    #[test]
    fn what_the_client_sent_is_cut() {
        assert_eq!(start_of("abc", 3), "abc");
        assert_eq!(start_of("abcd", 3), "abc");
        assert_eq!(start_of("ab\u{e9}", 3), "ab");
    }
}
