//! Splits a complete section with `httparse` and polices what it says.

use std::mem::MaybeUninit;

use httparse::{Header, ParserConfig};

use super::diagnose;
use super::framing::Framing;
use crate::error::ErrorKind;
use crate::message::{
    BodyLength, Entry, Fields, Method, Name, RequestHead, ResponseHead, Status, Version,
};
use crate::target;

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

/// Up to this number fields are split on the stack; more, which only raised limits allow, in a
/// vector.
const FIELDS_ON_STACK: usize = 128;

/// Fills `head` from the section in the block of its fields.
pub(crate) fn parse_request(
    head: &mut RequestHead,
    fields_max: usize,
) -> Result<RequestFacts, ErrorKind> {
    let framing = if fields_max <= FIELDS_ON_STACK {
        split_request(
            head,
            &mut [const { MaybeUninit::uninit() }; FIELDS_ON_STACK],
        )?
    } else {
        split_request(head, &mut vec![MaybeUninit::uninit(); fields_max])?
    };
    settle_authority(head, &framing)?;
    let version = head.version;
    let is_chunked = framing.check_transfer_encoding(version)?;
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
    let is_http11 = version == Version::Http11;
    if is_http11 && framing.expects_other {
        return Err(ErrorKind::ExpectationUnknown);
    }
    let has_content = !matches!(length, BodyLength::Empty | BodyLength::Known(0));
    Ok(RequestFacts {
        length,
        keep_alive: framing.keeps_alive(version),
        expects_continue: is_http11 && framing.expects_continue && has_content,
        wants_upgrade: is_http11 && framing.connection.upgrade && framing.names_protocol,
    })
}

/// Fills `head` from the section in the block of its fields.
pub(crate) fn parse_response(
    head: &mut ResponseHead,
    fields_max: usize,
) -> Result<ResponseFacts, ErrorKind> {
    let framing = if fields_max <= FIELDS_ON_STACK {
        split_response(
            head,
            &mut [const { MaybeUninit::uninit() }; FIELDS_ON_STACK],
        )?
    } else {
        split_response(head, &mut vec![MaybeUninit::uninit(); fields_max])?
    };
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
pub(crate) fn parse_trailers(trailers: &mut Fields, fields_max: usize) -> Result<(), ErrorKind> {
    let Fields { block, entries } = trailers;
    let block: &[u8] = block;
    entries.clear();
    let mut slots = vec![httparse::EMPTY_HEADER; fields_max];
    let Ok(httparse::Status::Complete((_, headers))) = httparse::parse_headers(block, &mut slots)
    else {
        return Err(diagnose::fields(block));
    };
    for header in headers {
        let entry = entry_of(block, header)?;
        if !is_forbidden_in_trailers(entry.name) {
            entries.push(entry);
        }
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

fn split_request<'b>(
    head: &'b mut RequestHead,
    slots: &mut [MaybeUninit<Header<'b>>],
) -> Result<Framing, ErrorKind> {
    let Fields { block, entries } = &mut head.fields;
    let block: &'b [u8] = block;
    let mut parsed = httparse::Request::new(&mut []);
    let outcome =
        ParserConfig::default().parse_request_with_uninit_headers(&mut parsed, block, slots);
    let (Ok(httparse::Status::Complete(_)), Some(method), Some(target), Some(minor)) =
        (outcome, parsed.method, parsed.path, parsed.version)
    else {
        return Err(diagnose::request(block));
    };
    head.version = version_of(minor);
    head.method =
        target::parse_request_line(&mut head.target, method.as_bytes(), target.as_bytes())?;
    store_fields(block, entries, parsed.headers)
}

fn split_response<'b>(
    head: &'b mut ResponseHead,
    slots: &mut [MaybeUninit<Header<'b>>],
) -> Result<Framing, ErrorKind> {
    let Fields { block, entries } = &mut head.fields;
    let block: &'b [u8] = block;
    let mut parsed = httparse::Response::new(&mut []);
    let outcome =
        ParserConfig::default().parse_response_with_uninit_headers(&mut parsed, block, slots);
    let (Ok(httparse::Status::Complete(_)), Some(code), Some(minor)) =
        (outcome, parsed.code, parsed.version)
    else {
        return Err(diagnose::response(block));
    };
    head.version = version_of(minor);
    head.status = Status::new(code).ok_or(ErrorKind::StatusLine)?;
    store_fields(block, entries, parsed.headers)
}

/// Turns what was split into ranges of the block, and notes what the policed ones say.
#[inline]
fn store_fields(
    block: &[u8],
    entries: &mut Vec<Entry>,
    headers: &[Header<'_>],
) -> Result<Framing, ErrorKind> {
    let mut framing = Framing::default();
    entries.clear();
    entries.reserve(headers.len());
    for header in headers {
        let entry = entry_of(block, header)?;
        if entry.name.is_policed() {
            framing.note(entry.name, header.value)?;
        }
        entries.push(entry);
    }
    Ok(framing)
}

#[inline]
fn entry_of(block: &[u8], header: &Header<'_>) -> Result<Entry, ErrorKind> {
    let name_len = u16::try_from(header.name.len()).map_err(|_| ErrorKind::HeadTooLarge)?;
    Ok(Entry {
        value_start: offset_in(block, header.value),
        value_len: header.value.len() as u32,
        name_start: offset_in(block, header.name.as_bytes()),
        name_len,
        name: Name::parse(header.name.as_bytes()),
    })
}

/// Where in the block this part of it begins. An empty part may lie anywhere.
#[inline]
fn offset_in(block: &[u8], part: &[u8]) -> u32 {
    if part.is_empty() {
        return 0;
    }
    (part.as_ptr().addr() - block.as_ptr().addr()) as u32
}

fn version_of(minor: u8) -> Version {
    if minor == 0 {
        Version::Http10
    } else {
        Version::Http11
    }
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
