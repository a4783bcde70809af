//! Frames good and bad, section by section, with what a server has to make of them. Every row is
//! run whole, cut at every byte, and byte by byte.
//!
//! A row is the section of RFC 9113 that it rests on, the frames after preface and SETTINGS, and the
//! transcript: what is reported, and behind `=>` what is answered.

use blitz_proto::Method;

use crate::h2_frames::*;

fn check(rows: Vec<(&str, Vec<Vec<u8>>, &str)>, run: impl Fn(&[u8]) -> String) {
    let mut failures = String::new();
    for (section, frames, expected) in rows {
        let seen = run(&frames.concat());
        if seen != expected {
            failures += &format!("\n{section}\n  expected {expected}\n  saw      {seen}");
        }
    }
    assert!(failures.is_empty(), "{failures}");
}

#[test]
fn the_preface_comes_first_and_settings_behind_it() {
    let cut = |bytes: &[u8]| bytes.to_vec();
    for (raw, expected) in [
        (
            cut(b"GET / HTTP/1.1\r\n\r\n"),
            "failed preface-malformed => GOAWAY PROTOCOL_ERROR",
        ),
        (
            cut(b"PRI * HTTP/2.0\r\n\r\nXX"),
            "failed preface-malformed => GOAWAY PROTOCOL_ERROR",
        ),
        (
            [PREFACE, &frame(PING, 0, 0, [0; 8])].concat(),
            "failed preface-malformed => GOAWAY PROTOCOL_ERROR",
        ),
        (cut(b"PRI"), ""),
    ] {
        assert_eq!(server_raw(&raw), expected);
    }
}

