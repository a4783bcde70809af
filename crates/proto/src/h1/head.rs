//! Validates a complete head, from its first line to its framing.

use super::diagnose;
use super::framing::FramingFields;
use super::section::SectionBuffer;
use crate::error::ErrorKind;
use crate::message::{
    BodyLength, Method, Name, RequestHead, ResponseHead, Status, TargetForm, Version,
    encode_refused, is_valid_value, target,
};
use crate::scan;

/// The properties of an exchange that the request head declares.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestFacts {
    pub(crate) length: BodyLength,
    pub(crate) keep_alive: bool,
    pub(crate) expects_continue: bool,
    pub(crate) wants_upgrade: bool,
    pub(crate) wants_h2c: bool,
}

/// The properties of an exchange that the response head declares, regardless of the request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ResponseFacts {
    /// `Unknown` means chunked if `is_chunked`, and otherwise until the connection closes.
    pub(crate) length: BodyLength,
    pub(crate) is_chunked: bool,
    pub(crate) keep_alive: bool,
    pub(crate) keep_alive_timeout_s: Option<u32>,
    /// `Connection` names `Upgrade`.
    pub(crate) upgrades: bool,
}

/// Completes `head`, whose fields are split, from its first line.
pub(crate) fn parse_request(
    head: &mut RequestHead,
    section: &SectionBuffer,
) -> Result<RequestFacts, ErrorKind> {
    let framing = section.framing();
    let block = &head.fields.block;
    let line = &block[..section.first_line_end()];
    let parts = split_request_line(line)?;
    let host = framing
        .host
        .map(|host| &block[host.start as usize..host.end as usize]);
    head.version = parts.version;
    head.method = parts.method;
    let RequestLine {
        method,
        method_text,
        target,
        ..
    } = parts;
    match target::parse_target(&mut head.target, method, method_text, target, host) {
        Ok(()) => finish_request(head, framing),
        Err(kind) => parse_refused_target(head, section, kind),
    }
}

/// Completes a head whose target was parsed.
#[inline(always)]
fn finish_request(
    head: &mut RequestHead,
    framing: &FramingFields,
) -> Result<RequestFacts, ErrorKind> {
    apply_target_host(head, framing)?;
    request_facts(head, framing)
}

/// Completes a head whose target was refused, with its raw bytes encoded.
#[cold]
fn parse_refused_target(
    head: &mut RequestHead,
    section: &SectionBuffer,
    refusal: ErrorKind,
) -> Result<RequestFacts, ErrorKind> {
    let block = &head.fields.block;
    let line = &block[..section.first_line_end()];
    let parts = split_request_line(line)?;
    let host = section.framing().host;
    let host = host.map(|host| &block[host.start as usize..host.end as usize]);
    let target_max = parts.target.len() + section.first_line_max() - line.len();
    encode_refused(refusal, parts.target, target_max)
        .and_then(|encoded| {
            let RequestLine {
                method,
                method_text,
                ..
            } = parts;
            target::parse_unusual_target(&mut head.target, method, method_text, &encoded, host)
        })
        .map_err(|kind| diagnose::request_line(line).unwrap_or(kind))?;
    finish_request(head, section.framing())
}

fn request_facts(head: &RequestHead, framing: &FramingFields) -> Result<RequestFacts, ErrorKind> {
    let is_chunked = framing.check_transfer_encoding(head.version)?;
    let length = match framing.content_length {
        _ if is_chunked => BodyLength::Unknown,
        Some(_) if framing.repeats_content_length => {
            return Err(ErrorKind::ContentLengthRepeated);
        }
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
        wants_h2c: framing.names_h2c && is_http11 && !has_content && framing.wants_h2c(),
    })
}

/// Completes `head`, whose fields are split, from its first line. `method` is that of the request.
pub(crate) fn parse_response(
    head: &mut ResponseHead,
    section: &SectionBuffer,
    method: Method,
) -> Result<ResponseFacts, ErrorKind> {
    let framing = section.framing();
    let line = &head.fields.block[..section.first_line_end()];
    (head.version, head.status) = parse_status_line(line)?;
    // Without content, nothing depends on which of two framings is the true one.
    let is_framed_twice = framing.transfer_encoding.is_some()
        && framing.content_length.is_some()
        && (method == Method::Head || head.status == Status::NOT_MODIFIED);
    let is_chunked = is_framed_twice || framing.check_transfer_encoding(head.version)?;
    // RFC 9112, section 6.1: "A server MUST NOT send a Transfer-Encoding header field in any
    // response with a status code of 1xx (Informational) or 204 (No Content)."
    if is_chunked && (head.status.is_informational() || head.status == Status::NO_CONTENT) {
        return Err(ErrorKind::TransferEncodingForbidden);
    }
    let length = match framing.content_length {
        // RFC 9112, section 6.3: "the Transfer-Encoding overrides the Content-Length".
        Some(length) if !is_framed_twice => BodyLength::Known(length),
        _ => BodyLength::Unknown,
    };
    Ok(ResponseFacts {
        length,
        is_chunked,
        keep_alive: framing.keeps_alive(head.version),
        keep_alive_timeout_s: framing.keep_alive_timeout_s,
        upgrades: framing.connection.upgrade,
    })
}

