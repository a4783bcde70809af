//! Valid and malformed messages, with the expected reaction of a server or a client. Rows are as in
//! `h2_conformity`.

use blitz_proto::Method;

use crate::h2_frames::*;

#[test]
fn malformed_requests_are_reset_and_others_continue() {
    for (section, fields, rule) in with_more(MALFORMED).chain(instead(OTHERWISE_MALFORMED)) {
        let frames = [headers(END | EH, 1, &fields), headers(END | EH, 3, GET)].concat();
        let expected =
            format!("1 reset {rule} | 3 GET / @a [] | 3 end => RST_STREAM 1 PROTOCOL_ERROR");
        assert_eq!(server(&frames), expected, "{section}");
    }
}

type Row = (&'static str, &'static str, &'static str);

fn with_more(rows: &[Row]) -> impl Iterator<Item = (&str, String, &str)> {
    rows.iter()
        .map(|(section, more, rule)| (*section, format!("{GET}\n{more}"), *rule))
}

fn instead(rows: &[Row]) -> impl Iterator<Item = (&str, String, &str)> {
    rows.iter()
        .map(|(section, fields, rule)| (*section, (*fields).to_owned(), *rule))
}

/// Fields appended to a valid request.
const MALFORMED: &[Row] = &[
    ("8.2.1 upper case", "Abc: d", "field-name-uppercase"),
    ("8.2.1 a space in a name", "a b: c", "field-name-malformed"),
    ("8.2.1 NUL", "a: b\0c", "field-nul"),
    ("8.2.1 CR", "a: b\rc", "field-value-malformed"),
    ("8.2.1 a control", "a: b\x01c", "field-value-malformed"),
    ("8.2.1 space in front", "a:  b", "field-value-malformed"),
    ("8.2.1 tab behind", "a: b\t", "field-value-malformed"),
    (
        "8.2.2 connection",
        "connection: keep-alive",
        "connection-specific-field",
    ),
    (
        "8.2.2 keep-alive",
        "keep-alive: 5",
        "connection-specific-field",
    ),
    (
        "8.2.2 proxy-connection",
        "proxy-connection: close",
        "connection-specific-field",
    ),
    (
        "8.2.2 transfer-encoding",
        "transfer-encoding: chunked",
        "connection-specific-field",
    ),
    (
        "8.2.2 upgrade",
        "upgrade: websocket",
        "connection-specific-field",
    ),
    ("8.2.2 te", "te: trailers, deflate", "te-not-trailers"),
    ("8.3 unknown", ":test: x", "pseudo-header-unknown"),
    ("8.3 of a response", ":status: 200", "pseudo-header-unknown"),
    ("8.3.1 another host", "host: b", "host-mismatch"),
    ("8.3.1 two hosts", "host: a\nhost: a", "host-repeated"),
    (
        "8.1.1 a length without content",
        "content-length: 1",
        "content-length-mismatch",
    ),
    (
        "8.1.1 two lengths",
        "content-length: 0\ncontent-length: 0",
        "content-length-repeated",
    ),
    (
        "8.1.1 no number",
        "content-length: +1",
        "content-length-malformed",
    ),
];

/// All fields of a request.
const OTHERWISE_MALFORMED: &[Row] = &[
    (
        "8.3 late",
        ":method: GET\n:scheme: https\n:authority: a\nx: y\n:path: /",
        "pseudo-header-after-field",
    ),
    (
        "8.3.1 no method",
        ":scheme: https\n:authority: a\n:path: /",
        "pseudo-header-missing",
    ),
    (
        "8.3.1 no scheme",
        ":method: GET\n:authority: a\n:path: /",
        "pseudo-header-missing",
    ),
    (
        "8.3.1 no path",
        ":method: GET\n:scheme: https\n:authority: a",
        "pseudo-header-missing",
    ),
    (
        "8.3.1 empty path",
        ":method: GET\n:scheme: https\n:authority: a\n:path: ",
        "pseudo-header-missing",
    ),
    (
        "8.3.1 two methods",
        ":method: GET\n:method: GET\n:scheme: https\n:authority: a\n:path: /",
        "pseudo-header-repeated",
    ),
    (
        "8.3.1 two schemes",
        ":scheme: https\n:method: GET\n:scheme: https\n:authority: a\n:path: /",
        "pseudo-header-repeated",
    ),
    (
        "8.3.1 two paths",
        ":path: /\n:method: GET\n:scheme: https\n:authority: a\n:path: /",
        "pseudo-header-repeated",
    ),
    (
        "8.3.1 two authorities",
        ":authority: a\n:method: GET\n:scheme: https\n:authority: a\n:path: /",
        "pseudo-header-repeated",
    ),
    (
        "8.3.1 neither",
        ":method: GET\n:scheme: https\n:path: /",
        "host-missing",
    ),
    (
        "8.5 CONNECT with a path",
        ":method: CONNECT\n:authority: a:1\n:path: /",
        "pseudo-header-missing",
    ),
    (
        "8.5 CONNECT without authority",
        ":method: CONNECT\nhost: a:1",
        "pseudo-header-missing",
    ),
    (
        "8441 4 protocol with GET",
        ":protocol: websocket\n:method: GET\n:scheme: https\n:authority: a\n:path: /",
        "pseudo-header-unknown",
    ),
    (
        "8441 4 no path",
        ":method: CONNECT\n:protocol: websocket\n:scheme: https\n:authority: a",
        "pseudo-header-missing",
    ),
];

#[test]
fn requests_that_cannot_be_served_are_refused_with_a_status() {
    let with = |more: &str| format!("{GET}\n{more}");
    let to = |path: &str| GET.replace(":path: /", &format!(":path: {path}"));
    for (fields, expected) in [
        (to("/../x"), "400 target-above-root"),
        (to("/a/..%2fb"), "400 target-dot-segment-ambiguous"),
        (to("/a/..%5Cb"), "400 target-dot-segment-ambiguous"),
        (to("/a/%2e%2e;b=1/c"), "400 target-dot-segment-ambiguous"),
        (to("/a\\b"), "400 target-malformed"),
        (to("/%zz"), "400 target-escape-malformed"),
        (to("/%00"), "400 target-nul"),
        (to("/a b"), "400 target-malformed"),
        (to("/\u{e9}\\b"), "400 target-malformed"),
        (to("/\u{e9}#b"), "400 target-malformed"),
        (to("/\u{e9}/../.."), "400 target-above-root"),
        (to("x"), "400 target-malformed"),
        (to("*"), "400 target-malformed"),
        (to("http://a/"), "400 target-malformed"),
        (GET.replace("https", "ftp"), "400 target-scheme"),
        (GET.replace("GET", "G T"), "400 method-malformed"),
        (GET.replace(": a", ": user@a"), "400 host-malformed"),
        (GET.replace(": a", ": "), "400 host-malformed"),
        (GET.replace(": a", ": :443"), "400 host-malformed"),
        (GET.replace(": a", ": :"), "400 host-malformed"),
        (with("expect: the-moon"), "417 expectation-unknown"),
        (
            with("content-length: 9223372036854775808"),
            "413 content-length-overflow",
        ),
        (
            to(&format!("/{}", "a".repeat(8200))),
            "414 request-line-too-long",
        ),
        (
            to(&format!("/{}", "<".repeat(2800))),
            "414 request-line-too-long",
        ),
        (with(&"a: b\n".repeat(100)), "431 too-many-fields"),
    ] {
        let frames = [headers(END | EH, 1, &fields), headers(END | EH, 3, GET)].concat();
        let expected = format!("1 refused {expected} | 3 GET / @a [] | 3 end");
        assert_eq!(server(&frames), expected);
    }
}

#[test]
fn valid_requests_of_every_kind_are_accepted() {
    let with = |more: &str| format!("{GET}\n{more}");
    let connect = ":method: CONNECT\n:authority: a:443";
    let extended =
        ":method: CONNECT\n:protocol: websocket\n:scheme: https\n:authority: a\n:path: /chat";
    let options = ":method: OPTIONS\n:scheme: http\n:authority: a\n:path: *";
    let rows = rows! {
        "8.3.1 host alone":
            [headers(END | EH, 1, ":method: GET\n:scheme: https\n:path: /\nhost: b")]
            => "1 GET / @b [host: b] | 1 end";
        "8.3.1 host alike": [headers(END | EH, 1, &with("host: A"))]
            => "1 GET / @a [host: A] | 1 end";
        "8.3.1 options *": [headers(END | EH, 1, options)] => "1 OPTIONS * @a [] | 1 end";
        "8.2.2 te: trailers": [headers(END | EH, 1, &with("te: trailers"))]
            => "1 GET / @a [te: trailers] | 1 end";
        "8.2.3 crumbs": [headers(END | EH, 1, &with("cookie: a=1\nx: y\ncookie: b=2\ncookie: c=3"))]
            => "1 GET / @a [cookie: a=1; b=2; c=3, x: y] | 1 end";
        "8.1 a length":
            [headers(EH, 1, &with("content-length: 5")), frame(DATA, 0, 1, "he"), frame(DATA, END, 1, "llo")]
            => "1 GET / @a [content-length: 5] =5 | \"hello\" | 1 end";
        "8.1 trailers":
            [headers(EH, 1, POST), frame(DATA, 0, 1, "hi"), headers(END | EH, 1, "x: y\ncontent-length: 9")]
            => "1 POST / @a [] =? | \"hi\" | 1 trailers [x: y] | 1 end";
        "8.1 trailers without content": [headers(EH, 1, POST), headers(END | EH, 1, "x: y")]
            => "1 POST / @a [] =? | 1 trailers [x: y] | 1 end";
        "8.1 a length of 0": [headers(END | EH, 1, &with("content-length: 0"))]
            => "1 GET / @a [content-length: 0] =0 | 1 end";
        "8.1 trailers behind a length of 0":
            [headers(EH, 1, &with("content-length: 0")), headers(END | EH, 1, "x: y")]
            => "1 GET / @a [content-length: 0] =0? | 1 trailers [x: y] | 1 end";
        "8.5 CONNECT": [headers(EH, 1, connect), frame(DATA, 0, 1, "hi")]
            => "1 CONNECT  @a:443 [] =? | \"hi\"";
        "8441 4 extended CONNECT": [headers(EH, 1, extended), frame(DATA, END, 1, "hi")]
            => "1 CONNECT /chat @a :websocket [] =? | \"hi\" | 1 end";
        "5.1 two at once":
            [headers(EH, 1, POST), headers(EH, 3, POST), frame(DATA, END, 1, "one"), frame(DATA, END, 3, "two")]
            => "1 POST / @a [] =? | 3 POST / @a [] =? | \"one\" | 1 end | \"two\" | 3 end";
        "10 path is normal":
            [headers(END | EH, 1, &GET.replace(":path: /", ":path: /a/./b/../%7Ec?d"))]
            => "1 GET /a/%7Ec?d @a [] | 1 end";
    };
    check(rows, server);
}

#[test]
fn content_of_a_wrong_length_is_a_stream_error() {
    let post = |length: &str| headers(EH, 1, &format!("{POST}\ncontent-length: {length}"));
    let mismatch = |before: &str| {
        format!(
            "1 POST / @a [content-length: {before} | 1 reset content-length-mismatch => RST_STREAM 1 PROTOCOL_ERROR"
        )
    };
    let (short, long, trailing) = (
        mismatch("3] =3 | \"hi\""),
        mismatch("1] =1"),
        mismatch("3] =3 | \"hi\""),
    );
    let again = "1 POST / @a [] =? | 1 reset head-unexpected => RST_STREAM 1 PROTOCOL_ERROR";
    let rows = rows! {
        "8.1.1 too short": [post("3"), frame(DATA, 0, 1, "hi"), frame(DATA, END, 1, "")] => short.as_str();
        "8.1.1 too long": [post("1"), frame(DATA, END, 1, "hi")] => long.as_str();
        "8.1.1 trailers too early":
            [post("3"), frame(DATA, 0, 1, "hi"), headers(END | EH, 1, "x: y")]
            => trailing.as_str();
        "8.1 a second head": [headers(EH, 1, POST), headers(EH, 1, "x: y")] => again;
        "8.3 pseudo-header in trailers": [headers(EH, 1, POST), headers(END | EH, 1, ":path: /")]
            => "1 POST / @a [] =? | 1 reset pseudo-header-unknown => RST_STREAM 1 PROTOCOL_ERROR";
        "6.9 a window full":
            [headers(EH, 1, POST), frame(DATA, 0, 1, vec![b'x'; 16384]), frame(DATA, 0, 1, vec![b'x'; 16384]), frame(DATA, 0, 1, vec![b'x'; 16384]), frame(DATA, 0, 1, vec![b'x'; 16384])]
            => "1 POST / @a [] =? | 65536 bytes";
    };
    check(rows, server);
}

#[test]
fn content_beyond_a_window_is_an_error() {
    let content = |stream| frame(DATA, 0, stream, vec![b'x'; 16_384]).repeat(4);
    let full = |stream| [headers(EH, stream, POST), content(stream)].concat();
    let one = [full(1), frame(DATA, 0, 1, "x")].concat();
    assert_eq!(
        server(&one),
        "1 POST / @a [] =? | 65536 bytes | 1 reset flow-control => RST_STREAM 1 FLOW_CONTROL_ERROR"
    );
    let next = [headers(EH, 9, POST), frame(DATA, 0, 9, "x")].concat();
    let all = [full(1), full(3), full(5), full(7), next];
    let seen = server(&all.concat());
    assert!(
        seen.contains("| 9 POST / @a [] =? | failed flow-control =>"),
        "{seen}"
    );
}

#[test]
fn valid_responses_are_accepted() {
    let end = |fields: &str| headers(END | EH, 1, fields);
    let head = |fields: &str| headers(EH, 1, fields);
    let ok = ":status: 200";
    let reset = |rule: &str| format!("1 reset {rule} => RST_STREAM 1 PROTOCOL_ERROR");
    let many = head(":status: 100").repeat(9);
    let calm = ["1 100 []"; 8].join(" | ")
        + " | 1 reset too-many-informational => RST_STREAM 1 ENHANCE_YOUR_CALM";
    let rows = rows! {
        "8.1 a head": [end(ok)] => "1 200 [] | 1 end";
        "8.1 content": [head(":status: 200\ncontent-length: 2"), frame(DATA, END, 1, "hi")]
            => "1 200 [content-length: 2] =2 | \"hi\" | 1 end";
        "8.1 1xx": [head(":status: 100"), head(":status: 103\nlink: x"), end(ok)]
            => "1 100 [] | 1 103 [link: x] | 1 200 [] | 1 end";
        "8.1 1xx that ends": [end(":status: 100")] => reset("head-unexpected");
        "8.1 too many 1xx": [many] => calm.as_str();
        "8.1 content before a head": [frame(DATA, 0, 1, "x")] => reset("head-unexpected");
        "8.1 trailers": [head(ok), frame(DATA, 0, 1, "hi"), end("grpc-status: 0")]
            => "1 200 [] =? | \"hi\" | 1 trailers [grpc-status: 0] | 1 end";
        "8.1.1 too short": [head(":status: 200\ncontent-length: 3"), frame(DATA, END, 1, "hi")]
            => "1 200 [content-length: 3] =3 | 1 reset content-length-mismatch => RST_STREAM 1 PROTOCOL_ERROR";
        "8.1.1 304": [end(":status: 304\ncontent-length: 3")]
            => "1 304 [content-length: 3] =3 | 1 end";
        "8.1.1 204 with content": [head(":status: 204"), frame(DATA, END, 1, "x")]
            => "1 204 [] | 1 reset content-length-mismatch => RST_STREAM 1 PROTOCOL_ERROR";
    };
    check(rows, |frames| client(Method::Get, frames));
}

#[test]
fn malformed_responses_are_refused() {
    let end = |fields: &str| headers(END | EH, 1, fields);
    let ok = ":status: 200";
    let reset = |rule: &str| format!("1 reset {rule} => RST_STREAM 1 PROTOCOL_ERROR");
    let rows = rows! {
        "8.6 101": [end(":status: 101")] => reset("status-malformed");
        "8.3.2 two digits": [end(":status: 20")] => reset("status-malformed");
        "8.3.2 no status": [end("x: y")] => reset("pseudo-header-missing");
        "8.3.2 a request": [end(GET)] => reset("pseudo-header-unknown");
        "8.4 a push": [frame(PUSH_PROMISE, EH, 1, [0, 0, 0, 2])]
            => "failed push-unexpected => GOAWAY PROTOCOL_ERROR";
        "5.1.1 a stream of the server": [headers(EH, 2, ok)]
            => "failed stream-id => GOAWAY PROTOCOL_ERROR";
        "5.1 an idle stream": [headers(EH, 3, ok)] => "failed stream-id => GOAWAY PROTOCOL_ERROR";
        "8.7 refused": [frame(RST_STREAM, 0, 1, [0, 0, 0, 7])] => "1 reset refused-by-peer";
        "6.4 cancelled": [frame(RST_STREAM, 0, 1, [0, 0, 0, 8])] => "1 reset reset-by-peer";
        "6.8 GOAWAY above": [frame(GOAWAY, 0, 0, [0; 8])]
            => "goaway NO_ERROR | 1 reset refused-by-peer";
        "6.8 GOAWAY at": [frame(GOAWAY, 0, 0, [0, 0, 0, 1, 0, 0, 0, 0]), end(ok)]
            => "goaway NO_ERROR | 1 200 [] | 1 end";
        "6.5.2 push enabled by a server": [frame(SETTINGS, 0, 0, [0, 2, 0, 0, 0, 1])]
            => "failed settings-invalid => GOAWAY PROTOCOL_ERROR";
        "9218 7.1 of a server": [frame(PRIORITY_UPDATE, 0, 0, "\0\0\0\x01u=0")]
            => "failed frame-unexpected => GOAWAY PROTOCOL_ERROR";
    };
    check(rows, |frames| client(Method::Get, frames));
}

#[test]
fn the_request_determines_whether_a_response_has_content() {
    let head = |fields: &str| headers(END | EH, 1, fields);
    assert_eq!(
        client(Method::Head, &head(":status: 200\ncontent-length: 9")),
        "1 200 [content-length: 9] =9 | 1 end"
    );
    let tunnel = [
        headers(EH, 1, ":status: 200\ncontent-length: 1"),
        frame(DATA, END, 1, "tunnel"),
    ];
    assert_eq!(
        client(Method::Connect, &tunnel.concat()),
        "1 200 [content-length: 1] =? | \"tunnel\" | 1 end"
    );
}