#[test]
fn frames_have_their_sizes_and_places() {
    let protocol = "failed frame-unexpected => GOAWAY PROTOCOL_ERROR";
    let size = "failed frame-size => GOAWAY FRAME_SIZE_ERROR";
    let get = || headers(END | EH, 1, GET);
    let answered = "1 GET / @a [] | 1 end";
    let open = || headers(EH, 1, POST);
    let then = |rest: &str| format!("{answered} | {rest}");
    let opened = |rest: &str| format!("1 POST / @a [] =? | {rest}");
    let (protocol_then, size_opened) = (then(protocol), opened(size));
    let (protocol_opened, closed_then) = (
        opened(protocol),
        then("failed stream-closed => GOAWAY STREAM_CLOSED"),
    );
    check(
        vec![
            (
                "4.1 unknown types are ignored",
                vec![frame(0x42, 0xff, 1, "??"), get()],
                answered,
            ),
            (
                "4.1 unknown flags are ignored",
                vec![headers(END | EH | 0x52, 1, GET)],
                answered,
            ),
            (
                "4.1 the reserved bit is ignored",
                vec![headers(END | EH, 1 | 1 << 31, GET)],
                answered,
            ),
            (
                "4.2 a frame as large as allowed",
                vec![frame(0x42, 0, 0, vec![0; 16384]), get()],
                answered,
            ),
            (
                "4.2 a frame too large",
                vec![frame(0x42, 0, 0, vec![0; 16385])],
                size,
            ),
            (
                "4.2 DATA too large",
                vec![open(), frame(DATA, 0, 1, vec![0; 16385])],
                &size_opened,
            ),
            ("5.1 idle: DATA", vec![frame(DATA, 0, 1, "x")], protocol),
            (
                "5.1 idle: RST_STREAM",
                vec![frame(RST_STREAM, 0, 1, [0; 4])],
                protocol,
            ),
            (
                "5.1 idle: WINDOW_UPDATE",
                vec![frame(WINDOW_UPDATE, 0, 1, [0, 0, 0, 1])],
                protocol,
            ),
            (
                "5.1 idle: CONTINUATION",
                vec![frame(CONTINUATION, EH, 1, "")],
                protocol,
            ),
            (
                "5.1 closed: DATA",
                vec![get(), frame(DATA, END, 1, "x")],
                &closed_then,
            ),
            ("5.1 closed: HEADERS", vec![get(), get()], &closed_then),
            (
                "5.1 closed: WINDOW_UPDATE",
                vec![get(), frame(WINDOW_UPDATE, 0, 1, [0, 0, 0, 1])],
                answered,
            ),
            (
                "5.1 closed: RST_STREAM",
                vec![get(), frame(RST_STREAM, 0, 1, [0; 4])],
                answered,
            ),
            (
                "5.1 closed: PRIORITY",
                vec![get(), frame(PRIORITY, 0, 1, [0, 0, 0, 0, 9])],
                answered,
            ),
            (
                "5.1 after RST_STREAM: HEADERS",
                vec![
                    open(),
                    frame(RST_STREAM, 0, 1, [0, 0, 0, 8]),
                    headers(END | EH, 1, "a: b"),
                ],
                "1 POST / @a [] =? | 1 reset reset-by-peer | failed stream-closed => GOAWAY STREAM_CLOSED",
            ),
            (
                "5.1 after RST_STREAM: DATA",
                vec![
                    open(),
                    frame(RST_STREAM, 0, 1, [0, 0, 0, 8]),
                    frame(DATA, END, 1, "x"),
                ],
                "1 POST / @a [] =? | 1 reset reset-by-peer | failed stream-closed => GOAWAY STREAM_CLOSED",
            ),
            (
                "5.1.1 an even stream",
                vec![headers(END | EH, 2, GET)],
                "failed stream-id => GOAWAY PROTOCOL_ERROR",
            ),
            (
                "5.1.1 a lower stream",
                vec![headers(END | EH, 5, GET), headers(END | EH, 3, GET)],
                "5 GET / @a [] | 5 end | failed stream-id => GOAWAY PROTOCOL_ERROR",
            ),
            (
                "6.1 DATA on stream 0",
                vec![frame(DATA, 0, 0, "x")],
                protocol,
            ),
            (
                "6.1 padding",
                vec![open(), frame(DATA, PADDED | END, 1, "\x02hi\0\0")],
                "1 POST / @a [] =? | \"hi\" | 1 end",
            ),
            (
                "6.1 only padding",
                vec![open(), frame(DATA, PADDED | END, 1, "\x02\0\0")],
                "1 POST / @a [] =? | 1 end",
            ),
            (
                "6.1 no padding",
                vec![open(), frame(DATA, PADDED | END, 1, "\0hi")],
                "1 POST / @a [] =? | \"hi\" | 1 end",
            ),
            (
                "6.1 too much padding",
                vec![open(), frame(DATA, PADDED, 1, "\x03hi")],
                "1 POST / @a [] =? | failed frame-padding => GOAWAY PROTOCOL_ERROR",
            ),
            (
                "6.1 padding without length",
                vec![open(), frame(DATA, PADDED, 1, "")],
                &size_opened,
            ),
            (
                "6.2 HEADERS on stream 0",
                vec![headers(END | EH, 0, GET)],
                protocol,
            ),
            (
                "6.2 padding",
                vec![frame(
                    HEADERS,
                    PADDED | END | EH,
                    1,
                    [&[3], &block(GET)[..], &[0; 3]].concat(),
                )],
                answered,
            ),
            (
                "6.2 too much padding",
                vec![frame(HEADERS, PADDED | END | EH, 1, "\x05abc")],
                "failed frame-padding => GOAWAY PROTOCOL_ERROR",
            ),
            (
                "6.2 a dependency",
                vec![frame(
                    HEADERS,
                    DEPENDS | END | EH,
                    1,
                    [&[0, 0, 0, 3, 7], &block(GET)[..]].concat(),
                )],
                answered,
            ),
            (
                "6.2 padding and dependency",
                vec![frame(
                    HEADERS,
                    PADDED | DEPENDS | END | EH,
                    1,
                    [&[1, 0, 0, 0, 3, 7], &block(GET)[..], &[0]].concat(),
                )],
                answered,
            ),
            (
                "5.3.1 a dependency on itself",
                vec![frame(
                    HEADERS,
                    DEPENDS | END | EH,
                    1,
                    [&[0, 0, 0, 1, 7], &block(GET)[..]].concat(),
                )],
                "failed stream-dependency => GOAWAY PROTOCOL_ERROR",
            ),
            (
                "6.3 PRIORITY on stream 0",
                vec![frame(PRIORITY, 0, 0, [0; 5])],
                protocol,
            ),
            (
                "6.3 PRIORITY of a wrong size",
                vec![frame(PRIORITY, 0, 1, [0; 4])],
                size,
            ),
            (
                "6.3 PRIORITY on an idle stream",
                vec![frame(PRIORITY, 0, 7, [0, 0, 0, 5, 1]), get()],
                answered,
            ),
            (
                "6.4 RST_STREAM on stream 0",
                vec![frame(RST_STREAM, 0, 0, [0; 4])],
                protocol,
            ),
            (
                "6.4 RST_STREAM of a wrong size",
                vec![open(), frame(RST_STREAM, 0, 1, [0; 3])],
                &size_opened,
            ),
            (
                "6.4 RST_STREAM",
                vec![
                    open(),
                    frame(RST_STREAM, 0, 1, [0, 0, 0, 8]),
                    headers(END | EH, 3, GET),
                ],
                "1 POST / @a [] =? | 1 reset reset-by-peer | 3 GET / @a [] | 3 end",
            ),
            (
                "6.5 SETTINGS on a stream",
                vec![frame(SETTINGS, 0, 1, [])],
                protocol,
            ),
            (
                "6.5 ACK with payload",
                vec![frame(SETTINGS, END, 0, [0; 6])],
                size,
            ),
            (
                "6.5 SETTINGS of a wrong size",
                vec![frame(SETTINGS, 0, 0, [0; 5])],
                size,
            ),
            (
                "6.5 an unknown setting",
                vec![frame(SETTINGS, 0, 0, [0xff, 0xff, 0, 0, 0, 1]), get()],
                answered,
            ),
            (
                "6.5.2 ENABLE_PUSH 2",
                vec![frame(SETTINGS, 0, 0, [0, 2, 0, 0, 0, 2])],
                "failed settings-invalid => GOAWAY PROTOCOL_ERROR",
            ),
            (
                "6.5.2 INITIAL_WINDOW_SIZE",
                vec![frame(SETTINGS, 0, 0, [0, 4, 0x80, 0, 0, 0])],
                "failed flow-control => GOAWAY FLOW_CONTROL_ERROR",
            ),
            (
                "6.5.2 MAX_FRAME_SIZE too small",
                vec![frame(SETTINGS, 0, 0, [0, 5, 0, 0, 0x3f, 0xff])],
                "failed settings-invalid => GOAWAY PROTOCOL_ERROR",
            ),
            (
                "6.5.2 MAX_FRAME_SIZE too large",
                vec![frame(SETTINGS, 0, 0, [0, 5, 1, 0, 0, 0])],
                "failed settings-invalid => GOAWAY PROTOCOL_ERROR",
            ),
            (
                "8441 3 CONNECT_PROTOCOL 2",
                vec![frame(SETTINGS, 0, 0, [0, 8, 0, 0, 0, 2])],
                "failed settings-invalid => GOAWAY PROTOCOL_ERROR",
            ),
            (
                "9218 2.1 NO_RFC7540_PRIORITIES 2",
                vec![frame(SETTINGS, 0, 0, [0, 9, 0, 0, 0, 2])],
                "failed settings-invalid => GOAWAY PROTOCOL_ERROR",
            ),
            (
                "6.6 PUSH_PROMISE",
                vec![open(), frame(PUSH_PROMISE, EH, 1, [0, 0, 0, 2])],
                "1 POST / @a [] =? | failed push-unexpected => GOAWAY PROTOCOL_ERROR",
            ),
            (
                "6.7 PING",
                vec![frame(PING, 0, 0, "12345678")],
                " => PING 1 \"12345678\"",
            ),
            (
                "6.7 PING that answers nothing",
                vec![frame(PING, END, 0, "12345678"), get()],
                answered,
            ),
            (
                "6.7 PING on a stream",
                vec![frame(PING, 0, 1, "12345678")],
                protocol,
            ),
            (
                "6.7 PING of a wrong size",
                vec![frame(PING, 0, 0, "1234567")],
                size,
            ),
            (
                "6.8 GOAWAY",
                vec![frame(GOAWAY, 0, 0, [0; 8]), get()],
                "goaway NO_ERROR | 1 GET / @a [] | 1 end",
            ),
            (
                "6.8 GOAWAY with words",
                vec![frame(GOAWAY, 0, 0, "\0\0\0\0\0\0\0\x0bcalm down")],
                "goaway ENHANCE_YOUR_CALM",
            ),
            (
                "6.8 GOAWAY on a stream",
                vec![frame(GOAWAY, 0, 1, [0; 8])],
                protocol,
            ),
            (
                "6.8 GOAWAY of a wrong size",
                vec![frame(GOAWAY, 0, 0, [0; 7])],
                size,
            ),
            (
                "6.9 WINDOW_UPDATE 0",
                vec![frame(WINDOW_UPDATE, 0, 0, [0; 4])],
                "failed window-increment-zero => GOAWAY PROTOCOL_ERROR",
            ),
            (
                "6.9 WINDOW_UPDATE 0 on a stream",
                vec![open(), frame(WINDOW_UPDATE, 0, 1, [0; 4])],
                "1 POST / @a [] =? | 1 reset window-increment-zero => RST_STREAM 1 PROTOCOL_ERROR",
            ),
            (
                "6.9 WINDOW_UPDATE of a wrong size",
                vec![frame(WINDOW_UPDATE, 0, 0, [0; 3])],
                size,
            ),
            (
                "6.9.1 too large a window",
                vec![frame(WINDOW_UPDATE, 0, 0, [0x7f, 0xff, 0xff, 0xff])],
                "failed flow-control => GOAWAY FLOW_CONTROL_ERROR",
            ),
            (
                "6.9.1 too large a window of a stream",
                vec![open(), frame(WINDOW_UPDATE, 0, 1, [0x7f, 0xff, 0xff, 0xff])],
                "1 POST / @a [] =? | 1 reset flow-control => RST_STREAM 1 FLOW_CONTROL_ERROR",
            ),
            (
                "6.9.2 too large a window by settings",
                vec![
                    open(),
                    frame(WINDOW_UPDATE, 0, 1, [0, 0, 0, 1]),
                    frame(SETTINGS, 0, 0, [0, 4, 0x7f, 0xff, 0xff, 0xff]),
                ],
                "1 POST / @a [] =? | failed flow-control => GOAWAY FLOW_CONTROL_ERROR",
            ),
            (
                "6.10 CONTINUATION after the end",
                vec![open(), frame(CONTINUATION, EH, 1, "")],
                &protocol_opened,
            ),
            (
                "6.10 CONTINUATION on stream 0",
                vec![headers(END, 1, GET), frame(CONTINUATION, EH, 0, "")],
                protocol,
            ),
            (
                "6.10 CONTINUATION on another stream",
                vec![headers(END, 1, GET), frame(CONTINUATION, EH, 3, "")],
                protocol,
            ),
            (
                "6.10 something else in between",
                vec![headers(END, 1, GET), frame(PING, 0, 0, "12345678")],
                protocol,
            ),
            (
                "6.10 something unknown in between",
                vec![headers(END, 1, GET), frame(0x42, 0, 0, "")],
                protocol,
            ),
            (
                "6.10 CONTINUATION",
                vec![
                    headers(END, 1, GET),
                    frame(CONTINUATION, 0, 1, block("a: b")),
                    frame(CONTINUATION, EH, 1, block("c: d")),
                ],
                "1 GET / @a [a: b, c: d] | 1 end",
            ),
            (
                "6.10 a field in two frames",
                vec![
                    frame(HEADERS, END, 1, &block(GET)[..9]),
                    frame(CONTINUATION, EH, 1, &block(GET)[9..]),
                ],
                answered,
            ),
            (
                "9218 7.1 PRIORITY_UPDATE",
                vec![
                    frame(PRIORITY_UPDATE, 0, 0, "\0\0\0\x01u=0"),
                    get(),
                    frame(PRIORITY_UPDATE, 0, 0, "\0\0\0\x01u=0"),
                ],
                answered,
            ),
            (
                "9218 7.1 PRIORITY_UPDATE on a stream",
                vec![get(), frame(PRIORITY_UPDATE, 0, 1, "\0\0\0\x01u=0")],
                &protocol_then,
            ),
            (
                "9218 7.1 PRIORITY_UPDATE for stream 0",
                vec![frame(PRIORITY_UPDATE, 0, 0, "\0\0\0\0u=0")],
                protocol,
            ),
            (
                "9218 7.1 PRIORITY_UPDATE without stream",
                vec![frame(PRIORITY_UPDATE, 0, 0, "\0\0\0")],
                size,
            ),
            (
                "7541 a block that is no HPACK",
                vec![frame(HEADERS, END | EH, 1, [0x80])],
                "failed compression => GOAWAY COMPRESSION_ERROR",
            ),
            (
                "7541 the same in trailers",
                vec![open(), frame(HEADERS, END | EH, 1, [0xfe])],
                "1 POST / @a [] =? | failed compression => GOAWAY COMPRESSION_ERROR",
            ),
        ],
        server,
    );
}

