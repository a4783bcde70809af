//! Upstream connections are reused only if no byte of one exchange can reach the next (rule 11).

use std::time::Duration;

use crate::support::{Proxy, Upstream, eventually, ok};

/// Two clients send a request one after the other. The first gets these bytes, the second must get
/// the response to its own request.
fn second_client_is_safe(io: blitz_http::IoChoice, first: &'static str) -> Upstream {
    let upstream = Upstream::scripted(move |number, peer| {
        let mut is_first = number == 0;
        while let Some((head, _)) = peer.request() {
            let own = ok(&head.line);
            let sent = peer.send(if is_first { first } else { own.as_str() });
            if !sent || (is_first && first.contains("Connection: close")) {
                return;
            }
            is_first = false;
        }
    });
    let proxy = Proxy::to(io, &[&upstream.url()]);
    let mut one = proxy.peer();
    one.send("GET /one HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    one.rest();
    for _ in 0..3 {
        assert_eq!(
            proxy.client().get("/two").text(),
            "GET /two HTTP/1.1",
            "after {first:?}"
        );
    }
    upstream
}

scenarios! {
    fn a_clean_connection_is_reused_for_all_clients(io) {
        let upstream = second_client_is_safe(io, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        assert_eq!(upstream.accepted(), 1);
    }

    fn chunked_responses_leave_a_clean_connection(io) {
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n";
        assert_eq!(second_client_is_safe(io, chunked).accepted(), 1);
    }

    fn surplus_bytes_close_the_connection(io) {
        for poison in [
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison",
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok\r\n",
            "HTTP/1.1 204 No Content\r\n\r\npoison",
            "HTTP/1.1 304 Not Modified\r\nContent-Length: 6\r\n\r\npoison",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\npoison",
        ] {
            assert!(second_client_is_safe(io, poison).accepted() >= 2, "{poison:?}");
        }
    }

    fn responses_without_content_that_declare_some_close_the_connection(io) {
        for declared in ["Content-Length: 6", "Transfer-Encoding: chunked"] {
            let response = format!("HTTP/1.1 304 Not Modified\r\n{declared}\r\n\r\n");
            assert!(second_client_is_safe(io, response.leak()).accepted() >= 2, "{declared}");
        }
    }

    fn late_surplus_bytes_remove_the_connection_from_the_pool(io) {
        let upstream = Upstream::scripted(|number, peer| {
            while let Some((head, _)) = peer.request() {
                peer.send(ok(&head.line));
                if number == 0 {
                    std::thread::sleep(Duration::from_millis(50));
                    peer.send("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison");
                }
            }
        });
        let proxy = Proxy::to(io, &[&upstream.url()]);
        assert_eq!(proxy.client().get("/one").text(), "GET /one HTTP/1.1");
        eventually("the poisoned connection leaves the pool", || {
            proxy.http_counters().upstream_idle_lost == 1
        });
        assert_eq!(proxy.client().get("/two").text(), "GET /two HTTP/1.1");
        assert_eq!(upstream.accepted(), 2);
    }

    fn a_connection_that_the_upstream_closes_is_not_reused(io) {
        for last in [
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok",
            "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
        ] {
            assert!(second_client_is_safe(io, last).accepted() >= 2, "{last:?}");
        }
    }

    fn an_idle_connection_that_gets_fin_leaves_the_pool(io) {
        let upstream = Upstream::scripted(|_, peer| {
            if peer.request().is_some() {
                peer.send(ok("once"));
            }
        });
        let proxy = Proxy::to(io, &[&upstream.url()]);
        for round in 1..=3 {
            let mut client = proxy.client();
            client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi");
            assert_eq!(client.response().text(), "once");
            eventually("the closed connection leaves the pool", || {
                proxy.http_counters().upstream_idle == 0
            });
            assert_eq!(upstream.accepted(), round);
        }
    }

    fn request_trailers_are_dropped_towards_http1(io) {
        let upstream = reads_up_to_the_last_chunk();
        let proxy = Proxy::to(io, &[&upstream.url()]);
        let mut attacker = proxy.peer();
        for _ in 0..2 {
            attacker.send(WITH_TRAILERS);
            assert_eq!(attacker.request().unwrap().1, b"POST /upload HTTP/1.1");
        }
        assert_eq!(proxy.client().get("/victim").text(), "GET /victim HTTP/1.1");
        // Nothing that could be taken for a request was sent, so the connection is used again.
        assert_eq!(upstream.accepted(), 1);
        assert!(upstream.heads().iter().all(|head| head.field("trailer").is_none()));
    }

    fn a_connection_that_carried_request_trailers_is_not_used_again(io) {
        let upstream = reads_up_to_the_last_chunk();
        let proxy = Proxy::with_request_trailers(io, &upstream.url());
        let mut attacker = proxy.peer();
        for round in 1..=3 {
            attacker.send(WITH_TRAILERS);
            assert_eq!(attacker.request().unwrap().1, b"POST /upload HTTP/1.1");
            // Content without trailers may follow on a connection that is kept.
            for _ in 0..2 {
                let mut victim = proxy.peer();
                victim.send("POST /victim HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
                assert_eq!(victim.request().unwrap().1, b"POST /victim HTTP/1.1");
            }
            eventually("only the victims' connection is kept", || {
                proxy.http_counters().upstream_idle == 1
            });
            assert!(upstream.accepted() <= 2 * round, "{} connections", upstream.accepted());
        }
        assert_eq!(upstream.heads()[0].field("trailer"), Some("GET"));
    }

    fn an_early_response_closes_the_connection(io) {
        let upstream = Upstream::scripted(|number, peer| {
            if number > 0 {
                while let Some((head, _)) = peer.request() {
                    peer.send(ok(&head.line));
                }
                return;
            }
            // Responds before the content, and would treat the content as requests.
            peer.head();
            peer.send("HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\n\r\n");
            while peer.head().is_some() {
                peer.send(ok("poison"));
            }
        });
        let proxy = Proxy::to(io, &[&upstream.url()]);
        let mut client = proxy.client();
        client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n");
        assert_eq!(client.response().status, 413);
        client.send("GET /evil HTTP/1.1\r\nHost: a\r\n\r\n");
        for _ in 0..3 {
            assert_eq!(proxy.client().get("/two").text(), "GET /two HTTP/1.1");
        }
        assert_eq!(upstream.accepted(), 2);
    }

    fn a_truncated_response_never_looks_complete(io) {
        for (truncated, content) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", "half"),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
                "5\r\nhello\r\n",
            ),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel", "3\r\nhel\r\n"),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nTrailer: x\r\n", ""),
        ] {
            let upstream = Upstream::scripted(move |_, peer| {
                peer.request();
                peer.send(truncated);
            });
            let proxy = Proxy::to(io, &[&upstream.url()]);
            let mut peer = proxy.peer();
            peer.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
            // The received part of head and content is forwarded, and then a reset, not FIN.
            let (answer, clean) = peer.rest();
            let answer = String::from_utf8(answer).unwrap();
            let (head, body) = answer.split_once("\r\n\r\n").expect("the head came");
            assert!(head.starts_with("HTTP/1.1 200 "), "{head:?}");
            assert_eq!((body, clean), (content, false), "{truncated:?}");
            eventually("the cut is counted", || proxy.counters().cut_off == 1);
        }
    }

    fn head_responses_have_no_content_despite_their_length(io) {
        let upstream = Upstream::scripted(|_, peer| {
            while let Some((head, _)) = peer.request() {
                if head.line.starts_with("HEAD") {
                    peer.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n");
                } else {
                    peer.send(ok(&head.line));
                }
            }
        });
        let proxy = Proxy::to(io, &[&upstream.url()]);
        let mut peer = proxy.peer();
        peer.send("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(peer.head().unwrap().field("content-length"), Some("100"));
        peer.send("GET /next HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(peer.request().unwrap().1, b"GET /next HTTP/1.1");
        // Late content must not become the next response.
        assert_eq!(upstream.accepted(), 2);
    }

    fn no_byte_of_a_malformed_response_reaches_the_next_client(io) {
        for broken in [
            "HTTP/1.1 200 OK\r\nX-Leak: 1\r\n",
            "HTTP/1.1 200 OK\r\nX-Leak: 1\r\nBroken Name: 1\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX-Leak: 1\r\nX-",
            "HTTP/1.1 103 Early Hints\r\nX-Leak: 1\r\n\r\nHTTP/1.1 200 OK\r\nX-Leak: 2\r\n",
        ] {
            let upstream = Upstream::scripted(move |number, peer| {
                if number == 0 {
                    peer.request();
                    peer.send(broken);
                    return;
                }
                while peer.request().is_some() {
                    peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
                }
            });
            let proxy = Proxy::to(io, &[&upstream.url()]);
            let mut one = proxy.peer();
            one.send("POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
            one.rest();
            for _ in 0..3 {
                let mut two = proxy.peer();
                two.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
                let answer = String::from_utf8(two.rest().0).unwrap();
                assert!(answer.starts_with("HTTP/1.1 200 "), "{answer:?}");
                assert!(!answer.contains("X-Leak"), "{broken:?} shows in {answer:?}");
            }
        }
    }

    fn informational_and_empty_responses_have_no_length(io) {
        let upstream = Upstream::scripted(|_, peer| {
            while peer.request().is_some() {
                peer.send("HTTP/1.1 103 Early Hints\r\nContent-Length: 5\r\nConnection: X-Hop\r\nX-Hop: 1\r\n\r\n");
                peer.send("HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n");
            }
        });
        let proxy = Proxy::to(io, &[&upstream.url()]);
        let mut peer = proxy.peer();
        for _ in 0..2 {
            peer.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
            for status in ["103", "204"] {
                let head = peer.head().unwrap();
                assert!(head.line.contains(status), "{head:?}");
                assert_eq!((head.field("content-length"), head.field("x-hop")), (None, None));
            }
        }
    }
}

/// Its trailer is the line of another request.
const WITH_TRAILERS: &str = "POST /upload HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: GET\r\n\r\n\
     2\r\nhi\r\n0\r\nGET: /smug HTTP/1.1\r\n\r\n";

/// A server that does not read trailers, as CherryPy's: what follows the last chunk is its next request.
fn reads_up_to_the_last_chunk() -> Upstream {
    Upstream::scripted(|_, peer| {
        while let Some(head) = peer.head() {
            if head.field("transfer-encoding").is_some() {
                while peer.line().is_some_and(|size| size != "0") {
                    peer.line();
                }
            }
            peer.send(ok(&head.line));
            if head.field("transfer-encoding").is_some() {
                // Servers pass over an empty line before a request.
                let Some(smuggled) = peer.line().filter(|line| !line.is_empty()) else {
                    continue;
                };
                while peer.line().is_some_and(|field| !field.is_empty()) {}
                peer.send(ok(&smuggled));
            }
        }
    })
}
