//! Phase `enter`: requests that came by the wrong door are sent to the right one, whoever would
//! take them otherwise.

use blitz_http::{Exchange, Method, Name, Peer, RequestHead, Status};

use crate::trusted::TrustedProxies;

/// What proves to an authority that a name is ours is asked for in clear text (RFC 8555, section
/// 8.3).
const ACME_CHALLENGES: &str = "/.well-known/acme-challenge/";

/// The port that `https://host` means.
const HTTPS_PORT: u16 = 443;

/// Why a request goes no further than the door.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Turned {
    /// It came in clear text and is to come again, encrypted, at this address.
    Encrypted(String),
    /// It came in clear text and does not say which host it is for.
    Nowhere,
    /// It is for a host that the certificate of its connection does not cover.
    Misdirected,
}

impl Turned {
    pub(crate) fn status(&self) -> Status {
        match self {
            Turned::Encrypted(_) => Status::PERMANENT_REDIRECT,
            Turned::Nowhere => Status::BAD_REQUEST,
            Turned::Misdirected => Status::MISDIRECTED_REQUEST,
        }
    }

    pub(crate) fn detail(&self) -> &'static str {
        match self {
            Turned::Encrypted(_) => "this is served over HTTPS only",
            Turned::Nowhere => "the request names no host, and this is served over HTTPS only",
            Turned::Misdirected => "the certificate of this connection is not for that host",
        }
    }
}

/// Looks at the door. `https_port` is where clients in clear text are sent, if they are; those of a
/// `trusted` proxy that says that they spoke HTTPS have come from there.
#[inline]
pub(crate) fn turn(
    https_port: Option<u16>,
    trusted: &TrustedProxies,
    exchange: &Exchange,
) -> Option<Turned> {
    match (&exchange.peer.tls, https_port) {
        (Some(_), _) => misdirected(&exchange.request, &exchange.peer),
        (None, Some(port)) if !came_encrypted(trusted, exchange) => {
            encrypted(&exchange.request, port)
        }
        (None, _) => None,
    }
}

fn came_encrypted(trusted: &TrustedProxies, exchange: &Exchange) -> bool {
    let scheme = exchange.request.fields.get(Name::XForwardedProto);
    scheme.is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"https"))
        && trusted.contains(&exchange.peer)
}

/// RFC 9110, section 15.5.20: the certificate in use decides, also without SNI (rule 23).
fn misdirected(head: &RequestHead, peer: &Peer) -> Option<Turned> {
    // Without a host, which HTTP/1.0 allows, the target's own is asked for.
    let host = host_of(head.authority()?);
    let covered = host.is_empty() || peer.tls.as_ref().is_none_or(|tls| tls.covers(bare(host)));
    (!covered).then_some(Turned::Misdirected)
}

/// The host is the one that the client asked for; nothing else knows what it calls us.
fn encrypted(head: &RequestHead, port: u16) -> Option<Turned> {
    let is_tunnel = head.method == Method::Connect && head.protocol().is_none();
    if is_tunnel || head.path().starts_with(ACME_CHALLENGES) {
        return None;
    }
    let host = host_of(head.authority().unwrap_or_default());
    if host.is_empty() {
        return Some(Turned::Nowhere);
    }
    let port = match port {
        HTTPS_PORT => String::new(),
        port => format!(":{port}"),
    };
    // `OPTIONS *` is about the server, not about a path.
    let path = match head.path_and_query() {
        "*" => "/",
        path => path,
    };
    Some(Turned::Encrypted(format!("https://{host}{port}{path}")))
}

/// The authority without its port; an address of IPv6 keeps its brackets.
fn host_of(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    }
}

/// An address of IPv6 without its brackets.
fn bare(host: &str) -> &str {
    let inner = host.strip_prefix('[');
    inner
        .and_then(|inner| inner.strip_suffix(']'))
        .unwrap_or(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent_to(authority: &str, target: &str, port: u16) -> Option<Turned> {
        let mut head = RequestHead::new(Method::Get, target);
        if !authority.is_empty() {
            head.set_authority(authority);
        }
        encrypted(&head, port)
    }

    #[test]
    fn the_way_to_https_keeps_host_path_and_query() {
        for (authority, target, port, location) in [
            ("a.example", "/x?y=1", 443, "https://a.example/x?y=1"),
            ("a.example:8080", "/", 8443, "https://a.example:8443/"),
            ("[::1]:80", "/x", 443, "https://[::1]/x"),
            ("[::1]", "/x", 8443, "https://[::1]:8443/x"),
            (
                "a.example",
                "//b.example/",
                443,
                "https://a.example//b.example/",
            ),
        ] {
            let turned = sent_to(authority, target, port);
            assert_eq!(turned, Some(Turned::Encrypted(location.into())));
        }
    }

    #[test]
    fn who_names_no_host_cannot_be_sent_anywhere() {
        assert_eq!(sent_to("", "/x", 443), Some(Turned::Nowhere));
    }

    #[test]
    fn proofs_for_authorities_stay_in_clear_text() {
        let below = |path: &str| format!("/.well-known/acme-challenge/{path}");
        assert_eq!(sent_to("a.example", &below("token"), 443), None);
        assert!(sent_to("a.example", &below("../../secret"), 443).is_some());
    }

    #[test]
    fn hosts_are_compared_without_ports_and_brackets() {
        for (authority, host) in [
            ("a.example", "a.example"),
            ("a.example:443", "a.example"),
            ("[::1]:443", "::1"),
            ("[::1]", "::1"),
            ("a.example:", "a.example"),
        ] {
            assert_eq!(bare(host_of(authority)), host);
        }
    }
}
