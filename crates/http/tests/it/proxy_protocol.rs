//! Listeners whose connections begin with a header of the PROXY protocol.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;
use std::thread;
use std::time::Duration;

use blitz_http::{IoChoice, Limits, ServeOptions, TlsSlot};
use blitz_testing::Raw;

use crate::support::{SOON, Server, on_each_driver, options};
use crate::tls_server::with_tls;
use crate::tls_support::{Authority, get};

const LINE: &str = "PROXY TCP4 192.0.2.7 198.51.100.1 4660 80\r\n";
const REQUEST: &str = "GET /address HTTP/1.1\r\nHost: a\r\n\r\n";
const HELLO: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

/// Trusts the clients of these tests.
fn proxied(options: ServeOptions) -> ServeOptions {
    ServeOptions {
        proxy_protocol: Some(Rc::new(|peer| {
            peer.is_some_and(|peer| peer.ip() == IpAddr::V4(Ipv4Addr::LOCALHOST))
        })),
        ..options
    }
}

fn start(io: IoChoice) -> Server {
    Server::with(io, || proxied(options()))
}

/// The client of the request that was sent, as the server sees it.
fn client(raw: &mut Raw) -> String {
    let head = raw.head();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("Content-Length: "));
    let mut content = vec![0; length.expect("a length").parse().expect("a number")];
    raw.0.read_exact(&mut content).expect("the content");
    String::from_utf8(content).expect("a text")
}

/// A header of version 2 with a TLV of `padding` bytes.
fn binary(padding: usize) -> Vec<u8> {
    let mut header = b"\r\n\r\n\0\r\nQUIT\n\x21\x11".to_vec();
    let length = u16::try_from(12 + 3 + padding).unwrap();
    header.extend_from_slice(&length.to_be_bytes());
    header.extend_from_slice(&[192, 0, 2, 7, 198, 51, 100, 1, 0x12, 0x34, 0, 80]);
    header.push(4);
    header.extend_from_slice(&u16::try_from(padding).unwrap().to_be_bytes());
    header.resize(16 + usize::from(length), 0xee);
    header
}

#[test]
fn the_header_tells_the_client_of_all_requests() {
    on_each_driver(|io| {
        let server = start(io);
        for header in [LINE.as_bytes().to_vec(), binary(0), binary(10_000)] {
            let mut raw = server.connect();
            raw.send([&header, REQUEST.as_bytes()].concat());
            assert_eq!(client(&mut raw), "192.0.2.7:4660");
            // The connection was parked meanwhile.
            thread::sleep(Duration::from_millis(20));
            raw.send(REQUEST);
            assert_eq!(client(&mut raw), "192.0.2.7:4660");
            // Its requests may not begin with another header.
            raw.send([LINE, REQUEST].concat());
            assert!(raw.head().starts_with("HTTP/1.1 400 "));
        }
        assert_eq!(server.counters().accepted, 3);
    });
}

#[test]
fn a_header_may_arrive_in_pieces_and_alone() {
    on_each_driver(|io| {
        let server = start(io);
        for header in [LINE.as_bytes().to_vec(), binary(5)] {
            for cut in [1, 5, 12, 16, 20, header.len() - 1, header.len()] {
                let mut raw = server.connect();
                raw.send(&header[..cut]);
                thread::sleep(Duration::from_millis(5));
                raw.send([&header[cut..], REQUEST.as_bytes()].concat());
                assert_eq!(client(&mut raw), "192.0.2.7:4660", "cut at {cut}");
            }
        }
        let mut raw = server.connect();
        for byte in [&binary(3), REQUEST.as_bytes()].concat() {
            raw.send([byte]);
        }
        assert_eq!(client(&mut raw), "192.0.2.7:4660");
    });
}

#[test]
fn a_header_without_a_client_keeps_the_address_of_the_proxy() {
    on_each_driver(|io| {
        let server = start(io);
        let local = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0";
        for header in [&b"PROXY UNKNOWN\r\n"[..], local] {
            let mut raw = server.connect();
            let own = raw.0.local_addr().unwrap().to_string();
            raw.send([header, REQUEST.as_bytes()].concat());
            assert_eq!(client(&mut raw), own);
        }
    });
}

