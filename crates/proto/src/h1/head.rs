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
    BodyLength, Entry, Fields, Method, Name, RequestHead, ResponseHead, Status, TargetForm,
    Version, is_token,
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
    let framing = split_fields(block, first_end + 2, field_ends, entries)?;
    let host = framing.host.map(|host| host.value_in(block));
    head.version = version;
    head.method = target::parse_request_line(&mut head.target, method, target, host)
        .map_err(|kind| diagnose::request_line(line).unwrap_or(kind))?;
    settle_host(head, &framing)?;
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
    for &end in ends {
        let entry = split_field(block, start, end as usize)?;
        if entry.name.is_policed() {
            framing.note(&entry, entry.value_in(block))?;
        }
        entries.push(entry);
        start = end as usize + 2;
    }
    Ok(framing)
}

/// `field-name ":" OWS field-value OWS` (RFC 9112, section 5), of which controls are excluded.
#[inline(always)] // few callers, and the call would cost a tenth of the work
fn split_field(block: &[u8], start: usize, end: usize) -> Result<Entry, ErrorKind> {
    let line = &block[start..end];
    let Some((name, name_len)) = split_name(block, start, line) else {
        return Err(diagnose::fields(&block[start..]));
    };
    let value = trim(&line[name_len + 1..]);
    Ok(Entry {
        value_start: (end - value.start_from_end) as u32,
        value_len: value.len as u32,
        name_start: start as u32,
        name_len: name_len as u16,
        name,
    })
}

/// The known name, and the length of a line's name: all before its first colon, if that is a token.
#[inline(always)]
fn split_name(block: &[u8], start: usize, line: &[u8]) -> Option<(Name, usize)> {
    if let Some(chunk) = block[start..].first_chunk() {
        let colons = scan::equal(chunk, b':');
        let len = colons.trailing_zeros() as usize;
        if colons != 0 && len < line.len() {
            let text = &line[..len];
            let name = Name::parse_in_line(text, chunk);
            // A known name is a token, so only the others have to be looked at.
            return (name != Name::Other || is_token(text)).then_some((name, len));
        }
    }
    split_long_name(line)
}

/// A value without the white space around it, as its distance to the end of its line.
struct Trimmed {
    start_from_end: usize,
    len: usize,
}

#[inline(always)]
fn trim(value: &[u8]) -> Trimmed {
    // Most values have one space before and none after them.
    if let [b' ', rest @ ..] = value
        && let [first, .., last] = rest
        && *first > b' '
        && *last > b' '
    {
        return Trimmed {
            start_from_end: rest.len(),
            len: rest.len(),
        };
    }
    let rest = value.trim_ascii_start();
    Trimmed {
        start_from_end: rest.len(),
        len: rest.trim_ascii_end().len(),
    }
}

/// The same for names of sixteen bytes and more, and for the last line of a head.
fn split_long_name(line: &[u8]) -> Option<(Name, usize)> {
    let len = scan::position(line, b':')?;
    let text = &line[..len];
    let name = Name::parse(text);
    let is_good = name != Name::Other || (is_token(text) && len <= u16::MAX as usize);
    is_good.then_some((name, len))
}

/// Makes the `Host` field agree with the target, or refuses a head without either.
fn settle_host(head: &mut RequestHead, framing: &Framing) -> Result<(), ErrorKind> {
    if framing.host.is_none() {
        return match head.version {
            Version::Http10 => Ok(()),
            _ => Err(ErrorKind::HostMissing),
        };
    }
    // RFC 9112, section 3.2.2: "When an origin server receives a request with an absolute-form of
    // request-target, the origin server MUST ignore the received Host header field (if any) and
    // instead use the host information of the request-target." Replacing the field keeps handlers
    // that look at it from being deceived.
    if let (TargetForm::Absolute | TargetForm::Authority, Some(authority)) =
        (head.form(), head.target.authority)
    {
        head.fields.set(Name::Host, head.target.at(authority));
    }
    Ok(())
}
