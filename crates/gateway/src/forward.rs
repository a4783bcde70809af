//! The fields of a message as they go on: what ends at the gateway is removed, what the gateway
//! has to say about the client is added (RFC 9110 section 7.6, RFC 7239).
//!
//! Heads are edited where they lie. `Host`, framing and `Connection` are not touched here: the
//! machine that encodes the head writes them from the target, the length and its own state. The
//! client's `Host` is kept, as applications expect that build links or serve several sites.

use std::fmt::Write;
use std::net::IpAddr;

use blitz_http::{FieldName, Fields, Method, Name, Peer, RequestHead, ResponseHead, Version};

/// Options that one `Connection` field may name; beyond, the request is refused.
const CONNECTION_OPTIONS_MAX: usize = 16;
/// Longest `X-Request-Id` that is kept.
const REQUEST_ID_MAX: usize = 128;

/// What is added to a request, and on whose word.
pub(crate) struct Client<'a> {
    /// The connection the request came in on.
    pub(crate) peer: &'a Peer,
    /// Whether the client is a proxy whose forwarding fields are believed.
    pub(crate) trusted: bool,
    /// Whether the request [is for a WebSocket](is_websocket) and may have it.
    pub(crate) websocket: bool,
    /// Host and port to ask for if the client named none.
    pub(crate) default_authority: &'a str,
    /// Numbers nobody can guess, for the request's id.
    pub(crate) random: fn() -> u64,
}

/// `Connection` names more fields than any honest client has use for: 400.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooManyConnectionOptions;

/// Prepares a request for its upstream. `scratch` is working memory.
pub(crate) fn edit_request(
    head: &mut RequestHead,
    client: &Client<'_>,
    scratch: &mut String,
) -> Result<(), TooManyConnectionOptions> {
    remove_named_by_connection(&mut head.fields, scratch)?;
    let removed = if client.trusted {
        REQUEST_HOP
    } else {
        REQUEST_HOP | CLAIMS
    };
    let wants_trailers = contains_token(&head.fields, Name::Te, "trailers");
    head.fields
        .retain(|name, _| !is_in(removed, name) && (client.trusted || !is_claim(name)));
    if client.websocket {
        head.fields.append(Name::Upgrade, "websocket");
    }
    if wants_trailers {
        head.fields.append(Name::Te, "trailers");
    }
    if head.authority().is_none_or(str::is_empty) {
        head.set_authority(client.default_authority);
    }
    add_forwarding(head, client, scratch);
    add_request_id(&mut head.fields, client.random, scratch);
    Ok(())
}

/// Prepares a response, final or informational, for the client. `scratch` is working memory.
pub(crate) fn edit_response(head: &mut ResponseHead, scratch: &mut String) {
    // There is nobody to refuse a response to, so what an upstream names beyond the bound stays.
    let _ = remove_named_by_connection(&mut head.fields, scratch);
    head.fields.retain(|name, _| !is_in(RESPONSE_HOP, name));
    if !head.status.is_informational() {
        head.fields.append(Name::Via, via(head.version));
    }
}

/// Prepares trailers of either direction: fields that frame, route or authenticate have no
/// business there (RFC 9110 section 6.5.1).
pub(crate) fn edit_trailers(fields: &mut Fields) {
    fields.retain(|name, _| !is_in(NOT_IN_TRAILERS, name) && !is_claim(name));
}

/// Whether the request asks for a WebSocket, the only upgrade that passes (rule 15).
pub(crate) fn is_websocket(head: &RequestHead) -> bool {
    head.method == Method::Get
        && head.version == Version::Http11
        && contains_token(&head.fields, Name::Upgrade, "websocket")
        && contains_token(&head.fields, Name::Connection, "upgrade")
}

// ------------------------------------------------------------------------------------ removing

/// A set of known names, one bit each.
type NameSet = u128;

const fn set(names: &[Name]) -> NameSet {
    let mut bits = 0;
    let mut at = 0;
    while at < names.len() {
        bits |= 1 << names[at] as u8;
        at += 1;
    }
    bits
}

const _: () = assert!(
    (Name::Other as u8) < 128,
    "a NameSet has room for 128 names"
);

