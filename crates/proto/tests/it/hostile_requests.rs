//! Hostile, odd and valid raw requests with their expected outcomes. Each is passed whole, cut at
//! every byte, and byte by byte.

use blitz_testing::REQUESTS;

use crate::support::requests;

#[test]
fn every_row_has_its_outcome() {
    let mut failures = String::new();
    for (section, raw, expected) in REQUESTS.iter().copied().flatten() {
        let seen = requests(raw.as_bytes());
        if seen != *expected {
            failures += &format!("\n{section} {raw:?}\n  expected {expected}\n  saw      {seen}");
        }
    }
    assert!(failures.is_empty(), "{failures}");
    let rows: usize = REQUESTS.iter().map(|table| table.len()).sum();
    assert!(rows >= 150, "only {rows} rows");
}

#[test]
fn a_wrong_first_byte_is_refused_after_empty_lines_too() {
    for raw in ["\r\n GET / HTTP/1.1\r\n", "\r\n\r\n\"x\"", "\r\n\t"] {
        assert_eq!(
            requests(raw.as_bytes()),
            "refused 400 method-malformed",
            "{raw:?}"
        );
    }
}

#[test]
fn bytes_above_ascii_belong_in_targets_and_values_only() {
    for (raw, expected) in [
        (
            &b"GET / HTTP/1.1\r\nHost: a\r\nX: \xff\xfe\r\n\r\n"[..],
            "GET / @a | end",
        ),
        (
            b"GET /\xff HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET /%FF @a | end",
        ),
        (
            b"GET /?\xff\xc3\xa9 HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET /?%FF%C3%A9 @a | end",
        ),
        (
            b"GET http://\xff/ HTTP/1.1\r\nHost: a\r\n\r\n",
            "refused 400 target-malformed",
        ),
        (
            b"G\xffT / HTTP/1.1\r\nHost: a\r\n\r\n",
            "refused 400 method-malformed",
        ),
        (
            b"GET / HTTP/1.1\r\nHost: \xff\r\n\r\n",
            "refused 400 host-malformed",
        ),
        (
            b"GET / HTTP/1.1\r\nHost: a\r\nX\xff: 1\r\n\r\n",
            "refused 400 field-name-malformed",
        ),
        (
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
            "refused 400 method-malformed",
        ),
    ] {
        assert_eq!(requests(raw), expected, "{raw:?}");
    }
}
