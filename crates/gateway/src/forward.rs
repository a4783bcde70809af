//! The fields of a message as they go on: what ends at the gateway is removed, what the gateway
//! has to say about the client is added (RFC 9110 section 7.6, RFC 7239).
//!
//! Heads are edited where they lie. `Host`, framing and `Connection` are not touched here: the
//! machine that encodes the head writes them from the target, the length and its own state. The
//! client's `Host` is kept, as applications expect that build links or serve several sites.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::Range;

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
    scratch: &mut Vec<u8>,
) -> Result<(), TooManyConnectionOptions> {
    let seen = Survey::of(&head.fields);
    if seen.has(Name::Connection) {
        remove_named_by_connection(&mut head.fields, scratch)?;
    }
    let wants_trailers = seen.has(Name::Te) && contains_token(&head.fields, Name::Te, "trailers");
    let removed = if client.trusted {
        REQUEST_HOP
    } else {
        REQUEST_HOP | CLAIMS
    };
    if seen.names & removed != 0 || seen.claims {
        head.fields.retain(|name, _| {
            let believed = client.trusted || !is_claim(name);
            !is_in(removed, name) && believed && !is_imitation(name)
        });
    }
    if client.websocket {
        head.fields.append(Name::Upgrade, "websocket");
    }
    if wants_trailers {
        head.fields.append(Name::Te, "trailers");
    }
    if head.authority().is_none_or(str::is_empty) {
        head.set_authority(client.default_authority);
    }
    let left = Survey {
        names: seen.names & !removed,
        ..seen
    };
    add_forwarding(head, client, left, scratch);
    add_request_id(&mut head.fields, client.random, left);
    Ok(())
}

/// Prepares a response, final or informational, for the client. `scratch` is working memory.
pub(crate) fn edit_response(head: &mut ResponseHead, scratch: &mut Vec<u8>) {
    let seen = Survey::of(&head.fields);
    if seen.has(Name::Connection) {
        // There is nobody to refuse a response to: what is named beyond the bound stays.
        let _ = remove_named_by_connection(&mut head.fields, scratch);
    }
    if seen.names & RESPONSE_HOP != 0 {
        head.fields.retain(|name, _| !is_in(RESPONSE_HOP, name));
    }
    if !head.status.is_informational() {
        head.fields.append(Name::Via, via(head.version));
    }
}

