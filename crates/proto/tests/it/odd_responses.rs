//! Valid, odd and hostile raw responses, as a client receives them. Each is passed whole, cut at every
//! byte, and byte by byte.

use blitz_proto::Method::Get;
use blitz_proto::{Limits, Method, Name, RequestHead};
use blitz_testing::RESPONSES;

use crate::support::{responses, responses_to};

#[test]
fn every_row_has_its_outcome() {
    let mut failures = String::new();
    for (section, method, raw, expected) in RESPONSES {
        let seen = responses(Method::parse(method.as_bytes()), raw.as_bytes());
        if seen != *expected {
            failures += &format!("\n{section} {raw:?}\n  expected {expected}\n  saw      {seen}");
        }
    }
    assert!(failures.is_empty(), "{failures}");
    assert!(RESPONSES.len() >= 50, "only {} rows", RESPONSES.len());
}

#[test]
fn switching_protocols_opens_a_tunnel_only_if_requested() {
    let raw = b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n\x81\x00";
    let mut head = RequestHead::new(Get, "/");
    head.fields.append(Name::Upgrade, "websocket");
    let seen = responses_to(&head, raw, &Limits::default());
    assert_eq!(seen, "101 tunnel | \"\u{fffd}\\0\" | end by close");
    assert_eq!(responses(Get, raw), "refused 502 switching-unrequested");
    for connection in ["", "Connection: keep-alive\r\n", "Connection: close\r\n"] {
        let raw = format!(
            "HTTP/1.1 101 Switching Protocols\r\n{connection}Upgrade: websocket\r\n\r\n\x01"
        );
        let seen = responses_to(&head, raw.as_bytes(), &Limits::default());
        assert_eq!(seen, "refused 502 switching-unrequested", "{connection:?}");
    }
}

#[test]
fn informational_responses_are_counted() {
    let limits = Limits {
        informational_max: 2,
        ..Limits::default()
    };
    let head = RequestHead::new(Get, "/");
    let raw = "HTTP/1.1 103 Early Hints\r\n\r\n".repeat(3);
    let seen = responses_to(&head, raw.as_bytes(), &limits);
    assert_eq!(seen, "103 | 103 | refused 502 too-many-informational");
}
