//! Paths in the form in which they are matched and sent on.
//!
//! Two spellings of one resource must not pass two different rules of a gateway, so a path is
//! brought to its normal form once, before anything looks at it: escapes of unreserved characters
//! are decoded, other escapes are written in upper case (RFC 3986, section 6.2.2), dot segments
//! are removed. `%2F` stays distinct from `/`, and `//` from `/`, because servers tell them apart.

use crate::error::ErrorKind;

/// Appends the normal form of `path`, which starts with `/`, to `out`.
///
/// # Errors
/// An escape that is none, `%00`, or a climb above the root. `out` then holds rubbish.
pub fn normalize(path: &str, out: &mut String) -> Result<(), ErrorKind> {
    debug_assert!(path.starts_with('/'));
    let base = out.len();
    let mut segments = path.split('/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        let slash = out.len();
        out.push('/');
        decode_segment(segment, out)?;
        let climbs = match &out[slash + 1..] {
            "." => false,
            ".." => true,
            _ => continue,
        };
        out.truncate(slash);
        if climbs {
            let parent = out[base..].rfind('/').ok_or(ErrorKind::TargetAboveRoot)?;
            out.truncate(base + parent);
        }
        // `/a/.` names the same directory as `/a/`, not the file `/a`.
        if segments.peek().is_none() {
            out.push('/');
        }
    }
    Ok(())
}

/// Copies a segment; unreserved escapes are decoded, the others get upper-case digits.
fn decode_segment(segment: &str, out: &mut String) -> Result<(), ErrorKind> {
    let mut pieces = segment.split('%');
    out.push_str(pieces.next().unwrap_or(""));
    for piece in pieces {
        let (high, low) = match piece.as_bytes() {
            [high, low, ..] => (hex_value(*high), hex_value(*low)),
            _ => return Err(ErrorKind::TargetEscape),
        };
        let (Some(high), Some(low)) = (high, low) else {
            return Err(ErrorKind::TargetEscape);
        };
        let byte = high << 4 | low;
        if byte == 0 {
            return Err(ErrorKind::TargetNul);
        }
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push('%');
            out.extend(piece[..2].chars().map(|digit| digit.to_ascii_uppercase()));
        }
        out.push_str(&piece[2..]);
    }
    Ok(())
}

/// The value of a hexadecimal digit.
#[inline]
pub(crate) const fn hex_value(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}