/// Prepares trailers of either direction: fields that frame, route or authenticate have no
/// business there (RFC 9110 section 6.5.1).
pub(crate) fn edit_trailers(fields: &mut Fields) {
    fields
        .retain(|name, _| !is_in(NOT_IN_TRAILERS, name) && !is_claim(name) && !is_imitation(name));
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

const fn set_of(names: &[Name]) -> NameSet {
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
const HOP: NameSet = set_of(&[
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
const REQUEST_HOP: NameSet = HOP | set_of(&[Name::Proxy, Name::ClientCert, Name::ClientCertChain]);
/// The 101 that needs `Upgrade` gets it from `relay`.
const RESPONSE_HOP: NameSet = HOP;
/// What a client says about itself and the gateway knows better.
const CLAIMS: NameSet = set_of(&[
    Name::Forwarded,
    Name::XForwardedFor,
    Name::XForwardedHost,
    Name::XForwardedPort,
    Name::XForwardedProto,
    Name::XRealIp,
]);
const NOT_IN_TRAILERS: NameSet = REQUEST_HOP
    | CLAIMS
    | set_of(&[
        Name::Age,
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
        Name::Expires,
        Name::Host,
        Name::IfMatch,
        Name::IfModifiedSince,
        Name::IfNoneMatch,
        Name::IfRange,
        Name::IfUnmodifiedSince,
        Name::Location,
        Name::MaxForwards,
        Name::Origin,
        Name::Pragma,
        Name::Range,
        Name::RetryAfter,
        Name::SetCookie,
        Name::Trailer,
        Name::Vary,
        Name::Via,
        Name::WwwAuthenticate,
        Name::XRequestId,
    ]);
/// Meant for every recipient, so naming them in `Connection` is an attack or a mistake: a proxy
/// that obeyed would strip what the application relies on (RFC 9110 section 7.6.1).
const END_TO_END: NameSet = CLAIMS
    | set_of(&[
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

/// What occurs in a section, so that most questions about it need no second look.
#[derive(Clone, Copy)]
struct Survey {
    names: NameSet,
    /// Some `X-Forwarded-…` that is not a known name, or an [imitation](is_imitation).
    claims: bool,
}

impl Survey {
    fn of(fields: &Fields) -> Survey {
        let nothing = Survey {
            names: 0,
            claims: false,
        };
        fields.iter().fold(nothing, |seen, (name, _)| Survey {
            names: seen.names | set_of(&[name.known()]),
            claims: seen.claims || is_claim(name) || is_imitation(name),
        })
    }

    fn has(self, name: Name) -> bool {
        self.names & set_of(&[name]) != 0
    }
}

#[inline]
fn is_in(set: NameSet, name: FieldName<'_>) -> bool {
    set & set_of(&[name.known()]) != 0
}

/// Any `X-Forwarded-…`, also those that only some proxies know.
#[inline]
fn is_claim(name: FieldName<'_>) -> bool {
    name.known() == Name::Other && begins_like_claim(name.as_bytes())
}

fn begins_like_claim(name: &[u8]) -> bool {
    const PREFIX: &[u8] = b"x-forwarded-";
    name.get(..PREFIX.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(PREFIX))
}

/// Whether applications behind CGI, WSGI and their like would take the field for one that only
/// the gateway may write: to them `X_Forwarded_For` and `X-Forwarded-For` are the same variable.
/// Not even a trusted proxy has reason to send such a name.
#[inline]
fn is_imitation(name: FieldName<'_>) -> bool {
    name.known() == Name::Other && name.as_bytes().contains(&b'_') && imitates(name.as_bytes())
}

#[cold]
fn imitates(name: &[u8]) -> bool {
    // Longer than any name that could be imitated but by its beginning.
    let mut plain = [0; 32];
    let length = name.len().min(plain.len());
    for (to, &from) in plain.iter_mut().zip(name) {
        *to = if from == b'_' { b'-' } else { from };
    }
    let plain = &plain[..length];
    begins_like_claim(plain) || (REQUEST_HOP | CLAIMS) & set_of(&[Name::parse(plain)]) != 0
}

fn remove_named_by_connection(
    fields: &mut Fields,
    scratch: &mut Vec<u8>,
) -> Result<(), TooManyConnectionOptions> {
    // What has to go is copied, since the options lie in the block that they name parts of.
    scratch.clear();
    let items = fields
        .get_all(Name::Connection)
        .flat_map(|value| value.split(|&b| b == b','));
    let options = items
        .map(<[u8]>::trim_ascii)
        .filter(|option| !option.is_empty());
    for (at, option) in options.enumerate() {
        if at == CONNECTION_OPTIONS_MAX {
            return Err(TooManyConnectionOptions);
        }
        let is_settled =
            (HOP | END_TO_END) & set_of(&[Name::parse(option)]) != 0 || begins_like_claim(option);
        if !is_settled && !option.eq_ignore_ascii_case(b"close") {
            scratch.extend_from_slice(option);
            scratch.push(b',');
        }
    }
    let named = scratch.split(|&b| b == b',').map(std::str::from_utf8);
    named
        .flatten()
        .filter(|name| !name.is_empty())
        .for_each(|name| {
            fields.remove(name);
        });
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
/// `left` is what is left of the received fields: of the claims, those of a trusted proxy, to
/// whose right the client of this connection goes.
fn add_forwarding(
    head: &mut RequestHead,
    client: &Client<'_>,
    left: Survey,
    scratch: &mut Vec<u8>,
) {
    head.fields.append(Name::Via, via(head.version));
    let scheme = client.peer.scheme.as_str();
    let remote = client.peer.remote.map(|remote| remote.ip().to_canonical());
    // `Forwarded` holds every text that the others need, so each is written once.
    begin_list(&head.fields, Name::Forwarded, left, scratch);
    let ip = push_forwarded_for(scratch, remote);
    scratch.extend_from_slice(b";host=\"");
    let host_start = scratch.len();
    scratch.extend_from_slice(head.authority().unwrap_or_default().as_bytes());
    let host = host_start..scratch.len();
    scratch.extend_from_slice(b"\";proto=");
    scratch.extend_from_slice(scheme.as_bytes());
    let vouched_for = left.has(Name::XForwardedFor);
    if remote.is_some() && !vouched_for {
        head.fields.append(Name::XForwardedFor, &scratch[ip]);
    }
    if !left.has(Name::XForwardedProto) {
        head.fields.append(Name::XForwardedProto, scheme);
    }
    if let (Some(listener), false) = (client.peer.listener, left.has(Name::XForwardedPort)) {
        add_port(&mut head.fields, listener.port());
    }
    if !left.has(Name::XForwardedHost) {
        head.fields.append(Name::XForwardedHost, &scratch[host]);
    }
    set(&mut head.fields, Name::Forwarded, left, scratch);
    if let (Some(remote), true) = (remote, vouched_for) {
        begin_list(&head.fields, Name::XForwardedFor, left, scratch);
        push_ip(scratch, remote);
        head.fields.set(Name::XForwardedFor, &*scratch);
    }
}

/// Starts the new value of a list with what is there already.
#[inline]
fn begin_list(fields: &Fields, name: Name, left: Survey, scratch: &mut Vec<u8>) {
    scratch.clear();
    if left.has(name) {
        for value in fields.get_all(name) {
            scratch.extend_from_slice(value);
            scratch.extend_from_slice(b", ");
        }
    }
}

#[inline]
fn set(fields: &mut Fields, name: Name, left: Survey, value: &[u8]) {
    if left.has(name) {
        fields.set(name, value);
    } else {
        fields.append(name, value);
    }
}

/// A node identifier of RFC 7239 section 6: IPv6 quoted and in brackets. Says where the address
/// itself stands.
fn push_forwarded_for(out: &mut Vec<u8>, remote: Option<IpAddr>) -> Range<usize> {
    let (before, after): (&[u8], &[u8]) = match remote {
        Some(IpAddr::V4(_)) => (b"for=", b""),
        Some(IpAddr::V6(_)) => (b"for=\"[", b"]\""),
        None => (b"for=unknown", b""),
    };
    out.extend_from_slice(before);
    let start = out.len();
    if let Some(ip) = remote {
        push_ip(out, ip);
    }
    let end = out.len();
    out.extend_from_slice(after);
    start..end
}

fn push_ip(out: &mut Vec<u8>, ip: IpAddr) {
    match ip {
        IpAddr::V4(v4) => push_v4(out, v4),
        IpAddr::V6(v6) => {
            // Writing to memory cannot fail.
            let _ = write!(out, "{v6}");
        }
    }
}

/// By hand: the formatter costs more than all other fields together.
fn push_v4(out: &mut Vec<u8>, v4: Ipv4Addr) {
    let mut text = [0; 16];
    let mut end = 0;
    for octet in v4.octets() {
        text[end..end + 4].copy_from_slice(&OCTETS[usize::from(octet)]);
        end += octet_digits(octet) + 1;
    }
    out.extend_from_slice(&text[..end - 1]);
}

/// Every octet in decimal, followed by a dot.
static OCTETS: [[u8; 4]; 256] = {
    let mut octets = [[b'.'; 4]; 256];
    let mut octet = 0;
    while octet < octets.len() {
        let mut rest = octet;
        let mut at = octet_digits(octet as u8);
        while at > 0 {
            at -= 1;
            octets[octet][at] = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        octet += 1;
    }
    octets
};

const fn octet_digits(octet: u8) -> usize {
    1 + (octet >= 10) as usize + (octet >= 100) as usize
}

fn add_port(fields: &mut Fields, port: u16) {
    let mut digits = [b'0'; 5];
    let mut start = digits.len();
    let mut rest = port;
    while rest > 0 || start == digits.len() {
        start -= 1;
        digits[start] += (rest % 10) as u8;
        rest /= 10;
    }
    fields.append(Name::XForwardedPort, &digits[start..]);
}

/// Keeps the client's id, if it is one that logs can bear, or makes one of 128 random bits.
fn add_request_id(fields: &mut Fields, random: fn() -> u64, left: Survey) {
    let usable =
        |id: &[u8]| (1..=REQUEST_ID_MAX).contains(&id.len()) && id.iter().all(u8::is_ascii_graphic);
    if left.has(Name::XRequestId) {
        let mut given = fields.get_all(Name::XRequestId);
        // Of two nobody knows which one the others log.
        if given.next().is_some_and(usable) && given.next().is_none() {
            return;
        }
    }
    let bits = u128::from(random()) << 64 | u128::from(random());
    let mut id = [0; 32];
    for (digits, byte) in id.chunks_exact_mut(2).zip(bits.to_be_bytes()) {
        const HEX: &[u8; 16] = b"0123456789abcdef";
        digits[0] = HEX[usize::from(byte >> 4)];
        digits[1] = HEX[usize::from(byte & 15)];
    }
    set(fields, Name::XRequestId, left, &id);
}

#[cfg(test)]
mod tests;
