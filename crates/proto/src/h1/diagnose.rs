//! Names the rule that a refused line violates.
//!
//! Refusals are rare, so a second pass over the line may determine the rule for the log and the
//! counters.

use crate::error::ErrorKind;
use crate::message::{is_token, is_valid_value};

/// The rule that the request line violates, if any.
#[cold]
pub(crate) fn request_line(line: &[u8]) -> Option<ErrorKind> {
    let mut parts = line.split(|&byte| byte == b' ');
    let (method, target, version) = (parts.next()?, parts.next(), parts.next());
    if !is_token(method) {
        return Some(ErrorKind::Method);
    }
    let Some(target) = target.filter(|target| !target.is_empty()) else {
        return Some(ErrorKind::RequestLine);
    };
    if target.iter().any(u8::is_ascii_control) {
        return Some(ErrorKind::Target);
    }
    let Some(version) = version else {
        return Some(ErrorKind::VersionMissing);
    };
    if parts.next().is_some() {
        return Some(ErrorKind::RequestLine);
    }
    version_text(version)
}

/// The rule that the status line violates, if any.
#[cold]
pub(crate) fn status_line(line: &[u8]) -> Option<ErrorKind> {
    let mut parts = line.splitn(3, |&byte| byte == b' ');
    let (version, code, reason) = (parts.next()?, parts.next(), parts.next());
    if let Some(violation) = version_text(version) {
        return Some(violation);
    }
    let code_fits = code.is_some_and(|code| code.len() == 3 && code.iter().all(u8::is_ascii_digit));
    let reason_fits = is_valid_value(reason.unwrap_or(b""));
    (!code_fits || !reason_fits).then_some(ErrorKind::StatusLine)
}

fn version_text(version: &[u8]) -> Option<ErrorKind> {
    match version {
        b"HTTP/1.1" | b"HTTP/1.0" => None,
        [b'H', b'T', b'T', b'P', b'/', major, b'.', minor]
            if major.is_ascii_digit() && minor.is_ascii_digit() =>
        {
            Some(ErrorKind::VersionUnsupported)
        }
        _ => Some(ErrorKind::VersionMalformed),
    }
}

/// The rule that the field line violates.
#[cold]
pub(crate) fn field_line(line: &[u8]) -> ErrorKind {
    if line.contains(&0) {
        return ErrorKind::FieldNul;
    }
    if matches!(line.first(), Some(b' ' | b'\t')) {
        return ErrorKind::ObsFold;
    }
    let Some(colon) = line.iter().position(|&byte| byte == b':') else {
        return ErrorKind::FieldName;
    };
    let name = &line[..colon];
    if matches!(name.last(), Some(b' ' | b'\t')) {
        return ErrorKind::SpaceBeforeColon;
    }
    if is_token(name) {
        ErrorKind::FieldValue
    } else {
        ErrorKind::FieldName
    }
}