#[test]
fn malformed_requests_are_reset_and_others_go_on() {
    let reset = |rule: &str| {
        format!("1 reset {rule} | 3 GET / @a [] | 3 end => RST_STREAM 1 PROTOCOL_ERROR")
    };
    let with = |more: &str| format!("{GET}\n{more}");
    let rows = [
        ("8.2.1 upper case", with("Abc: d"), "field-name-uppercase"),
        (
            "8.2.1 a space in a name",
            with("a b: c"),
            "field-name-malformed",
        ),
        ("8.2.1 NUL", with("a: b\0c"), "field-nul"),
        ("8.2.1 CR", with("a: b\rc"), "field-value-malformed"),
        (
            "8.2.1 a control",
            with("a: b\x01c"),
            "field-value-malformed",
        ),
        (
            "8.2.1 space in front",
            with("a:  b"),
            "field-value-malformed",
        ),
        ("8.2.1 tab behind", with("a: b\t"), "field-value-malformed"),
        (
            "8.2.2 connection",
            with("connection: keep-alive"),
            "connection-specific-field",
        ),
        (
            "8.2.2 keep-alive",
            with("keep-alive: 5"),
            "connection-specific-field",
        ),
        (
            "8.2.2 proxy-connection",
            with("proxy-connection: close"),
            "connection-specific-field",
        ),
        (
            "8.2.2 transfer-encoding",
            with("transfer-encoding: chunked"),
            "connection-specific-field",
        ),
        (
            "8.2.2 upgrade",
            with("upgrade: websocket"),
            "connection-specific-field",
        ),
        ("8.2.2 te", with("te: trailers, deflate"), "te-not-trailers"),
        ("8.3 unknown", with(":test: x"), "pseudo-header-unknown"),
        (
            "8.3 of a response",
            with(":status: 200"),
            "pseudo-header-unknown",
        ),
        (
            "8.3 late",
            ":method: GET\n:scheme: https\n:authority: a\nx: y\n:path: /".into(),
            "pseudo-header-after-field",
        ),
        (
            "8.3.1 no method",
            ":scheme: https\n:authority: a\n:path: /".into(),
            "pseudo-header-missing",
        ),
        (
            "8.3.1 no scheme",
            ":method: GET\n:authority: a\n:path: /".into(),
            "pseudo-header-missing",
        ),
        (
            "8.3.1 no path",
            ":method: GET\n:scheme: https\n:authority: a".into(),
            "pseudo-header-missing",
        ),
        (
            "8.3.1 empty path",
            ":method: GET\n:scheme: https\n:authority: a\n:path: ".into(),
            "pseudo-header-missing",
        ),
        (
            "8.3.1 two methods",
            format!(":method: GET\n{GET}"),
            "pseudo-header-repeated",
        ),
        (
            "8.3.1 two schemes",
            format!(":scheme: https\n{GET}"),
            "pseudo-header-repeated",
        ),
        (
            "8.3.1 two paths",
            format!(":path: /\n{GET}"),
            "pseudo-header-repeated",
        ),
        (
            "8.3.1 two authorities",
            format!(":authority: a\n{GET}"),
            "pseudo-header-repeated",
        ),
        ("8.3.1 another host", with("host: b"), "host-mismatch"),
        ("8.3.1 two hosts", with("host: a\nhost: a"), "host-repeated"),
        (
            "8.3.1 neither",
            ":method: GET\n:scheme: https\n:path: /".into(),
            "host-missing",
        ),
        (
            "8.1.1 a length without content",
            with("content-length: 1"),
            "content-length-mismatch",
        ),
        (
            "8.1.1 two lengths",
            with("content-length: 0\ncontent-length: 0"),
            "content-length-repeated",
        ),
        (
            "8.1.1 no number",
            with("content-length: +1"),
            "content-length-malformed",
        ),
        (
            "8.5 CONNECT with a path",
            ":method: CONNECT\n:authority: a:1\n:path: /".into(),
            "pseudo-header-missing",
        ),
        (
            "8.5 CONNECT without authority",
            ":method: CONNECT\nhost: a:1".into(),
            "pseudo-header-missing",
        ),
        (
            "8441 4 protocol with GET",
            format!(":protocol: websocket\n{GET}"),
            "pseudo-header-unknown",
        ),
        (
            "8441 4 no path",
            ":method: CONNECT\n:protocol: websocket\n:scheme: https\n:authority: a".into(),
            "pseudo-header-missing",
        ),
    ];
    for (section, fields, rule) in rows {
        let frames = [headers(END | EH, 1, &fields), headers(END | EH, 3, GET)].concat();
        assert_eq!(server(&frames), reset(rule), "{section}");
    }
}