#[test]
fn a_connection_without_a_valid_header_is_closed_and_counted() {
    on_each_driver(|io| {
        let server = start(io);
        let long = format!("PROXY UNKNOWN {}\r\n", "x".repeat(100));
        let refused = [
            (REQUEST.to_owned(), "proxy-header-missing"),
            (
                "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(),
                "proxy-header-missing",
            ),
            (
                format!("PROXY TCP4 nobody 1\r\n{REQUEST}"),
                "proxy-header-malformed",
            ),
            (long, "proxy-header-too-long"),
        ];
        for (sent, _) in &refused {
            let mut raw = server.connect();
            raw.send(sent);
            raw.expect_end_or_reset();
        }
        let mut raw = server.connect();
        raw.send(&LINE[..20]).fin();
        raw.expect_end_or_reset();
        // A check of the port.
        server.connect().fin().expect_end();
        server.until("closed", |counters| counters.connections == 0);
        let counters = server.counters();
        assert_eq!(counters.refused_for("proxy-header-missing"), 2);
        assert_eq!(counters.refused_for("proxy-header-malformed"), 1);
        assert_eq!(counters.refused_for("proxy-header-too-long"), 1);
        assert_eq!(counters.refused_for("proxy-header-incomplete"), 1);
        assert_eq!((counters.requests, counters.accepted), (0, 6));
    });
}

#[test]
fn a_peer_that_is_no_trusted_proxy_is_closed_and_counted() {
    on_each_driver(|io| {
        let server = Server::with(io, || ServeOptions {
            proxy_protocol: Some(Rc::new(|peer| {
                peer.is_some_and(|peer| peer.ip() == IpAddr::V4(Ipv4Addr::new(127, 0, 0, 9)))
            })),
            ..options()
        });
        let mut raw = server.connect();
        let _ = raw.0.write_all([LINE, REQUEST].concat().as_bytes());
        raw.expect_end_or_reset();
        server.until("counted", |counters| {
            counters.refused_for("proxy-header-untrusted") == 1
        });
        let counters = server.counters();
        assert_eq!((counters.connections, counters.accepted), (0, 1));
    });
}

#[test]
fn an_incomplete_header_has_a_deadline() {
    on_each_driver(|io| {
        let server = Server::with(io, || {
            proxied(ServeOptions {
                limits: Limits {
                    head_timeout: Duration::from_millis(100),
                    idle_timeout: Duration::from_millis(400),
                    ..Limits::default()
                },
                ..options()
            })
        });
        let mut silent = server.connect();
        let mut alone = server.connect();
        alone.send(LINE);
        let mut slow = server.connect();
        slow.send(&LINE[..10]);
        slow.expect_end();
        server.until("counted", |counters| {
            counters.refused_for("proxy-header-timeout") == 1
        });
        silent.expect_end();
        alone.expect_end();
        server.until("closed", |counters| {
            (counters.connections, counters.idle_timeouts) == (0, 2)
        });
    });
}

#[test]
fn the_header_is_in_front_of_tls() {
    on_each_driver(|io| {
        let authority = Authority::new();
        let slot = TlsSlot::new(authority.server());
        let server = Server::with(io, move || proxied(with_tls(&slot)));
        for header in [LINE.as_bytes().to_vec(), binary(20)] {
            let mut stream = authority.client().connect(server.address);
            stream.sock.write_all(&header).expect("writes");
            for _ in 0..2 {
                let response = get(&mut stream, "/address");
                assert!(response.ends_with("\r\n\r\n192.0.2.7:4660"), "{response}");
            }
        }
        // Header and ClientHello in one piece, byte by byte, and without header.
        let mut raw = server.connect();
        raw.send([LINE.as_bytes(), &[0x16, 3, 1, 0xff, 0xff, 1, 2, 3]].concat());
        let mut alert = [0; 7];
        raw.0.read_exact(&mut alert).expect("an alert");
        assert_eq!(alert[0], 21);
        let mut raw = server.connect();
        raw.send([0x16, 3, 1, 1, 0, 1]);
        raw.expect_end_or_reset();
        server.until("counted", |counters| {
            counters.refused_for("proxy-header-missing") == 1
        });
    });
}

#[test]
fn http2_and_connections_that_are_drained_have_a_header_too() {
    on_each_driver(|io| {
        let server = start(io);
        // The preface behind the header is that of a new connection.
        let mut raw = server.connect();
        raw.send([LINE, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"].concat());
        raw.send([0, 0, 0, 4, 0, 0, 0, 0, 0]);
        let mut frame = [0; 9];
        raw.0.read_exact(&mut frame).expect("SETTINGS");
        assert_eq!(frame[3], 4);
        // A connection of before the drain may still send its header and its request.
        let mut waiting = server.connect();
        waiting.send(&LINE[..10]);
        server.until("parked", |counters| counters.connections == 2);
        thread::sleep(Duration::from_millis(20));
        server.drain(SOON);
        waiting.send([&LINE[10..], "GET /hello HTTP/1.1\r\nHost: a\r\n\r\n"].concat());
        let head = waiting.head();
        assert!(head.starts_with(&HELLO[..15]), "{head}");
        drop(raw);
    });
}
