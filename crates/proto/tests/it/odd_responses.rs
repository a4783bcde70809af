//! Raw responses, good, odd and hostile, as a client sees them. Every one is run whole, cut at
//! every byte, and byte by byte.
//!
//! A row is the section it rests on (RFC 9112 unless another RFC is named), the request's method,
//! the bytes, and the transcript: `status [=length] [tunnel]`, content in quotes, `trailers [..]`,
//! `end`, `end by close`, `reusable`, or `refused 502 rule`.

use blitz_proto::Method::{Connect, Get, Head};
use blitz_proto::{Limits, Method, Name, RequestHead};

use crate::support::{responses, responses_to};

#[test]
fn every_row_has_its_outcome() {
    let mut failures = String::new();
    for (section, method, raw, expected) in ROWS {
        let seen = responses(*method, raw.as_bytes());
        if seen != *expected {
            failures += &format!("\n{section} {raw:?}\n  expected {expected}\n  saw      {seen}");
        }
    }
    assert!(failures.is_empty(), "{failures}");
    assert!(ROWS.len() >= 50, "only {} rows", ROWS.len());
}

#[test]
fn switching_protocols_opens_a_tunnel_only_if_asked_for() {
    let raw = b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n\x81\x00";
    let mut head = RequestHead::new(Get, "/");
    head.fields.append(Name::Upgrade, "websocket");
    let seen = responses_to(&head, raw, &Limits::default());
    assert_eq!(seen, "101 tunnel | \"\u{fffd}\\0\" | end by close");
    assert_eq!(responses(Get, raw), "refused 502 switching-unrequested");
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

type Row = (&'static str, Method, &'static str, &'static str);

#[rustfmt::skip] // a row is one line, or two
const ROWS: &[Row] = &[
    ("6.3", Get, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        "200 =5 | \"hello\" | end | reusable"),
    ("6.3", Get, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "200 =0 | end | reusable"),
    ("6.3", Get, "HTTP/1.1 200 OK\r\n\r\nhello", "200 =? | \"hello\" | end by close"),
    ("6.3", Get, "HTTP/1.1 200 OK\r\n\r\n", "200 =? | end by close"),
    ("6.3", Get, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi",
        "200 =2 | \"hi\" | end"),
    ("6.3", Get, "HTTP/1.1 204 No Content\r\n\r\n", "204 | end | reusable"),
    ("6.3", Get, "HTTP/1.1 304 Not Modified\r\n\r\n", "304 | end | reusable"),
    ("6.3", Get, "HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n",
        "304 =9 | end"),
    ("6.3", Get, "HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n",
        "304 | end | reusable"),
    ("6.3", Get, "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n", "204 =5 | end"),
    ("6.3", Head, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "200 =0 | end | reusable"),
    ("6.3", Head, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", "200 =5 | end"),
    ("6.3", Head, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        "200 =? | end | reusable"),
    ("6.3", Head, "HTTP/1.1 200 OK\r\n\r\n", "200 =? | end | reusable"),
    ("6.3", Head, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        "200 =5 | end | refused 502 unexpected-bytes"),
    ("6.3", Connect, "HTTP/1.1 200 OK\r\n\r\nraw", "200 tunnel | \"raw\" | end by close"),
    ("6.3", Connect, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nraw",
        "200 tunnel | \"raw\" | end by close"),
    ("6.3", Connect, "HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno",
        "403 =2 | \"no\" | end | reusable"),
    ("6.3", Get, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhiHTTP/1.1 200 OK\r\n\r\n",
        "200 =2 | \"hi\" | end | refused 502 unexpected-bytes"),
    ("6.3", Get, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi\r\n",
        "200 =2 | \"hi\" | end | refused 502 unexpected-bytes"),
    ("6.3", Get, "HTTP/1.1 204 No Content\r\n\r\nx", "204 | end | refused 502 unexpected-bytes"),
    ("8", Get, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel",
        "200 =5 | \"hel\" | refused 502 truncated-body"),
    ("8", Get, "HTTP/1.1 200 OK\r\nContent-Le", "refused 502 truncated-head"),
    ("8", Get, "", "refused 502 closed-before-response"),
    ("8", Get, "HTTP/1.1 103 Early Hints\r\n\r\n", "103 | refused 502 truncated-head"),
    ("7.1", Get, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
        "200 =? | \"hi\" | end | reusable"),
    ("7.1", Get, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nX: y\r\n\r\n",
        "200 =? | \"hi\" | trailers [X: y] | end | reusable"),
    ("7.1", Get, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nSet-Cookie: y\r\n\r\n",
        "200 =? | end | reusable"),
    ("7.1", Get, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n",
        "200 =? | \"hi\" | refused 502 truncated-body"),
    ("7.1", Get, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\nx",
        "200 =? | \"hi\" | end | refused 502 unexpected-bytes"),
    ("7.1", Get, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        "200 =? | refused 502 chunk-size-malformed"),
    ("6.1", Get, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n",
        "refused 502 content-length-with-transfer-encoding"),
    ("6.1", Get, "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        "refused 502 transfer-encoding-in-http10"),
    ("6.1", Get, "HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n",
        "refused 502 transfer-encoding-forbidden"),
    ("6.1", Get, "HTTP/1.1 103 Early Hints\r\nTransfer-Encoding: chunked\r\n\r\n",
        "refused 502 transfer-encoding-forbidden"),
    ("6.3", Get, "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        "refused 502 transfer-encoding-not-chunked-last"),
    ("6.1", Get, "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        "refused 502 transfer-encoding-unknown"),
    ("6.3", Get, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nhi",
        "refused 502 content-length-repeated"),
    ("6.3", Get, "HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\n\r\nhi",
        "refused 502 content-length-malformed"),
    ("6.3", Get, "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        "refused 502 content-length-malformed"),
    ("6.2", Get, "HTTP/1.1 200 OK\r\nContent-Length: 9999999999999999999\r\n\r\n",
        "refused 502 content-length-overflow"),
    ("9110 15.2", Get, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        "100 | 103 | 200 =0 | end | reusable"),
    ("9.3", Get, "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nhi", "200 =2 | \"hi\" | end"),
    ("9.3", Get, "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nhi",
        "200 =2 | \"hi\" | end | reusable"),
    ("9.3", Get, "HTTP/1.0 200 OK\r\n\r\nhi", "200 =? | \"hi\" | end by close"),
    ("4", Get, "HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", "200 =0 | end | reusable"),
    ("4", Get, "HTTP/1.1 200 \r\nContent-Length: 0\r\n\r\n", "200 =0 | end | reusable"),
    ("4", Get, "HTTP/1.1 200 Tout va bien\r\nContent-Length: 0\r\n\r\n", "200 =0 | end | reusable"),
    ("4", Get, "HTTP/1.1 799 Odd\r\nContent-Length: 0\r\n\r\n", "799 =0 | end | reusable"),
    ("4", Get, "HTTP/1.1 099 Low\r\n\r\n", "refused 502 status-line-malformed"),
    ("4", Get, "HTTP/1.1 20 OK\r\n\r\n", "refused 502 status-line-malformed"),
    ("4", Get, "HTTP/1.1 2000 OK\r\n\r\n", "refused 502 status-line-malformed"),
    ("4", Get, "HTTP/1.1 2x0 OK\r\n\r\n", "refused 502 status-line-malformed"),
    ("4", Get, "HTTP/1.1  200 OK\r\n\r\n", "refused 502 status-line-malformed"),
    ("4", Get, "HTTP/1.1\t200 OK\r\n\r\n", "refused 502 version-malformed"),
    ("4", Get, "HTTP/1.1 -20 OK\r\n\r\n", "refused 502 status-line-malformed"),
    ("4", Get, "HTTP/1.1 200 O\0K\r\n\r\n", "refused 502 status-line-malformed"),
    ("2.3", Get, "HTTP/2.0 200 OK\r\n\r\n", "refused 502 version-unsupported"),
    ("2.3", Get, "ICY 200 OK\r\n\r\n", "refused 502 status-line-malformed"),
    ("2.3", Get, "<html>hello</html>", "refused 502 status-line-malformed"),
    ("2.2", Get, "\r\nHTTP/1.1 200 OK\r\n\r\n", "refused 502 status-line-malformed"),
    ("2.2", Get, "HTTP/1.1 200 OK\nContent-Length: 0\n\n", "refused 502 bare-lf"),
    ("2.2", Get, "HTTP/1.1 200 OK\rX\r\n\r\n", "refused 502 bare-cr"),
    ("5.1", Get, "HTTP/1.1 200 OK\r\nX : y\r\n\r\n", "refused 502 space-before-colon"),
    ("5.2", Get, "HTTP/1.1 200 OK\r\nX: y\r\n z\r\n\r\n", "refused 502 obs-fold"),
    ("9110 5.5", Get, "HTTP/1.1 200 OK\r\nX: \0\r\n\r\n", "refused 502 field-nul"),
    ("9110 5.1", Get, "HTTP/1.1 200 OK\r\nX y: z\r\n\r\n", "refused 502 field-name-malformed"),
];