/// Ends here in both directions: connection management (RFC 9110 section 7.6.1), credentials
/// for this hop (section 11.7), upgrades that nobody asked to pass.
const HOP: NameSet = set(&[
    Name::Connection,
    Name::KeepAlive,
    Name::ProxyConnection,
    Name::TransferEncoding,
    Name::Te,
    Name::Upgrade,
    Name::Http2Settings,
    Name::ProxyAuthenticate,
    Name::ProxyAuthenticationInfo,
    Name::ProxyAuthorization,
]);
/// `Proxy` would become the variable `HTTP_PROXY` of a CGI program (httpoxy); a client's
/// certificate is what TLS says, never what a field says (RFC 9440).
const REQUEST_HOP: NameSet = HOP | set(&[Name::Proxy, Name::ClientCert, Name::ClientCertChain]);
/// The 101 that needs `Upgrade` gets it from `relay`.
const RESPONSE_HOP: NameSet = HOP;
/// What a client says about itself and the gateway knows better.
const CLAIMS: NameSet = set(&[
    Name::Forwarded,
    Name::XForwardedFor,
    Name::XForwardedHost,
    Name::XForwardedPort,
    Name::XForwardedProto,
    Name::XRealIp,
]);
const NOT_IN_TRAILERS: NameSet = REQUEST_HOP
    | CLAIMS
    | set(&[
        Name::Authorization,
        Name::CacheControl,
        Name::ContentEncoding,
        Name::ContentLength,
        Name::ContentRange,
        Name::ContentType,
        Name::Cookie,
        Name::Expect,
        Name::Host,
        Name::MaxForwards,
        Name::Range,
        Name::SetCookie,
        Name::Trailer,
        Name::Via,
        Name::XRequestId,
    ]);
/// Meant for every recipient, so naming them in `Connection` is an attack or a mistake: a proxy
/// that obeyed would strip what the application relies on (RFC 9110 section 7.6.1).
const END_TO_END: NameSet = CLAIMS
    | set(&[
        Name::Authorization,
        Name::CacheControl,
        Name::ContentEncoding,
        Name::ContentLength,
        Name::ContentRange,
        Name::ContentType,
        Name::Cookie,
        Name::Date,
        Name::EarlyData,
        Name::Expect,
        Name::Host,
        Name::MaxForwards,
        Name::Origin,
        Name::Range,
        Name::SetCookie,
        Name::StrictTransportSecurity,
        Name::Traceparent,
        Name::Tracestate,
        Name::Trailer,
        Name::Vary,
        Name::Via,
        Name::XRequestId,
    ]);

#[inline]
fn is_in(names: NameSet, name: FieldName<'_>) -> bool {
    names >> (name.known() as u8) & 1 == 1
}

/// Any `X-Forwarded-…`, also those that only some proxies know.
#[inline]
fn is_claim(name: FieldName<'_>) -> bool {
    const PREFIX: &[u8] = b"x-forwarded-";
    name.known() == Name::Other
        && name
            .as_bytes()
            .get(..PREFIX.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(PREFIX))
}

fn remove_named_by_connection(
    fields: &mut Fields,
    scratch: &mut String,
) -> Result<(), TooManyConnectionOptions> {
    if !fields.contains(Name::Connection) {
        return Ok(());
    }
    // The options are copied, since what they name lies in the block that they lie in.
    scratch.clear();
    for value in fields.get_all(Name::Connection) {
        // Options are tokens, hence ASCII; a value that is not UTF-8 names no field.
        scratch.push_str(std::str::from_utf8(value).unwrap_or_default());
        scratch.push(',');
    }
    let options = scratch
        .split(',')
        .map(|option| option.trim_matches([' ', '\t']));
    for (at, option) in options.filter(|option| !option.is_empty()).enumerate() {
        if at == CONNECTION_OPTIONS_MAX {
            return Err(TooManyConnectionOptions);
        }
        let known = Name::parse(option.as_bytes());
        let removable = known == Name::Other || END_TO_END >> (known as u8) & 1 == 0;
        if removable {
            fields.remove(option);
        }
    }
    Ok(())
}

/// Whether a list field contains a token, without its parameters.
fn contains_token(fields: &Fields, name: Name, token: &str) -> bool {
    fields.get_all(name).any(|value| {
        value.split(|&byte| byte == b',').any(|item| {
            let item = item.split(|&byte| byte == b';').next().unwrap_or_default();
            item.trim_ascii().eq_ignore_ascii_case(token.as_bytes())
        })
    })
}

