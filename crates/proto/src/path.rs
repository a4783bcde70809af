//! Normalization of paths, for matching and for forwarding.
//!
//! Two spellings of one resource must not match two different rules of a gateway. Each path is
//! therefore normalised once, before any use: escapes of unreserved characters are decoded, other
//! escapes are written in upper case (RFC 3986, section 6.2.2), dot segments are removed. `%2F` stays
//! distinct from `/`, and `//` from `/`, because servers distinguish them.
//!
//! The forwarded path is the received path without the dot segments: the same segments as the normal
//! form, in the client's spelling. Some servers also treat `%2F`, `\`, `%5C` or `;` as separators. They
//! must not receive dot segments that were not removed, so a path with such segments is refused.

use crate::error::ErrorKind;

/// Appends the normal form of `path`, which starts with `/`, to `out`.
///
/// # Errors
/// A malformed escape, `%00`, dot segments that lead above the root, or a segment that other servers
/// may read as a dot segment. The content of `out` is then unspecified.
pub fn normalize(path: &str, out: &mut String) -> Result<(), ErrorKind> {
    copy_segments(path, out, decode_segment)
}

/// Appends `path` without its dot segments, otherwise byte for byte, to `out`.
///
/// # Errors
/// Dot segments that lead above the root, or a segment that other servers may read as a dot segment.
/// The content of `out` is then unspecified.
pub fn remove_dot_segments(path: &str, out: &mut String) -> Result<(), ErrorKind> {
    copy_segments(path, out, |segment, out| {
        out.push_str(segment);
        Ok(())
    })
}

/// Number of bytes at the start of `sent` that correspond to the first `len` bytes of `matched`.
///
/// Both must come from one path: `sent` from [`remove_dot_segments`], `matched` from [`normalize`].
#[must_use]
pub fn sent_len(sent: &str, matched: &str, len: usize) -> usize {
    let (sent, matched) = (sent.as_bytes(), matched.as_bytes());
    if sent.get(..len) == matched.get(..len) && !sent[..len.min(sent.len())].contains(&b'%') {
        return len.min(sent.len());
    }
    // An escape is three bytes of `sent`, and one of `matched` if it was decoded.
    let (mut at, mut of) = (0, 0);
    while of < len && at < sent.len() {
        let is_escape = sent[at] == b'%';
        let is_kept = matched.get(of) == Some(&b'%');
        at += if is_escape { 3 } else { 1 };
        of += if is_escape && is_kept { 3 } else { 1 };
    }
    at.min(sent.len())
}

/// Whether a segment is a dot segment, or contains one if `%2F`, `\`, `%5C` and `;` are separators.
#[must_use]
pub fn may_be_dot_segment(segment: &str) -> bool {
    !matches!(SegmentKind::of(segment), SegmentKind::Other)
}

/// Copies all segments with `copy`, except dot segments and the segments that they remove.
fn copy_segments(
    path: &str,
    out: &mut String,
    copy: impl Fn(&str, &mut String) -> Result<(), ErrorKind>,
) -> Result<(), ErrorKind> {
    debug_assert!(path.starts_with('/'));
    let base = out.len();
    let mut segments = path.split('/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        let slash = out.len();
        out.push('/');
        copy(segment, out)?;
        let kind = SegmentKind::of(segment);
        match kind {
            SegmentKind::Other => continue,
            SegmentKind::Ambiguous => return Err(ErrorKind::TargetDotSegment),
            SegmentKind::Current | SegmentKind::Parent => out.truncate(slash),
        }
        if kind == SegmentKind::Parent {
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

/// The kind of a segment between two `/`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SegmentKind {
    Other,
    /// `.`, in any spelling.
    Current,
    /// `..`, in any spelling.
    Parent,
    /// Has a part that is `.` or `..`, delimited by `/`, `\` or their escapes, or followed by `;`,
    /// which begins parameters (RFC 3986, section 3.3), or its escape.
    Ambiguous,
}

impl SegmentKind {
    fn of(segment: &str) -> SegmentKind {
        let mut rest = segment.as_bytes();
        let mut part = SegmentPart::Dots(0);
        let (mut has_separator, mut is_ambiguous) = (false, false);
        while let Some((&byte, after)) = rest.split_first() {
            let (byte, after) = match (byte, after) {
                (b'%', &[high, low, ref after @ ..]) => match (hex_value(high), hex_value(low)) {
                    (Some(high), Some(low)) => (high << 4 | low, after),
                    _ => (byte, &rest[1..]),
                },
                _ => (byte, after),
            };
            rest = after;
            match (byte, part) {
                (b'/' | b'\\', _) => {
                    has_separator = true;
                    is_ambiguous |= part.is_dot_segment();
                    part = SegmentPart::Dots(0);
                }
                (b';', SegmentPart::Dots(_)) => {
                    has_separator = true;
                    is_ambiguous |= part.is_dot_segment();
                    part = SegmentPart::Other;
                }
                (b'.', SegmentPart::Dots(count @ 0..2)) => part = SegmentPart::Dots(count + 1),
                _ => part = SegmentPart::Other,
            }
        }
        match part {
            _ if is_ambiguous || (has_separator && part.is_dot_segment()) => SegmentKind::Ambiguous,
            SegmentPart::Dots(1) => SegmentKind::Current,
            SegmentPart::Dots(2) => SegmentKind::Parent,
            SegmentPart::Dots(_) | SegmentPart::Other => SegmentKind::Other,
        }
    }
}

/// The bytes of the current part of a segment, so far.
#[derive(Debug, Clone, Copy)]
enum SegmentPart {
    /// Only this many dots, at most two.
    Dots(u8),
    Other,
}

impl SegmentPart {
    fn is_dot_segment(self) -> bool {
        matches!(self, SegmentPart::Dots(1 | 2))
    }
}

/// Copies a segment; decodes unreserved escapes and writes the others with upper-case digits.
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
