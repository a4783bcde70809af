use std::io::Write;
use std::thread;
use std::time::Duration;

use crate::support::{BIG, Server, on_each_driver};

#[test]
fn bodies_stream_in_both_directions_at_once() {
    on_each_driver(|io| {
        let server = Server::start(io);
        let mut client = server.connect();
        client.send("POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
        client.head();
        for part in ["a", "bc", "def"] {
            let chunk = format!("{:x}\r\n{part}\r\n", part.len());
            client.send(&chunk).expect(&chunk);
        }
        client
            .send("0\r\nX-Sum: 6\r\n\r\n")
            .expect("0\r\nX-Sum: 6\r\n\r\n");
    });
}

#[test]
fn large_bodies_arrive_whole() {
    on_each_driver(|io| {
        let server = Server::start(io);
        let mut client = server.connect();
        let content: Vec<u8> = (0..BIG).map(|i| (i * 7 % 251) as u8).collect();
        for _ in 0..2 {
            client.send(format!(
                "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: {BIG}\r\n\r\n"
            ));
            let mut sender = client.0.try_clone().unwrap();
            let sent = content.clone();
            let writer = thread::spawn(move || sender.write_all(&sent));
            client.head();
            client.expect(&content);
            writer.join().unwrap().unwrap();
        }
    });
}

#[test]
fn a_reader_that_stops_reading_stalls_the_sender() {
    on_each_driver(|io| {
        let server = Server::start(io);
        let mut client = server.connect();
        // More than the kernel's buffers in both directions.
        const PIECE: usize = 1 << 20;
        const HUGE: usize = 256 * PIECE;
        let head = format!("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: {HUGE}\r\n\r\n");
        client.send(head);
        let stall = Some(Duration::from_millis(300));
        client.0.set_write_timeout(stall).unwrap();
        let piece = vec![0; PIECE];
        let all = (0..HUGE / PIECE).try_for_each(|_| client.0.write_all(&piece));
        assert!(all.is_err(), "the echo is not read, so writing must stall");
    });
}

#[test]
fn a_limited_body_ends_with_an_error_beyond_its_limit() {
    on_each_driver(|io| {
        let server = Server::start(io);
        let mut client = server.connect();
        let chunked = "POST /limited HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        client.send([chunked, "5\r\nhello\r\n0\r\n\r\n"].concat());
        client.head();
        client.expect("hello, end true, end true");
        client.send([chunked, "5\r\nhello\r\n1\r\n!\r\n"].concat());
        client.head();
        let error = "the body is too large false";
        client.expect(format!("hello, {error}, {error}"));
        // The rest is discarded, and the connection continues.
        client
            .send("0\r\n\r\nPOST /limited HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\nhello!");
        let head = client.head();
        assert!(head.starts_with("HTTP/1.1 413 "), "{head}");
        client.expect("declared");
        assert_eq!(server.counters().accepted, 1);
    });
}
