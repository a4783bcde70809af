//! Request targets (RFC 9112, section 3.2) and authorities (RFC 3986, section 3.2).

use std::net::Ipv6Addr;

use crate::copy::{push_front, push_text};
use crate::error::ErrorKind;
use crate::message::{Method, RequestTarget, Span, TargetForm, encode_refused, is_token};
use crate::path::{normalize, remove_dot_segments};
use crate::scan;

/// Fills `target` from the text of a method and a target; returns the method. Bytes that clients send
/// raw are encoded.
pub(crate) fn parse_method_and_target(
    target: &mut RequestTarget,
    method: &[u8],
    text: &[u8],
) -> Result<Method, ErrorKind> {
    let known = Method::parse(method);
    parse_unusual_target(target, known, method, text, None).or_else(|kind| {
        let encoded = encode_refused(kind, text, u32::MAX as usize)?;
        parse_unusual_target(target, known, method, &encoded, None)
    })?;
    Ok(known)
}

/// Fills `target` from the first two parts of a request line and, if present, the value of a valid
/// `Host`. Bytes that need an escape are refused with [`ErrorKind::Target`].
#[inline(always)]
pub(crate) fn parse_target(
    target: &mut RequestTarget,
    method: Method,
    method_text: &[u8],
    text: &[u8],
    host: Option<&[u8]>,
) -> Result<(), ErrorKind> {
    // Target and host are checked for UTF-8 together, since each check is expensive. The spaces after
    // them fill the last word, because whole words are checked faster than single bytes.
    let mut bytes = std::mem::take(&mut target.text).into_bytes();
    bytes.clear();
    push_text(text, &mut bytes);
    push_text(host.unwrap_or(b""), &mut bytes);
    let authority = Span {
        start: text.len() as u32,
        end: bytes.len() as u32,
    };
    push_front(&[b' '; 16], bytes.len().wrapping_neg() % 16, &mut bytes);
    let Ok(whole) = String::from_utf8(bytes) else {
        target.clear();
        return Err(ErrorKind::Target);
    };
    *target = RequestTarget {
        text: whole,
        authority: host.map(|_| authority),
        ..RequestTarget::default()
    };
    if text.first() == Some(&b'/') && !matches!(method, Method::Connect | Method::Other) {
        target.form = Some(TargetForm::Origin);
        return parse_path_and_query(target, 0, text.len());
    }
    parse_other_target(target, method, method_text, text.len())
}

/// The same, out of line.
#[cold]
pub(crate) fn parse_unusual_target(
    target: &mut RequestTarget,
    method: Method,
    method_text: &[u8],
    text: &[u8],
    host: Option<&[u8]>,
) -> Result<(), ErrorKind> {
    parse_target(target, method, method_text, text, host)
}

/// A target that is not in origin form, or has an unregistered method.
#[cold]
fn parse_other_target(
    target: &mut RequestTarget,
    method: Method,
    method_text: &[u8],
    len: usize,
) -> Result<(), ErrorKind> {
    if method == Method::Other {
        target.method = push_method(target, method_text)?;
    }
    match &target.text.as_bytes()[..len] {
        _ if method == Method::Connect => parse_authority_form(target, len),
        [b'/', ..] => {
            target.form = Some(TargetForm::Origin);
            parse_path_and_query(target, 0, len)
        }
        b"*" if method == Method::Options => {
            target.set_whole(TargetForm::Asterisk, Span { start: 0, end: 1 });
            Ok(())
        }
        _ => parse_absolute_form(target, method, len),
    }
}

/// The parts of a target as HTTP/2 and HTTP/3 send them (RFC 9113, section 8.3.1).
#[derive(Debug, Clone, Copy)]
pub(crate) struct PseudoHeaders<'a> {
    pub(crate) method: &'a [u8],
    pub(crate) scheme: Option<&'a [u8]>,
    pub(crate) authority: Option<&'a [u8]>,
    pub(crate) path: Option<&'a [u8]>,
    /// Extended CONNECT (RFC 8441, section 4).
    pub(crate) protocol: Option<&'a [u8]>,
}

