//! Requests of different clients on a shared HTTP/2 connection to an upstream: none ends it for the
//! others.

use std::time::Duration;

use blitz_http::{BodyLength, Method, Status};
use blitz_proto::h2::Code;

use crate::h2::{H2Upstream, h2};
use crate::support::{Proxy, eventually};

/// A request with a field of this many bytes.
fn with_field(len: usize) -> String {
    let value = "v".repeat(len);
    format!("GET /large HTTP/1.1\r\nHost: a\r\nX-Large: {value}\r\n\r\n")
}

scenarios! {
    fn a_request_that_may_have_ended_a_connection_is_not_sent_again(io) {
        let upstream = H2Upstream::scripted(|_, mut peer| {
            let mut held = Vec::new();
            while let Some((stream, head)) = peer.next() {
                match head.path() {
                    "/held" => held.push(stream),
                    "/bad" => {
                        peer.machine.close_with(Code::ENHANCE_YOUR_CALM, &mut peer.out);
                        return peer.flush();
                    }
                    _ => peer.answer(stream, Status::OK, "fine"),
                }
                if held.len() == 2 {
                    peer.answer(held[0], Status::OK, "first");
                    peer.answer(held[1], Status::OK, "second");
                }
            }
        });
        let proxy = Proxy::to(io, &[&upstream.url]);
        let (mut one, mut other, mut bad) = (proxy.client(), proxy.client(), proxy.client());
        assert_eq!(one.get("/").text(), "fine");
        one.send("GET /held HTTP/1.1\r\nHost: a\r\n\r\n");
        eventually("it is sent", || proxy.http_counters().upstream_reused == 1);
        let answer = bad.get("/bad");
        assert_eq!(answer.status, 502);
        assert_eq!(answer.field("proxy-status"), Some("blitz; error=connection_terminated"));
        // The request beside it is sent again, to a connection that the other did not end.
        other.send("GET /held HTTP/1.1\r\nHost: a\r\n\r\n");
        let mut texts = [one.response().text(), other.response().text()].map(str::to_owned);
        texts.sort();
        assert_eq!(texts, ["first", "second"]);
        assert_eq!(upstream.accepted(), 2);
    }

    fn a_head_above_the_upstreams_limit_is_431(io) {
        let upstream = H2Upstream::scripted(|_, mut peer| {
            // SETTINGS_MAX_HEADER_LIST_SIZE of 4,096.
            peer.out.extend_from_slice(&[0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 6, 0, 0, 16, 0]);
            while let Some((stream, head)) = peer.next() {
                let path = head.path().to_owned();
                peer.answer(stream, Status::OK, &path);
            }
        });
        let proxy = Proxy::to(io, &[&upstream.url]);
        let mut client = proxy.client();
        assert_eq!(client.get("/a").text(), "/a");
        client.send(with_field(4_096));
        let answer = client.response();
        assert_eq!(answer.status, 431);
        let expected = Some("blitz; error=http_request_error; details=\"max-header-list-size\"");
        assert_eq!(answer.field("proxy-status"), expected);
        client.send(with_field(3_000));
        assert_eq!(client.response().text(), "/large");
        assert_eq!(upstream.accepted(), 1);
    }

    fn large_heads_use_other_connections(io) {
        let upstream = H2Upstream::scripted(|number, mut peer| {
            while let Some((stream, _)) = peer.next() {
                peer.answer(stream, Status::OK, &number.to_string());
            }
        });
        let proxy = Proxy::to(io, &[&upstream.url]);
        let mut client = proxy.client();
        for _ in 0..2 {
            assert_eq!(client.get("/").text(), "0");
            client.send(with_field(8_192));
            assert_eq!(client.response().text(), "1");
        }
    }

    fn a_connection_whose_server_reads_no_content_gets_no_more_requests(io) {
        let upstream = H2Upstream::scripted(|number, mut peer| {
            peer.reads = number > 0;
            while let Some((stream, _)) = peer.next() {
                if peer.reads {
                    let request = peer.until(stream, |received| received.is_complete);
                    peer.answer(stream, Status::OK, &format!("{number} {}", request.content.len()));
                }
            }
        });
        let proxy = Proxy::to(io, &[&upstream.url]);
        // Together they use up the window of the connection.
        let stalled = [(); 4].map(|()| {
            let mut client = proxy.client();
            client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n");
            client.send([b'x'; 100_000]);
            client
        });
        std::thread::sleep(Duration::from_millis(1_500));
        assert_eq!(upstream.accepted(), 1);
        let mut client = proxy.client();
        for _ in 0..2 {
            client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 70000\r\n\r\n");
            client.send([b'x'; 70_000]);
            assert_eq!(client.response().text(), "1 70000");
        }
        drop(stalled);
    }

    fn a_connection_with_many_resets_gets_no_more_requests(io) {
        let upstream = H2Upstream::scripted(|number, mut peer| {
            let (mut held, mut cancelled) = (None, 0);
            while let Some((stream, head)) = peer.next() {
                match head.path() {
                    "/held" => held = Some(stream),
                    "/cancelled" => cancelled += 1,
                    _ => peer.answer(stream, Status::OK, &number.to_string()),
                }
                if let Some(stream) = held.filter(|_| cancelled == 100) {
                    peer.until(stream, |received| received.is_complete);
                    peer.answer(stream, Status::OK, "held");
                    held = None;
                }
            }
        });
        let proxy = Proxy::to(io, &[&upstream.url]);
        let (mut held, mut other) = (proxy.client(), proxy.client());
        held.send("POST /held HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n");
        assert_eq!(other.get("/").text(), "0");
        for batch in 0..10 {
            assert_eq!(other.get("/").text(), "0", "{batch}");
            let mut cancels = h2(&proxy);
            let streams = [(); 10]
                .map(|()| cancels.request(Method::Get, "/cancelled", BodyLength::Empty));
            cancels.flush();
            std::thread::sleep(Duration::from_millis(30));
            for stream in streams {
                cancels.machine.reset(stream, Code::CANCEL, &mut cancels.out);
            }
            cancels.flush();
        }
        held.send("x");
        assert_eq!(held.response().text(), "held");
        eventually("another connection is used", || other.get("/").text() == "1");
        assert_eq!(upstream.accepted(), 2);
    }
}
