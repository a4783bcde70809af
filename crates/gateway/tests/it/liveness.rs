//! HTTP/2 connections whose peer is gone, or does not acknowledge SETTINGS.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::thread;
use std::time::{Duration, Instant};

use blitz_gateway::Options;
use blitz_http::{BodyLength, Method, Status};
use blitz_testing::h2::{PREFACE, frame};

use crate::h2::H2Upstream;
use crate::h2_client::Client;
use crate::support::{Proxy, SOON, Upstream, eventually, ok};

const AFTER: Duration = Duration::from_millis(200);

fn options() -> Options {
    let mut options = Options::default();
    options.client.limits.ping_after = AFTER;
    options.client.limits.ping_timeout = 3 * AFTER;
    options
}

/// Whether the bytes end with a GOAWAY with SETTINGS_TIMEOUT.
fn ends_with_settings_timeout(bytes: &[u8]) -> bool {
    let len = bytes.len();
    len > 17 && bytes[len - 14] == 7 && bytes.ends_with(&[0, 0, 0, 4])
}

scenarios! {
    fn requests_on_a_silent_connection_are_retried(io) {
        let upstream = H2Upstream::scripted(|number, mut peer| {
            while let Some((stream, _)) = peer.request() {
                peer.answer(stream, Status::OK, &number.to_string());
                if number == 0 {
                    // From now on nothing is read or sent, as after a network failure.
                    return thread::sleep(SOON);
                }
            }
        });
        let mut options = options();
        options.client.limits.ping_timeout = 10 * AFTER;
        let proxy = Proxy::with(io, &[&upstream.url], options);
        let mut client = Client::connect(proxy.address);
        assert_eq!(client.get("/").content, b"0");
        let began = Instant::now();
        let get = client.request(Method::Get, "/", BodyLength::Empty);
        let post = client.request(Method::Post, "/", BodyLength::Known(2));
        client.send(post, b"hi", true);
        // Later requests do not use the silent connection.
        thread::sleep(AFTER + AFTER / 2);
        let later = client.request(Method::Post, "/", BodyLength::Known(2));
        client.send(later, b"hi", true);
        assert_eq!(client.answer(later).content, b"1");
        assert!(began.elapsed() < 9 * AFTER, "{:?}", began.elapsed());
        assert_eq!(proxy.http_counters().upstream_silent, 0, "the connection is not closed yet");
        let answer = client.answer(get);
        assert_eq!(answer.status, Some(Status::OK), "an idempotent request is retried");
        assert_ne!(answer.content, b"0");
        assert_eq!(client.answer(post).status, Some(Status::BAD_GATEWAY));
        assert!(began.elapsed() < SOON / 2, "{:?}", began.elapsed());
        assert_eq!(proxy.http_counters().upstream_silent, 1);
        // The second attempt uses no idle connection.
        assert!(upstream.accepted() <= 3);
    }

    fn a_slow_upstream_that_answers_pings_is_not_closed(io) {
        let upstream = H2Upstream::scripted(|_, mut peer| {
            while let Some((stream, head)) = peer.next() {
                if head.path() == "/slow" {
                    // The peer answers PING in the meantime.
                    peer.wait(6 * AFTER);
                }
                peer.answer(stream, Status::OK, "done");
            }
        });
        let proxy = Proxy::with(io, &[&upstream.url], options());
        let mut client = Client::connect(proxy.address);
        for path in ["/slow", "/", "/slow"] {
            assert_eq!(client.get(path).content, b"done");
        }
        assert_eq!(proxy.http_counters().upstream_silent, 0);
        assert_eq!(upstream.accepted(), 1);
    }

    fn an_upstream_that_does_not_acknowledge_settings_is_closed(io) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let url = format!("h2c://{}", listener.local_addr().unwrap());
        let ignores = thread::spawn(move || {
            let mut stream = listener.accept().unwrap().0;
            stream.set_read_timeout(Some(SOON)).unwrap();
            stream.write_all(&frame(4, 0, 0, [])).unwrap();
            let mut bytes = Vec::new();
            let _ = stream.read_to_end(&mut bytes);
            bytes
        });
        let mut options = Options::default();
        options.client.limits.settings_timeout = AFTER;
        let proxy = Proxy::with(io, &[&url], options);
        let mut client = proxy.client();
        client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
        let answer = client.response();
        assert_eq!(answer.status, 502);
        assert_eq!(answer.field("proxy-status"), Some("blitz; error=connection_terminated"));
        assert!(ends_with_settings_timeout(&ignores.join().unwrap()));
    }

    fn a_client_that_does_not_acknowledge_settings_is_closed(io) {
        let upstream = Upstream::scripted(|_, peer| {
            while peer.request().is_some() {
                thread::sleep(4 * AFTER);
                peer.send(ok("late"));
            }
        });
        let mut options = Options::default();
        options.limits.settings_timeout = AFTER;
        let proxy = Proxy::with(io, &[&upstream.url()], options);
        let mut peer = proxy.peer();
        let mut bytes = PREFACE.to_vec();
        bytes.extend(frame(4, 0, 0, []));
        // GET / for the authority `a`.
        bytes.extend(frame(1, 5, 1, [0x82, 0x86, 0x84, 0x41, 0x01, b'a']));
        peer.send(bytes);
        let (bytes, _) = peer.rest();
        assert!(ends_with_settings_timeout(&bytes), "{bytes:?}");
        eventually("the connection is closed", || proxy.http_counters().connections == 0);
        assert_eq!(proxy.http_counters().settings_timeouts, 1);
    }
}
