use std::io::Write;
use std::time::Duration;

use crate::support::{Server, on_each_driver};

const HELLO: &str = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello";

#[test]
fn one_connection_carries_many_requests() {
    on_each_driver(|io| {
        let server = Server::start(io);
        let mut client = server.connect();
        for _ in 0..50 {
            client.send("GET /hello HTTP/1.1\r\nHost: a\r\n\r\n");
            client.expect(hello());
        }
        let counters = server.counters();
        assert_eq!((counters.accepted, counters.requests), (1, 50));
        assert_eq!(counters.requests_by_version, [0, 50, 0, 0]);
        assert_eq!(counters.responses, [0, 50, 0, 0, 0]);
    });
}

#[test]
fn a_head_that_arrives_byte_by_byte_is_answered() {
    on_each_driver(|io| {
        let server = Server::start(io);
        let mut client = server.connect();
        for byte in b"GET /hello HTTP/1.1\r\nHost: a\r\n\r\n" {
            client.send([*byte]);
        }
        client.expect(hello());
    });
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    on_each_driver(|io| {
        let server = Server::start(io);
        let mut client = server.connect();
        let mut requests = String::new();
        let mut answers = String::new();
        // More requests than a burst, with slow ones and bodies in between.
        for round in 0..40 {
            requests += "GET /hello HTTP/1.1\r\nHost: a\r\n\r\n";
            answers += &hello();
            if round % 10 == 0 {
                requests += "GET /slow HTTP/1.1\r\nHost: a\r\n\r\n";
                answers += &hello().replace("5\r\n\r\nhello", "4\r\n\r\nslow");
            }
            requests += "POST /whole HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc";
            answers += &hello().replace("5\r\n\r\nhello", "3\r\n\r\nabc");
        }
        client.send(requests).expect(answers);
        client.fin().expect_end();
    });
}

#[test]
fn a_client_that_pipelines_without_reading_is_throttled() {
    on_each_driver(|io| {
        let server = Server::start(io);
        let mut client = server.connect();
        let request = "GET /big HTTP/1.1\r\nHost: a\r\n\r\n";
        client.send(request.repeat(4));
        for _ in 0..4 {
            client.head();
            client.expect(vec![b'x'; crate::support::BIG]);
        }
    });
}

#[test]
fn read_ahead_is_bounded_during_a_slow_request() {
    on_each_driver(|io| {
        // After the first part of one request, and after a request nearly as large as the bound.
        for first in [1, 450] {
            let server = Server::start(io);
            let mut client = server.connect();
            let request = "GET /never HTTP/1.1\r\nHost: a\r\n\r\n";
            client.send(request.repeat(first));
            server.until("one request", |counters| counters.requests == 1);
            let stall = Some(Duration::from_millis(200));
            client.0.set_write_timeout(stall).expect("sets");
            while client.0.write_all(request.repeat(1000).as_bytes()).is_ok() {}
            let received = server.ask(|| blitz_http::reactor::counters().received_bytes);
            let ahead = received as usize - request.len();
            assert!((8 * 1024..=16 * 1024).contains(&ahead), "{ahead}");
        }
    });
}

#[test]
fn read_ahead_is_bounded_behind_a_large_upload() {
    on_each_driver(|io| {
        let server = Server::start(io);
        let mut client = server.connect();
        let upload = format!(
            "POST /read-and-never HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n{}",
            "x".repeat(1_000_000)
        );
        client.send(&upload);
        let stall = Some(Duration::from_millis(200));
        client.0.set_write_timeout(stall).expect("sets");
        let request = "GET /never HTTP/1.1\r\nHost: a\r\n\r\n";
        while client.0.write_all(request.repeat(1000).as_bytes()).is_ok() {}
        let received = server.ask(|| blitz_http::reactor::counters().received_bytes);
        let ahead = received as usize - upload.len();
        assert!(ahead <= 16 * 1024, "{ahead} {io:?}");
    });
}

