//! Splits a complete section and polices what it says.
//!
//! The finder has already refused wrong line ends and found the others, so splitting is cutting at
//! them. It is written by hand because a general splitter alone takes more instructions than a
//! whole head may (see the crate's benches).

use super::diagnose;
use super::finder::Lines;
use super::framing::Framing;
use crate::error::ErrorKind;
use crate::message::{
    BodyLength, Entry, Fields, Method, Name, RequestHead, ResponseHead, Status, Version, is_token,
};
use crate::{scan, target};

/// What a request head says about its exchange.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestFacts {
    pub(crate) length: BodyLength,
    pub(crate) keep_alive: bool,
    pub(crate) expects_continue: bool,
    pub(crate) wants_upgrade: bool,
}

/// What a response head says about its exchange, taken by itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ResponseFacts {
    /// `Unknown` means chunked if `is_chunked`, and otherwise until the connection closes.
    pub(crate) length: BodyLength,
    pub(crate) is_chunked: bool,
    pub(crate) keep_alive: bool,
}

/// Fills `head` from the section in the block of its fields.
pub(crate) fn parse_request(
    head: &mut RequestHead,
    lines: &Lines,
) -> Result<RequestFacts, ErrorKind> {
    let Fields { block, entries } = &mut head.fields;
    let (first_end, field_ends) = split_first_line(lines).ok_or(ErrorKind::RequestLine)?;
    if lines.have_controls {
        return Err(diagnose::request(block));
    }
    let line = &block[..first_end];
    let (method, target, version) = split_request_line(line)?;
    head.version = version;
    head.method = target::parse_request_line(&mut head.target, method, target)
        .map_err(|kind| diagnose::request_line(line).unwrap_or(kind))?;
    let framing = split_fields(block, first_end + 2, field_ends, entries)?;
    settle_authority(head, &framing)?;
    request_facts(head, &framing)
}

fn request_facts(head: &RequestHead, framing: &Framing) -> Result<RequestFacts, ErrorKind> {
    let is_chunked = framing.check_transfer_encoding(head.version)?;
    let length = match framing.content_length {
        _ if is_chunked => BodyLength::Unknown,
        Some(length) => BodyLength::Known(length),
        None => BodyLength::Empty,
    };
    if head.method == Method::Connect && length != BodyLength::Empty {
        return Err(ErrorKind::ConnectWithContent);
    }
    // RFC 9110, section 10.1.1: "A server that receives a 100-continue expectation in an HTTP/1.0
    // request MUST ignore that expectation." Section 7.8 says the same of Upgrade.
    let is_http11 = head.version == Version::Http11;
    if is_http11 && framing.expects_other {
        return Err(ErrorKind::ExpectationUnknown);
    }
    let has_content = !matches!(length, BodyLength::Empty | BodyLength::Known(0));
    Ok(RequestFacts {
        length,
        keep_alive: framing.keeps_alive(head.version),
        expects_continue: is_http11 && framing.expects_continue && has_content,
        wants_upgrade: is_http11 && framing.connection.upgrade && framing.names_protocol,
    })
}

/// Fills `head` from the section in the block of its fields.
pub(crate) fn parse_response(
    head: &mut ResponseHead,
    lines: &Lines,
) -> Result<ResponseFacts, ErrorKind> {
    let Fields { block, entries } = &mut head.fields;
    let (first_end, field_ends) = split_first_line(lines).ok_or(ErrorKind::StatusLine)?;
    if lines.have_controls {
        return Err(diagnose::response(block));
    }
    (head.version, head.status) = parse_status_line(&block[..first_end])?;
    let framing = split_fields(block, first_end + 2, field_ends, entries)?;
    let is_chunked = framing.check_transfer_encoding(head.version)?;
    // RFC 9112, section 6.1: "A server MUST NOT send a Transfer-Encoding header field in any
    // response with a status code of 1xx (Informational) or 204 (No Content)."
    if is_chunked && (head.status.is_informational() || head.status == Status::NO_CONTENT) {
        return Err(ErrorKind::TransferEncodingForbidden);
    }
    let length = match framing.content_length {
        Some(length) => BodyLength::Known(length),
        None => BodyLength::Unknown,
    };
    Ok(ResponseFacts {
        length,
        is_chunked,
        keep_alive: framing.keeps_alive(head.version),
    })
}

/// Fills `trailers` from the section in their own block; what must not come in trailers is
/// dropped (RFC 9110, section 6.5.1).
pub(crate) fn parse_trailers(trailers: &mut Fields, lines: &Lines) -> Result<(), ErrorKind> {
    let Fields { block, entries } = trailers;
    entries.clear();
    if lines.have_controls {
        return Err(diagnose::fields(block));
    }
    let mut start = 0;
    for &end in &lines.ends {
        let entry = split_field(block, start, end as usize)?;
        if !is_forbidden_in_trailers(entry.name) {
            entries.push(entry);
        }
        start = end as usize + 2;
    }
    Ok(())
}