/// Fills `target` from pseudo-header fields and the value of `Host`, if present; returns the method.
/// Bytes that need an escape are refused with [`ErrorKind::Target`].
pub(crate) fn parse_pseudo_headers(
    target: &mut RequestTarget,
    parts: &PseudoHeaders<'_>,
    host: Option<&[u8]>,
) -> Result<Method, ErrorKind> {
    let method = Method::parse(parts.method);
    let is_plain_connect = method == Method::Connect && parts.protocol.is_none();
    // RFC 9113, section 8.5, about CONNECT: "The ":scheme" and ":path" pseudo-header fields MUST
    // be omitted." Section 8.3.1: "All HTTP/2 requests MUST include exactly one valid value for
    // the ":method", ":scheme", and ":path" pseudo-header fields, unless they are CONNECT
    // requests". RFC 8441 keeps all of them.
    let is_complete = if is_plain_connect {
        parts.authority.is_some() && parts.scheme.is_none() && parts.path.is_none()
    } else {
        parts.scheme.is_some() && parts.path.is_some_and(|path| !path.is_empty())
    };
    if !is_complete {
        return Err(ErrorKind::PseudoMissing);
    }
    if parts.protocol.is_some() && method != Method::Connect {
        return Err(ErrorKind::PseudoUnknown);
    }
    let authority = authority_of(parts.authority, host)?;
    let path_len = fill(target, parts.path.unwrap_or(b""), authority)?;
    if method == Method::Other {
        target.method = push_method(target, parts.method)?;
    }
    if is_plain_connect {
        return parse_authority_alone(target).map(|()| method);
    }
    target.scheme = Some(parse_scheme(parts.scheme.unwrap_or(b""))?);
    if let Some(protocol) = parts.protocol {
        target.protocol = Some(push_method(target, protocol)?);
    }
    match target.text.as_bytes() {
        [b'/', ..] => {
            target.form = Some(TargetForm::Origin);
            parse_path_and_query(target, 0, path_len)?;
        }
        [b'*', ..] if path_len == 1 && method == Method::Options => {
            target.set_whole(TargetForm::Asterisk, Span { start: 0, end: 1 });
        }
        _ => return Err(ErrorKind::Target),
    }
    Ok(method)
}

/// The authority from `:authority` or `Host`; an error if the two differ.
#[inline]
fn authority_of<'a>(
    authority: Option<&'a [u8]>,
    host: Option<&'a [u8]>,
) -> Result<&'a [u8], ErrorKind> {
    let value = match (authority, host) {
        // RFC 9113, section 8.3.1: "A server SHOULD treat a request as malformed if it contains a
        // Host header field that identifies an entity that differs from the entity in the
        // ":authority" pseudo-header field."
        (Some(authority), Some(host)) if !authority.eq_ignore_ascii_case(host) => {
            return Err(ErrorKind::HostMismatch);
        }
        (Some(authority), _) => authority,
        (None, Some(host)) => host,
        (None, None) => return Err(ErrorKind::HostMissing),
    };
    if value.is_empty() || value[0] == b':' || !is_authority(value) {
        return Err(ErrorKind::HostMalformed);
    }
    Ok(value)
}

/// Stores path and authority in an empty target; returns the end of the path.
#[inline]
fn fill(target: &mut RequestTarget, path: &[u8], authority: &[u8]) -> Result<usize, ErrorKind> {
    // Both are checked for UTF-8 together, with spaces after them, as in `parse_target`.
    let mut bytes = std::mem::take(&mut target.text).into_bytes();
    bytes.clear();
    push_text(path, &mut bytes);
    push_text(authority, &mut bytes);
    let end = bytes.len() as u32;
    push_front(&[b' '; 16], bytes.len().wrapping_neg() % 16, &mut bytes);
    let Ok(text) = String::from_utf8(bytes) else {
        target.clear();
        return Err(ErrorKind::Target);
    };
    let span = Span {
        start: path.len() as u32,
        end,
    };
    *target = RequestTarget {
        text,
        authority: Some(span),
        ..RequestTarget::default()
    };
    Ok(path.len())
}

#[cold]
fn parse_authority_alone(target: &mut RequestTarget) -> Result<(), ErrorKind> {
    let Some(span) = target.authority else {
        return Err(ErrorKind::PseudoMissing);
    };
    let port = split_authority(target.at(span).as_bytes()).and_then(|authority| authority.port);
    if port.is_none_or(|port| port == 0) {
        return Err(ErrorKind::Target);
    }
    let end = span.end;
    target.set_whole(TargetForm::Authority, Span { start: end, end });
    Ok(())
}

