//! Which requests the control interface answers. A page in a browser must not reach it: neither under another name (DNS
//! rebinding) nor from another origin (CSRF).

use std::net::{IpAddr, SocketAddr};

use blitz::{Method, Next, Outcome, Peer, Request, Response, Status};

/// How a request has come, which decides what it may ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// Over the unix socket of the user: everything.
    Socket,
    /// From this machine: all that reads.
    Loopback(SocketAddr),
    /// From others: health and metrics.
    Network(SocketAddr),
}

/// The paths for other machines.
const PUBLIC: [&str; 4] = ["/livez", "/readyz", "/healthz", "/metrics"];

impl Reach {
    pub(super) fn of(peer: &Peer) -> Reach {
        match peer.listener {
            None => Reach::Socket,
            Some(listener) if listener.ip().to_canonical().is_loopback() => {
                Reach::Loopback(listener)
            }
            Some(listener) => Reach::Network(listener),
        }
    }
}

/// The parts of a request that decide whether it is answered.
#[derive(Debug, Clone, Copy)]
struct Asked<'a> {
    is_read: bool,
    path: &'a str,
    authority: Option<&'a str>,
    origin: Option<&'a [u8]>,
    /// `Sec-Fetch-Site`, which browsers send.
    site: Option<&'a [u8]>,
    /// Whether one of the two fields is repeated, which browsers never do.
    is_repeated: bool,
}

/// Answers only requests that are allowed.
pub(super) fn check(request: Request, next: Next) -> Outcome {
    let fields = request.fields();
    let asked = Asked {
        is_read: matches!(request.method(), Method::Get | Method::Head),
        path: request.path(),
        authority: request.head().authority(),
        origin: fields.get("Origin"),
        site: fields.get("Sec-Fetch-Site"),
        is_repeated: ["Origin", "Sec-Fetch-Site"]
            .into_iter()
            .any(|name| fields.get_all(name).nth(1).is_some()),
    };
    match refusal(Reach::of(request.peer()), asked) {
        None => next.run(request),
        Some((status, text)) => Outcome::Ready(Response::text(text).with_status(status)),
    }
}

/// The reason why a request is not answered.
fn refusal(reach: Reach, asked: Asked<'_>) -> Option<(Status, String)> {
    let (listener, is_local) = match reach {
        Reach::Socket => return None,
        Reach::Loopback(listener) => (listener, true),
        Reach::Network(listener) => (listener, false),
    };
    let forbidden = |text: &str| Some((Status::FORBIDDEN, format!("{text}\n")));
    let is_foreign = |host: &str| !is_own(host, listener);
    if is_local && asked.authority.is_some_and(is_foreign) {
        return Some((
            Status::MISDIRECTED_REQUEST,
            format!(
                "the host is not that of this listener\n  ask http://{listener}/, or localhost with this port\n"
            ),
        ));
    }
    let is_other = |origin: &[u8]| {
        let own = asked.authority.map(|host| format!("http://{host}"));
        own.is_none_or(|own| !origin.eq_ignore_ascii_case(own.as_bytes()))
    };
    if asked.origin.is_some_and(is_other) {
        return forbidden("pages of other origins get no answers");
    }
    // Another port of this host is the same site. Addresses that are typed, and bookmarks, have `none`.
    let is_own_page = |site: &[u8]| site == b"same-origin" || site == b"none";
    if asked.site.is_some_and(|site| !is_own_page(site)) {
        return forbidden("pages of other origins get no answers");
    }
    if asked.is_repeated {
        return forbidden("Origin and Sec-Fetch-Site may come once each");
    }
    if !asked.is_read {
        return forbidden(
            "only the control socket takes requests that change something\n  \
             send it with curl --unix-socket PATH, where PATH is `control.socket`",
        );
    }
    if !is_local && !PUBLIC.contains(&asked.path) {
        return forbidden(
            "other machines get /livez, /readyz and /metrics only\n  \
             ask over the control socket, or have `control.listen` on 127.0.0.1",
        );
    }
    None
}

