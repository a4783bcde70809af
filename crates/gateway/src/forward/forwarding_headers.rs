//! Fields that the gateway adds: about itself, about the client, and the request's id.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::Range;

use blitz_http::{BodyLength, Fields, Name, Peer, RequestHead, Scheme, Version, is_request_id};

use super::cdn_loop::LoopId;
use super::presence::PresenceSet;
use crate::trusted::TrustedProxies;

/// The client, as forwarding fields describe it to the upstream.
pub(crate) struct ForwardedClient<'a> {
    /// The connection that the request came in on.
    pub(crate) peer: &'a Peer,
    /// Whether the client is a proxy whose forwarding fields are trusted.
    pub(crate) is_trusted: bool,
    /// All trusted proxies.
    pub(crate) trusted_proxies: &'a TrustedProxies,
    /// The protocol that the client may switch to.
    pub(crate) upgrade: Option<&'a str>,
    /// Length of the request's content.
    pub(crate) length: BodyLength,
    /// Host and port to send if the client named none.
    pub(crate) default_authority: &'a str,
    /// The name of this gateway in `CDN-Loop`.
    pub(crate) loop_id: &'a LoopId,
    /// Whether the upstream gets `Via`.
    pub(crate) sends_via: bool,
    /// Whether the client's certificate is sent to the upstream.
    pub(crate) sends_certificate: bool,
    /// Unpredictable numbers, for the request's id.
    pub(crate) random: fn() -> u64,
}

/// Value of `Via`. The version is that of the message as it was received (RFC 9110, section 7.6.3).
pub(super) fn via(received: Version) -> &'static str {
    match received {
        Version::Http10 => "1.0 blitz",
        Version::Http11 => "1.1 blitz",
        Version::Http2 => "2 blitz",
        Version::Http3 => "3 blitz",
    }
}

/// Adds `Forwarded` and `X-Forwarded-*` about the client of this connection.
pub(super) fn add_forwarding(head: &mut RequestHead, peer: &Peer, scratch: &mut Vec<u8>) {
    let remote = peer.remote.map(|remote| remote.ip());
    let authority = head.authority().unwrap_or_default();
    // `Forwarded` contains the text of all the others, so each is written once.
    scratch.clear();
    let ip = push_forwarded_for(scratch, remote);
    let host = push_host(scratch, authority);
    push_proto(scratch, peer.scheme);
    if remote.is_some() {
        head.fields.append(Name::XForwardedFor, &scratch[ip]);
    }
    let scheme = peer.scheme.as_str();
    head.fields.append(Name::XForwardedProto, scheme);
    let host = &scratch[host];
    let port = port_text(host, peer.scheme);
    head.fields.append(Name::XForwardedPort, port);
    if !host.is_empty() {
        head.fields.append(Name::XForwardedHost, host);
    }
    head.fields.append(Name::Forwarded, &*scratch);
}

#[inline]
fn set(fields: &mut Fields, name: Name, left: PresenceSet, value: &[u8]) {
    if left.has(name) {
        fields.set(name, value);
    } else {
        fields.append(name, value);
    }
}

