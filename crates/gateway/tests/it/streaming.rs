//! Content of every framing is forwarded as it arrives, in both directions.

use std::sync::mpsc;
use std::time::Duration;

use crate::support::{Proxy, Upstream, ok};

scenarios! {
    fn interim_responses_are_forwarded(io) {
        let upstream = Upstream::scripted(|_, peer| {
            peer.request();
            peer.send("HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n");
            peer.send("HTTP/1.1 102 Processing\r\n\r\n");
            peer.send(ok("final"));
        });
        let proxy = Proxy::to(io, &[&upstream.url()]);
        let mut client = proxy.client();
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        let hints = client.response();
        assert_eq!((hints.status, hints.field("link")), (103, Some("</a.css>; rel=preload")));
        assert_eq!(client.response().status, 102);
        assert_eq!(client.response().text(), "final");
    }

    fn clients_of_http_1_0_get_no_interim_response_and_no_chunks(io) {
        let upstream = Upstream::scripted(|_, peer| {
            peer.request();
            peer.send("HTTP/1.1 103 Early Hints\r\n\r\n");
            peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n");
        });
        let proxy = Proxy::to(io, &[&upstream.url()]);
        let mut peer = proxy.peer();
        peer.send("GET / HTTP/1.0\r\n\r\n");
        let head = peer.head().unwrap();
        assert_eq!((head.line.as_str(), head.field("transfer-encoding")), ("HTTP/1.1 200 OK", None));
        assert_eq!(peer.rest(), (b"ok".to_vec(), true));
        assert_eq!(upstream.head().field("host"), Some(&*format!("127.0.0.1:{}", upstream.port())));
    }

    fn a_response_that_ends_with_its_connection_is_framed_anew(io) {
        let upstream = Upstream::scripted(|_, peer| {
            peer.request();
            peer.send("HTTP/1.0 200 OK\r\n\r\nuntil the end");
        });
        let proxy = Proxy::to(io, &[&upstream.url()]);
        let mut client = proxy.client();
        for _ in 0..2 {
            let answer = client.get("/");
            assert_eq!(answer.field("transfer-encoding"), Some("chunked"));
            assert_eq!(answer.text(), "until the end");
        }
    }

    fn trailers_are_forwarded_in_both_directions(io) {
        let upstream = Upstream::scripted(|_, peer| {
            peer.head();
            let mut lines = Vec::new();
            while lines.last().is_none_or(|line: &String| !line.is_empty()) {
                lines.push(peer.line().unwrap());
            }
            assert_eq!(lines, ["2", "hi", "0", "X-Sum: 1", ""]);
            peer.send(
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n\
                 2\r\nok\r\n0\r\nX-Sum: 2\r\n\r\n",
            );
        });
        let proxy = Proxy::with_request_trailers(io, &upstream.url());
        let mut peer = proxy.peer();
        peer.send("POST / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nTransfer-Encoding: chunked\r\n\r\n");
        peer.send("2\r\nhi\r\n0\r\nX-Sum: 1\r\nContent-Length: 5\r\nX-Forwarded-For: 6.6.6.6\r\n\r\n");
        let head = peer.head().unwrap();
        assert_eq!(head.field("trailer"), Some("X-Sum"));
        let lines: Vec<_> = (0..5).map(|_| peer.line().unwrap()).collect();
        assert_eq!(lines, ["2", "ok", "0", "X-Sum: 2", ""]);
        assert_eq!(upstream.head().field("te"), Some("trailers"));
    }

    fn request_and_response_flow_at_the_same_time(io) {
        let upstream = Upstream::scripted(|_, peer| {
            peer.head();
            peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
            loop {
                let size = usize::from_str_radix(&peer.line().unwrap(), 16).unwrap();
                let chunk = peer.exactly(size + 2).unwrap();
                peer.send(format!("{size:x}\r\n"));
                peer.send(chunk);
                if size == 0 {
                    return;
                }
            }
        });
        let proxy = Proxy::to(io, &[&upstream.url()]);
        let mut peer = proxy.peer();
        peer.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
        assert_eq!(peer.head().unwrap().field("transfer-encoding"), Some("chunked"));
        for word in ["one", "two", "three"] {
            peer.send(format!("{:x}\r\n{word}\r\n", word.len()));
            assert_eq!(peer.line().unwrap(), format!("{:x}", word.len()));
            assert_eq!(peer.exactly(word.len() + 2).unwrap(), format!("{word}\r\n").as_bytes());
        }
        peer.send("0\r\n\r\n");
        assert_eq!(peer.line().as_deref(), Some("0"));
    }

    fn a_large_upload_arrives_unchanged(io) {
        const LENGTH: usize = 32 << 20;
        let upstream = Upstream::scripted(|_, peer| {
            let (_, body) = peer.request().unwrap();
            let sum = body.iter().fold(0_u64, |sum, &byte| sum.wrapping_mul(31) + u64::from(byte));
            peer.send(ok(&sum.to_string()));
        });
        let proxy = Proxy::to(io, &[&upstream.url()]);
        let body: Vec<u8> = (0..LENGTH).map(|at| (at * 7 / 3) as u8).collect();
        let sum = body.iter().fold(0_u64, |sum, &byte| sum.wrapping_mul(31) + u64::from(byte));
        let mut client = proxy.client();
        client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {LENGTH}\r\n\r\n"));
        client.send(&body);
        assert_eq!(client.response().text(), sum.to_string());
    }

    fn a_large_download_arrives_unchanged(io) {
        const LENGTH: usize = 32 << 20;
        let body: Vec<u8> = (0..LENGTH).map(|at| (at * 7 / 3) as u8).collect();
        let sent = body.clone();
        let upstream = Upstream::scripted(move |_, peer| {
            while peer.request().is_some() {
                peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
                for chunk in sent.chunks(100_001) {
                    peer.send(format!("{:x}\r\n", chunk.len()));
                    peer.send(chunk);
                    peer.send("\r\n");
                }
                peer.send("0\r\n\r\n");
            }
        });
        let proxy = Proxy::to(io, &[&upstream.url()]);
        let mut client = proxy.client();
        assert!(client.get("/").body == body, "the body is the same");
        assert!(client.get("/").body == body, "and again");
    }

    fn a_slow_reader_slows_its_upstream(io) {
        let (sender, progress) = mpsc::channel();
        let upstream = Upstream::scripted(move |_, peer| {
            peer.request();
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n");
            while peer.send([b'x'; 65536]) {
                let _ = sender.send(65536);
            }
        });
        let proxy = Proxy::to(io, &[&upstream.url()]);
        let mut peer = proxy.peer();
        peer.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        peer.head();
        let mut sent = 0;
        while let Ok(bytes) = progress.recv_timeout(Duration::from_millis(500)) {
            sent += bytes;
        }
        // The gateway buffers 64 KiB, and the kernel some more on both connections.
        assert!(sent < 64 << 20, "{sent} bytes were taken from the upstream for a client that reads none");
    }
}