#[inline]
fn parse_scheme(scheme: &[u8]) -> Result<&'static str, ErrorKind> {
    match scheme {
        b"http" => Ok("http"),
        b"https" => Ok("https"),
        _ if scheme.eq_ignore_ascii_case(b"http") => Ok("http"),
        _ if scheme.eq_ignore_ascii_case(b"https") => Ok("https"),
        _ => Err(ErrorKind::TargetScheme),
    }
}

#[cold]
fn push_method(target: &mut RequestTarget, method: &[u8]) -> Result<Span, ErrorKind> {
    let token = std::str::from_utf8(method)
        .ok()
        .filter(|token| is_token(token.as_bytes()));
    Ok(target.push(token.ok_or(ErrorKind::Method)?))
}

/// `authority-form = uri-host ":" port`, the only form for CONNECT (RFC 9110, section 9.3.6).
#[cold]
fn parse_authority_form(target: &mut RequestTarget, len: usize) -> Result<(), ErrorKind> {
    let text = &target.text.as_bytes()[..len];
    let port = split_authority(text).ok_or(ErrorKind::Target)?.port;
    if text.starts_with(b":") || port.is_none_or(|port| port == 0) {
        return Err(ErrorKind::Target);
    }
    let end = len as u32;
    target.authority = Some(Span { start: 0, end });
    target.set_whole(TargetForm::Authority, Span { start: end, end });
    Ok(())
}

/// `absolute-form = absolute-URI`, with the scheme `http` or `https`.
#[cold]
fn parse_absolute_form(
    target: &mut RequestTarget,
    method: Method,
    len: usize,
) -> Result<(), ErrorKind> {
    let text = target.text.get(..len).ok_or(ErrorKind::Target)?;
    let (scheme, rest) = text.split_once("://").ok_or(ErrorKind::Target)?;
    let known = ["http", "https"]
        .into_iter()
        .find(|known| scheme.eq_ignore_ascii_case(known));
    target.scheme = Some(known.ok_or(ErrorKind::TargetScheme)?);
    let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    if authority.contains('@') {
        return Err(ErrorKind::TargetUserinfo);
    }
    // RFC 9110, section 4.2.1: "A recipient that processes such a URI reference MUST reject it as
    // invalid", about an empty host.
    if authority.is_empty() || authority.starts_with(':') || !is_authority(authority.as_bytes()) {
        return Err(ErrorKind::Target);
    }
    let path_start = len - path.len();
    let end = path_start as u32;
    target.authority = Some(Span {
        start: end - authority.len() as u32,
        end,
    });
    target.form = Some(TargetForm::Absolute);
    if path.starts_with('/') {
        return parse_path_and_query(target, path_start, len);
    }
    // RFC 9112, section 3.2.4: OPTIONS on an absolute URI without path and query means `*`;
    // otherwise an empty path is `/`.
    if path.is_empty() && method == Method::Options {
        let star = target.push("*");
        target.set_whole(TargetForm::Absolute, star);
        return Ok(());
    }
    let start = target.push("/").start as usize;
    target.text.extend_from_within(path_start..len);
    let end = target.text.len();
    parse_path_and_query(target, start, end)
}

/// Splits the text of the target between `start`, the position of a `/`, and `end`, and normalises
/// the path.
#[inline]
fn parse_path_and_query(
    target: &mut RequestTarget,
    start: usize,
    end: usize,
) -> Result<(), ErrorKind> {
    let common_end = common_path_end(target.text.as_bytes(), start, end);
    target.raw_path = Span {
        start: start as u32,
        end: common_end as u32,
    };
    target.path = target.raw_path;
    target.sent_path = target.raw_path;
    if common_end == end {
        return Ok(());
    }
    parse_rest_of_path(target, start, common_end, end)
}

/// The end of the leading part of the path that needs no further check.
#[inline]
fn common_path_end(text: &[u8], start: usize, end: usize) -> usize {
    let mut at = start;
    // The text after the target usually completes the last chunk.
    while let Some(chunk) = text.get(at..).and_then(<[u8]>::first_chunk) {
        let common = (!scan::common_in_path(chunk)).trailing_zeros() as usize;
        at += common;
        if common < 16 || at >= end {
            return at.min(end);
        }
    }
    at
}