const HTTP_1_1: u64 = u64::from_ne_bytes(*b"HTTP/1.1");
const HTTP_1_0: u64 = u64::from_ne_bytes(*b"HTTP/1.0");

/// The parts of a request line; method and target may still hold any bytes but controls.
struct RequestLine<'l> {
    method: Method,
    method_text: &'l [u8],
    target: &'l [u8],
    version: Version,
}

#[inline(always)]
fn split_request_line(line: &[u8]) -> Result<RequestLine<'_>, ErrorKind> {
    let malformed = || diagnose::request_line(line).unwrap_or(ErrorKind::RequestLine);
    let (rest, version) = line.split_last_chunk().ok_or_else(malformed)?;
    // As numbers, because comparing eight single bytes takes sixteen instructions.
    let version = match u64::from_ne_bytes(*version) {
        HTTP_1_1 => Version::Http11,
        HTTP_1_0 => Version::Http10,
        _ => return Err(malformed()),
    };
    let rest = rest.strip_suffix(b" ").ok_or_else(malformed)?;
    if let Some((method, target)) = rest.split_first_chunk()
        && u32::from_ne_bytes(*method) == u32::from_ne_bytes(*b"GET ")
    {
        return Ok(RequestLine {
            method: Method::Get,
            method_text: b"GET",
            target,
            version,
        });
    }
    let space = scan::position(rest, b' ').ok_or_else(malformed)?;
    let method_text = &rest[..space];
    Ok(RequestLine {
        method: Method::parse(method_text),
        method_text,
        target: &rest[space + 1..],
        version,
    })
}

/// `HTTP-version SP status-code SP [ reason-phrase ]`; the last space may be missing before an empty
/// reason, which recipients commonly accept (RFC 9112, section 4).
fn parse_status_line(line: &[u8]) -> Result<(Version, Status), ErrorKind> {
    let malformed = || diagnose::status_line(line).unwrap_or(ErrorKind::StatusLine);
    let (version, rest) = line.split_first_chunk().ok_or_else(malformed)?;
    let version = match u64::from_ne_bytes(*version) {
        HTTP_1_1 => Version::Http11,
        HTTP_1_0 => Version::Http10,
        _ => return Err(malformed()),
    };
    let rest = rest.strip_prefix(b" ").ok_or_else(malformed)?;
    // Nearly all responses have this status and this reason phrase.
    if rest == b"200 OK" {
        return Ok((version, Status::OK));
    }
    let digits = match rest {
        [_, _, _] => rest,
        [a, b, c, b' ', ..] => &[*a, *b, *c],
        _ => return Err(malformed()),
    };
    if !digits.iter().all(u8::is_ascii_digit) || !is_valid_value(rest) {
        return Err(malformed());
    }
    let code = digits
        .iter()
        .fold(0, |code, digit| code * 10 + u16::from(digit - b'0'));
    Ok((version, Status::new(code).ok_or(ErrorKind::StatusLine)?))
}

/// Replaces the `Host` field by the authority of the target, or refuses a head without `Host`.
fn apply_target_host(head: &mut RequestHead, framing: &FramingFields) -> Result<(), ErrorKind> {
    if framing.host.is_none() {
        return match head.version {
            Version::Http10 => Ok(()),
            _ => Err(ErrorKind::HostMissing),
        };
    }
    // RFC 9112, section 3.2.2: "When an origin server receives a request with an absolute-form of
    // request-target, the origin server MUST ignore the received Host header field (if any) and
    // instead use the host information of the request-target." The field is replaced, so that handlers
    // that read it see the same host.
    if let (TargetForm::Absolute | TargetForm::Authority, Some(authority)) =
        (head.form(), head.target.authority)
    {
        head.fields.set(Name::Host, head.target.at(authority));
    }
    Ok(())
}