#[test]
fn connection_close_and_http_1_0_end_the_connection() {
    on_each_driver(|io| {
        let server = Server::start(io);
        let mut client = server.connect();
        client.send("GET /hello HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        assert!(
            client
                .head()
                .to_lowercase()
                .contains("\r\nconnection: close\r\n")
        );
        client.expect("hello").expect_end();

        let mut client = server.connect();
        client.send("GET /hello HTTP/1.0\r\n\r\n");
        assert!(client.head().starts_with("HTTP/1.1 200 OK\r\n"));
        client.expect("hello").expect_end();

        let mut client = server.connect();
        for _ in 0..3 {
            client.send("GET /hello HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
            assert!(
                client
                    .head()
                    .to_lowercase()
                    .contains("\r\nconnection: keep-alive\r\n")
            );
            client.expect("hello");
        }
    });
}

#[test]
fn a_streamed_response_to_http_1_0_is_delimited_by_close() {
    on_each_driver(|io| {
        let server = Server::start(io);
        let mut client = server.connect();
        client.send("GET /stream HTTP/1.0\r\n\r\n");
        client.head();
        client.expect("onetwothree").expect_end();

        let mut client = server.connect();
        client.send("GET /stream HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(
            client
                .head()
                .to_lowercase()
                .contains("\r\ntransfer-encoding: chunked\r\n")
        );
        client.expect("3\r\none\r\n3\r\ntwo\r\n5\r\nthree\r\n0\r\n\r\n");
        client
            .send("GET /hello HTTP/1.1\r\nHost: a\r\n\r\n")
            .expect(hello());
    });
}

#[test]
fn head_requests_get_the_head_only() {
    on_each_driver(|io| {
        let server = Server::start(io);
        let mut client = server.connect();
        client.send("HEAD /hello HTTP/1.1\r\nHost: a\r\n\r\n");
        client.expect(hello().strip_suffix("hello").unwrap());
        client.send("HEAD /stream HTTP/1.1\r\nHost: a\r\n\r\n");
        client.head();
        client
            .send("GET /hello HTTP/1.1\r\nHost: a\r\n\r\n")
            .expect(hello());
    });
}

#[test]
fn a_response_may_come_from_another_task() {
    on_each_driver(|io| {
        let server = Server::start(io);
        let mut client = server.connect();
        for _ in 0..3 {
            client.send("POST /elsewhere HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\nabc");
            client.head();
            client.expect("abc").send("def").expect("def");
        }
    });
}

#[test]
fn responses_have_date_and_server_when_configured() {
    on_each_driver(|io| {
        let server = Server::with(io, || blitz_http::ServeOptions {
            server: Some("blitz".to_owned()),
            ..blitz_http::ServeOptions::default()
        });
        let mut client = server.connect();
        client.send("GET /hello HTTP/1.1\r\nHost: a\r\n\r\n");
        let head = client.head().to_lowercase();
        assert!(head.contains("\r\nserver: blitz\r\n"), "{head}");
        let date = head
            .split("\r\ndate: ")
            .nth(1)
            .and_then(|rest| rest.get(..29));
        assert!(date.is_some_and(|date| date.ends_with(" gmt")), "{head}");
    });
}

fn hello() -> String {
    // Field names are written in their canonical case.
    HELLO.replace("content-length", "Content-Length")
}

/// Single bytes that wait for the end of an exchange occupy no receive buffers (rule 3).
#[test]
fn bytes_that_are_read_ahead_one_by_one_are_copied_together() {
    const BYTES: usize = 200;
    on_each_driver(|io| {
        let server = Server::start(io);
        let mut clients = [server.connect(), server.connect()];
        clients[1]
            .send("GET /hello HTTP/1.1\r\nHost: a\r\n\r\n")
            .head();
        let idle = server.ask(blitz_reactor::fair_share);
        // One request comes with the first byte of the next.
        clients[0].send("GET /late-whole HTTP/1.1\r\nHost: a\r\n\r\nG");
        clients[1].send("POST /never HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n");
        for _ in 0..BYTES {
            clients[1].send("x");
            server.counters();
        }
        let share = server.ask(blitz_reactor::fair_share);
        assert!(share + 200 > idle, "{share} of {idle} bytes are left");
        assert!(clients[0].head().starts_with("HTTP/1.1 200 "));
        clients[0].send("ET /hello HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(clients[0].head().starts_with("HTTP/1.1 200 "));
        clients[0].expect("hello");
    });
}

/// RFC 9113, section 3.3: HTTP/2 with prior knowledge begins with the connection.
#[test]
fn the_preface_of_http2_is_refused_later_in_a_connection() {
    on_each_driver(|io| {
        let server = Server::start(io);
        for before in ["GET /hello HTTP/1.1\r\nHost: a\r\n\r\n", "\r\n"] {
            for preface in ["PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "P"] {
                let mut client = server.connect();
                client.send(before);
                if before.len() > 2 {
                    client.head();
                    client.expect("hello");
                }
                std::thread::sleep(Duration::from_millis(20));
                client.send(preface);
                if preface.len() == 1 {
                    std::thread::sleep(Duration::from_millis(20));
                    client.send("RI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
                }
                let head = client.head();
                assert!(head.starts_with("HTTP/1.1 505 "), "{head}");
            }
        }
    });
}
