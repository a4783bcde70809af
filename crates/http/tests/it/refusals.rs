use std::rc::Rc;
use std::thread;
use std::time::Duration;

use blitz_http::{Chunk, Limits, Name, ServeOptions};
use blitz_testing::Raw;
use blitz_testing::h2::kind::{HEADERS, SETTINGS};
use blitz_testing::h2::{PREFACE, frame};

use crate::support::{Server, on_each_driver, options};

#[test]
fn a_malformed_head_is_answered_with_the_rule_and_closed() {
    on_each_driver(|io| {
        let server = Server::start(io);
        let mut client = server.connect();
        client
            .send("GET /hello HTTP/1.1\r\nHost : a\r\n\r\nGET /hello HTTP/1.1\r\nHost: a\r\n\r\n");
        let head = client.head();
        assert!(head.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{head}");
        assert!(
            head.to_lowercase().contains("\r\nconnection: close\r\n"),
            "{head}"
        );
        client
            .expect("400 Bad Request: space-before-colon\n")
            .expect_end();
        assert_eq!(server.counters().refused_for("space-before-colon"), 1);
        assert_eq!(server.counters().requests, 0);
    });
}

/// RFC 9110, section 9.3.2: "the server MUST NOT send content in the response".
#[test]
fn a_malformed_head_request_is_answered_without_content() {
    on_each_driver(|io| {
        let server = Server::start(io);
        for (rest, rule) in [
            (
                "/%zz HTTP/1.1\r\nHost: a\r\n\r\n",
                "target-escape-malformed",
            ),
            ("/ HTTP/1.1\r\n\r\n", "host-missing"),
            ("/ HTTP/1.1\r\nHost : a\r\n\r\n", "space-before-colon"),
        ] {
            let mut client = server.connect();
            client.send(format!("HEAD {rest}"));
            let head = client.head();
            assert!(head.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{head}");
            client.expect_end();
            assert_eq!(server.counters().refused_for(rule), 1);
        }
    });
}

#[test]
fn a_malformed_body_is_answered_if_the_service_does_not_answer() {
    on_each_driver(|io| {
        let server = Server::start(io);
        let mut client = server.connect();
        client.send("POST /whole HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n");
        assert!(client.head().starts_with("HTTP/1.1 400 Bad Request\r\n"));
        client
            .expect("400 Bad Request: chunk-size-malformed\n")
            .expect_end();
        assert_eq!(server.counters().refused_for("chunk-size-malformed"), 1);
    });
}

#[test]
fn a_refusal_after_valid_requests_follows_their_responses() {
    on_each_driver(|io| {
        let server = Server::start(io);
        let mut client = server.connect();
        client.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\nBAD\r\n\r\n");
        assert!(client.head().starts_with("HTTP/1.1 200 OK\r\n"));
        client.expect("slow");
        assert!(client.head().starts_with("HTTP/1.1 400 Bad Request\r\n"));
    });
}

#[test]
fn the_content_of_refusals_can_be_chosen() {
    on_each_driver(|io| {
        let server = Server::with(io, || ServeOptions {
            refusal: Some(Rc::new(|refusal, _, head| {
                head.fields
                    .append(Name::ContentType, "application/problem+json");
                let content = format!("{{\"status\":{}}}", refusal.status.code());
                Some(Chunk::from(content))
            })),
            ..options()
        });
        let mut client = server.connect();
        client.send("GET /hello HTTP/1.1\r\n\r\n");
        assert!(client.head().contains("application/problem+json"));
        client.expect("{\"status\":400}").expect_end();
    });
}

#[test]
fn a_response_survives_input_that_still_arrives() {
    on_each_driver(|io| {
        let server = Server::start(io);
        let mut client = server.connect();
        client.send("GET /hello HTTP/2.7\r\nHost: a\r\n\r\n");
        client.send(vec![b'x'; 20_000]);
        assert!(client.head().starts_with("HTTP/1.1 505 "));
    });
}

/// The status and the content type of the refusal of this request.
fn refused(server: &Server, request: &str) -> String {
    let mut client = server.connect();
    client.send(request);
    let head = client.head();
    let kind = head
        .lines()
        .find_map(|line| line.strip_prefix("Content-Type: "));
    format!("{} {}", &head[9..12], kind.unwrap_or_default())
}

#[test]
fn a_refusal_is_problem_json_if_an_accept_before_the_fault_allows_it() {
    const PROBLEM: &str = "application/problem+json";
    on_each_driver(|io| {
        let server = Server::start(io);
        let long = "x".repeat(40_000);
        for (request, wanted) in [
            (
                "GET / HTTP/1.1\r\nAccept: */*\r\nHost : a\r\n\r\n",
                format!("400 {PROBLEM}"),
            ),
            (
                "GET / HTTP/1.1\r\nAccept: application/json\r\n\r\n",
                format!("400 {PROBLEM}"),
            ),
            (
                "GET / HTTP/1.1\r\nHost: a\r\nAccept: application/problem+json\r\nExpect: b\r\n\r\n",
                format!("417 {PROBLEM}"),
            ),
            (
                &format!("GET / HTTP/1.1\r\nHost: a\r\nAccept: */*\r\nX: {long}\r\n\r\n"),
                format!("431 {PROBLEM}"),
            ),
            (
                "GET / HTTP/1.1\r\nHost: a\r\nAccept: text/html\r\nX y: z\r\n\r\n",
                "400 text/plain".to_owned(),
            ),
            // The first line is parsed once the head is complete.
            ("BAD\r\nAccept: */*\r\n\r\n", format!("400 {PROBLEM}")),
            // The field comes after the fault, or not at all.
            (
                "GET / HTTP/1.1\r\nHost : a\r\nAccept: */*\r\n\r\n",
                "400 text/plain".to_owned(),
            ),
            (
                &format!("GET /{long} HTTP/1.1\r\nAccept: */*\r\n\r\n"),
                "414 text/plain".to_owned(),
            ),
        ] {
            assert_eq!(refused(&server, request), wanted, "{request:.80}");
        }
        let mut client = server.connect();
        client
            .send("GET /hello HTTP/1.1\r\nAccept: */*\r\nHost : a\r\n\r\n")
            .head();
        client
            .expect(
                "{\"title\":\"Bad Request\",\"status\":400,\"detail\":\"space-before-colon\"}\n",
            )
            .expect_end();
    });
}

#[test]
fn the_form_of_a_refusal_does_not_depend_on_packet_boundaries() {
    on_each_driver(|io| {
        let server = Server::start(io);
        let request = "GET / HTTP/1.1\r\nAccept: */*\r\nHost: a\r\nX y: z\r\n\r\n";
        for cut in 1..request.len() - 5 {
            let mut client = server.connect();
            client.send(&request[..cut]);
            server.until("received", |counters| counters.connections > 0);
            client.send(&request[cut..]);
            assert!(
                client.head().contains("application/problem+json"),
                "cut at {cut}"
            );
        }
    });
}

#[test]
fn a_refused_body_is_problem_json_if_the_head_accepts_it() {
    on_each_driver(|io| {
        let server = Server::start(io);
        let post = |accept: &str| {
            let head = "POST /whole HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n";
            format!("{head}{accept}\r\nzz\r\n")
        };
        assert_eq!(
            refused(&server, &post("Accept: */*\r\n")),
            "400 application/problem+json"
        );
        assert_eq!(
            refused(&server, &post("Accept: text/html\r\n")),
            "400 text/plain"
        );
        assert_eq!(refused(&server, &post("")), "400 text/plain");
        // The `Accept` of an earlier request does not apply to a later one.
        let mut client = server.connect();
        client.send("POST /whole HTTP/1.1\r\nHost: a\r\nAccept: */*\r\nContent-Length: 1\r\n\r\nx");
        client.head();
        client
            .expect("x")
            .send("GET /none HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(client.head().contains("text/plain"));
    });
}

/// The preface and a HEADERS frame without END_HEADERS, with this much of its payload.
fn header_block(bytes: usize) -> Vec<u8> {
    let mut sent = [PREFACE, &frame(SETTINGS, 0, 0, [])].concat();
    sent.extend([0, 0x40, 0, HEADERS, 1, 0, 0, 0, 1]);
    sent.extend(vec![b'z'; bytes]);
    sent
}

/// Heads count against the core's memory while they arrive, and no longer.
#[test]
fn incomplete_large_heads_are_refused_beyond_the_budget() {
    on_each_driver(|io| {
        let limits = || Limits {
            heads_bytes_max: 100_000,
            ..Limits::default()
        };
        let server = Server::with(io, move || ServeOptions {
            limits: limits(),
            ..options()
        });
        let idle = server.ask(blitz_reactor::fair_share);
        let large = "x".repeat(16_000);
        let part = format!("GET /hello HTTP/1.1\r\nHost: a\r\nX: {large}");
        for round in 1..=2 {
            let mut clients: Vec<Raw> = (0..10).map(|_| server.connect()).collect();
            for (number, client) in clients.iter_mut().enumerate() {
                match number % 2 {
                    0 => client.send(&part),
                    _ => client.send(header_block(16_000)),
                };
                let all = round * 10;
                server.until("accepted", |counters| {
                    counters.accepted >= all - 9 + number as u64
                });
                thread::sleep(Duration::from_millis(10));
            }
            let refused = server.counters().heads_refused;
            let expected = round * 4..=round * 6;
            assert!(expected.contains(&refused), "{refused} of 10 are refused");
            // A head in one piece is refused as well, a small one is not.
            let mut late = server.connect();
            late.send(format!("{part}{large}\r\n\r\n"));
            assert!(late.head().starts_with("HTTP/1.1 503 "));
            let mut small = server.connect();
            small.send("GET /hello HTTP/1.1\r\nHost: a\r\n\r\n");
            assert!(small.head().starts_with("HTTP/1.1 200 "));
            // Those that leave make room for the rest of the first.
            let mut first = clients.swap_remove(0);
            drop((clients, late, small));
            server.until("left", |counters| counters.connections == 1);
            first.send("\r\n\r\n");
            assert!(first.head().starts_with("HTTP/1.1 200 "));
            drop(first);
            server.until("closed", |counters| counters.connections == 0);
        }
        assert_eq!(server.ask(blitz_reactor::fair_share), idle);
    });
}