/// Parses the path from `at` on: characters that are checked one by one, and the query.
#[inline(never)]
fn parse_rest_of_path(
    target: &mut RequestTarget,
    start: usize,
    at: usize,
    end: usize,
) -> Result<(), ErrorKind> {
    let text = target.text.as_bytes();
    let rest = &text[at..end];
    let (path_end, is_plain) = match rest {
        [b'?', ..] => (at, true),
        _ => {
            let len = scan::position(rest, b'?').unwrap_or(rest.len());
            let path = &rest[..len];
            let is_plain = all_in_class(path, PATH);
            if !is_plain && !path.iter().all(|&byte| is_path_byte(byte)) {
                return Err(ErrorKind::Target);
            }
            (at + len, is_plain)
        }
    };
    if path_end < end {
        let start = path_end + 1;
        if !begins_with_query(&text[start..], end - start) {
            return Err(ErrorKind::Target);
        }
        target.query = Some(Span {
            start: start as u32,
            end: end as u32,
        });
    }
    target.raw_path.end = path_end as u32;
    target.path = target.raw_path;
    target.sent_path = target.raw_path;
    if is_plain || is_normal(&target.text.as_bytes()[start..path_end]) {
        Ok(())
    } else {
        normalize_path(target, start, path_end, end)
    }
}

/// Whether the path has no escape and no segment that begins with a dot: it is in normal form then.
fn is_normal(path: &[u8]) -> bool {
    !path.contains(&b'%') && !path.windows(2).any(|pair| pair == b"/.")
}

/// Adds the normal form if it differs, and the forwarded form, followed by the query, if that differs.
#[cold]
fn normalize_path(
    target: &mut RequestTarget,
    start: usize,
    path_end: usize,
    end: usize,
) -> Result<(), ErrorKind> {
    let path = target.text[start..path_end].to_owned();
    let start = target.text.len();
    normalize(&path, &mut target.text)?;
    if target.text[start..] == path {
        target.text.truncate(start);
        return Ok(());
    }
    target.path = Span {
        start: start as u32,
        end: target.text.len() as u32,
    };
    let start = target.text.len();
    remove_dot_segments(&path, &mut target.text)?;
    if target.text[start..] == path {
        target.text.truncate(start);
        return Ok(());
    }
    target.sent_path = Span {
        start: start as u32,
        end: target.text.len() as u32,
    };
    target.text.extend_from_within(path_end..end);
    let end = target.text.len() as u32;
    target.query = target.query.map(|_| Span {
        start: target.sent_path.end + 1,
        end,
    });
    Ok(())
}

/// Whether the text is a valid path.
pub(crate) fn is_path(text: &[u8]) -> bool {
    text.first() == Some(&b'/') && text.iter().all(|&byte| is_path_byte(byte))
}

fn is_path_byte(byte: u8) -> bool {
    CLASS[byte as usize] & PATH != 0 || byte == b'%' || byte == b'.'
}

/// Whether the text is a valid query.
#[inline]
pub(crate) fn is_query(text: &[u8]) -> bool {
    all_in_class(text, QUERY)
}

/// The same for the first `len` bytes; takes fewer instructions if more bytes follow.
#[inline]
fn begins_with_query(text: &[u8], len: usize) -> bool {
    let mut at = 0;
    while let Some(chunk) = text.get(at..).and_then(<[u8]>::first_chunk) {
        let common = (!scan::common_in_query(chunk)).trailing_zeros() as usize;
        at += common;
        if at >= len {
            return true;
        }
        if common < 16 {
            break;
        }
    }
    is_query(text.get(at..len).unwrap_or(b""))
}

/// Has no early exit and checks eight bytes per iteration, since it runs for every target and host.
#[inline]
fn all_in_class(text: &[u8], class: u8) -> bool {
    let of = |byte: u8| CLASS[byte as usize];
    let (chunks, rest) = text.as_chunks::<8>();
    let all = chunks.iter().fold(class, |all, chunk| {
        chunk.iter().fold(all, |all, &b| all & of(b))
    });
    rest.iter().fold(all, |all, &byte| all & of(byte)) != 0
}