/// Writes a node identifier of RFC 7239 section 6: IPv6 quoted and in brackets. Gives the range of
/// the address in it.
pub(super) fn push_forwarded_for(out: &mut Vec<u8>, remote: Option<IpAddr>) -> Range<usize> {
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

/// Writes the parameter `host` of `Forwarded`, if the client named a host. Gives its range.
#[inline]
pub(super) fn push_host(out: &mut Vec<u8>, authority: &str) -> Range<usize> {
    if authority.is_empty() {
        return out.len()..out.len();
    }
    out.extend_from_slice(b";host=\"");
    let start = out.len();
    out.extend_from_slice(authority.as_bytes());
    let end = out.len();
    out.push(b'"');
    start..end
}

/// Writes the parameter `proto` of `Forwarded`.
pub(super) fn push_proto(out: &mut Vec<u8>, scheme: Scheme) {
    out.extend_from_slice(b";proto=");
    out.extend_from_slice(scheme.as_str().as_bytes());
}

pub(super) fn push_ip(out: &mut Vec<u8>, ip: IpAddr) {
    match ip {
        IpAddr::V4(v4) => push_v4(out, v4),
        IpAddr::V6(v6) => {
            // Writing to memory cannot fail.
            let _ = write!(out, "{v6}");
        }
    }
}

/// Without the formatter, which costs more than all other fields together.
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

/// Every octet in hexadecimal.
static HEX: [[u8; 2]; 256] = {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut octets = [[0; 2]; 256];
    let mut octet = 0;
    while octet < octets.len() {
        octets[octet] = [DIGITS[octet >> 4], DIGITS[octet & 15]];
        octet += 1;
    }
    octets
};

const fn octet_digits(octet: u8) -> usize {
    1 + (octet >= 10) as usize + (octet >= 100) as usize
}

/// The port that a valid authority names. A listener's port would be wrong behind a port mapping.
#[inline]
pub(super) fn port_of(authority: &[u8]) -> Option<&[u8]> {
    let digits = authority.iter().rev();
    let digits = digits.take_while(|byte| byte.is_ascii_digit()).count();
    let (host, port) = authority.split_at(authority.len() - digits);
    (digits > 0 && host.ends_with(b":")).then_some(port)
}

/// The same as a number: `00080` is 80, and 0 is none.
#[inline]
pub(super) fn port_number(authority: &str) -> Option<u16> {
    let digits = port_of(authority.as_bytes())?;
    let port = std::str::from_utf8(digits).ok()?.parse().ok();
    port.filter(|&port| port > 0)
}

/// The port that a valid authority names, or the default port: `00080` is 80, and 0 is none.
fn port_text(authority: &[u8], scheme: Scheme) -> &[u8] {
    let named = port_of(authority).unwrap_or_default();
    let zeros = named.iter().take_while(|&&digit| digit == b'0').count();
    match &named[zeros..] {
        [] => scheme.default_port_text().as_bytes(),
        port => port,
    }
}

/// Adds the client's certificate, if it has one that is valid (RFC 9440).
pub(super) fn add_client_certificate(fields: &mut Fields, peer: &Peer) {
    let Some(client) = peer.client_certificate() else {
        return;
    };
    fields.append(Name::ClientCert, client.field_value());
    if let Some(chain) = client.chain_field_value() {
        fields.append(Name::ClientCertChain, chain);
    }
}

/// Keeps the client's id if it is safe, or makes one of 128 random bits. Any client may choose the id:
/// it relates log lines and grants nothing.
pub(super) fn add_request_id(fields: &mut Fields, random: fn() -> u64, left: PresenceSet) {
    if left.has(Name::XRequestId) {
        let mut given = fields.get_all(Name::XRequestId);
        // Of two ids, others may log either.
        if given.next().is_some_and(is_request_id) && given.next().is_none() {
            return;
        }
    }
    let bits = u128::from(random()) << 64 | u128::from(random());
    let mut id = [0; 32];
    for (digits, byte) in id.chunks_exact_mut(2).zip(bits.to_be_bytes()) {
        digits.copy_from_slice(&HEX[usize::from(byte)]);
    }
    set(fields, Name::XRequestId, left, &id);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_written_as_by_the_formatter() {
        for octet in 0..=255_u8 {
            let address = Ipv4Addr::new(octet, 255 - octet, octet / 3, 7);
            let mut text = Vec::new();
            push_ip(&mut text, address.into());
            assert_eq!(text, address.to_string().as_bytes());
        }
    }

    #[test]
    fn ports_are_those_of_authorities() {
        for (authority, port) in [
            ("a", None),
            ("a:80", Some("80")),
            ("a:65535", Some("65535")),
            ("a:", None),
            ("a1", None),
            ("127.0.0.1", None),
            ("127.0.0.1:1", Some("1")),
            ("[::1]", None),
            ("[::1]:443", Some("443")),
            ("[::1]:", None),
            ("", None),
            ("1", None),
        ] {
            assert_eq!(
                port_of(authority.as_bytes()),
                port.map(str::as_bytes),
                "{authority}"
            );
        }
    }
}