/// Whether a host is an address or `localhost`, with the port of the listener.
fn is_own(authority: &str, listener: SocketAddr) -> bool {
    let (host, port) = match authority.rsplit_once(':') {
        // The last colon may be one of an IPv6 address.
        Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()),
        _ => (authority, Some(80)),
    };
    let in_brackets = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    let is_address = in_brackets.unwrap_or(host).parse::<IpAddr>().is_ok();
    port == Some(listener.port()) && (is_address || host.eq_ignore_ascii_case("localhost"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GET: Asked<'_> = Asked {
        is_read: true,
        path: "/config",
        authority: Some("127.0.0.1:9180"),
        origin: None,
        site: None,
        is_repeated: false,
    };

    fn status(reach: Reach, asked: Asked<'_>) -> Option<u16> {
        refusal(reach, asked).map(|(status, _)| status.code())
    }

    fn address(text: &str) -> SocketAddr {
        text.parse().expect("it is an address")
    }

    #[test]
    fn loopback_reads_and_the_socket_does_everything() {
        let loopback = Reach::Loopback(address("127.0.0.1:9180"));
        let network = Reach::Network(address("10.0.0.1:9180"));
        let post = Asked {
            is_read: false,
            path: "/reload",
            ..GET
        };
        for (reach, get, posted) in [
            (Reach::Socket, None, None),
            (loopback, None, Some(403)),
            (network, Some(403), Some(403)),
        ] {
            assert_eq!(status(reach, GET), get, "{reach:?}");
            assert_eq!(status(reach, post), posted, "{reach:?}");
        }
        for path in PUBLIC {
            assert_eq!(status(network, Asked { path, ..GET }), None);
            // Names of other machines, as scrapers use them.
            let authority = Some("blitz.internal");
            let asked = Asked {
                path,
                authority,
                ..GET
            };
            assert_eq!(status(network, asked), None);
        }
    }

    #[test]
    fn other_names_than_those_of_the_listener_are_refused() {
        let loopback = Reach::Loopback(address("127.0.0.1:9180"));
        for (authority, expected) in [
            (None, None),
            (Some("127.0.0.1:9180"), None),
            (Some("localhost:9180"), None),
            (Some("LOCALHOST:9180"), None),
            (Some("[::1]:9180"), None),
            (Some("evil.example:9180"), Some(421)),
            (Some("localhost.evil.example:9180"), Some(421)),
            (Some("127.0.0.1"), Some(421)),
            (Some("[::1]"), Some(421)),
            (Some("127.0.0.1:9181"), Some(421)),
            (Some("127.0.0.1:"), Some(421)),
            (Some(""), Some(421)),
        ] {
            let asked = Asked { authority, ..GET };
            assert_eq!(status(loopback, asked), expected, "{authority:?}");
        }
        let at_80 = Reach::Loopback(address("[::1]:80"));
        let asked = Asked {
            authority: Some("[::1]"),
            ..GET
        };
        assert_eq!(status(at_80, asked), None);
    }

    #[test]
    fn pages_of_other_origins_are_refused() {
        let loopback = Reach::Loopback(address("127.0.0.1:9180"));
        for (origin, site, expected) in [
            (Some("http://127.0.0.1:9180"), Some("same-origin"), None),
            (None, Some("none"), None),
            (Some("http://127.0.0.1:3000"), None, Some(403)),
            (Some("https://127.0.0.1:9180"), None, Some(403)),
            (Some("null"), None, Some(403)),
            (None, Some("cross-site"), Some(403)),
            (None, Some("same-site"), Some(403)),
            (None, Some("same-origin, cross-site"), Some(403)),
        ] {
            let asked = Asked {
                origin: origin.map(str::as_bytes),
                site: site.map(str::as_bytes),
                ..GET
            };
            assert_eq!(status(loopback, asked), expected, "{origin:?} {site:?}");
        }
    }
}
