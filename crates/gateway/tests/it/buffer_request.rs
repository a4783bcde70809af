//! Content that is received completely before the upstream is connected to.

use std::thread;
use std::time::Duration;

use blitz_gateway::{Options, Rejection};
use blitz_http::{BodyLength, Method};

use crate::h2::h2;
use crate::site_rules::gateway_with;
use crate::support::{Proxy, Upstream, eventually, ok};

/// An upstream that responds with the content that it gets, and how it was framed.
fn echoing() -> Upstream {
    Upstream::scripted(|_, peer| {
        while let Some((head, body)) = peer.request() {
            let length = head.field("content-length").unwrap_or("none").to_owned();
            peer.send(ok(&format!("{length} {}", String::from_utf8_lossy(&body))));
        }
    })
}

fn buffering(io: blitz_http::IoChoice, upstream: &Upstream, keys: &str) -> Proxy {
    let text = format!("[site.\"*\"]\nto = \"{}\"\n{keys}\n", upstream.url());
    gateway_with(io, Options::default(), &text)
}

const CHUNKED: &str = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";

scenarios! {
    fn chunked_content_reaches_the_upstream_with_its_length(io) {
        let upstream = echoing();
        let proxy = buffering(io, &upstream, "buffer_request = \"1k\"\n\"/flowing\".buffer_request = false");
        let mut client = proxy.client();
        client.send(format!("{CHUNKED}5\r\nhello\r\n6\r\n world\r\n0\r\nX-Sum: 1\r\n\r\n"));
        assert_eq!(client.response().text(), "11 hello world");
        client.send(format!("{CHUNKED}0\r\n\r\n"));
        assert_eq!(client.response().text(), "0 ");
        client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc");
        assert_eq!(client.response().text(), "3 abc");
        let flowing = CHUNKED.replace("POST /", "POST /flowing");
        client.send(format!("{flowing}5\r\nhello\r\n0\r\n\r\n"));
        assert_eq!(client.response().text(), "none hello");
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.response().text(), "none ");
    }

    fn the_upstream_is_connected_to_once_the_content_is_complete(io) {
        let upstream = echoing();
        let proxy = buffering(io, &upstream, "buffer_request = \"1m\"");
        let mut client = proxy.client();
        let content = "x".repeat(100_000);
        client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", content.len()));
        for part in content.as_bytes().chunks(25_000) {
            thread::sleep(Duration::from_millis(30));
            assert_eq!(upstream.accepted(), 0);
            client.send(part);
        }
        assert_eq!(client.response().text(), format!("100000 {content}"));
        assert_eq!(upstream.accepted(), 1);
    }

    fn content_beyond_the_size_is_refused(io) {
        let upstream = echoing();
        let proxy = buffering(io, &upstream, "buffer_request = \"10\"");
        // By its declared length, without `100 Continue`.
        let mut client = proxy.client();
        client.send("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 11\r\n\r\n");
        assert_eq!(client.response().status, 413);
        let mut client = proxy.client();
        client.send(format!("{CHUNKED}5\r\nhello\r\n"));
        client.send("6\r\n world\r\n0\r\n\r\n");
        assert_eq!(client.response().status, 413);
        let mut client = proxy.client();
        client.send(format!("{CHUNKED}a\r\n0123456789\r\n0\r\n\r\n"));
        assert_eq!(client.response().text(), "10 0123456789");
        let counters = proxy.counters();
        assert_eq!(counters.rejections[Rejection::ContentTooLarge as usize], 2);
        assert_eq!(upstream.heads().len(), 1);
    }

    fn content_beyond_the_memory_waits_in_a_file(io) {
        let upstream = echoing();
        let keys = "buffer_request = { memory = \"1k\", file = \"1m\" }";
        let proxy = buffering(io, &upstream, keys);
        let mut client = proxy.client();
        // Numbers, so that no part can stand for another one; the last is shorter than what is written at a time.
        let content: String = (0..100_000).map(|number: u32| format!("{number} ")).collect();
        for content in [&content[..], &content[..200_001], &content[..10]] {
            client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", content.len()));
            client.send(content);
            let response = client.response();
            assert!(response.text() == format!("{} {content}", content.len()), "{}", response.text().len());
        }
        client.send(CHUNKED);
        for part in content.as_bytes().chunks(50_000) {
            client.send(format!("{:x}\r\n{}\r\n", part.len(), String::from_utf8_lossy(part)));
        }
        client.send("0\r\n\r\n");
        assert!(client.response().text() == format!("{} {content}", content.len()));
        let mut client = proxy.client();
        client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1048577\r\n\r\n");
        assert_eq!(client.response().status, 413);
    }

    fn content_of_several_clients_is_in_files_of_their_own(io) {
        let upstream = echoing();
        let keys = "buffer_request = { memory = \"64k\", file = \"2m\" }";
        let proxy = buffering(io, &upstream, keys);
        let contents: Vec<String> = (0..4).map(|client| format!("{client}").repeat(300_000)).collect();
        let mut clients: Vec<_> = contents.iter().map(|_| proxy.client()).collect();
        for (client, content) in clients.iter_mut().zip(&contents) {
            client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", content.len()));
        }
        for part in 0..30 {
            for (client, content) in clients.iter_mut().zip(&contents) {
                client.send(&content[part * 10_000..][..10_000]);
            }
        }
        for (client, content) in clients.iter_mut().zip(&contents) {
            assert!(client.response().text() == format!("300000 {content}"));
        }
    }

    fn a_client_that_waits_for_100_continue_gets_it(io) {
        let upstream = echoing();
        let proxy = buffering(io, &upstream, "buffer_request = \"1k\"");
        let mut peer = proxy.peer();
        peer.send("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n");
        assert_eq!(peer.head().unwrap().line, "HTTP/1.1 100 Continue");
        assert_eq!(upstream.accepted(), 0);
        peer.send("abc");
        assert_eq!(peer.head().unwrap().line, "HTTP/1.1 200 OK");
        assert_eq!(upstream.head().field("expect"), None);
    }

    fn a_client_that_leaves_before_its_end_never_reaches_the_upstream(io) {
        let upstream = echoing();
        let proxy = buffering(io, &upstream, "buffer_request = \"1k\"");
        let mut peer = proxy.peer();
        peer.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc");
        thread::sleep(Duration::from_millis(50));
        peer.reset();
        eventually("closed", || proxy.http_counters().connections == 0);
        assert_eq!(upstream.accepted(), 0);
    }

    fn content_of_http2_is_received_as_well(io) {
        let upstream = echoing();
        let proxy = buffering(io, &upstream, "buffer_request = \"1m\"");
        let mut client = h2(&proxy);
        let stream = client.request(Method::Post, "/", BodyLength::Unknown);
        let content = "y".repeat(200_000);
        client.send(stream, content.as_bytes(), true);
        let answer = client.answer(stream);
        assert_eq!(answer.content, format!("200000 {content}").as_bytes());
    }
}
