//! The response to a request for a representation of a file: status, fields and the parts of the content.

use std::ops::Range;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use blitz_http::files::FileFacts;
use blitz_http::{Fields, Method, Name, ResponseHead, Status};

use super::conditional::{Precondition, allows_range, evaluate};
use super::range::{Ranges, ranges};
use crate::coding::ContentCoding;

/// Content that can be sent: a file, perhaps compressed, with its validators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Representation {
    /// Bytes.
    pub size: u64,
    /// When it was changed, in whole seconds, which is what fields can say.
    pub modified: SystemTime,
    /// The entity tag with its quotes.
    pub tag: String,
    /// Whether the tag is a weak one, since the bytes are made anew by other programs. Such content has no ranges.
    pub is_weak: bool,
}

impl Representation {
    /// That of a file with this coding.
    #[must_use]
    pub fn new(facts: &FileFacts, coding: Option<ContentCoding>) -> Representation {
        let (seconds, nanoseconds) = facts.modified;
        let since = Duration::from_secs(seconds.unsigned_abs());
        let modified = match seconds >= 0 {
            true => UNIX_EPOCH.checked_add(since),
            false => None,
        };
        let suffix = coding.map_or(String::new(), |coding| format!("-{}", coding.name()));
        Representation {
            size: facts.size,
            modified: modified.unwrap_or(UNIX_EPOCH),
            is_weak: false,
            tag: format!("\"{seconds:x}.{nanoseconds:x}-{:x}{suffix}\"", facts.size),
        }
    }
}

/// The content that is sent, in pieces. The head is filled in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    /// The length of all pieces.
    pub length: u64,
    /// In order; none for a response without content.
    pub pieces: Vec<Piece>,
}

/// A piece of content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// These bytes of the representation.
    File(Range<u64>),
    /// Text between parts.
    Text(String),
}

/// Selects the response to GET or HEAD. The head has the fields about the content already, and gets the status and all
/// that depends on the request. `boundary` parts several ranges.
pub fn select(
    method: Method,
    fields: &Fields,
    representation: &Representation,
    now: SystemTime,
    boundary: impl FnOnce() -> u64,
    head: &mut ResponseHead,
) -> Selection {
    add_validators(representation, now, head);
    let whole = |length| Selection {
        length,
        pieces: vec![Piece::File(0..length)],
    };
    match evaluate(fields, representation) {
        Precondition::Met => {}
        Precondition::NotModified => {
            head.status = Status::NOT_MODIFIED;
            head.fields.remove(Name::ContentType);
            head.fields.remove(Name::ContentEncoding);
            return nothing();
        }
        Precondition::Failed => {
            head.status = Status::PRECONDITION_FAILED;
            remove_content(head);
            return nothing();
        }
    }
    if representation.is_weak {
        return whole(representation.size);
    }
    head.fields.append(Name::AcceptRanges, "bytes");
    // Ranges are defined for GET only (section 14.2).
    if method != Method::Get || !fields.contains(Name::Range) {
        return whole(representation.size);
    }
    if !allows_range(fields, representation, now) {
        return whole(representation.size);
    }
    match ranges(fields, representation.size) {
        Ranges::Whole => whole(representation.size),
        Ranges::Unsatisfiable => {
            head.status = Status::RANGE_NOT_SATISFIABLE;
            remove_content(head);
            let range = format!("bytes */{}", representation.size);
            head.fields.append(Name::ContentRange, range);
            nothing()
        }
        Ranges::Parts(parts) => {
            head.status = Status::PARTIAL_CONTENT;
            match &parts[..] {
                [part] => {
                    let range = content_range(part, representation.size);
                    head.fields.append(Name::ContentRange, range);
                    Selection {
                        length: part.end - part.start,
                        pieces: vec![Piece::File(part.clone())],
                    }
                }
                _ => several(&parts, representation.size, boundary(), head),
            }
        }
    }
}

fn add_validators(representation: &Representation, now: SystemTime, head: &mut ResponseHead) {
    match representation.is_weak {
        false => head.fields.append(Name::Etag, &representation.tag),
        true => {
            let tag = format!("W/{}", representation.tag);
            head.fields.append(Name::Etag, tag);
        }
    }
    // RFC 9110, section 8.8.2.1: a date in the future is replaced.
    let modified = representation.modified.min(now);
    head.fields
        .append(Name::LastModified, httpdate::fmt_http_date(modified));
}

fn nothing() -> Selection {
    Selection {
        length: 0,
        pieces: Vec::new(),
    }
}