#[test]
fn requests_that_cannot_be_served_are_refused_with_a_status() {
    let with = |more: &str| format!("{GET}\n{more}");
    let to = |path: &str| GET.replace(":path: /", &format!(":path: {path}"));
    for (fields, expected) in [
        (to("/../x"), "400 target-above-root"),
        (to("/%zz"), "400 target-escape-malformed"),
        (to("/%00"), "400 target-nul"),
        (to("/a b"), "400 target-malformed"),
        (to("x"), "400 target-malformed"),
        (to("*"), "400 target-malformed"),
        (to("http://a/"), "400 target-malformed"),
        (GET.replace("https", "ftp"), "400 target-scheme"),
        (GET.replace("GET", "G T"), "400 method-malformed"),
        (GET.replace(": a", ": user@a"), "400 host-malformed"),
        (GET.replace(": a", ": "), "400 host-malformed"),
        (with("expect: the-moon"), "417 expectation-unknown"),
        (
            with("content-length: 9223372036854775808"),
            "413 content-length-overflow",
        ),
        (
            to(&format!("/{}", "a".repeat(8200))),
            "414 request-line-too-long",
        ),
        (with(&"a: b\n".repeat(97)), "431 too-many-fields"),
    ] {
        let frames = [headers(END | EH, 1, &fields), headers(END | EH, 3, GET)].concat();
        let expected = format!("1 refused {expected} | 3 GET / @a [] | 3 end");
        assert_eq!(server(&frames), expected);
    }
}

