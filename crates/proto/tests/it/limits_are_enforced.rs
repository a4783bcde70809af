//! Every limit: a message at the limit is accepted, a message one beyond it is refused.

use blitz_proto::{Limits, Method, RequestHead};

use crate::support::{requests_with, responses_to};

const LINE: &str = "GET / HTTP/1.1\r\n";

#[test]
fn the_request_line_may_be_exactly_as_long_as_its_limit() {
    let limits = Limits {
        request_line_bytes_max: 40,
        ..Limits::default()
    };
    let request = |path_len: usize| {
        let path = "a".repeat(path_len);
        format!("GET /{path} HTTP/1.1\r\nHost: a\r\n\r\n")
    };
    let fixed = "GET / HTTP/1.1".len();
    assert!(requests_with(request(40 - fixed).as_bytes(), &limits).ends_with("| end"));
    let refused = requests_with(request(41 - fixed).as_bytes(), &limits);
    assert_eq!(refused, "refused 414 request-line-too-long");
    // A line beyond the limit is refused before its end.
    let open = requests_with("G".repeat(41).as_bytes(), &limits);
    assert_eq!(open, "refused 414 request-line-too-long");
    assert_eq!(
        requests_with("G".repeat(40).as_bytes(), &limits),
        "refused 400 truncated-head"
    );
}

#[test]
fn an_encoded_target_counts_as_it_is_sent() {
    let limits = Limits {
        request_line_bytes_max: 40,
        ..Limits::default()
    };
    let request = |raw: usize, plain: usize| {
        let path = format!("{}{}", "<".repeat(raw), "a".repeat(plain));
        requests_with(
            format!("GET /{path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes(),
            &limits,
        )
    };
    let room = 40 - "GET / HTTP/1.1".len();
    assert!(request(5, room - 15).ends_with("| end"));
    let refused = "refused 414 request-line-too-long";
    assert_eq!(request(5, room - 14), refused);
    assert_eq!(request(room, 0), refused);
}

#[test]
fn the_header_section_may_be_exactly_as_large_as_its_limit() {
    let limits = Limits {
        head_bytes_max: 100,
        ..Limits::default()
    };
    let request = |section: usize| {
        let host = "Host: a\r\n";
        let rest = section - host.len() - "X: \r\n".len();
        format!("{LINE}{host}X: {}\r\n\r\n", "x".repeat(rest))
    };
    assert_eq!(
        requests_with(request(100).as_bytes(), &limits),
        "GET / @a | end"
    );
    assert_eq!(
        requests_with(request(103).as_bytes(), &limits),
        "refused 431 head-too-large"
    );
    let open = format!("{LINE}X: {}", "x".repeat(98));
    assert_eq!(
        requests_with(open.as_bytes(), &limits),
        "refused 431 head-too-large"
    );
}

#[test]
fn there_may_be_exactly_as_many_fields_as_the_limit() {
    let limits = Limits {
        fields_max: 3,
        ..Limits::default()
    };
    let request = |fields: usize| format!("{LINE}Host: a\r\n{}\r\n", "X: y\r\n".repeat(fields - 1));
    assert_eq!(
        requests_with(request(3).as_bytes(), &limits),
        "GET / @a | end"
    );
    assert_eq!(
        requests_with(request(4).as_bytes(), &limits),
        "refused 431 too-many-fields"
    );
}

#[test]
fn responses_may_have_more_fields_than_requests() {
    let limits = Limits::default();
    let response = |fields: usize| {
        let raw = format!(
            "HTTP/1.1 204 No Content\r\n{}\r\n",
            "X: y\r\n".repeat(fields)
        );
        responses_to(&RequestHead::new(Method::Get, "/"), raw.as_bytes(), &limits)
    };
    assert_eq!(response(200), "204 | end | reusable");
    assert_eq!(response(201), "refused 502 too-many-fields");
}

#[test]
fn raised_limits_are_honoured() {
    let limits = Limits {
        fields_max: 400,
        ..Limits::default()
    };
    let raw = format!("{LINE}Host: a\r\n{}\r\n", "X: y\r\n".repeat(399));
    assert_eq!(requests_with(raw.as_bytes(), &limits), "GET / @a | end");
}

#[test]
fn the_default_limits_apply_to_a_whole_head() {
    let limits = Limits::default();
    let many = format!("{LINE}Host: a\r\n{}\r\n", "X: y\r\n".repeat(100));
    assert_eq!(
        requests_with(many.as_bytes(), &limits),
        "refused 431 too-many-fields"
    );
    let large = format!("{LINE}Host: a\r\nX: {}\r\n\r\n", "x".repeat(32 * 1024));
    assert_eq!(
        requests_with(large.as_bytes(), &limits),
        "refused 431 head-too-large"
    );
    let long = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(8 * 1024));
    assert_eq!(
        requests_with(long.as_bytes(), &limits),
        "refused 414 request-line-too-long"
    );
}

fn chunked(content: &str) -> String {
    format!("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{content}")
}

#[test]
fn chunk_lines_and_extensions_are_bounded() {
    let limits = Limits {
        chunk_line_bytes_max: 12,
        chunk_extension_bytes_max: 15,
        ..Limits::default()
    };
    let good = chunked("1;12345678\r\nx\r\n1;1234567\r\ny\r\n0\r\n\r\n");
    assert_eq!(
        requests_with(good.as_bytes(), &limits),
        "POST / @a =? | \"xy\" | end"
    );
    let long = chunked("1;123456789\r\nx\r\n0\r\n\r\n");
    let refused = "POST / @a =? | refused 400 chunk-line-too-long";
    assert_eq!(requests_with(long.as_bytes(), &limits), refused);
    let often = chunked("1;12345678\r\nx\r\n1;12345678\r\ny\r\n0\r\n\r\n");
    let refused = "POST / @a =? | \"x\" | refused 400 chunk-line-too-long";
    assert_eq!(requests_with(often.as_bytes(), &limits), refused);
    let zeros = chunked("0000000000001\r\nx\r\n0\r\n\r\n");
    let refused = "POST / @a =? | refused 400 chunk-line-too-long";
    assert_eq!(requests_with(zeros.as_bytes(), &limits), refused);
}

#[test]
fn trailers_are_bounded() {
    let limits = Limits {
        trailer_bytes_max: 20,
        trailer_fields_max: 2,
        ..Limits::default()
    };
    let good = chunked("0\r\nA: 1\r\nB: 2\r\n\r\n");
    let seen = requests_with(good.as_bytes(), &limits);
    assert_eq!(seen, "POST / @a =? | trailers [A: 1, B: 2] | end");
    let refused = "POST / @a =? | refused 431 trailers-too-large";
    let many = chunked("0\r\nA: 1\r\nB: 2\r\nC: 3\r\n\r\n");
    assert_eq!(requests_with(many.as_bytes(), &limits), refused);
    let large = chunked("0\r\nA: 1234567890123456789\r\n\r\n");
    assert_eq!(requests_with(large.as_bytes(), &limits), refused);
}

#[test]
fn empty_lines_are_counted_per_request() {
    let limits = Limits {
        empty_lines_max: 1,
        ..Limits::default()
    };
    let raw =
        "\r\nGET /1 HTTP/1.1\r\nHost: a\r\n\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n\r\n\r\n";
    let seen = requests_with(raw.as_bytes(), &limits);
    assert_eq!(
        seen,
        "GET /1 @a | end | GET /2 @a | end | refused 400 empty-lines"
    );
}
