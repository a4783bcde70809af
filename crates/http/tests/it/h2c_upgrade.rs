//! HTTP/2 by `Upgrade` (RFC 7540, section 3.2; rule 15).

use std::io::{ErrorKind, Read, Write};
use std::rc::Rc;
use std::time::Duration;

use blitz_http::{Limits, Method, ServeOptions, Status, TlsSlot};
use blitz_proto::h2::{Code, StreamId};
use blitz_testing::{Raw, read_head};

use crate::h2_client::Client;
use crate::support::{BIG, SOON, Server, on_each_driver, options};
use crate::tls_server::with_tls;
use crate::tls_support::Authority;

/// Settings with a window of 65,535 bytes for each stream.
const FIELDS: &str = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\
                      HTTP2-Settings: AAMAAABkAAQAAP__\r\n";

const SWITCHING: &str =
    "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n";

/// Options that allow every client to switch.
fn allowing() -> ServeOptions {
    ServeOptions {
        h2c_upgrade: Some(Rc::new(|_| true)),
        ..options()
    }
}

fn asking(method: &str, path: &str) -> String {
    format!("{method} {path} HTTP/1.1\r\nHost: a\r\n{FIELDS}\r\n")
}

/// Switches to HTTP/2 and continues with it.
fn switch(server: &Server, method: Method, path: &str) -> (Client, StreamId) {
    let mut raw = server.connect();
    raw.send(asking(method.as_str(), path)).expect(SWITCHING);
    Client::upgraded(raw.0, method)
}

#[test]
fn the_request_is_answered_as_stream_1_and_others_follow() {
    on_each_driver(|io| {
        let server = Server::with(io, allowing);
        let (mut client, first) = switch(&server, Method::Get, "/hello");
        let answer = client.answer(first);
        assert_eq!((first.get(), answer.status), (1, Some(Status::OK)));
        assert_eq!(answer.content, b"hello");
        assert_eq!(client.get("/hello").content, b"hello");
        assert_eq!(client.get("/big").content.len(), BIG);
        let counters = server.counters();
        assert_eq!((counters.accepted, counters.requests), (1, 3));
        assert_eq!((counters.h2c_upgrades, counters.upgrades), (1, 0));
    });
}

#[test]
fn a_long_response_keeps_to_the_windows_and_one_to_head_has_no_content() {
    on_each_driver(|io| {
        let server = Server::with(io, allowing);
        let (mut client, first) = switch(&server, Method::Get, "/big");
        client.reads = false;
        let held = client.until(first, |answer| answer.content.len() >= 65_535);
        assert!(!held.is_complete);
        client.reads = true;
        client.read_all();
        assert_eq!(client.answer(first).content.len(), BIG);
        let (mut client, first) = switch(&server, Method::Head, "/hello");
        let answer = client.answer(first);
        let length = answer.fields.get_str("content-length");
        assert_eq!((length, answer.content.len()), (Some("5"), 0));
    });
}

#[test]
fn the_request_may_arrive_byte_by_byte_or_with_the_preface() {
    on_each_driver(|io| {
        let server = Server::with(io, allowing);
        let mut raw = server.connect();
        for byte in asking("GET", "/slow").bytes() {
            raw.send([byte]);
        }
        raw.expect(SWITCHING);
        let (mut client, first) = Client::upgraded(raw.0, Method::Get);
        assert_eq!(client.answer(first).content, b"slow");
        let mut raw = server.connect();
        let stream = raw.0.try_clone().expect("clones");
        let (mut client, first) = Client::upgraded(stream, Method::Get);
        let mut all = asking("GET", "/slow").into_bytes();
        all.append(&mut client.out);
        raw.send(all).expect(SWITCHING);
        assert_eq!(client.answer(first).content, b"slow");
        assert_eq!(client.get("/hello").content, b"hello");
    });
}

#[test]
fn other_upgrade_requests_are_answered_as_http1() {
    on_each_driver(|io| {
        let server = Server::with(io, allowing);
        let settings = "HTTP2-Settings: AAMAAABkAAQAAP__\r\n";
        for (what, fields) in [
            ("without settings", FIELDS.replace(settings, "")),
            ("with two settings", format!("{FIELDS}{settings}")),
            ("with bad base64", FIELDS.replace("AAMA", "AA=A")),
            ("with half a setting", FIELDS.replace("P__", "P8")),
            (
                "with a wrong setting",
                FIELDS.replace("AAMAAABk", "AAIAAABk"),
            ),
            ("without the option", FIELDS.replace(", HTTP2-Settings", "")),
            ("with another protocol", FIELDS.replace("h2c", "h2c, x")),
            (
                "with content",
                format!("{FIELDS}Content-Length: 1\r\n\r\nx"),
            ),
        ] {
            let mut client = server.connect();
            let end = if fields.ends_with("x") { "" } else { "\r\n" };
            client.send(format!("POST /hello HTTP/1.1\r\nHost: a\r\n{fields}{end}"));
            let head = client.head();
            assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{what}: {head}");
            client.expect("hello");
            client.send("GET /hello HTTP/1.1\r\nHost: a\r\n\r\n").head();
            client.expect("hello");
        }
        // A client that continues with HTTP/1.1 has not waited for the response to `Upgrade`.
        let mut client = server.connect();
        let next = "GET /hello HTTP/1.1\r\nHost: a\r\n\r\n";
        client.send(asking("GET", "/hello") + next);
        for _ in 0..2 {
            assert!(client.head().starts_with("HTTP/1.1 200 OK\r\n"));
            client.expect("hello");
        }
        assert_eq!(server.counters().h2c_upgrades, 0);
    });
}

