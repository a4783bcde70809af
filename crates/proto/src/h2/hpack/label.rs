//! What a field of HTTP/2 is: a pseudo-header field, or a name.

use crate::error::ErrorKind;
use crate::message::{Name, is_token_byte, is_valid_value};
use crate::scan;

/// A pseudo-header field (RFC 9113, section 8.3; RFC 8441, section 4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Pseudo {
    Method,
    Scheme,
    Authority,
    Path,
    Protocol,
    Status,
}

/// What a field is called. The text of [`Name::Other`] is kept beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Label {
    Pseudo(Pseudo),
    Field(Name),
}

impl Pseudo {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Pseudo::Method => ":method",
            Pseudo::Scheme => ":scheme",
            Pseudo::Authority => ":authority",
            Pseudo::Path => ":path",
            Pseudo::Protocol => ":protocol",
            Pseudo::Status => ":status",
        }
    }

    fn parse(text: &[u8]) -> Option<Pseudo> {
        use Pseudo as P;
        let all = [
            P::Method,
            P::Scheme,
            P::Authority,
            P::Path,
            P::Protocol,
            P::Status,
        ];
        all.into_iter()
            .find(|pseudo| pseudo.as_str().as_bytes() == text)
    }
}

impl Label {
    /// Recognises a name as it came; what cannot be one is reported beside it.
    #[inline]
    pub(crate) fn parse(text: &[u8]) -> (Label, Option<ErrorKind>) {
        let guess = Name::guess(text);
        if guess != Name::Other && text == guess.as_str().as_bytes() {
            return (Label::Field(guess), None);
        }
        Label::parse_unusual(text)
    }

    fn parse_unusual(text: &[u8]) -> (Label, Option<ErrorKind>) {
        if text.first() == Some(&b':') {
            return match Pseudo::parse(text) {
                Some(pseudo) => (Label::Pseudo(pseudo), None),
                None => (Label::Field(Name::Other), Some(ErrorKind::PseudoUnknown)),
            };
        }
        // RFC 9113, section 8.2.1: "A field name MUST NOT contain characters in the ranges
        // 0x00-0x20, 0x41-0x5a, or 0x7f-0xff (all ranges inclusive)."
        let problem = if text.iter().any(u8::is_ascii_uppercase) {
            Some(ErrorKind::FieldNameUppercase)
        } else if text.is_empty() || !text.iter().all(|&byte| is_token_byte(byte)) {
            Some(ErrorKind::FieldName)
        } else {
            None
        };
        (Label::Field(Name::Other), problem)
    }

    /// A number that tells labels apart in one comparison.
    #[inline]
    pub(crate) fn code(self) -> u32 {
        match self {
            Label::Pseudo(pseudo) => 0x100 | pseudo as u32,
            Label::Field(name) => name as u32,
        }
    }

    /// The text of the name, unless it is [`Name::Other`].
    #[inline]
    pub(crate) const fn known_text(self) -> &'static str {
        match self {
            Label::Pseudo(pseudo) => pseudo.as_str(),
            Label::Field(name) => name.as_str(),
        }
    }
}

/// What is wrong with a field of this name and value, taken by itself.
#[inline]
pub(crate) fn content_problem(label: Label, value: &[u8]) -> Option<ErrorKind> {
    if let Label::Field(Name::Connection | Name::ProxyConnection | Name::KeepAlive | Name::Te)
    | Label::Field(Name::TransferEncoding | Name::Upgrade) = label
        && let Some(problem) = hop_by_hop_problem(label, value)
    {
        return Some(problem);
    }
    value_problem(value)
}

/// RFC 9113, section 8.2.2: "An endpoint MUST NOT generate an HTTP/2 message containing
/// connection-specific header fields"; "the TE header field [...] MUST NOT contain any value other
/// than "trailers"."
fn hop_by_hop_problem(label: Label, value: &[u8]) -> Option<ErrorKind> {
    match label {
        Label::Field(Name::Te) if value.eq_ignore_ascii_case(b"trailers") => None,
        Label::Field(Name::Te) => Some(ErrorKind::TeNotTrailers),
        _ => Some(ErrorKind::ConnectionSpecificField),
    }
}

/// RFC 9113, section 8.2.1: "A field value MUST NOT contain the zero value (ASCII NUL, 0x00), line
/// feed (ASCII LF, 0x0a), or carriage return (ASCII CR, 0x0d) at any position. A field value MUST
/// NOT start or end with an ASCII whitespace character". Other controls are as in HTTP/1.
#[inline]
fn value_problem(value: &[u8]) -> Option<ErrorKind> {
    let is_plain = (0..value.len())
        .step_by(scan::BLOCK)
        .all(|at| scan::not_plain_from(value, at) == 0);
    let edges = [value.first(), value.last()];
    if edges.iter().any(|edge| matches!(edge, Some(b' ' | b'\t'))) {
        return Some(ErrorKind::FieldValue);
    }
    if is_plain || is_valid_value(value) {
        return None;
    }
    Some(if value.contains(&0) {
        ErrorKind::FieldNul
    } else {
        ErrorKind::FieldValue
    })
}