#[test]
fn good_requests_of_every_kind_are_understood() {
    let with = |more: &str| format!("{GET}\n{more}");
    let connect = ":method: CONNECT\n:authority: a:443";
    let extended =
        ":method: CONNECT\n:protocol: websocket\n:scheme: https\n:authority: a\n:path: /chat";
    let options = ":method: OPTIONS\n:scheme: http\n:authority: a\n:path: *";
    check(
        vec![
            (
                "8.3.1 host alone",
                vec![headers(
                    END | EH,
                    1,
                    ":method: GET\n:scheme: https\n:path: /\nhost: b",
                )],
                "1 GET / @b [host: b] | 1 end",
            ),
            (
                "8.3.1 host alike",
                vec![headers(END | EH, 1, &with("host: A"))],
                "1 GET / @a [host: A] | 1 end",
            ),
            (
                "8.3.1 options *",
                vec![headers(END | EH, 1, options)],
                "1 OPTIONS * @a [] | 1 end",
            ),
            (
                "8.2.2 te: trailers",
                vec![headers(END | EH, 1, &with("te: trailers"))],
                "1 GET / @a [te: trailers] | 1 end",
            ),
            (
                "8.2.3 crumbs",
                vec![headers(
                    END | EH,
                    1,
                    &with("cookie: a=1\nx: y\ncookie: b=2\ncookie: c=3"),
                )],
                "1 GET / @a [cookie: a=1; b=2; c=3, x: y] | 1 end",
            ),
            (
                "8.1 a length",
                vec![
                    headers(EH, 1, &with("content-length: 5")),
                    frame(DATA, 0, 1, "he"),
                    frame(DATA, END, 1, "llo"),
                ],
                "1 GET / @a [content-length: 5] =5 | \"hello\" | 1 end",
            ),
            (
                "8.1 trailers",
                vec![
                    headers(EH, 1, POST),
                    frame(DATA, 0, 1, "hi"),
                    headers(END | EH, 1, "x: y\ncontent-length: 9"),
                ],
                "1 POST / @a [] =? | \"hi\" | 1 trailers [x: y] | 1 end",
            ),
            (
                "8.1 trailers without content",
                vec![headers(EH, 1, POST), headers(END | EH, 1, "x: y")],
                "1 POST / @a [] =? | 1 trailers [x: y] | 1 end",
            ),
            (
                "8.5 CONNECT",
                vec![headers(EH, 1, connect), frame(DATA, 0, 1, "hi")],
                "1 CONNECT  @a:443 [] =? | \"hi\"",
            ),
            (
                "8441 4 extended CONNECT",
                vec![headers(EH, 1, extended), frame(DATA, END, 1, "hi")],
                "1 CONNECT /chat @a :websocket [] =? | \"hi\" | 1 end",
            ),
            (
                "5.1 two at once",
                vec![
                    headers(EH, 1, POST),
                    headers(EH, 3, POST),
                    frame(DATA, END, 1, "one"),
                    frame(DATA, END, 3, "two"),
                ],
                "1 POST / @a [] =? | 3 POST / @a [] =? | \"one\" | 1 end | \"two\" | 3 end",
            ),
            (
                "10 path is normal",
                vec![headers(
                    END | EH,
                    1,
                    &GET.replace(":path: /", ":path: /a/./b/../%7Ec?d"),
                )],
                "1 GET /a/~c?d @a [] | 1 end",
            ),
        ],
        server,
    );
}

