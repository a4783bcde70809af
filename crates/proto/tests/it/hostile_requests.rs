//! Raw requests, hostile, odd and good, with what has to become of them. Every one is run whole,
//! cut at every byte, and byte by byte.
//!
//! A row is the section it rests on (RFC 9112 unless another RFC is named), the bytes, and the
//! transcript: `METHOD target @authority [scheme] [=length] [flags]`, content in quotes,
//! `trailers [..]`, `end`, `held ".."`, or `refused status rule`.

use crate::support::requests;

#[test]
fn every_row_has_its_outcome() {
    let tables = [
        LINES,
        TARGETS,
        HOSTS,
        FIELDS,
        LENGTHS,
        CODINGS,
        CHUNKS,
        CONNECTIONS,
    ];
    let mut failures = String::new();
    for (section, raw, expected) in tables.iter().copied().flatten() {
        let seen = requests(raw.as_bytes());
        if seen != *expected {
            failures += &format!("\n{section} {raw:?}\n  expected {expected}\n  saw      {seen}");
        }
    }
    assert!(failures.is_empty(), "{failures}");
    let rows: usize = tables.iter().map(|table| table.len()).sum();
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
fn bytes_above_ascii_belong_in_values_only() {
    for (raw, expected) in [
        (
            &b"GET / HTTP/1.1\r\nHost: a\r\nX: \xff\xfe\r\n\r\n"[..],
            "GET / @a | end",
        ),
        (
            b"GET /\xff HTTP/1.1\r\nHost: a\r\n\r\n",
            "refused 400 target-malformed",
        ),
        (
            b"GET /?\xff HTTP/1.1\r\nHost: a\r\n\r\n",
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

type Row = (&'static str, &'static str, &'static str);

const LINES: &[Row] = &[
    ("3", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "GET / @a | end"),
    ("3", "GET / HTTP/1.0\r\n\r\n", "GET / @- 1.0 close | end"),
    (
        "3",
        "PURGE /x HTTP/1.1\r\nHost: a\r\n\r\n",
        "PURGE /x @a | end",
    ),
    ("3.1", "get / HTTP/1.1\r\nHost: a\r\n\r\n", "get / @a | end"),
    (
        "3.1",
        "M-SEARCH /x HTTP/1.1\r\nHost: a\r\n\r\n",
        "M-SEARCH /x @a | end",
    ),
    (
        "3.1",
        "G@T / HTTP/1.1\r\nHost: a\r\n\r\n",
        "refused 400 method-malformed",
    ),
    (
        "3.1",
        "GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n",
        "refused 400 method-malformed",
    ),
    (
        "3",
        " GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "refused 400 method-malformed",
    ),
    (
        "3",
        "GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
        "refused 400 request-line-malformed",
    ),
    (
        "3",
        "GET /  HTTP/1.1\r\nHost: a\r\n\r\n",
        "refused 400 request-line-malformed",
    ),
    (
        "3",
        "GET / HTTP/1.1 \r\nHost: a\r\n\r\n",
        "refused 400 request-line-malformed",
    ),
    (
        "3",
        "GET / x HTTP/1.1\r\nHost: a\r\n\r\n",
        "refused 400 request-line-malformed",
    ),
    (
        "3",
        "GET /\tHTTP/1.1\r\nHost: a\r\n\r\n",
        "refused 400 target-malformed",
    ),
    (
        "3",
        "GET /\x0bHTTP/1.1\r\nHost: a\r\n\r\n",
        "refused 400 target-malformed",
    ),
    (
        "3",
        "GET HTTP/1.1\r\nHost: a\r\n\r\n",
        "refused 400 version-missing",
    ),
    (
        "3",
        "GET\r\nHost: a\r\n\r\n",
        "refused 400 request-line-malformed",
    ),
    ("3", "GET /\r\n\r\n", "refused 400 version-missing"),
    (
        "2.3",
        "GET / HTTP/0.9\r\nHost: a\r\n\r\n",
        "refused 505 version-unsupported",
    ),
    (
        "2.3",
        "GET / HTTP/1.2\r\nHost: a\r\n\r\n",
        "refused 505 version-unsupported",
    ),
    (
        "2.3",
        "GET / HTTP/2.0\r\nHost: a\r\n\r\n",
        "refused 505 version-unsupported",
    ),
    (
        "2.3",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "refused 505 version-unsupported",
    ),
    (
        "2.3",
        "GET / HTTP/3.0\r\nHost: a\r\n\r\n",
        "refused 505 version-unsupported",
    ),
    (
        "2.3",
        "GET / http/1.1\r\nHost: a\r\n\r\n",
        "refused 400 version-malformed",
    ),
    (
        "2.3",
        "GET / HTTP/1.10\r\nHost: a\r\n\r\n",
        "refused 400 version-malformed",
    ),
    (
        "2.3",
        "GET / HTTP/11\r\nHost: a\r\n\r\n",
        "refused 400 version-malformed",
    ),
    (
        "2.3",
        "GET / HTTP/1,1\r\nHost: a\r\n\r\n",
        "refused 400 version-malformed",
    ),
    (
        "2.3",
        "GET / HTTPS/1.1\r\nHost: a\r\n\r\n",
        "refused 400 version-malformed",
    ),
    (
        "2.3",
        "GET / HTTP/1.\r\nHost: a\r\n\r\n",
        "refused 400 version-malformed",
    ),
    (
        "2.2",
        "\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / @a | end",
    ),
    (
        "2.2",
        "\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / @a | end",
    ),
    (
        "2.2",
        "\r\n\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "refused 400 empty-lines",
    ),
    (
        "2.2",
        "\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "refused 400 bare-lf",
    ),
    (
        "2.2",
        "\rGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "refused 400 bare-cr",
    ),
    ("2.2", "GET / HTTP/1.1\nHost: a\n\n", "refused 400 bare-lf"),
    (
        "2.2",
        "GET / HTTP/1.1\r\nHost: a\n\r\n",
        "refused 400 bare-lf",
    ),
    (
        "2.2",
        "GET / HTTP/1.1\r\nHost: a\r\n\n",
        "refused 400 bare-lf",
    ),
    (
        "2.2",
        "GET / HTTP/1.1\r\nHost: a\r\nX: b\rc\r\n\r\n",
        "refused 400 bare-cr",
    ),
    (
        "2.2",
        "GET / HTTP/1.1\r\nHost: a\r\r\n\r\n",
        "refused 400 bare-cr",
    ),
    (
        "2.2",
        "GET / HTTP/1.1\r\nHost: a\r\n\rX: b\r\n\r\n",
        "refused 400 bare-cr",
    ),
    (
        "2.2",
        "GET /\r HTTP/1.1\r\nHost: a\r\n\r\n",
        "refused 400 bare-cr",
    ),
    (
        "2.2",
        "GET / HTTP/1.1\r\n X: b\r\nHost: a\r\n\r\n",
        "refused 400 obs-fold",
    ),
    (
        "2.2",
        "GET / HTTP/1.1\r\n\tX: b\r\nHost: a\r\n\r\n",
        "refused 400 obs-fold",
    ),
    ("8", "", ""),
    ("8", "GET / HTTP/1.1\r\nHo", "refused 400 truncated-head"),
    ("8", "G", "refused 400 truncated-head"),
    (
        "8",
        "GET / HTTP/1.1\r\nHost: a\r\n",
        "refused 400 truncated-head",
    ),
];

const TARGETS: &[Row] = &[
    (
        "3.2.1",
        "GET /a/b?c=d&e HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /a/b?c=d&e @a | end",
    ),
    (
        "3.2.1",
        "GET /? HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /? @a | end",
    ),
    (
        "3.2.1",
        "GET /?a=/../b?c HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /?a=/../b?c @a | end",
    ),
    (
        "3.2.1",
        "GET //x//y HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET //x//y @a | end",
    ),
    (
        "3.2.1",
        "GET x HTTP/1.1\r\nHost: a\r\n\r\n",
        "refused 400 target-malformed",
    ),
    (
        "3.2.1",
        "GET ?x HTTP/1.1\r\nHost: a\r\n\r\n",
        "refused 400 target-malformed",
    ),
    (
        "3.2",
        "GET /#x HTTP/1.1\r\nHost: a\r\n\r\n",
        "refused 400 target-malformed",
    ),
    (
        "3.2",
        "GET /?x#y HTTP/1.1\r\nHost: a\r\n\r\n",
        "refused 400 target-malformed",
    ),
    (
        "3.2",
        "GET /a\\b HTTP/1.1\r\nHost: a\r\n\r\n",
        "refused 400 target-malformed",
    ),
    (
        "3.2",
        "GET /\"x\" HTTP/1.1\r\nHost: a\r\n\r\n",
        "refused 400 target-malformed",
    ),
    (
        "3.2",
        "GET /<x> HTTP/1.1\r\nHost: a\r\n\r\n",
        "refused 400 target-malformed",
    ),
    (
        "3.2",
        "GET /?<x> HTTP/1.1\r\nHost: a\r\n\r\n",
        "refused 400 target-malformed",
    ),
    (
        "3.2",
        "GET /\0 HTTP/1.1\r\nHost: a\r\n\r\n",
        "refused 400 target-malformed",
    ),
    (
        "3.2",
        "GET /\x7f HTTP/1.1\r\nHost: a\r\n\r\n",
        "refused 400 target-malformed",
    ),
    (
        "3.2",
        "GET /?a[]={b}|c^`\\ HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /?a[]={b}|c^`\\ @a | end",
    ),
    (
        "3986 2.1",
        "GET /%7Euser/%2d HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /~user/- @a | end",
    ),
    (
        "3986 2.1",
        "GET /a%2fb HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /a%2Fb @a | end",
    ),
    (
        "3986 2.1",
        "GET /a% HTTP/1.1\r\nHost: a\r\n\r\n",
        "refused 400 target-escape-malformed",
    ),
    (
        "3986 2.1",
        "GET /a%2 HTTP/1.1\r\nHost: a\r\n\r\n",
        "refused 400 target-escape-malformed",
    ),
    (
        "3986 2.1",
        "GET /a%zz HTTP/1.1\r\nHost: a\r\n\r\n",
        "refused 400 target-escape-malformed",
    ),
    (
        "3986 2.1",
        "GET /a%2/b HTTP/1.1\r\nHost: a\r\n\r\n",
        "refused 400 target-escape-malformed",
    ),
    (
        "3986 2.1",
        "GET /a%00 HTTP/1.1\r\nHost: a\r\n\r\n",
        "refused 400 target-nul",
    ),
    (
        "3986 5.2.4",
        "GET /a/../b?q HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /b?q @a | end",
    ),
    (
        "3986 5.2.4",
        "GET /a/./b HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /a/b @a | end",
    ),
    (
        "3986 5.2.4",
        "GET /a/%2e%2E/b HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /b @a | end",
    ),
    (
        "3986 5.2.4",
        "GET /.. HTTP/1.1\r\nHost: a\r\n\r\n",
        "refused 400 target-above-root",
    ),
    (
        "3986 5.2.4",
        "GET /a/../../b HTTP/1.1\r\nHost: a\r\n\r\n",
        "refused 400 target-above-root",
    ),
    (
        "3986 5.2.4",
        "GET /%2e./b HTTP/1.1\r\nHost: a\r\n\r\n",
        "refused 400 target-above-root",
    ),
    (
        "3.2.2",
        "GET http://b/x?y HTTP/1.1\r\nHost: b\r\n\r\n",
        "GET /x?y @b http | end",
    ),
    (
        "3.2.2",
        "GET HTTPS://b:8443/x HTTP/1.1\r\nHost: b\r\n\r\n",
        "GET /x @b:8443 https | end",
    ),
    (
        "3.2.2",
        "GET http://b HTTP/1.1\r\nHost: b\r\n\r\n",
        "GET / @b http | end",
    ),
    (
        "3.2.2",
        "GET http://b?x HTTP/1.1\r\nHost: b\r\n\r\n",
        "GET /?x @b http | end",
    ),
    (
        "3.2.2",
        "GET http://b/a/../c?x HTTP/1.1\r\nHost: b\r\n\r\n",
        "GET /c?x @b http | end",
    ),
    (
        "3.2.2",
        "GET http://b/ HTTP/1.1\r\nHost: evil\r\n\r\n",
        "GET / @b http | end",
    ),
    (
        "3.2.2",
        "GET http://b/ HTTP/1.1\r\n\r\n",
        "refused 400 host-missing",
    ),
    (
        "3.2.2",
        "GET http://b/ HTTP/1.0\r\n\r\n",
        "GET / @b http 1.0 close | end",
    ),
    (
        "9110 4.2.1",
        "GET http:/// HTTP/1.1\r\nHost: b\r\n\r\n",
        "refused 400 target-malformed",
    ),
    (
        "9110 4.2.1",
        "GET http://:80/ HTTP/1.1\r\nHost: b\r\n\r\n",
        "refused 400 target-malformed",
    ),
    (
        "9110 4.2.4",
        "GET http://u@b/ HTTP/1.1\r\nHost: b\r\n\r\n",
        "refused 400 target-userinfo",
    ),
    (
        "9110 4.2.4",
        "GET http://u:p@b/ HTTP/1.1\r\nHost: b\r\n\r\n",
        "refused 400 target-userinfo",
    ),
    (
        "3.2.2",
        "GET http:/b/ HTTP/1.1\r\nHost: b\r\n\r\n",
        "refused 400 target-malformed",
    ),
    (
        "3.2.2",
        "GET http://b:x/ HTTP/1.1\r\nHost: b\r\n\r\n",
        "refused 400 target-malformed",
    ),
    (
        "3.2.2",
        "GET ftp://b/ HTTP/1.1\r\nHost: b\r\n\r\n",
        "refused 400 target-scheme",
    ),
    (
        "3.2.2",
        "GET file:///etc HTTP/1.1\r\nHost: b\r\n\r\n",
        "refused 400 target-scheme",
    ),
    (
        "3.2.3",
        "CONNECT b:443 HTTP/1.1\r\nHost: b\r\n\r\n",
        "CONNECT  @b:443 upgrade | end",
    ),
    (
        "3.2.3",
        "CONNECT [::1]:443 HTTP/1.1\r\nHost: b\r\n\r\n",
        "CONNECT  @[::1]:443 upgrade | end",
    ),
    (
        "3.2.3",
        "CONNECT b HTTP/1.1\r\nHost: b\r\n\r\n",
        "refused 400 target-malformed",
    ),
    (
        "3.2.3",
        "CONNECT b: HTTP/1.1\r\nHost: b\r\n\r\n",
        "refused 400 target-malformed",
    ),
    (
        "3.2.3",
        "CONNECT b:0 HTTP/1.1\r\nHost: b\r\n\r\n",
        "refused 400 target-malformed",
    ),
    (
        "3.2.3",
        "CONNECT :443 HTTP/1.1\r\nHost: b\r\n\r\n",
        "refused 400 target-malformed",
    ),
    (
        "3.2.3",
        "CONNECT / HTTP/1.1\r\nHost: b\r\n\r\n",
        "refused 400 target-malformed",
    ),
    (
        "3.2.3",
        "GET b:443 HTTP/1.1\r\nHost: b\r\n\r\n",
        "refused 400 target-malformed",
    ),
    (
        "9110 9.3.6",
        "CONNECT b:443 HTTP/1.1\r\nHost: b\r\nContent-Length: 0\r\n\r\n",
        "refused 400 connect-with-content",
    ),
    (
        "9110 9.3.6",
        "CONNECT b:443 HTTP/1.1\r\nHost: b\r\n\r\nhello",
        "CONNECT  @b:443 upgrade | end | held \"hello\"",
    ),
    (
        "3.2.4",
        "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
        "OPTIONS * @a | end",
    ),
    (
        "3.2.4",
        "OPTIONS http://b HTTP/1.1\r\nHost: b\r\n\r\n",
        "OPTIONS * @b http | end",
    ),
    (
        "3.2.4",
        "OPTIONS http://b/ HTTP/1.1\r\nHost: b\r\n\r\n",
        "OPTIONS / @b http | end",
    ),
    (
        "3.2.4",
        "GET * HTTP/1.1\r\nHost: a\r\n\r\n",
        "refused 400 target-malformed",
    ),
    (
        "3.2.4",
        "OPTIONS *x HTTP/1.1\r\nHost: a\r\n\r\n",
        "refused 400 target-malformed",
    ),
];

const HOSTS: &[Row] = &[
    ("3.2", "GET / HTTP/1.1\r\n\r\n", "refused 400 host-missing"),
    (
        "3.2",
        "GET / HTTP/1.1\r\nX: y\r\n\r\n",
        "refused 400 host-missing",
    ),
    (
        "3.2",
        "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        "refused 400 host-repeated",
    ),
    (
        "3.2",
        "GET / HTTP/1.1\r\nHost: a\r\nhOST: a\r\n\r\n",
        "refused 400 host-repeated",
    ),
    (
        "3.2",
        "GET / HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n",
        "refused 400 host-repeated",
    ),
    ("3.2", "GET / HTTP/1.1\r\nHost:\r\n\r\n", "GET / @ | end"),
    (
        "3.2",
        "GET / HTTP/1.1\r\nHost: a.example:8080\r\n\r\n",
        "GET / @a.example:8080 | end",
    ),
    (
        "3.2",
        "GET / HTTP/1.1\r\nHost: a:\r\n\r\n",
        "GET / @a: | end",
    ),
    (
        "3.2",
        "GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n",
        "GET / @[::1]:80 | end",
    ),
    (
        "3.2",
        "GET / HTTP/1.1\r\nHost: [2001:db8::1]\r\n\r\n",
        "GET / @[2001:db8::1] | end",
    ),
    (
        "3.2",
        "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        "GET / @127.0.0.1 | end",
    ),
    (
        "3.2",
        "GET / HTTP/1.1\r\nHost: a_b~c\r\n\r\n",
        "GET / @a_b~c | end",
    ),
    (
        "3.2",
        "GET / HTTP/1.1\r\nHost: a:65536\r\n\r\n",
        "refused 400 host-malformed",
    ),
    (
        "3.2",
        "GET / HTTP/1.1\r\nHost: a:+80\r\n\r\n",
        "refused 400 host-malformed",
    ),
    (
        "3.2",
        "GET / HTTP/1.1\r\nHost: a:80:80\r\n\r\n",
        "refused 400 host-malformed",
    ),
    (
        "3.2",
        "GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
        "refused 400 host-malformed",
    ),
    (
        "3.2",
        "GET / HTTP/1.1\r\nHost: a,b\r\n\r\n",
        "refused 400 host-malformed",
    ),
    (
        "3.2",
        "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
        "refused 400 host-malformed",
    ),
    (
        "3.2",
        "GET / HTTP/1.1\r\nHost: a?b\r\n\r\n",
        "refused 400 host-malformed",
    ),
    (
        "3.2",
        "GET / HTTP/1.1\r\nHost: a#b\r\n\r\n",
        "refused 400 host-malformed",
    ),
    (
        "3.2",
        "GET / HTTP/1.1\r\nHost: u@a\r\n\r\n",
        "refused 400 host-malformed",
    ),
    (
        "3.2",
        "GET / HTTP/1.1\r\nHost: http://a\r\n\r\n",
        "refused 400 host-malformed",
    ),
    (
        "3.2",
        "GET / HTTP/1.1\r\nHost: [::1\r\n\r\n",
        "refused 400 host-malformed",
    ),
    (
        "3.2",
        "GET / HTTP/1.1\r\nHost: [::g]\r\n\r\n",
        "refused 400 host-malformed",
    ),
    (
        "3.2",
        "GET / HTTP/1.1\r\nHost: [::1%25eth0]\r\n\r\n",
        "refused 400 host-malformed",
    ),
    (
        "3.2",
        "GET / HTTP/1.1\r\nHost: [v1.a]\r\n\r\n",
        "refused 400 host-malformed",
    ),
    (
        "3.2",
        "GET / HTTP/1.1\r\nHost: ::1\r\n\r\n",
        "refused 400 host-malformed",
    ),
    (
        "3.2",
        "GET / HTTP/1.1\r\nHost: a%2e\r\n\r\n",
        "refused 400 host-malformed",
    ),
    (
        "3.2",
        "GET / HTTP/1.0\r\nHost: a b\r\n\r\n",
        "refused 400 host-malformed",
    ),
];

const FIELDS: &[Row] = &[
    (
        "5.1",
        "GET / HTTP/1.1\r\nHost : a\r\n\r\n",
        "refused 400 space-before-colon",
    ),
    (
        "5.1",
        "GET / HTTP/1.1\r\nHost: a\r\nX\t: b\r\n\r\n",
        "refused 400 space-before-colon",
    ),
    (
        "5.1",
        "GET / HTTP/1.1\r\nHost: a\r\nX Y: b\r\n\r\n",
        "refused 400 field-name-malformed",
    ),
    (
        "5.1",
        "GET / HTTP/1.1\r\nHost: a\r\n: b\r\n\r\n",
        "refused 400 field-name-malformed",
    ),
    (
        "5.1",
        "GET / HTTP/1.1\r\nHost: a\r\nX\r\n\r\n",
        "refused 400 field-name-malformed",
    ),
    (
        "5.1",
        "GET / HTTP/1.1\r\nHost: a\r\nX(: b\r\n\r\n",
        "refused 400 field-name-malformed",
    ),
    (
        "5.1",
        "GET / HTTP/1.1\r\nHost: a\r\nX\x0b: b\r\n\r\n",
        "refused 400 field-name-malformed",
    ),
    (
        "5.1",
        "GET / HTTP/1.1\r\nHost: a\r\nX\0: b\r\n\r\n",
        "refused 400 field-nul",
    ),
    ("5.1", "GET / HTTP/1.1\r\nhOsT:a\r\n\r\n", "GET / @a | end"),
    (
        "5.1",
        "GET / HTTP/1.1\r\nHost:\t a \t\r\n\r\n",
        "GET / @a | end",
    ),
    (
        "5.1",
        "GET / HTTP/1.1\r\nHost: a\r\n!#$%&'*+-.^_`|~09aZ: b\r\n\r\n",
        "GET / @a | end",
    ),
    (
        "5.2",
        "GET / HTTP/1.1\r\nHost: a\r\nX: b\r\n c\r\n\r\n",
        "refused 400 obs-fold",
    ),
    (
        "5.2",
        "GET / HTTP/1.1\r\nHost: a\r\nX: b\r\n\tc: d\r\n\r\n",
        "refused 400 obs-fold",
    ),
    (
        "5.2",
        "GET / HTTP/1.1\r\nHost: a\r\nX: b\r\n \r\n\r\n",
        "refused 400 obs-fold",
    ),
    (
        "9110 5.5",
        "GET / HTTP/1.1\r\nHost: a\r\nX: b\0c\r\n\r\n",
        "refused 400 field-nul",
    ),
    (
        "9110 5.5",
        "GET / HTTP/1.1\r\nHost: a\r\nX: \x01\r\n\r\n",
        "refused 400 field-value-malformed",
    ),
    (
        "9110 5.5",
        "GET / HTTP/1.1\r\nHost: a\r\nX: \x1b[2J\r\n\r\n",
        "refused 400 field-value-malformed",
    ),
    (
        "9110 5.5",
        "GET / HTTP/1.1\r\nHost: a\r\nX: \x7f\r\n\r\n",
        "refused 400 field-value-malformed",
    ),
    (
        "9110 5.5",
        "GET / HTTP/1.1\r\nHost: a\r\nX: a\tb\r\n\r\n",
        "GET / @a | end",
    ),
    (
        "9110 5.5",
        "GET / HTTP/1.1\r\nHost: a\r\nX:\r\nY: \r\n\r\n",
        "GET / @a | end",
    ),
    (
        "9110 10.1.1",
        "PUT / HTTP/1.1\r\nHost: a\r\nExpect: 200-ok\r\n\r\n",
        "refused 417 expectation-unknown",
    ),
    (
        "9110 10.1.1",
        "GET / HTTP/1.1\r\nHost: a\r\nExpect:\r\n\r\n",
        "refused 417 expectation-unknown",
    ),
    (
        "9110 10.1.1",
        "PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-Continue\r\nContent-Length: 2\r\n\r\nhi",
        "PUT / @a =2 continue | \"hi\" | end",
    ),
    (
        "9110 10.1.1",
        "GET / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n\r\n",
        "GET / @a | end",
    ),
    (
        "9110 10.1.1",
        "PUT / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nhi",
        "PUT / @- =2 1.0 close | \"hi\" | end",
    ),
];

const LENGTHS: &[Row] = &[
    (
        "6.2",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
        "POST / @a =5 | \"hello\" | end",
    ),
    (
        "6.2",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
        "POST / @a =0 | end",
    ),
    (
        "6.2",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 007\r\n\r\n1234567",
        "POST / @a =7 | \"1234567\" | end",
    ),
    (
        "6.2",
        "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi",
        "GET / @a =2 | \"hi\" | end",
    ),
    (
        "6.3",
        "POST / HTTP/1.1\r\nHost: a\r\n\r\n",
        "POST / @a | end",
    ),
    (
        "6.3",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\n",
        "refused 400 content-length-malformed",
    ),
    (
        "6.3",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +5\r\n\r\nhello",
        "refused 400 content-length-malformed",
    ),
    (
        "6.3",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -5\r\n\r\nhello",
        "refused 400 content-length-malformed",
    ),
    (
        "6.3",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0x5\r\n\r\nhello",
        "refused 400 content-length-malformed",
    ),
    (
        "6.3",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5 5\r\n\r\nhello",
        "refused 400 content-length-malformed",
    ),
    (
        "6.3",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5, 5\r\n\r\nhello",
        "refused 400 content-length-malformed",
    ),
    (
        "6.3",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5.0\r\n\r\nhello",
        "refused 400 content-length-malformed",
    ),
    (
        "6.3",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1e1\r\n\r\nhello",
        "refused 400 content-length-malformed",
    ),
    (
        "6.3",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5;\r\n\r\nhello",
        "refused 400 content-length-malformed",
    ),
    (
        "6.3",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
        "refused 400 content-length-repeated",
    ),
    (
        "6.3",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\ncontent-length: 6\r\n\r\nhello",
        "refused 400 content-length-repeated",
    ),
    (
        "6.2",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9223372036854775808\r\n\r\n",
        "refused 413 content-length-overflow",
    ),
    (
        "6.2",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 18446744073709551621\r\n\r\n",
        "refused 413 content-length-overflow",
    ),
    (
        "6.2",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999999\r\n\r\n",
        "refused 413 content-length-overflow",
    ),
    (
        "6.3",
        "GET / HTTP/1.1\r\nHost: a\r\nContent_Length: 5\r\n\r\n",
        "GET / @a | end",
    ),
    (
        "8",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhel",
        "POST / @a =5 | \"hel\" | refused 400 truncated-body",
    ),
    (
        "6.3",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhiGET /2 HTTP/1.1\r\nHost: a\r\n\r\n",
        "POST / @a =2 | \"hi\" | end | GET /2 @a | end",
    ),
];

const CODINGS: &[Row] = &[
    (
        "6.1",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST / @a =? | end",
    ),
    (
        "6.1",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: CHUNKED\r\n\r\n0\r\n\r\n",
        "POST / @a =? | end",
    ),
    (
        "6.1",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
        "refused 400 content-length-with-transfer-encoding",
    ),
    (
        "6.1",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "refused 400 content-length-with-transfer-encoding",
    ),
    (
        "6.1",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nTransfer-Encoding: identity\r\n\r\n",
        "refused 400 content-length-with-transfer-encoding",
    ),
    (
        "6.1",
        "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "refused 400 transfer-encoding-in-http10",
    ),
    (
        "6.1",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "refused 501 transfer-encoding-unknown",
    ),
    (
        "6.1",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity, chunked\r\n\r\n0\r\n\r\n",
        "refused 501 transfer-encoding-unknown",
    ),
    (
        "6.1",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "refused 501 transfer-encoding-unknown",
    ),
    (
        "6.3",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
        "refused 400 transfer-encoding-not-chunked-last",
    ),
    (
        "6.3",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n",
        "refused 400 transfer-encoding-not-chunked-last",
    ),
    (
        "6.3",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity\r\n\r\n",
        "refused 400 transfer-encoding-not-chunked-last",
    ),
    (
        "6.3",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n",
        "refused 400 transfer-encoding-not-chunked-last",
    ),
    (
        "6.3",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunkedx\r\n\r\n",
        "refused 400 transfer-encoding-not-chunked-last",
    ),
    (
        "6.3",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \"chunked\"\r\n\r\n",
        "refused 400 transfer-encoding-not-chunked-last",
    ),
    (
        "6.3",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked;q=1\r\n\r\n",
        "refused 400 transfer-encoding-not-chunked-last",
    ),
    (
        "6.3",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: x;y=\"a, chunked\"\r\n\r\n",
        "refused 400 transfer-encoding-not-chunked-last",
    ),
    (
        "6.3",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\r\n\r\n",
        "refused 400 transfer-encoding-not-chunked-last",
    ),
    (
        "6.3",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: ,\r\n\r\n",
        "refused 400 transfer-encoding-not-chunked-last",
    ),
    (
        "6.3",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked,\r\n\r\n",
        "refused 400 transfer-encoding-not-chunked-last",
    ),
    (
        "6.3",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: , chunked\r\n\r\n",
        "refused 400 transfer-encoding-not-chunked-last",
    ),
    (
        "6.3",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, chunked\r\n\r\n",
        "refused 400 transfer-encoding-not-chunked-last",
    ),
    (
        "6.3",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
        "refused 400 transfer-encoding-not-chunked-last",
    ),
    (
        "6.1",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding : chunked\r\n\r\n",
        "refused 400 space-before-colon",
    ),
    (
        "6.1",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \x0bchunked\r\n\r\n",
        "refused 400 field-value-malformed",
    ),
    (
        "6.1",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\r\n chunked\r\n\r\n",
        "refused 400 obs-fold",
    ),
];

/// A chunked POST, before its content.
macro_rules! chunked {
    ($content:literal) => {
        concat!(
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
            $content
        )
    };
}

const CHUNKS: &[Row] = &[
    (
        "7.1",
        chunked!("5\r\nhello\r\n0\r\n\r\n"),
        "POST / @a =? | \"hello\" | end",
    ),
    (
        "7.1",
        chunked!("3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n"),
        "POST / @a =? | \"hello\" | end",
    ),
    (
        "7.1",
        chunked!("000A\r\n0123456789\r\n000\r\n\r\n"),
        "POST / @a =? | \"0123456789\" | end",
    ),
    (
        "7.1",
        chunked!("a\r\n0123456789\r\n0\r\n\r\n"),
        "POST / @a =? | \"0123456789\" | end",
    ),
    (
        "7.1",
        chunked!("\r\nhello\r\n0\r\n\r\n"),
        "POST / @a =? | refused 400 chunk-size-malformed",
    ),
    (
        "7.1",
        chunked!("0x5\r\nhello\r\n0\r\n\r\n"),
        "POST / @a =? | refused 400 chunk-size-malformed",
    ),
    (
        "7.1",
        chunked!("-5\r\nhello\r\n0\r\n\r\n"),
        "POST / @a =? | refused 400 chunk-size-malformed",
    ),
    (
        "7.1",
        chunked!("+5\r\nhello\r\n0\r\n\r\n"),
        "POST / @a =? | refused 400 chunk-size-malformed",
    ),
    (
        "7.1",
        chunked!(" 5\r\nhello\r\n0\r\n\r\n"),
        "POST / @a =? | refused 400 chunk-size-malformed",
    ),
    (
        "7.1",
        chunked!("5 \r\nhello\r\n0\r\n\r\n"),
        "POST / @a =? | refused 400 chunk-size-malformed",
    ),
    (
        "7.1",
        chunked!("5g\r\nhello\r\n0\r\n\r\n"),
        "POST / @a =? | refused 400 chunk-size-malformed",
    ),
    (
        "7.1",
        chunked!("5,\r\nhello\r\n0\r\n\r\n"),
        "POST / @a =? | refused 400 chunk-size-malformed",
    ),
    (
        "7.1",
        chunked!("8000000000000000\r\n"),
        "POST / @a =? | refused 400 chunk-size-overflow",
    ),
    (
        "7.1",
        chunked!("ffffffffffffffff\r\n"),
        "POST / @a =? | refused 400 chunk-size-overflow",
    ),
    (
        "7.1",
        chunked!("10000000000000005\r\nhello"),
        "POST / @a =? | refused 400 chunk-size-overflow",
    ),
    (
        "2.2",
        chunked!("5\nhello\r\n0\r\n\r\n"),
        "POST / @a =? | refused 400 bare-lf",
    ),
    (
        "2.2",
        chunked!("5;a\nhello\r\n0\r\n\r\n"),
        "POST / @a =? | refused 400 bare-lf",
    ),
    (
        "2.2",
        chunked!("5\rhello\r\n0\r\n\r\n"),
        "POST / @a =? | refused 400 bare-cr",
    ),
    (
        "7.1",
        chunked!("5\r\nhello0\r\n\r\n"),
        "POST / @a =? | \"hello\" | refused 400 chunk-end-malformed",
    ),
    (
        "7.1",
        chunked!("5\r\nhello\n0\r\n\r\n"),
        "POST / @a =? | \"hello\" | refused 400 chunk-end-malformed",
    ),
    (
        "7.1",
        chunked!("5\r\nhello\r0\r\n\r\n"),
        "POST / @a =? | \"hello\" | refused 400 chunk-end-malformed",
    ),
    (
        "7.1",
        chunked!("5\r\nhellooo\r\n0\r\n\r\n"),
        "POST / @a =? | \"hello\" | refused 400 chunk-end-malformed",
    ),
    (
        "7.1",
        chunked!("5\r\nhel"),
        "POST / @a =? | \"hel\" | refused 400 truncated-body",
    ),
    (
        "7.1",
        chunked!("5\r\nhello\r\n"),
        "POST / @a =? | \"hello\" | refused 400 truncated-body",
    ),
    (
        "7.1",
        chunked!("0\r\n"),
        "POST / @a =? | refused 400 truncated-body",
    ),
    (
        "7.1",
        chunked!("0\r\n\n"),
        "POST / @a =? | refused 400 bare-lf",
    ),
    (
        "7.1",
        chunked!("0\r\n\rX"),
        "POST / @a =? | refused 400 bare-cr",
    ),
    (
        "7.1.1",
        chunked!("5;a=b;c=\"d e\"\r\nhello\r\n0;z\r\n\r\n"),
        "POST / @a =? | \"hello\" | end",
    ),
    (
        "7.1.1",
        chunked!("5 ; a\r\nhello\r\n0\r\n\r\n"),
        "POST / @a =? | \"hello\" | end",
    ),
    (
        "7.1.1",
        chunked!("5;a\0\r\nhello\r\n0\r\n\r\n"),
        "POST / @a =? | refused 400 chunk-extension-malformed",
    ),
    (
        "7.1.1",
        chunked!("5;a\x7f\r\nhello\r\n0\r\n\r\n"),
        "POST / @a =? | refused 400 chunk-extension-malformed",
    ),
    (
        "7.1.1",
        chunked!("5;a\rhello\r\n0\r\n\r\n"),
        "POST / @a =? | refused 400 bare-cr",
    ),
    (
        "7.1.2",
        chunked!("0\r\nX-Sum: 1\r\nY:2\r\n\r\n"),
        "POST / @a =? | trailers [X-Sum: 1, Y: 2] | end",
    ),
    (
        "7.1.2",
        chunked!("0\r\nContent-Length: 1\r\nHost: b\r\nX: 1\r\nAuthorization: y\r\n\r\n"),
        "POST / @a =? | trailers [X: 1] | end",
    ),
    (
        "7.1.2",
        chunked!("0\r\nTransfer-Encoding: chunked\r\n\r\n"),
        "POST / @a =? | end",
    ),
    (
        "7.1.2",
        chunked!("0\r\nX : 1\r\n\r\n"),
        "POST / @a =? | refused 400 space-before-colon",
    ),
    (
        "7.1.2",
        chunked!("0\r\nX: 1\r\n y\r\n\r\n"),
        "POST / @a =? | refused 400 obs-fold",
    ),
    (
        "7.1.2",
        chunked!("0\r\n X: 1\r\n\r\n"),
        "POST / @a =? | refused 400 obs-fold",
    ),
    (
        "7.1.2",
        chunked!("0\r\nX: 1\n\r\n"),
        "POST / @a =? | refused 400 bare-lf",
    ),
    (
        "7.1.2",
        chunked!("0\r\nX: \0\r\n\r\n"),
        "POST / @a =? | refused 400 field-nul",
    ),
    (
        "7.1.2",
        chunked!("0\r\nX: 1\r\n"),
        "POST / @a =? | refused 400 truncated-body",
    ),
    (
        "7.1",
        chunked!("0\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n"),
        "POST / @a =? | end | GET /2 @a | end",
    ),
];

const CONNECTIONS: &[Row] = &[
    (
        "9.3",
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        "GET / @a close | end",
    ),
    (
        "9.3",
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: Keep-Alive, Close, x\r\n\r\n",
        "GET / @a close | end",
    ),
    (
        "9.3",
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: x\r\nConnection: close\r\n\r\n",
        "GET / @a close | end",
    ),
    (
        "9.3",
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: closed\r\n\r\n",
        "GET / @a | end",
    ),
    (
        "9.3",
        "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
        "GET / @- 1.0 | end",
    ),
    (
        "9.3",
        "GET / HTTP/1.0\r\nConnection: keep-alive, close\r\n\r\n",
        "GET / @- 1.0 close | end",
    ),
    (
        "9.3",
        "GET / HTTP/1.1\r\nHost: a\r\nProxy-Connection: close\r\n\r\n",
        "GET / @a | end",
    ),
    (
        "9110 7.6.1",
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: ,, close ,\r\n\r\n",
        "GET / @a close | end",
    ),
    (
        "9110 7.6.1",
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: a b\r\n\r\n",
        "refused 400 connection-malformed",
    ),
    (
        "9.3.2",
        "GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\nGET /3 HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /1 @a | end | GET /2 @a | end | GET /3 @a | end",
    ),
    (
        "9.6",
        "GET /1 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /1 @a close | end",
    ),
    (
        "9.3.2",
        "GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\n\r\n",
        "GET /1 @a | end | refused 400 host-missing",
    ),
    (
        "9.3.2",
        "GET /1 HTTP/1.1\r\nHost: a\r\n\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /1 @a | end | GET /2 @a | end",
    ),
    (
        "9110 7.8",
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n\x01\x02",
        "GET / @a upgrade | end | held \"\\u{1}\\u{2}\"",
    ),
    (
        "9110 7.8",
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: x/1, h2c\r\n\r\n",
        "GET / @a upgrade | end",
    ),
    (
        "9110 7.8",
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\r\n",
        "GET / @a | end",
    ),
    (
        "9110 7.8",
        "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\n\r\n",
        "GET / @a | end",
    ),
    (
        "9110 7.8",
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\n\r\n",
        "GET / @a | end",
    ),
    (
        "9110 7.8",
        "GET / HTTP/1.0\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
        "GET / @- 1.0 close | end",
    ),
    (
        "9110 7.8",
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: a b\r\n\r\n",
        "refused 400 upgrade-malformed",
    ),
    (
        "9110 7.8",
        "POST / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\nContent-Length: 2\r\n\r\nhi!!",
        "POST / @a =2 upgrade | \"hi\" | end | held \"!!\"",
    ),
];
