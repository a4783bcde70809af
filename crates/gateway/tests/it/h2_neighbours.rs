//! Requests of different clients on a shared HTTP/2 connection to an upstream: none ends it for the
//! others.

use std::thread;
use std::time::{Duration, Instant};

use blitz_http::{BodyLength, Limits, Method, Status};
use blitz_proto::h2::Code;
use blitz_testing::Client;

use crate::h2::{H2Upstream, h2};
use crate::h2_peer::H2Peer;
use crate::support::{Proxy, eventually};

/// A request with a field of this many bytes.
fn with_field(len: usize) -> String {
    let value = "v".repeat(len);
    format!("GET /large HTTP/1.1\r\nHost: a\r\nX-Large: {value}\r\n\r\n")
}

/// Bytes that an upload lacks after [`use_up_window`].
const REST: usize = 40_000;

/// Uploads that use up the window of an upstream's connection before those of their streams.
fn uploads_per_window() -> usize {
    let limits = Limits::default();
    limits.connection_buffer_bytes_max / limits.stream_buffer_bytes_max + 1
}

/// Begins as many uploads, each with more content than the window of a stream.
fn use_up_window(proxy: &Proxy) -> Vec<Client> {
    let content = Limits::default().stream_buffer_bytes_max + 40_000;
    let begin = |_| {
        let mut client = proxy.client();
        let length = content + REST;
        client.send(format!(
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n"
        ));
        client.send(vec![b'x'; content]);
        client
    };
    (0..uploads_per_window()).map(begin).collect()
}

fn upload(client: &mut Client, bytes: usize) {
    client.send(format!(
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {bytes}\r\n\r\n"
    ));
    client.send(vec![b'x'; bytes]);
}

/// Answers each upload with the number of the connection and the bytes that came.
fn answer_uploads(number: usize, mut peer: H2Peer) {
    let mut begun = Vec::new();
    loop {
        begun.retain(|&stream| {
            let upload = peer.until(stream, |_| true);
            if upload.is_complete {
                peer.answer(
                    stream,
                    Status::OK,
                    &format!("{number} {}", upload.content.len()),
                );
            }
            !upload.is_complete
        });
        match peer.receive() {
            true => begun.extend(peer.take_new()),
            false => return,
        }
    }
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

    fn a_connection_whose_server_gives_hardly_any_credit_gets_no_more_requests(io) {
        for credit in [0, 1] {
            let upstream = H2Upstream::scripted(move |number, mut peer| {
                peer.reads = number > 0;
                if peer.reads {
                    return answer_uploads(number, peer);
                }
                // Later bytes are not even received.
                peer.wait(Duration::from_millis(500));
                for _ in 0..60 {
                    thread::sleep(Duration::from_millis(300));
                    if credit > 0 {
                        // WINDOW_UPDATE for the connection.
                        peer.out.extend_from_slice(&[0, 0, 4, 8, 0, 0, 0, 0, 0, 0, 0, 0, credit]);
                        peer.flush();
                    }
                }
            });
            let proxy = Proxy::to(io, &[&upstream.url]);
            let stalled = use_up_window(&proxy);
            // The proxy waits for a second from when the window is used up, which takes long on a busy machine.
            thread::sleep(Duration::from_secs(8));
            assert_eq!(upstream.accepted(), 1);
            let mut client = proxy.client();
            for _ in 0..2 {
                upload(&mut client, 70_000);
                assert_eq!(client.response().text(), "1 70000");
            }
            assert_eq!(proxy.http_counters().upstream_rests, 1);
            drop(stalled);
        }
    }

    fn a_connection_is_used_again_once_its_server_reads(io) {
        let upstream = H2Upstream::scripted(|number, mut peer| {
            if number == 0 {
                peer.reads = false;
                let streams: Vec<_> = (0..uploads_per_window())
                    .map(|_| peer.head().0)
                    .collect();
                peer.wait(Duration::from_secs(3));
                for stream in streams {
                    let received = peer.until(stream, |_| true).content.len();
                    peer.machine.release(stream, received, &mut peer.out);
                }
                peer.reads = true;
            }
            answer_uploads(number, peer);
        });
        let proxy = Proxy::to(io, &[&upstream.url]);
        let mut stalled = use_up_window(&proxy);
        thread::sleep(Duration::from_secs(6));
        // The connection is still in use, because the uploads are not complete.
        let mut client = proxy.client();
        upload(&mut client, 70_000);
        assert_eq!(client.response().text(), "0 70000");
        for client in &mut stalled {
            client.send([b'x'; REST]);
        }
        assert_eq!(upstream.accepted(), 1);
    }

    fn a_request_that_waits_for_a_connection_that_rests_makes_another(io) {
        let upstream = H2Upstream::scripted(|number, peer| {
            match number {
                // It does not even send SETTINGS.
                0 => thread::sleep(Duration::from_secs(8)),
                _ => answer_uploads(number, peer),
            }
        });
        let proxy = Proxy::to(io, &[&upstream.url]);
        let (mut stalled, mut client) = (proxy.client(), proxy.client());
        upload(&mut stalled, 100_000);
        thread::sleep(Duration::from_millis(200));
        let began = Instant::now();
        upload(&mut client, 10);
        assert_eq!(client.response().text(), "1 10");
        assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
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
            thread::sleep(Duration::from_millis(30));
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
