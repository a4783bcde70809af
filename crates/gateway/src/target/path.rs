//! Validation of paths in prefixes and URLs: they need the form in which requests are matched
//! (rule 10).

use blitz_http::path::may_be_dot_segment;

use super::parse::{InvalidTarget, invalid};

/// Rejects a path that is not normalised: it would match no request (rule 10).
pub(super) fn check(path: &str, what: &str) -> Result<(), InvalidTarget> {
    if path.split('/').any(may_be_dot_segment) {
        return invalid(
            format!("{what} has a . or .. segment, which matched paths never have"),
            "write the path that results when the dots are resolved",
        );
    }
    check_characters(path, what)
}

/// Rejects characters that a path cannot contain (RFC 3986 section 3.3).
pub(super) fn check_characters(text: &str, what: &str) -> Result<(), InvalidTarget> {
    if let Some(bad) = text.chars().find(|&c| !is_path_char(c)) {
        return invalid(
            format!("{what} contains {bad:?}, which is invalid in a path"),
            "write it percent-encoded",
        );
    }
    check_escapes(text, what)
}

fn is_path_char(c: char) -> bool {
    // RFC 3986 section 3.3: pchar and "/".
    c.is_ascii_alphanumeric() || "-._~!$&'()*+,;=:@%/".contains(c)
}

/// Writes escapes in upper case, as in the paths that prefixes are compared with.
pub(super) fn with_upper_escapes(path: &str) -> String {
    let mut digits_left = 0_u8;
    let upper = |c: char| {
        let is_digit = digits_left > 0;
        digits_left = if c == '%' {
            2
        } else {
            digits_left.saturating_sub(1)
        };
        if is_digit { c.to_ascii_uppercase() } else { c }
    };
    path.chars().map(upper).collect()
}

fn check_escapes(path: &str, what: &str) -> Result<(), InvalidTarget> {
    let bytes = path.as_bytes();
    for at in (0..bytes.len()).filter(|&at| bytes[at] == b'%') {
        let value = path
            .get(at + 1..at + 3)
            .filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()))
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        let Some(byte) = value else {
            return invalid(
                format!("{what} has a % without two hexadecimal digits"),
                "write % itself as %25",
            );
        };
        if byte == 0 {
            return invalid(
                format!("{what} contains %00"),
                "leave it out; such requests get 400",
            );
        }
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            return invalid(
                format!(
                    "{what} escapes {:?}, which is decoded before paths are matched",
                    byte as char
                ),
                format!("write {} in its place", byte as char),
            );
        }
    }
    Ok(())
}