/// Removes what describes content that is not sent.
fn remove_content(head: &mut ResponseHead) {
    for name in [
        Name::ContentType,
        Name::ContentEncoding,
        Name::Etag,
        Name::LastModified,
    ] {
        head.fields.remove(name);
    }
}

fn content_range(part: &Range<u64>, size: u64) -> String {
    format!("bytes {}-{}/{size}", part.start, part.end - 1)
}

/// `multipart/byteranges` (section 14.6).
fn several(parts: &[Range<u64>], size: u64, boundary: u64, head: &mut ResponseHead) -> Selection {
    let content_type = head.fields.get_str(Name::ContentType);
    let content_type = content_type
        .unwrap_or("application/octet-stream")
        .to_owned();
    let mut pieces = Vec::with_capacity(2 * parts.len() + 1);
    let mut length = 0;
    for (number, part) in parts.iter().enumerate() {
        let before = if number == 0 { "" } else { "\r\n" };
        let range = content_range(part, size);
        let text = format!(
            "{before}--{boundary:016x}\r\nContent-Type: {content_type}\r\nContent-Range: {range}\r\n\r\n"
        );
        length += text.len() as u64 + (part.end - part.start);
        pieces.push(Piece::Text(text));
        pieces.push(Piece::File(part.clone()));
    }
    let end = format!("\r\n--{boundary:016x}--\r\n");
    length += end.len() as u64;
    pieces.push(Piece::Text(end));
    let content_type = format!("multipart/byteranges; boundary={boundary:016x}");
    head.fields.set(Name::ContentType, content_type);
    Selection { length, pieces }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(size: u64, modified: (i64, u32)) -> FileFacts {
        FileFacts {
            size,
            modified,
            changed: modified,
            identity: (1, 2),
        }
    }

    fn selected(method: Method, lines: &[(Name, &str)]) -> (ResponseHead, Selection) {
        let representation = Representation::new(&facts(100, (784_111_777, 5)), None);
        let mut fields = Fields::new();
        lines
            .iter()
            .for_each(|(name, value)| fields.append(*name, value));
        let mut head = ResponseHead::new(Status::OK);
        head.fields.append(Name::ContentType, "text/plain");
        let now = representation.modified + Duration::from_secs(10);
        let selection = select(method, &fields, &representation, now, || 7, &mut head);
        (head, selection)
    }

    #[test]
    fn the_length_is_that_of_the_pieces() {
        let (head, selection) = selected(Method::Get, &[(Name::Range, "bytes=0-9,90-")]);
        assert_eq!(head.status, Status::PARTIAL_CONTENT);
        let length = selection.pieces.iter().map(|piece| match piece {
            Piece::File(part) => part.end - part.start,
            Piece::Text(text) => text.len() as u64,
        });
        assert_eq!(length.sum::<u64>(), selection.length);
        assert_eq!(selection.pieces.len(), 5);
        assert_eq!(
            head.fields.get_str(Name::ContentType),
            Some("multipart/byteranges; boundary=0000000000000007")
        );
        assert!(!head.fields.contains(Name::ContentRange));
    }

    #[test]
    fn head_has_no_ranges_and_416_no_validators() {
        let (head, selection) = selected(Method::Head, &[(Name::Range, "bytes=0-9")]);
        assert_eq!((head.status, selection.length), (Status::OK, 100));
        let (head, selection) = selected(Method::Get, &[(Name::Range, "bytes=100-")]);
        assert_eq!(
            (head.status, selection.length),
            (Status::RANGE_NOT_SATISFIABLE, 0)
        );
        assert_eq!(head.fields.get_str(Name::ContentRange), Some("bytes */100"));
        assert!(!head.fields.contains(Name::Etag));
    }

    #[test]
    fn odd_times_of_files_are_sent_as_valid_dates() {
        for modified in [(-5, 0), (i64::MIN, 0), (i64::MAX, 999_999_999)] {
            let representation = Representation::new(&facts(1, modified), None);
            let mut head = ResponseHead::new(Status::OK);
            let now = UNIX_EPOCH + Duration::from_secs(784_111_777);
            select(
                Method::Get,
                &Fields::new(),
                &representation,
                now,
                || 7,
                &mut head,
            );
            let date = head.fields.get_str(Name::LastModified).unwrap();
            assert!(
                httpdate::parse_http_date(date).is_ok(),
                "{modified:?}: {date}"
            );
        }
        let plain = Representation::new(&facts(1, (1, 2)), None);
        let coded = Representation::new(&facts(1, (1, 2)), Some(ContentCoding::Gzip));
        assert_ne!(plain.tag, coded.tag);
    }
}
