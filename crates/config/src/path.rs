//! Paths as requests are matched: escapes of unreserved characters decoded, others in upper case, no dot segments (RFC
//! 3986, section 6.2.2). A route with another path would match no request.

/// A problem, to be read behind the path, and its remedy.
type Problem = (String, String);

/// Checks a segment without slashes.
///
/// # Errors
/// It has a character that a path cannot have, an escape that is decoded before paths are compared, or a dot segment in
/// some reading.
pub(crate) fn check_segment(text: &str) -> Result<(), Problem> {
    if may_be_dot_segment(text) {
        return Err((
            "has a dot segment (. or ..), which matched paths never have".to_owned(),
            "write the path that results when the dots are resolved".to_owned(),
        ));
    }
    check_characters(text)
}

/// The same for a part of a segment.
pub(crate) fn check_characters(text: &str) -> Result<(), Problem> {
    match text.chars().find(|&c| !is_path_char(c)) {
        None => check_escapes(text),
        Some('?') => Err((
            "has a query, and a path has none".to_owned(),
            "leave out the ? and all behind it".to_owned(),
        )),
        Some('#') => Err((
            "has a fragment, which browsers do not send".to_owned(),
            "leave out the # and all behind it".to_owned(),
        )),
        Some(' ') => Err((
            "has a space".to_owned(),
            "write it percent-encoded: %20".to_owned(),
        )),
        Some(bad) => Err((
            format!("has {bad:?}, which is invalid in a path"),
            "write it percent-encoded".to_owned(),
        )),
    }
}

/// Writes escapes in upper case, as in the paths that routes are compared with.
pub(crate) fn with_upper_escapes(text: &str) -> String {
    let mut digits_left = 0_u8;
    let upper = |c: char| {
        let is_digit = digits_left > 0;
        digits_left = match c {
            '%' => 2,
            _ => digits_left.saturating_sub(1),
        };
        match is_digit {
            true => c.to_ascii_uppercase(),
            false => c,
        }
    };
    text.chars().map(upper).collect()
}

/// Pchar without its escapes, and the slash (RFC 3986, section 3.3).
fn is_path_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || "-._~!$&'()*+,;=:@%/".contains(c)
}

fn check_escapes(text: &str) -> Result<(), Problem> {
    let bytes = text.as_bytes();
    for at in (0..bytes.len()).filter(|&at| bytes[at] == b'%') {
        let Some(byte) = escaped(&bytes[at..]) else {
            return Err((
                "has a % without two hexadecimal digits".to_owned(),
                "write % itself as %25".to_owned(),
            ));
        };
        if byte == 0 {
            return Err((
                "has %00".to_owned(),
                "leave it out; such requests get 400".to_owned(),
            ));
        }
        // Servers take the two spellings of these for one path.
        let is_plain = byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,:=@".contains(&byte);
        if is_plain {
            let decoded = char::from(byte);
            return Err((
                format!("escapes {decoded:?}, which a path may have as it is"),
                format!("write {decoded} in its place"),
            ));
        }
    }
    Ok(())
}

/// An escape of ASCII at the beginning, and the byte that it stands for.
pub(crate) fn decoded_escape(bytes: &[u8]) -> Option<(&str, u8)> {
    let written = std::str::from_utf8(bytes.get(..3)?).ok()?;
    Some((written, escaped(bytes)?))
}

/// The byte of an escape at the beginning.
fn escaped(bytes: &[u8]) -> Option<u8> {
    let [b'%', high, low, ..] = bytes else {
        return None;
    };
    let digit = |byte: u8| char::from(byte).to_digit(16);
    u8::try_from(digit(*high)? << 4 | digit(*low)?).ok()
}

/// Whether a segment is a dot segment, or has one if slashes and backslashes are decoded and parameters cut off at `;`,
/// as some servers do.
fn may_be_dot_segment(segment: &str) -> bool {
    let bytes = segment.as_bytes();
    let (mut decoded, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let (byte, length) = match escaped(&bytes[at..]) {
            Some(byte) => (byte, 3),
            None => (bytes[at], 1),
        };
        decoded.push(byte);
        at += length;
    }
    let mut parts = decoded.split(|byte| matches!(byte, b'/' | b'\\'));
    parts.any(|part| {
        let name = part.split(|byte| *byte == b';').next().unwrap_or_default();
        matches!(name, b"." | b"..")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_normal() {
        for (text, problem) in [
            ("a", ""),
            ("a;x=1", ""),
            ("a%2fb", ""),
            ("%20", ""),
            (".well-known", ""),
            ("...", ""),
            (".", "dot"),
            ("..", "dot"),
            ("%2e", "dot"),
            ("..;x", "dot"),
            ("a%2F..", "dot"),
            ("a%5C%2e%2E", "dot"),
            ("%zz", "hexadecimal"),
            ("a%2", "hexadecimal"),
            ("%00", "%00"),
            ("%61", "escapes"),
            ("a?b", "query"),
            ("a#b", "fragment"),
            ("a b", "space"),
            ("a\"", "invalid"),
            ("\u{e9}", "invalid"),
        ] {
            let found = match check_segment(text) {
                Ok(()) => String::new(),
                Err((problem, _)) => problem,
            };
            assert_eq!(found.is_empty(), problem.is_empty(), "{text}: {found}");
            assert!(found.contains(problem), "{text}: {found}");
        }
        assert_eq!(with_upper_escapes("a%2fb%c3x"), "a%2Fb%C3x");
    }
}
