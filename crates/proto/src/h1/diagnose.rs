//! Names the rule that a refused section violates.
//!
//! The splitter only knows that something is wrong. Refusals are rare, so finding out what, for the
//! log and the counters, may take a second look, line by line. Line ends are the finder's matter
//! and are known to be right here.

use crate::error::ErrorKind;
use crate::message::{is_token, is_valid_value};

/// Why this is no request head.
#[cold]
pub(crate) fn request(block: &[u8]) -> ErrorKind {
    let (line, rest) = split_line(block);
    request_line(line).unwrap_or_else(|| fields(rest))
}

/// Why this is no response head.
#[cold]
pub(crate) fn response(block: &[u8]) -> ErrorKind {
    let (line, rest) = split_line(block);
    status_line(line).unwrap_or_else(|| fields(rest))
}

/// Why this is no section of fields.
#[cold]
pub(crate) fn fields(mut rest: &[u8]) -> ErrorKind {
    while !rest.is_empty() {
        let (line, after) = split_line(rest);
        if let Some(violation) = field_line(line) {
            return violation;
        }
        rest = after;
    }
    // The splitter is stricter than we knew; whatever it dislikes is in a field.
    ErrorKind::FieldValue
}

/// Why this is no request line, if it is none.
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
    if !target.iter().all(u8::is_ascii_graphic) {
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

/// Why this is no status line, if it is none.
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

fn field_line(line: &[u8]) -> Option<ErrorKind> {
    if line.contains(&0) {
        return Some(ErrorKind::FieldNul);
    }
    if matches!(line.first(), Some(b' ' | b'\t')) {
        return Some(ErrorKind::ObsFold);
    }
    if line.is_empty() {
        return None;
    }
    let Some(colon) = line.iter().position(|&byte| byte == b':') else {
        return Some(ErrorKind::FieldName);
    };
    let (name, value) = line.split_at(colon);
    if matches!(name.last(), Some(b' ' | b'\t')) {
        return Some(ErrorKind::SpaceBeforeColon);
    }
    if !is_token(name) {
        return Some(ErrorKind::FieldName);
    }
    (!is_valid_value(value)).then_some(ErrorKind::FieldValue)
}

/// The first line without its line end, and what follows it.
fn split_line(block: &[u8]) -> (&[u8], &[u8]) {
    match block.windows(2).position(|pair| pair == b"\r\n") {
        Some(end) => (&block[..end], &block[end + 2..]),
        None => (block, &[]),
    }
}