#[test]
fn content_of_a_wrong_length_is_a_fault_of_its_stream() {
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
    check(
        vec![
            (
                "8.1.1 too short",
                vec![post("3"), frame(DATA, 0, 1, "hi"), frame(DATA, END, 1, "")],
                &short,
            ),
            (
                "8.1.1 too long",
                vec![post("1"), frame(DATA, END, 1, "hi")],
                &long,
            ),
            (
                "8.1.1 trailers too early",
                vec![
                    post("3"),
                    frame(DATA, 0, 1, "hi"),
                    headers(END | EH, 1, "x: y"),
                ],
                &trailing,
            ),
            (
                "8.1 a second head",
                vec![headers(EH, 1, POST), headers(EH, 1, "x: y")],
                again,
            ),
            (
                "8.3 pseudo-header in trailers",
                vec![headers(EH, 1, POST), headers(END | EH, 1, ":path: /")],
                "1 POST / @a [] =? | 1 reset pseudo-header-unknown => RST_STREAM 1 PROTOCOL_ERROR",
            ),
            (
                "6.9 a window full",
                vec![
                    headers(EH, 1, POST),
                    frame(DATA, 0, 1, vec![b'x'; 16384]),
                    frame(DATA, 0, 1, vec![b'x'; 16384]),
                    frame(DATA, 0, 1, vec![b'x'; 16384]),
                    frame(DATA, 0, 1, vec![b'x'; 16384]),
                ],
                "1 POST / @a [] =? | 65536 bytes => PING 0 \"window??\"",
            ),
        ],
        server,
    );
}

