//! The fields that a message may have.

use super::LineName;
use crate::error::ErrorKind;
use crate::message::{FieldLine, Name, is_valid_value};
use crate::scan;

/// Why no message may hold a line of this name and value, whatever its other lines are.
#[inline]
pub(crate) fn line_problem(name: LineName, value: &[u8]) -> Option<ErrorKind> {
    if let LineName::Field(Name::Connection | Name::ProxyConnection | Name::KeepAlive | Name::Te)
    | LineName::Field(Name::TransferEncoding | Name::Upgrade) = name
        && let Some(problem) = connection_specific_problem(name, value)
    {
        return Some(problem);
    }
    value_problem(value)
}

/// RFC 9113, section 8.2.2: "An endpoint MUST NOT generate an HTTP/2 message containing
/// connection-specific header fields"; "the TE header field [...] MUST NOT contain any value other
/// than "trailers"."
fn connection_specific_problem(name: LineName, value: &[u8]) -> Option<ErrorKind> {
    match name {
        LineName::Field(Name::Te) if value.eq_ignore_ascii_case(b"trailers") => None,
        LineName::Field(Name::Te) => Some(ErrorKind::TeNotTrailers),
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

/// Whether a message that breaks this rule is malformed in the sense of RFC 9113, section 8.1.1;
/// otherwise its sender gets a response with the status of the rule.
pub(crate) fn is_malformed(kind: ErrorKind) -> bool {
    use ErrorKind as K;
    !matches!(
        kind,
        K::HeadTooLarge
            | K::TooManyFields
            | K::TooManyCookieCrumbs
            | K::RequestLineTooLong
            | K::ContentLengthOverflow
    ) && !matches!(
        kind,
        K::Target | K::TargetEscape | K::TargetNul | K::TargetAboveRoot | K::TargetDotSegment
    ) && !matches!(
        kind,
        K::TargetScheme | K::Method | K::HostMalformed | K::ExpectationUnknown
    )
}

/// Fields that no message may have, or that the machine writes itself. `TE` is not among them: its
/// value decides.
#[inline]
pub(super) fn is_left_out(name: Name) -> bool {
    name.is_generated() || matches!(name, Name::Upgrade | Name::Http2Settings)
}

/// Whether a field needs more than its name and value to be sent.
#[inline]
pub(super) fn is_special(entry: &FieldLine) -> bool {
    entry.is_never_indexed()
        || matches!(entry.label.name, Name::Other | Name::Te)
        || matches!(entry.label.name, Name::Cookie | Name::SetCookie)
        || matches!(
            entry.label.name,
            Name::Authorization | Name::ProxyAuthorization
        )
}
