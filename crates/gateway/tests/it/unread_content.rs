//! Content that an upstream leaves unread, and takes for the next request of its connection (rule 11).

use blitz_http::IoChoice;
use blitz_testing::{H1Peer, Head};

use crate::support::{Proxy, Upstream, ok};

/// Content that an attacker sends.
const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";

/// An upstream that answers each head with its path and reads no content, as handlers of Python's `http.server` do.
fn reading_heads_only() -> Upstream {
    Upstream::scripted(|_, peer| {
        while let Some(head) = peer.head() {
            let mut parts = head.line.split('/');
            peer.send(match (parts.nth(1), parts.next()) {
                (Some("status"), Some(status)) => {
                    let (status, _) = status.split_once(' ').unwrap();
                    format!("HTTP/1.1 {status} Other\r\nContent-Length: 0\r\n\r\n")
                }
                _ => ok(&head.line),
            });
            if head.field("connection") == Some("close") {
                return;
            }
        }
    })
}

fn framed(framing: &str, content: &str) -> String {
    match framing {
        "chunked" => format!(
            "Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{content}\r\n0\r\n\r\n",
            content.len()
        ),
        _ => format!("Content-Length: {}\r\n\r\n{content}", content.len()),
    }
}

/// Sends a request, and returns how many connections there are after another one.
fn connections_after(io: IoChoice, upstream: &Upstream, method: &str, rest: &str) -> usize {
    connections_after_path(io, upstream, (method, "/one"), rest)
}

fn connections_after_path(
    io: IoChoice,
    upstream: &Upstream,
    (method, path): (&str, &str),
    rest: &str,
) -> usize {
    let proxy = Proxy::to(io, &[&upstream.url()]);
    let before = upstream.accepted();
    let mut one = proxy.peer();
    one.send(format!(
        "{method} {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{rest}"
    ));
    one.rest();
    for number in 0..3 {
        let path = format!("/two/{number}");
        let expected = format!("GET {path} HTTP/1.1");
        assert_eq!(
            proxy.client().get(&path).text(),
            expected,
            "after {method} {rest:?}"
        );
    }
    upstream.accepted() - before
}

scenarios! {
    fn unread_content_is_no_request_of_another_client(io) {
        let upstream = reading_heads_only();
        for method in ["GET", "HEAD", "DELETE", "OPTIONS", "PURGE", "UNLOCK"] {
            for framing in ["length", "chunked"] {
                let rest = framed(framing, SMUGGLED);
                assert_eq!(connections_after(io, &upstream, method, &rest), 2, "{method}, {framing}");
            }
        }
        let smuggled = |head: &Head| head.line.contains("smuggled");
        assert!(!upstream.heads().iter().any(smuggled), "it is not even processed");
    }

    fn a_connection_is_not_used_again_after_content_that_was_refused_or_redirected(io) {
        // A handler that refuses a request, or asks for a login elsewhere, often does so before it reads the content.
        let upstream = reading_heads_only();
        for status in [301, 302, 303, 304, 307, 308, 401, 404, 500] {
            for framing in ["length", "chunked"] {
                let (rest, path) = (framed(framing, SMUGGLED), format!("/status/{status}"));
                let connections = connections_after_path(io, &upstream, ("POST", &path), &rest);
                assert_eq!(connections, 2, "{status} {framing}");
            }
        }
    }

    fn a_connection_is_reused_after_content_that_its_method_defines(io) {
        let reading = || Upstream::scripted(|_, peer: &mut H1Peer| {
            while let Some((head, _)) = peer.request() {
                let content = if head.line.starts_with("HEAD") { "" } else { &head.line };
                peer.send(ok(content));
            }
        });
        let upstream = reading();
        for method in ["POST", "PUT", "PATCH", "PROPFIND"] {
            assert_eq!(connections_after(io, &upstream, method, &framed("length", "x")), 1, "{method}");
        }
        for method in ["GET", "HEAD", "DELETE", "OPTIONS"] {
            let empty = connections_after(io, &upstream, method, "Content-Length: 0\r\n\r\n");
            assert_eq!((empty, connections_after(io, &upstream, method, "\r\n")), (1, 1), "{method}");
        }
    }
}