#[test]
fn content_beyond_a_window_is_a_fault() {
    let content = |stream| frame(DATA, 0, stream, vec![b'x'; 16_384]).repeat(4);
    let full = |stream| [headers(EH, stream, POST), content(stream)].concat();
    let one = [full(1), frame(DATA, 0, 1, "x")].concat();
    assert_eq!(
        server(&one),
        "1 POST / @a [] =? | 65536 bytes | 1 reset flow-control \
         => PING 0 \"window??\", RST_STREAM 1 FLOW_CONTROL_ERROR"
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
fn responses_are_read_and_policed() {
    let end = |fields: &str| headers(END | EH, 1, fields);
    let head = |fields: &str| headers(EH, 1, fields);
    let ok = ":status: 200";
    let reset = |rule: &str| format!("1 reset {rule} => RST_STREAM 1 PROTOCOL_ERROR");
    let (status, missing, unknown, again) = (
        reset("status-malformed"),
        reset("pseudo-header-missing"),
        reset("pseudo-header-unknown"),
        reset("head-unexpected"),
    );
    let many = head(":status: 100").repeat(9);
    let calm = ["1 100 []"; 8].join(" | ")
        + " | 1 reset too-many-informational => RST_STREAM 1 ENHANCE_YOUR_CALM";
    check(
        vec![
            ("8.1 a head", vec![end(ok)], "1 200 [] | 1 end"),
            (
                "8.1 content",
                vec![
                    head(":status: 200\ncontent-length: 2"),
                    frame(DATA, END, 1, "hi"),
                ],
                "1 200 [content-length: 2] =2 | \"hi\" | 1 end",
            ),
            (
                "8.1 1xx",
                vec![head(":status: 100"), head(":status: 103\nlink: x"), end(ok)],
                "1 100 [] | 1 103 [link: x] | 1 200 [] | 1 end",
            ),
            ("8.1 1xx that ends", vec![end(":status: 100")], &again),
            ("8.1 too many 1xx", vec![many], &calm),
            (
                "8.1 content before a head",
                vec![frame(DATA, 0, 1, "x")],
                &again,
            ),
            (
                "8.1 trailers",
                vec![head(ok), frame(DATA, 0, 1, "hi"), end("grpc-status: 0")],
                "1 200 [] =? | \"hi\" | 1 trailers [grpc-status: 0] | 1 end",
            ),
            ("8.6 101", vec![end(":status: 101")], &status),
            ("8.3.2 two digits", vec![end(":status: 20")], &status),
            ("8.3.2 no status", vec![end("x: y")], &missing),
            ("8.3.2 a request", vec![end(GET)], &unknown),
            (
                "8.1.1 too short",
                vec![
                    head(":status: 200\ncontent-length: 3"),
                    frame(DATA, END, 1, "hi"),
                ],
                "1 200 [content-length: 3] =3 | 1 reset content-length-mismatch => RST_STREAM 1 PROTOCOL_ERROR",
            ),
            (
                "8.1.1 304",
                vec![end(":status: 304\ncontent-length: 3")],
                "1 304 [content-length: 3] =3 | 1 end",
            ),
            (
                "8.1.1 204 with content",
                vec![head(":status: 204"), frame(DATA, END, 1, "x")],
                "1 204 [] | 1 reset content-length-mismatch => RST_STREAM 1 PROTOCOL_ERROR",
            ),
            (
                "8.4 a push",
                vec![frame(PUSH_PROMISE, EH, 1, [0, 0, 0, 2])],
                "failed push-unexpected => GOAWAY PROTOCOL_ERROR",
            ),
            (
                "5.1.1 a stream of the server",
                vec![headers(EH, 2, ok)],
                "failed stream-id => GOAWAY PROTOCOL_ERROR",
            ),
            (
                "5.1 an idle stream",
                vec![headers(EH, 3, ok)],
                "failed stream-id => GOAWAY PROTOCOL_ERROR",
            ),
            (
                "8.7 refused",
                vec![frame(RST_STREAM, 0, 1, [0, 0, 0, 7])],
                "1 reset refused-by-peer",
            ),
            (
                "6.4 cancelled",
                vec![frame(RST_STREAM, 0, 1, [0, 0, 0, 8])],
                "1 reset reset-by-peer",
            ),
            (
                "6.8 GOAWAY above",
                vec![frame(GOAWAY, 0, 0, [0; 8])],
                "goaway NO_ERROR | 1 reset refused-by-peer",
            ),
            (
                "6.8 GOAWAY at",
                vec![frame(GOAWAY, 0, 0, [0, 0, 0, 1, 0, 0, 0, 0]), end(ok)],
                "goaway NO_ERROR | 1 200 [] | 1 end",
            ),
            (
                "6.5.2 push enabled by a server",
                vec![frame(SETTINGS, 0, 0, [0, 2, 0, 0, 0, 1])],
                "failed settings-invalid => GOAWAY PROTOCOL_ERROR",
            ),
            (
                "9218 7.1 of a server",
                vec![frame(PRIORITY_UPDATE, 0, 0, "\0\0\0\x01u=0")],
                "failed frame-unexpected => GOAWAY PROTOCOL_ERROR",
            ),
        ],
        |frames| client(Method::Get, frames),
    );
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