/// Requests a switch, and expects an HTTP/1.1 response to this request and to the next.
fn stays_http1(server: &Server, field: &str) {
    let mut client = server.connect();
    client.send(format!(
        "GET /hello HTTP/1.1\r\nHost: a\r\n{FIELDS}{field}\r\n"
    ));
    let head = client.head();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{field}: {head}");
    client.expect("hello");
    client.send("GET /hello HTTP/1.1\r\nHost: a\r\n\r\n").head();
    client.expect("hello");
}

#[test]
fn by_default_no_client_switches() {
    on_each_driver(|io| {
        let server = Server::start(io);
        stays_http1(&server, "");
        assert_eq!(server.counters().h2c_upgrades, 0);
    });
}

#[test]
fn only_clients_that_the_option_allows_switch() {
    on_each_driver(|io| {
        let server = Server::with(io, || ServeOptions {
            h2c_upgrade: Some(Rc::new(|peer| peer.remote.is_none())),
            ..options()
        });
        stays_http1(&server, "");
        assert_eq!(server.counters().h2c_upgrades, 0);
    });
}

#[test]
fn a_forwarded_request_does_not_switch() {
    on_each_driver(|io| {
        let server = Server::with(io, allowing);
        for field in [
            "Via: 1.1 a",
            "CDN-Loop: a",
            "Forwarded: for=192.0.2.1",
            "X-Forwarded-For: 192.0.2.1",
            "x-forwarded-port: 80",
            "X-FORWARDED-PROTO: http",
            "X-Forwarded-Whatever: 1",
            "X-Forwarded: 1",
            "X_Forwarded_For: 192.0.2.1",
            "X.Forwarded.Host: a",
            "x.forwarded_for: 192.0.2.1",
            "X-Real-IP: 192.0.2.1",
            "X_Real_Ip: 192.0.2.1",
        ] {
            stays_http1(&server, &format!("{field}\r\n"));
        }
        assert_eq!(server.counters().h2c_upgrades, 0);
        let others = "X-Forward: 1\r\nVia-X: 1\r\nX-Real-Ips: 1\r\n";
        let asked = format!("GET /hello HTTP/1.1\r\nHost: a\r\n{FIELDS}{others}\r\n");
        server.connect().send(asked).expect(SWITCHING);
    });
}

#[test]
fn over_tls_the_request_is_answered_as_http1() {
    on_each_driver(|io| {
        let authority = Authority::new();
        let slot = TlsSlot::new(authority.server());
        let server = Server::with(io, move || ServeOptions {
            h2c_upgrade: allowing().h2c_upgrade,
            ..with_tls(&slot)
        });
        let mut stream = authority.client().connect(server.address);
        let asked = stream.write_all(asking("GET", "/hello").as_bytes());
        asked.expect("the handshake succeeds");
        let answer = read_head(&mut stream);
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    });
}

#[test]
fn the_switched_connection_ends_like_other_http2_connections() {
    on_each_driver(|io| {
        let server = Server::with(io, || ServeOptions {
            limits: Limits {
                idle_timeout: Duration::from_secs(1),
                ..Limits::default()
            },
            ..allowing()
        });
        // The preface never arrives, and until then the server sends a bounded amount.
        let mut waiting = server.connect();
        waiting.send(asking("GET", "/big")).expect(SWITCHING);
        let all = all_that_comes(&mut waiting);
        assert!((16 << 10..20 << 10).contains(&all), "{all} bytes");
        drop(waiting);
        let mut silent = server.connect();
        silent.send(asking("GET", "/hello")).expect(SWITCHING);
        server.until("idle", |counters| counters.idle_timeouts == 1);
        // The client sends other bytes than the preface.
        let mut wrong = server.connect();
        wrong.send(asking("GET", "/never")).expect(SWITCHING);
        wrong.send("GET / HTTP/1.1\r\n\r\n");
        let (mut client, _) = Client::upgraded(wrong.0, Method::Get);
        client.out.clear();
        client.expect_end();
        assert_eq!(client.go_away, Some(Code::PROTOCOL_ERROR));
        let (mut busy, slow) = switch(&server, Method::Get, "/slow");
        busy.flush();
        server.drain(SOON);
        assert_eq!(busy.answer(slow).content, b"slow");
        busy.expect_end();
        assert_eq!(busy.go_away, Some(Code::NO_ERROR));
        server.join();
    });
}

#[test]
fn a_client_that_closes_cancels_the_request() {
    on_each_driver(|io| {
        let server = Server::with(io, allowing);
        let mut raw: Raw = server.connect();
        raw.send(asking("GET", "/never")).expect(SWITCHING);
        // Unread bytes turn the close into a reset.
        raw.0.peek(&mut [0]).expect("settings");
        raw.reset();
        server.until("cancelled", |counters| counters.cancelled == 1);
        server.until("closed", |counters| counters.connections == 0);
    });
}

/// The number of bytes that arrive until there is a pause.
fn all_that_comes(client: &mut Raw) -> usize {
    let pause = Duration::from_millis(500);
    client.0.set_read_timeout(Some(pause)).expect("sets");
    let (mut all, mut bytes) = (0, [0; 4096]);
    loop {
        match client.0.read(&mut bytes) {
            Ok(0) => panic!("it ended after {all} bytes"),
            Ok(read) => all += read,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return all,
        }
    }
}