// -------------------------------------------------------------------------------------- adding

/// "An intermediary … MUST send an appropriate Via header field" (RFC 9110 section 7.6.3). The
/// version is that of the message as it was received.
fn via(received: Version) -> &'static str {
    match received {
        Version::Http10 => "1.0 blitz",
        Version::Http11 => "1.1 blitz",
        Version::Http2 => "2 blitz",
        Version::Http3 => "3 blitz",
    }
}

/// The connection's client goes to the right of those that a trusted proxy has vouched for.
fn add_forwarding(head: &mut RequestHead, client: &Client<'_>, scratch: &mut String) {
    head.fields.append(Name::Via, via(head.version));
    let scheme = client.peer.scheme.as_str();
    let remote = client.peer.remote.map(|remote| remote.ip().to_canonical());
    if let Some(remote) = remote {
        begin_list(&head.fields, Name::XForwardedFor, scratch);
        push_ip(scratch, remote);
        head.fields.set(Name::XForwardedFor, &*scratch);
    }
    set_if_missing(&mut head.fields, Name::XForwardedProto, scheme);
    if let Some(listener) = client.peer.listener {
        scratch.clear();
        push_number(scratch, listener.port());
        set_if_missing(&mut head.fields, Name::XForwardedPort, scratch);
    }
    begin_list(&head.fields, Name::Forwarded, scratch);
    push_forwarded_for(scratch, remote);
    scratch.push_str(";host=\"");
    let host_start = scratch.len();
    scratch.push_str(head.authority().unwrap_or_default());
    set_if_missing(
        &mut head.fields,
        Name::XForwardedHost,
        &scratch[host_start..],
    );
    scratch.push_str("\";proto=");
    scratch.push_str(scheme);
    head.fields.set(Name::Forwarded, &*scratch);
}

/// Starts the new value of a list with what is there already, which a trusted proxy wrote.
fn begin_list(fields: &Fields, name: Name, scratch: &mut String) {
    scratch.clear();
    for value in fields.get_all(name) {
        scratch.push_str(std::str::from_utf8(value).unwrap_or("unknown"));
        scratch.push_str(", ");
    }
}

fn set_if_missing(fields: &mut Fields, name: Name, value: &str) {
    if !fields.contains(name) {
        fields.append(name, value);
    }
}

/// A node identifier of RFC 7239 section 6: IPv6 quoted and in brackets.
fn push_forwarded_for(out: &mut String, remote: Option<IpAddr>) {
    out.push_str("for=");
    match remote {
        Some(ip @ IpAddr::V4(_)) => push_ip(out, ip),
        Some(ip @ IpAddr::V6(_)) => {
            out.push_str("\"[");
            push_ip(out, ip);
            out.push_str("]\"");
        }
        None => out.push_str("unknown"),
    }
}

fn push_ip(out: &mut String, ip: IpAddr) {
    match ip {
        IpAddr::V4(v4) => {
            // By hand: the formatter costs more than all other fields together.
            for (at, octet) in v4.octets().into_iter().enumerate() {
                if at > 0 {
                    out.push('.');
                }
                push_number(out, octet.into());
            }
        }
        IpAddr::V6(v6) => {
            // Writing to a string cannot fail.
            let _ = write!(out, "{v6}");
        }
    }
}

fn push_number(out: &mut String, number: u16) {
    let mut divisor = 10_000;
    while divisor > 1 && number < divisor {
        divisor /= 10;
    }
    while divisor > 0 {
        out.push(char::from(b'0' + (number / divisor % 10) as u8));
        divisor /= 10;
    }
}

/// Keeps the client's id, if it is one that logs can bear, or makes one of 128 random bits.
fn add_request_id(fields: &mut Fields, random: fn() -> u64, scratch: &mut String) {
    let usable =
        |id: &[u8]| (1..=REQUEST_ID_MAX).contains(&id.len()) && id.iter().all(u8::is_ascii_graphic);
    if fields.get(Name::XRequestId).is_some_and(usable) {
        return;
    }
    scratch.clear();
    for half in [random(), random()] {
        for shift in (0..64).step_by(4).rev() {
            let digit = (half >> shift & 15) as u32;
            scratch.push(char::from_digit(digit, 16).unwrap_or('0'));
        }
    }
    fields.set(Name::XRequestId, &*scratch);
}

#[cfg(test)]
mod tests;