/// Whether the first `len` bytes are a host with an optional port. The host may be empty, as `Host`
/// allows.
#[inline]
pub(crate) fn begins_with_authority(text: &[u8], len: usize) -> bool {
    if let Some(chunk) = text.first_chunk()
        && len <= chunk.len()
    {
        let wanted = (1 << len) - 1;
        let (common, digits) = scan::common_in_host(chunk);
        let others = !common & wanted;
        // The only other character is a colon, with a host before it and up to four digits after it.
        let colon = others.trailing_zeros() as usize;
        let after = others << 1;
        if others == 0
            || (others != 1
                && others.is_power_of_two()
                && chunk.get(colon) == Some(&b':')
                && (after..after << 4).contains(&wanted)
                && (!digits & wanted) >> (colon + 1) == 0)
        {
            return true;
        }
    }
    is_authority(&text[..len])
}

/// Whether the text is a host with an optional port. The host may be empty, as `Host` allows.
#[must_use]
pub fn is_authority(text: &[u8]) -> bool {
    all_in_class(text, HOST) || is_other_authority(text)
}

/// A separate function, to keep the common case small.
#[cold]
fn is_other_authority(text: &[u8]) -> bool {
    is_name_with_port(text) || split_authority(text).is_some()
}

/// The second most common form, parsed from its end.
#[inline]
fn is_name_with_port(text: &[u8]) -> bool {
    let digits = text
        .iter()
        .rev()
        .take(5)
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    match text.split_at(text.len() - digits) {
        ([host @ .., b':'], port) if !host.is_empty() => {
            let in_range = digits < 5 || port <= b"65535".as_slice();
            digits > 0 && in_range && all_in_class(host, HOST)
        }
        _ => false,
    }
}

struct Authority {
    port: Option<u16>,
}

/// Parses `host [ ":" port ]`. Valid hosts are names of unreserved characters and sub-delimiters (RFC 3986, section
/// 3.2.2), IPv4 addresses, and IPv6 addresses in brackets. Escapes, zones and future literals are refused: recipients
/// disagree on whether an escaped name is the same host, and only attacks use the others. A port needs a host (RFC 9110, section 4.2.1).
#[cold]
fn split_authority(text: &[u8]) -> Option<Authority> {
    let after_host = match text {
        [b'[', literal @ ..] => {
            let end = literal.iter().position(|&byte| byte == b']')?;
            std::str::from_utf8(&literal[..end])
                .ok()?
                .parse::<Ipv6Addr>()
                .ok()?;
            &literal[end + 1..]
        }
        _ => {
            let is_host = |byte: &u8| CLASS[*byte as usize] & HOST != 0;
            let end = text
                .iter()
                .position(|byte| !is_host(byte))
                .unwrap_or(text.len());
            if end == 0 {
                return None;
            }
            &text[end..]
        }
    };
    match after_host {
        [] => Some(Authority { port: None }),
        // RFC 3986, section 3.2.3 allows a colon without a port.
        [b':'] => Some(Authority { port: None }),
        [b':', digits @ ..] if digits.iter().all(u8::is_ascii_digit) => {
            let port = std::str::from_utf8(digits).ok()?.parse().ok()?;
            Some(Authority { port: Some(port) })
        }
        _ => None,
    }
}

impl RequestTarget {
    /// Sets all forms of the path to this range, and removes the query.
    fn set_whole(&mut self, form: TargetForm, path: Span) {
        self.form = Some(form);
        self.raw_path = path;
        self.path = path;
        self.sent_path = path;
        self.query = None;
    }
}

const PATH: u8 = 1;
const QUERY: u8 = 2;
const HOST: u8 = 4;

/// The classes of each byte. `%`, `.` and `?` in paths are checked one by one.
///
/// Beyond RFC 3986, the table allows `[` and `]`, which browsers send unescaped. Other characters
/// that they send so are encoded, see `target_encoding`.
static CLASS: [u8; 256] = {
    let mut class = [0; 256];
    let mut byte = 0x21;
    while byte < 0x7f {
        let here = byte as u8;
        let unreserved = here.is_ascii_alphanumeric() || matches!(here, b'-' | b'.' | b'_' | b'~');
        let sub_delimiter = matches!(
            here,
            b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b';' | b'='
        );
        let in_path =
            unreserved || sub_delimiter || matches!(here, b'/' | b':' | b'@' | b'[' | b']');
        if in_path && here != b'.' {
            class[byte] |= PATH;
        }
        if in_path || matches!(here, b'%' | b'?') {
            class[byte] |= QUERY;
        }
        if unreserved || sub_delimiter {
            class[byte] |= HOST;
        }
        byte += 1;
    }
    class
};