/// Fields for framing, routing, authentication, request modifiers, response control and content
/// format are no trailers: a recipient that merged them would be deceived.
pub(crate) fn is_forbidden_in_trailers(name: Name) -> bool {
    use Name as N;
    name.is_policed()
        || matches!(name, N::KeepAlive | N::ProxyConnection | N::Te | N::Trailer)
        || matches!(
            name,
            N::Http2Settings | N::Forwarded | N::Via | N::MaxForwards | N::Proxy
        )
        || matches!(
            name,
            N::XForwardedFor | N::XForwardedHost | N::XForwardedPort
        )
        || matches!(
            name,
            N::XForwardedProto | N::XRealIp | N::ClientCert | N::ClientCertChain
        )
        || matches!(
            name,
            N::Authorization | N::ProxyAuthorization | N::Cookie | N::SetCookie
        )
        || matches!(
            name,
            N::WwwAuthenticate | N::ProxyAuthenticate | N::CacheControl | N::Range
        )
        || matches!(
            name,
            N::IfMatch | N::IfNoneMatch | N::IfRange | N::IfModifiedSince
        )
        || matches!(
            name,
            N::IfUnmodifiedSince | N::Age | N::Date | N::Expires | N::Location
        )
        || matches!(
            name,
            N::RetryAfter | N::Vary | N::ContentEncoding | N::ContentType
        )
        || matches!(name, N::ContentRange)
}

/// The end of the first line, and those of the field lines.
fn split_first_line(lines: &Lines) -> Option<(usize, &[u32])> {
    lines
        .ends
        .split_first()
        .map(|(first, fields)| (*first as usize, fields))
}

/// Method, target and version; the first two may still hold anything but controls.
#[inline]
fn split_request_line(line: &[u8]) -> Result<(&[u8], &[u8], Version), ErrorKind> {
    let malformed = || diagnose::request_line(line).unwrap_or(ErrorKind::RequestLine);
    let (rest, version) = match line.split_last_chunk() {
        Some((rest, b" HTTP/1.1")) => (rest, Version::Http11),
        Some((rest, b" HTTP/1.0")) => (rest, Version::Http10),
        _ => return Err(malformed()),
    };
    let space = rest
        .iter()
        .position(|&byte| byte == b' ')
        .ok_or_else(malformed)?;
    Ok((&rest[..space], &rest[space + 1..], version))
}

/// `HTTP-version SP status-code SP [ reason-phrase ]`; that the last space may be missing with an
/// empty reason is the one liberty everybody takes (RFC 9112, section 4).
fn parse_status_line(line: &[u8]) -> Result<(Version, Status), ErrorKind> {
    let malformed = || diagnose::status_line(line).unwrap_or(ErrorKind::StatusLine);
    let (version, rest) = match line.split_first_chunk() {
        Some((b"HTTP/1.1 ", rest)) => (Version::Http11, rest),
        Some((b"HTTP/1.0 ", rest)) => (Version::Http10, rest),
        _ => return Err(malformed()),
    };
    let digits = match rest {
        [_, _, _] => rest,
        [a, b, c, b' ', ..] => &[*a, *b, *c],
        _ => return Err(malformed()),
    };
    if !digits.iter().all(u8::is_ascii_digit) {
        return Err(malformed());
    }
    let code = digits
        .iter()
        .fold(0, |code, digit| code * 10 + u16::from(digit - b'0'));
    Ok((version, Status::new(code).ok_or(ErrorKind::StatusLine)?))
}

/// Turns field lines into ranges of the block, and notes what the policed ones say.
#[inline]
fn split_fields(
    block: &[u8],
    mut start: usize,
    ends: &[u32],
    entries: &mut Vec<Entry>,
) -> Result<Framing, ErrorKind> {
    let mut framing = Framing::default();
    entries.clear();
    entries.reserve(ends.len());
    for &end in ends {
        let entry = split_field(block, start, end as usize)?;
        if entry.name.is_policed() {
            framing.note(entry.name, entry.value_in(block))?;
        }
        entries.push(entry);
        start = end as usize + 2;
    }
    Ok(framing)
}

/// `field-name ":" OWS field-value OWS` (RFC 9112, section 5), of which controls are excluded.
#[inline]
fn split_field(block: &[u8], start: usize, end: usize) -> Result<Entry, ErrorKind> {
    let line = &block[..end];
    let colon = scan::next_equal(line, start, b':').ok_or_else(|| wrong_field(block, start))?;
    let text = &line[start..colon];
    let name = Name::parse(text);
    // A known name is a token, so only the others have to be looked at.
    if name == Name::Other && !is_token(text) {
        return Err(wrong_field(block, start));
    }
    let mut value_start = colon + 1;
    while matches!(line.get(value_start), Some(b' ' | b'\t')) {
        value_start += 1;
    }
    let mut value_end = end;
    while value_end > value_start && matches!(line[value_end - 1], b' ' | b'\t') {
        value_end -= 1;
    }
    Ok(Entry {
        value_start: value_start as u32,
        value_len: (value_end - value_start) as u32,
        name_start: start as u32,
        name_len: u16::try_from(text.len()).map_err(|_| ErrorKind::HeadTooLarge)?,
        name,
    })
}

#[cold]
fn wrong_field(block: &[u8], start: usize) -> ErrorKind {
    diagnose::fields(&block[start..])
}

/// Makes the head's authority and its `Host` field agree, or refuses a head without either.
fn settle_authority(head: &mut RequestHead, framing: &Framing) -> Result<(), ErrorKind> {
    if !framing.has_host {
        return match head.version {
            Version::Http10 => Ok(()),
            _ => Err(ErrorKind::HostMissing),
        };
    }
    // RFC 9112, section 3.2.2: "When an origin server receives a request with an absolute-form of
    // request-target, the origin server MUST ignore the received Host header field (if any) and
    // instead use the host information of the request-target." Replacing the field keeps handlers
    // that look at it from being deceived.
    if let Some(authority) = head.target.authority {
        head.fields.set(Name::Host, head.target.at(authority));
        return Ok(());
    }
    let host = head
        .fields
        .get_str(Name::Host)
        .ok_or(ErrorKind::HostMalformed)?;
    head.target.authority = Some(head.target.push(host));
    Ok(())
}
