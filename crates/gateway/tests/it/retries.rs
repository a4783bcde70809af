//! One retry, and only if it is safe (rule 13).

use std::net::Ipv6Addr;

use blitz_testing::refusing_address;

use crate::support::{Proxy, Upstream, ok};

/// An upstream whose first connections close after the request.
fn closing(first: usize) -> Upstream {
    Upstream::scripted(move |number, peer| {
        if number < first {
            peer.request();
            return;
        }
        while let Some((head, body)) = peer.request() {
            peer.send(ok(&format!(
                "{} {}",
                head.line,
                String::from_utf8_lossy(&body)
            )));
        }
    })
}

scenarios! {
    fn an_idempotent_request_is_retried(io) {
        let upstream = closing(1);
        let proxy = Proxy::to(io, &[&upstream.url()]);
        assert_eq!(proxy.client().get("/x").text(), "GET /x HTTP/1.1 ");
        assert_eq!((upstream.accepted(), proxy.counters().retries), (2, 1));
    }

    fn a_retry_skips_an_address_that_refuses_connections(io) {
        let upstream = closing(1);
        // There is no listener on ::1, which the retry uses first.
        let proxy = Proxy::to(io, &[&format!("http://localhost:{}", upstream.port())]);
        assert_eq!(proxy.client().get("/x").text(), "GET /x HTTP/1.1 ");
        assert_eq!((upstream.accepted(), proxy.counters().retries), (2, 1));
    }

    fn a_request_is_retried_only_once(io) {
        let upstream = closing(2);
        let proxy = Proxy::to(io, &[&upstream.url()]);
        let answer = proxy.client().get("/x");
        assert_eq!(answer.status, 502);
        assert_eq!(answer.field("proxy-status"), Some("blitz; error=connection_terminated"));
        assert_eq!((upstream.accepted(), proxy.counters().retries), (2, 1));
    }

    fn content_is_sent_again_with_the_retry(io) {
        let upstream = closing(1);
        let proxy = Proxy::to(io, &[&upstream.url()]);
        let mut client = proxy.client();
        client.send("PUT /x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
        assert_eq!(client.response().text(), "PUT /x HTTP/1.1 hello");
        client.send("PUT /y HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
        client.send("3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n");
        assert_eq!(client.response().text(), "PUT /y HTTP/1.1 abcde");
    }

    fn chunked_content_is_sent_again_with_the_retry(io) {
        let upstream = closing(1);
        let proxy = Proxy::to(io, &[&upstream.url()]);
        let mut client = proxy.client();
        client.send("PUT /y HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
        client.send("3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n");
        assert_eq!(client.response().text(), "PUT /y HTTP/1.1 abcde");
        assert_eq!(upstream.accepted(), 2);
    }

    fn content_beyond_the_replay_buffer_is_not_retried(io) {
        let upstream = closing(1);
        let proxy = Proxy::to(io, &[&upstream.url()]);
        let mut client = proxy.client();
        let body = vec![b'x'; 64 * 1024 + 1];
        client.send(format!("PUT /x HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", body.len()));
        client.send(body);
        assert_eq!(client.response().status, 502);
        assert_eq!((upstream.accepted(), proxy.counters().retries), (1, 0));
    }

    fn a_request_that_is_not_idempotent_is_not_retried(io) {
        let upstream = closing(1);
        let proxy = Proxy::to(io, &[&upstream.url()]);
        let mut client = proxy.client();
        client.send("POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi");
        let answer = client.response();
        assert_eq!(answer.status, 502);
        assert_eq!((upstream.accepted(), proxy.counters().retries), (1, 0));
        assert_eq!(client.get("/after").status, 200, "the client's connection goes on");
    }

    fn a_request_whose_response_has_begun_is_not_retried(io) {
        for (began, error) in [
            ("H", "http_response_incomplete"),
            ("HTTP/1.1 200 OK\r\nContent-", "http_response_incomplete"),
            ("HTTP/1.1 103 Early Hints\r\n\r\n", "connection_terminated"),
        ] {
            let upstream = Upstream::scripted(move |_, peer| {
                peer.request();
                peer.send(began);
            });
            let proxy = Proxy::to(io, &[&upstream.url()]);
            let mut peer = proxy.peer();
            peer.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
            let mut head = peer.head().unwrap();
            if head.line.contains("103") {
                head = peer.head().unwrap();
            }
            assert!(head.line.starts_with("HTTP/1.1 502 "), "{began:?}: {head:?}");
            let status = format!("blitz; error={error}");
            assert_eq!(head.field("proxy-status"), Some(status.as_str()));
            assert_eq!((upstream.accepted(), proxy.counters().retries), (1, 0));
        }
    }

    fn a_request_on_a_pooled_connection_that_closes_is_retried(io) {
        for (method, status) in [("GET", 200), ("PUT", 200), ("POST", 502), ("PATCH", 502)] {
            // The first connection responds once, and closes after the next request.
            let upstream = Upstream::scripted(|number, peer| {
                let mut left = if number == 0 { 1 } else { usize::MAX };
                while peer.request().is_some() && left > 0 {
                    peer.send(ok("fresh"));
                    left -= 1;
                }
            });
            let proxy = Proxy::to(io, &[&upstream.url()]);
            let mut client = proxy.client();
            assert_eq!(client.get("/").text(), "fresh");
            client.send(format!("{method} / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi"));
            let answer = client.response();
            assert_eq!(answer.status, status, "{method}");
            let heads = upstream.heads().len();
            if status == 200 {
                assert_eq!((heads, upstream.accepted(), proxy.counters().retries), (3, 2, 1));
            } else {
                let terminated = Some("blitz; error=connection_terminated");
                assert_eq!(answer.field("proxy-status"), terminated);
                assert_eq!((heads, upstream.accepted(), proxy.counters().retries), (2, 1, 0));
            }
            assert_eq!(client.get("/").text(), "fresh", "the client's connection goes on");
        }
    }

    fn any_method_uses_the_next_address_if_one_refuses_connections(io) {
        // Only the second of localhost's two addresses has a listener.
        let port = refusing_address().port();
        let Ok(listener) = std::net::TcpListener::bind((Ipv6Addr::LOCALHOST, port)) else {
            return eprintln!("skipped: this machine has no IPv6 loopback");
        };
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                use std::io::{Read, Write};
                let mut stream = stream;
                let _ = stream.read(&mut [0; 4096]);
                let _ = stream.write_all(ok("six").as_bytes());
            }
        });
        let proxy = Proxy::to(io, &[&format!("http://localhost:{port}")]);
        let mut client = proxy.client();
        client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi");
        assert_eq!(client.response().text(), "six");
        let counters = proxy.counters();
        assert_eq!((counters.connect_failures, counters.retries), (1, 0));
    }
}
