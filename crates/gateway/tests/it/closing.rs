//! FIN is a half-close, RST is a cancellation (rule 16).

use std::sync::mpsc;
use std::time::Duration;

use crate::support::{Proxy, Upstream, eventually, ok};

scenarios! {
    fn a_half_closed_client_gets_its_response(io) {
        let upstream = Upstream::scripted(|_, peer| {
            peer.request();
            std::thread::sleep(Duration::from_millis(50));
            peer.send(ok("late"));
        });
        let proxy = Proxy::to(io, &[&upstream.url()]);
        let mut client = proxy.client();
        client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi");
        client.finish();
        assert_eq!(client.response().text(), "late");
    }

    fn a_client_that_resets_cancels_its_request(io) {
        let (sender, cancelled) = mpsc::channel();
        let upstream = Upstream::scripted(move |_, peer| {
            peer.request();
            let _ = sender.send(peer.is_closed_by_peer());
        });
        let proxy = Proxy::to(io, &[&upstream.url()]);
        let mut peer = proxy.peer();
        peer.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        eventually("the upstream has the request", || upstream.heads().len() == 1);
        peer.reset();
        assert!(cancelled.recv_timeout(blitz_testing::IO_TIMEOUT).unwrap());

    }

    fn a_client_that_resets_within_a_response_cancels_it(io) {
        let (sender, cancelled) = mpsc::channel();
        let upstream = Upstream::scripted(move |_, peer| {
            peer.request();
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n");
            while peer.send([b'x'; 65536]) {}
            let _ = sender.send(());
        });
        let proxy = Proxy::to(io, &[&upstream.url()]);
        let mut peer = proxy.peer();
        peer.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        peer.head();
        peer.exactly(100_000).unwrap();
        peer.reset();
        cancelled.recv_timeout(blitz_testing::IO_TIMEOUT).unwrap();
    }

    fn a_truncated_request_body_never_looks_complete_to_the_upstream(io) {
        for (head, part) in [
            ("Content-Length: 10", "half"),
            ("Transfer-Encoding: chunked", "4\r\nhalf\r\n"),
        ] {
            let (sender, seen) = mpsc::channel();
            let upstream = Upstream::scripted(move |_, peer| {
                peer.head();
                let _ = sender.send(peer.rest().0);
            });
            let proxy = Proxy::to(io, &[&upstream.url()]);
            let mut peer = proxy.peer();
            peer.send(format!("POST / HTTP/1.1\r\nHost: a\r\n{head}\r\n\r\n{part}"));
            eventually("the upstream has the head", || upstream.heads().len() == 1);
            peer.finish();
            let seen = seen.recv_timeout(blitz_testing::IO_TIMEOUT).unwrap();
            let seen = String::from_utf8(seen).unwrap();
            assert!(!seen.contains("0\r\n\r\n") && seen.len() <= part.len(), "{seen:?}");
        }
    }

    fn a_reset_of_the_upstream_aborts_the_response(io) {
        for framing in ["Content-Length: 100", "Transfer-Encoding: chunked"] {
            let upstream = Upstream::scripted(move |_, peer| {
                peer.head();
                peer.send(format!("HTTP/1.1 200 OK\r\n{framing}\r\n\r\n4\r\nhalf\r\n"));
                std::thread::sleep(Duration::from_millis(50));
                // Unread input makes the close a reset.
            });
            let proxy = Proxy::to(io, &[&upstream.url()]);
            let mut peer = proxy.peer();
            peer.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi");
            assert!(peer.head().unwrap().line.starts_with("HTTP/1.1 200 "));
            let body = String::from_utf8(peer.rest().0).unwrap();
            assert!(body.len() < 100 && !body.ends_with("0\r\n\r\n"), "{body:?}");
        }
    }

    fn a_draining_gateway_completes_its_requests(io) {
        let (sender, may_answer) = mpsc::channel::<()>();
        let may_answer = std::sync::Mutex::new(may_answer);
        let upstream = Upstream::scripted(move |_, peer| {
            peer.request();
            may_answer.lock().unwrap().recv().unwrap();
            peer.send(ok("finished"));
        });
        let mut proxy = Proxy::to(io, &[&upstream.url()]);
        let mut client = proxy.client();
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        eventually("the upstream has the request", || upstream.heads().len() == 1);
        proxy.drain(Duration::from_secs(60));
        sender.send(()).unwrap();
        let answer = client.response();
        assert_eq!((answer.text(), answer.field("connection")), ("finished", Some("close")));
        proxy.join();
    }
}
