use std::io::Write;

use crate::support::{Server, on_each_driver};

#[test]
fn a_small_unread_body_is_discarded() {
    on_each_driver(|io| {
        let server = Server::start(io);
        let mut client = server.connect();
        for _ in 0..3 {
            client.send("POST /hello HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n01234");
            client.head();
            client.expect("hello").send("56789");
        }
        client.send("POST /hello HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
        client.head();
        client.expect("hello").send("3\r\nabc\r\n0\r\n\r\n");
        client.send("GET /hello HTTP/1.1\r\nHost: a\r\n\r\n");
        client.head();
        client.expect("hello");
        assert_eq!(server.counters().accepted, 1);
    });
}

#[test]
fn a_large_unread_body_closes_the_connection_after_the_response() {
    on_each_driver(|io| {
        let server = Server::start(io);
        let mut client = server.connect();
        client.send("POST /hello HTTP/1.1\r\nHost: a\r\nContent-Length: 10000000\r\n\r\n");
        client.send(vec![b'x'; 30_000]);
        // The response arrives although the client continues to send.
        let head = client.head();
        assert!(head.contains("\r\nConnection: close\r\n"), "{head}");
        client.expect("hello");
        let _ = client.0.write_all(&vec![b'x'; 200_000]);
        server.until("closed", |counters| counters.connections == 0);
    });
}

/// The rest of a chunked body has an unknown length, so the response cannot announce that the
/// connection closes. A client whose kernel has taken the whole body may send its next request.
#[test]
fn a_large_unread_chunked_body_does_not_prevent_the_next_request() {
    on_each_driver(|io| {
        let server = Server::start(io);
        let mut client = server.connect();
        client.send("POST /hello HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
        let head = client.head();
        assert!(!head.contains("\r\nConnection: close\r\n"), "{head}");
        client.expect("hello").send(chunk(3 << 20));
        client.send("0\r\n\r\nGET /hello HTTP/1.1\r\nHost: a\r\n\r\n");
        client.head();
        client.expect("hello");
        assert_eq!(server.counters().accepted, 1);
    });
}

#[test]
fn an_unread_endless_chunked_body_closes_the_connection() {
    on_each_driver(|io| {
        let server = Server::start(io);
        let mut client = server.connect();
        client.send("POST /hello HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
        client.head();
        client.expect("hello");
        for _ in 0..20 {
            client.send(chunk(1 << 20));
        }
        client.expect_end();
        server.until("closed", |counters| counters.connections == 0);
    });
}

/// A chunk of this many bytes.
fn chunk(bytes: usize) -> Vec<u8> {
    let mut chunk = format!("{bytes:x}\r\n").into_bytes();
    chunk.resize(chunk.len() + bytes, b'x');
    chunk.extend_from_slice(b"\r\n");
    chunk
}

#[test]
fn a_service_without_a_response_causes_a_500() {
    on_each_driver(|io| {
        let server = Server::start(io);
        let mut client = server.connect();
        client.send("GET /none HTTP/1.1\r\nHost: a\r\n\r\n");
        let head = client.head();
        assert!(head.starts_with("HTTP/1.1 500 "), "{head}");
        client
            .expect("500 Internal Server Error: no-answer\n")
            .expect_end();
        assert_eq!(server.counters().refused_for("no-answer"), 1);
    });
}

/// The client considers such a response complete and may already have sent its next request.
#[test]
fn a_response_cancelled_after_its_last_byte_is_complete() {
    on_each_driver(|io| {
        let server = Server::start(io);
        let mut client = server.connect();
        for _ in 0..3 {
            client.send("GET /cut-behind-all HTTP/1.1\r\nHost: a\r\n\r\n");
            client.head();
            client.expect("all of it");
        }
        assert_eq!(server.counters().accepted, 1);
    });
}

/// RST would discard the response before it, which is complete.
#[test]
fn a_cut_off_response_behind_another_ends_with_fin() {
    on_each_driver(|io| {
        let server = Server::start(io);
        let mut client = server.connect();
        let requests =
            ["/hello", "/cut"].map(|path| format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        client.send(requests.concat()).head();
        client.expect("hello").head();
        client.expect("half").expect_end();
        assert_eq!(server.counters().accepted, 1);
    });
}
