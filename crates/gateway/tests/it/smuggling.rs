//! Requests that two servers could interpret differently never reach an upstream.

use crate::support::{Proxy, Upstream};

/// Ambiguous requests with the status of their refusal.
const AMBIGUOUS: &[(&str, u16)] = &[
    (
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        400,
    ),
    (
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nabcd",
        400,
    ),
    (
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nContent-Length: 4\r\n\r\nabcd",
        400,
    ),
    (
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4, 4\r\n\r\nabcd",
        400,
    ),
    (
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +4\r\n\r\nabcd",
        400,
    ),
    (
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length : 4\r\n\r\nabcd",
        400,
    ),
    (
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        400,
    ),
    (
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n0\r\n\r\n",
        400,
    ),
    (
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        501,
    ),
    (
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n",
        400,
    ),
    (
        "POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        400,
    ),
    ("GET / HTTP/1.1\nHost: a\n\n", 400),
    ("GET / HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n", 400),
    ("GET / HTTP/1.1\r\nHost: a\r\nX: a\r\n folded\r\n\r\n", 400),
    ("GET / HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n", 400),
    ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
    ("GET / HTTP/1.1\r\n\r\n", 400),
    ("GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400),
    ("GET /../x HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("GET /%00 HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("GET /%zz HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("GET / HTTP/1.1 \r\nHost: a\r\n\r\n", 400),
];

scenarios! {
    fn ambiguous_requests_are_refused_and_the_connection_closes(io) {
        let upstream = Upstream::with_text("reached");
        let proxy = Proxy::to(io, &[&upstream.url()]);
        for (request, status) in AMBIGUOUS {
            let mut peer = proxy.peer();
            peer.send(request);
            // The smuggled request, if the connection continued.
            peer.send("GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n");
            let answer = peer.head().unwrap_or_else(|| panic!("no answer to {request:?}"));
            assert!(answer.line.starts_with(&format!("HTTP/1.1 {status} ")), "{request:?}: {answer:?}");
            let (rest, _) = peer.rest();
            let rest = String::from_utf8_lossy(&rest);
            assert!(!rest.contains("HTTP/1.1"), "{request:?} was followed by {rest:?}");
        }
        assert_eq!(upstream.heads(), []);
    }

    fn a_malformed_chunk_ends_the_request_on_both_sides(io) {
        for chunk in ["5\nhello\r\n0\r\n\r\n", "-5\r\nhello", "5\r\nhelloX\r\n", "fffffffffffffffff\r\n"] {
            let upstream = Upstream::scripted(|_, peer| {
                if peer.request().is_some() {
                    peer.send("HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\ncomplete");
                }
            });
            let proxy = Proxy::to(io, &[&upstream.url()]);
            let mut peer = proxy.peer();
            peer.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
            peer.send(chunk);
            let answer = peer.head().expect("an answer");
            assert!(answer.line.starts_with("HTTP/1.1 400 "), "{chunk:?}: {answer:?}");
            assert!(!String::from_utf8_lossy(&peer.rest().0).contains("complete"));
        }
    }

    fn pipelined_requests_are_answered_in_order_one_at_a_time(io) {
        let upstream = Upstream::scripted(|_, peer| {
            while let Some((head, _)) = peer.request() {
                peer.send(crate::support::ok(&head.line));
            }
        });
        let proxy = Proxy::to(io, &[&upstream.url()]);
        let mut client = proxy.client();
        client.send("GET /1 HTTP/1.1\r\nHost: a\r\n\r\nPOST /2 HTTP/1.1\r\nHost: a\r\n".to_owned()
            + "Content-Length: 3\r\n\r\nabcGET /3 HTTP/1.1\r\nHost: a\r\n\r\n");
        for line in ["GET /1 HTTP/1.1", "POST /2 HTTP/1.1", "GET /3 HTTP/1.1"] {
            assert_eq!(client.response().text(), line);
        }
        assert_eq!(upstream.accepted(), 1);
    }

    fn content_of_a_get_is_not_a_request(io) {
        let upstream = Upstream::scripted(|_, peer| {
            while let Some((_, body)) = peer.request() {
                peer.send(crate::support::ok(&body.len().to_string()));
            }
        });
        let proxy = Proxy::to(io, &[&upstream.url()]);
        let smuggled = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";
        let length = smuggled.len();
        let mut client = proxy.client();
        for framed in [
            format!("Content-Length: {length}\r\n\r\n{smuggled}"),
            format!("Transfer-Encoding: chunked\r\n\r\n{length:x}\r\n{smuggled}\r\n0\r\n\r\n"),
        ] {
            client.send(format!("GET / HTTP/1.1\r\nHost: a\r\nConnection: Content-Length\r\n{framed}"));
            assert_eq!(client.response().text(), length.to_string());
        }
        // A connection that has carried such content carries nothing else (rule 11).
        assert_eq!((upstream.heads().len(), upstream.accepted()), (2, 2));
    }

    fn connect_and_trace_are_not_forwarded(io) {
        let upstream = Upstream::with_text("reached");
        let proxy = Proxy::to(io, &[&upstream.url()]);
        for (request, closes) in [
            ("CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n", true),
            ("TRACE / HTTP/1.1\r\nHost: a\r\nCookie: secret\r\n\r\n", false),
        ] {
            let mut peer = proxy.peer();
            peer.send(request);
            let head = peer.head().unwrap();
            assert!(head.line.contains(" 405 "), "{request:?}: {head:?}");
            assert!(head.field("allow").is_some(), "{head:?}");
            let length = head.field("content-length").unwrap().parse().unwrap();
            let content = String::from_utf8(peer.exactly(length).unwrap()).unwrap();
            assert!(!content.contains("secret"));
            // The bytes after a CONNECT belong to another protocol.
            peer.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
            assert_eq!(peer.head().is_none(), closes, "{request:?}");
        }
        assert!(upstream.heads().iter().all(|head| head.line.starts_with("GET")));
    }

    fn connection_fields_of_several_lines_are_one_list(io) {
        let upstream = Upstream::with_text("");
        let proxy = Proxy::to(io, &[&upstream.url()]);
        let mut client = proxy.client();
        client.send(
            "POST / HTTP/1.1\r\nHost: a\r\ncoNNection: x-ONE ,, host\r\nX-One: 1\r\n\
             Connection:\tX-Two\t\r\nCONNECTION: content-length, x-forwarded-for\r\nx-two: 2\r\n\
             Content-Length: 2\r\nX-Forwarded-For: 6.6.6.6\r\nX-Three: 3\r\n\r\nhi",
        );
        assert_eq!(client.response().status, 200);
        let head = upstream.head();
        assert_eq!((head.field("x-one"), head.field("x-two")), (None, None));
        assert_eq!((head.field("host"), head.field("content-length")), (Some("a"), Some("2")));
        assert_eq!((head.field("x-three"), head.field("x-forwarded-for")), (Some("3"), Some("127.0.0.1")));
        assert_eq!(head.field("connection"), None);
    }

    fn an_early_response_does_not_wait_for_content_and_closes_the_connection(io) {
        let (sender, followed) = std::sync::mpsc::channel();
        let upstream = Upstream::scripted(move |number, peer| {
            peer.head();
            peer.send("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno");
            if number == 0 {
                let _ = sender.send(peer.rest().0);
            }
        });
        let proxy = Proxy::to(io, &[&upstream.url()]);
        let mut peer = proxy.peer();
        peer.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n");
        assert!(peer.head().unwrap().line.contains(" 403 "));
        assert_eq!(peer.exactly(2).unwrap(), b"no");
        peer.send("0\r\n\r\nGET /next HTTP/1.1\r\nHost: a\r\n\r\n");
        let followed = followed.recv_timeout(blitz_testing::IO_TIMEOUT).unwrap();
        let body = b"5\r\nhello\r\n";
        assert!(body.starts_with(&followed), "{:?}", String::from_utf8_lossy(&followed));
    }
}
