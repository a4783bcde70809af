//! Valid and invalid frames, section by section, with the expected reaction of a server. Each row is
//! passed whole, cut at every byte, and byte by byte.
//!
//! A row has the section of RFC 9113, or of the RFC that it names; the frames after preface and
//! SETTINGS; and the transcript: the events, and after `=>` the frames in response.

use crate::h2_frames::*;

const PROTOCOL: &str = "failed frame-unexpected => GOAWAY PROTOCOL_ERROR";
const SIZE: &str = "failed frame-size => GOAWAY FRAME_SIZE_ERROR";
const ANSWERED: &str = "1 GET / @a [] | 1 end";

fn get() -> Vec<u8> {
    headers(END | EH, 1, GET)
}

fn open() -> Vec<u8> {
    headers(EH, 1, POST)
}

fn then(rest: &str) -> String {
    format!("{ANSWERED} | {rest}")
}

fn opened(rest: &str) -> String {
    format!("1 POST / @a [] =? | {rest}")
}

#[test]
fn the_preface_and_then_settings_come_first() {
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
fn frames_follow_the_stream_states() {
    let rows = rows! {
        "4.1 unknown types are ignored": [frame(0x42, 0xff, 1, "??"), get()] => ANSWERED;
        "4.1 unknown flags are ignored": [headers(END | EH | 0x52, 1, GET)] => ANSWERED;
        "4.1 the reserved bit is ignored": [headers(END | EH, 1 | 1 << 31, GET)] => ANSWERED;
        "4.2 a frame as large as allowed": [frame(0x42, 0, 0, vec![0; 16384]), get()] => ANSWERED;
        "4.2 a frame too large": [frame(0x42, 0, 0, vec![0; 16385])] => SIZE;
        "4.2 DATA too large": [open(), frame(DATA, 0, 1, vec![0; 16385])] => opened(SIZE);
        "5.1 idle: DATA": [frame(DATA, 0, 1, "x")] => PROTOCOL;
        "5.1 idle: RST_STREAM": [frame(RST_STREAM, 0, 1, [0; 4])] => PROTOCOL;
        "5.1 idle: WINDOW_UPDATE": [frame(WINDOW_UPDATE, 0, 1, [0, 0, 0, 1])] => PROTOCOL;
        "5.1 idle: CONTINUATION": [frame(CONTINUATION, EH, 1, "")] => PROTOCOL;
        "5.1 closed: DATA": [get(), frame(DATA, END, 1, "x")]
            => then("failed stream-closed => GOAWAY STREAM_CLOSED");
        "5.1 closed: HEADERS": [get(), get()]
            => then("failed stream-closed => GOAWAY STREAM_CLOSED");
        "5.1 closed: WINDOW_UPDATE": [get(), frame(WINDOW_UPDATE, 0, 1, [0, 0, 0, 1])] => ANSWERED;
        "5.1 closed: RST_STREAM": [get(), frame(RST_STREAM, 0, 1, [0; 4])] => ANSWERED;
        "5.1 closed: PRIORITY": [get(), frame(PRIORITY, 0, 1, [0, 0, 0, 0, 9])] => ANSWERED;
        "5.1 after RST_STREAM: HEADERS":
            [open(), frame(RST_STREAM, 0, 1, [0, 0, 0, 8]), headers(END | EH, 1, "a: b")]
            => "1 POST / @a [] =? | 1 reset reset-by-peer | failed stream-closed => GOAWAY STREAM_CLOSED";
        "5.1 after RST_STREAM: DATA":
            [open(), frame(RST_STREAM, 0, 1, [0, 0, 0, 8]), frame(DATA, END, 1, "x")]
            => "1 POST / @a [] =? | 1 reset reset-by-peer | failed stream-closed => GOAWAY STREAM_CLOSED";
        "5.1.1 an even stream": [headers(END | EH, 2, GET)]
            => "failed stream-id => GOAWAY PROTOCOL_ERROR";
        "5.1.1 a lower stream": [headers(END | EH, 5, GET), headers(END | EH, 3, GET)]
            => "5 GET / @a [] | 5 end | failed stream-id => GOAWAY PROTOCOL_ERROR";
    };
    check(rows, server);
}

#[test]
fn data_and_headers_are_checked() {
    let rows = rows! {
        "6.1 DATA on stream 0": [frame(DATA, 0, 0, "x")] => PROTOCOL;
        "6.1 padding": [open(), frame(DATA, PADDED | END, 1, "\x02hi\0\0")]
            => "1 POST / @a [] =? | \"hi\" | 1 end";
        "6.1 only padding": [open(), frame(DATA, PADDED | END, 1, "\x02\0\0")]
            => "1 POST / @a [] =? | 1 end";
        "6.1 no padding": [open(), frame(DATA, PADDED | END, 1, "\0hi")]
            => "1 POST / @a [] =? | \"hi\" | 1 end";
        "6.1 too much padding": [open(), frame(DATA, PADDED, 1, "\x03hi")]
            => "1 POST / @a [] =? | failed frame-padding => GOAWAY PROTOCOL_ERROR";
        "6.1 padding without length": [open(), frame(DATA, PADDED, 1, "")] => opened(SIZE);
        "6.2 HEADERS on stream 0": [headers(END | EH, 0, GET)] => PROTOCOL;
        "6.2 padding":
            [frame(HEADERS, PADDED | END | EH, 1, [&[3], &block(GET)[..], &[0; 3]].concat())]
            => ANSWERED;
        "6.2 too much padding": [frame(HEADERS, PADDED | END | EH, 1, "\x05abc")]
            => "failed frame-padding => GOAWAY PROTOCOL_ERROR";
        "6.2 a dependency":
            [frame(HEADERS, DEPENDS | END | EH, 1, [&[0, 0, 0, 3, 7], &block(GET)[..]].concat())]
            => ANSWERED;
        "6.2 padding and dependency":
            [frame(HEADERS, PADDED | DEPENDS | END | EH, 1, [&[1, 0, 0, 0, 3, 7], &block(GET)[..], &[0]].concat())]
            => ANSWERED;
        "5.3.1 a dependency on itself":
            [frame(HEADERS, DEPENDS | END | EH, 1, [&[0, 0, 0, 1, 7], &block(GET)[..]].concat())]
            => "failed stream-dependency => GOAWAY PROTOCOL_ERROR";
    };
    check(rows, server);
}

#[test]
fn priorities_resets_and_settings_are_checked() {
    let rows = rows! {
        "6.3 PRIORITY on stream 0": [frame(PRIORITY, 0, 0, [0; 5])] => PROTOCOL;
        "6.3 PRIORITY of a wrong size": [frame(PRIORITY, 0, 1, [0; 4])] => SIZE;
        "6.3 PRIORITY on an idle stream": [frame(PRIORITY, 0, 7, [0, 0, 0, 5, 1]), get()]
            => ANSWERED;
        "6.4 RST_STREAM on stream 0": [frame(RST_STREAM, 0, 0, [0; 4])] => PROTOCOL;
        "6.4 RST_STREAM of a wrong size": [open(), frame(RST_STREAM, 0, 1, [0; 3])]
            => opened(SIZE);
        "6.4 RST_STREAM": [open(), frame(RST_STREAM, 0, 1, [0, 0, 0, 8]), headers(END | EH, 3, GET)]
            => "1 POST / @a [] =? | 1 reset reset-by-peer | 3 GET / @a [] | 3 end";
        "6.5 SETTINGS on a stream": [frame(SETTINGS, 0, 1, [])] => PROTOCOL;
        "6.5 ACK with payload": [frame(SETTINGS, END, 0, [0; 6])] => SIZE;
        "6.5 SETTINGS of a wrong size": [frame(SETTINGS, 0, 0, [0; 5])] => SIZE;
        "6.5 an unknown setting": [frame(SETTINGS, 0, 0, [0xff, 0xff, 0, 0, 0, 1]), get()]
            => ANSWERED;
        "6.5.2 ENABLE_PUSH 2": [frame(SETTINGS, 0, 0, [0, 2, 0, 0, 0, 2])]
            => "failed settings-invalid => GOAWAY PROTOCOL_ERROR";
        "6.5.2 INITIAL_WINDOW_SIZE": [frame(SETTINGS, 0, 0, [0, 4, 0x80, 0, 0, 0])]
            => "failed flow-control => GOAWAY FLOW_CONTROL_ERROR";
        "6.5.2 MAX_FRAME_SIZE too small": [frame(SETTINGS, 0, 0, [0, 5, 0, 0, 0x3f, 0xff])]
            => "failed settings-invalid => GOAWAY PROTOCOL_ERROR";
        "6.5.2 MAX_FRAME_SIZE too large": [frame(SETTINGS, 0, 0, [0, 5, 1, 0, 0, 0])]
            => "failed settings-invalid => GOAWAY PROTOCOL_ERROR";
        "8441 3 CONNECT_PROTOCOL 2": [frame(SETTINGS, 0, 0, [0, 8, 0, 0, 0, 2])]
            => "failed settings-invalid => GOAWAY PROTOCOL_ERROR";
        "9218 2.1 NO_RFC7540_PRIORITIES 2": [frame(SETTINGS, 0, 0, [0, 9, 0, 0, 0, 2])]
            => "failed settings-invalid => GOAWAY PROTOCOL_ERROR";
    };
    check(rows, server);
}

#[test]
fn push_ping_goaway_and_window_update_are_checked() {
    let rows = rows! {
        "6.6 PUSH_PROMISE": [open(), frame(PUSH_PROMISE, EH, 1, [0, 0, 0, 2])]
            => "1 POST / @a [] =? | failed push-unexpected => GOAWAY PROTOCOL_ERROR";
        "6.7 PING": [frame(PING, 0, 0, "12345678")] => " => PING 1 \"12345678\"";
        "6.7 PING ACK without a PING": [frame(PING, END, 0, "12345678"), get()] => ANSWERED;
        "6.7 PING on a stream": [frame(PING, 0, 1, "12345678")] => PROTOCOL;
        "6.7 PING of a wrong size": [frame(PING, 0, 0, "1234567")] => SIZE;
        "6.8 GOAWAY": [frame(GOAWAY, 0, 0, [0; 8]), get()]
            => "goaway NO_ERROR | 1 GET / @a [] | 1 end";
        "6.8 GOAWAY with debug data": [frame(GOAWAY, 0, 0, "\0\0\0\0\0\0\0\x0bcalm down")]
            => "goaway ENHANCE_YOUR_CALM";
        "6.8 GOAWAY on a stream": [frame(GOAWAY, 0, 1, [0; 8])] => PROTOCOL;
        "6.8 GOAWAY of a wrong size": [frame(GOAWAY, 0, 0, [0; 7])] => SIZE;
        "6.9 WINDOW_UPDATE 0": [frame(WINDOW_UPDATE, 0, 0, [0; 4])]
            => "failed window-increment-zero => GOAWAY PROTOCOL_ERROR";
        "6.9 WINDOW_UPDATE 0 on a stream": [open(), frame(WINDOW_UPDATE, 0, 1, [0; 4])]
            => "1 POST / @a [] =? | 1 reset window-increment-zero => RST_STREAM 1 PROTOCOL_ERROR";
        "6.9 WINDOW_UPDATE of a wrong size": [frame(WINDOW_UPDATE, 0, 0, [0; 3])] => SIZE;
        "6.9.1 too large a window": [frame(WINDOW_UPDATE, 0, 0, [0x7f, 0xff, 0xff, 0xff])]
            => "failed flow-control => GOAWAY FLOW_CONTROL_ERROR";
        "6.9.1 too large a window of a stream":
            [open(), frame(WINDOW_UPDATE, 0, 1, [0x7f, 0xff, 0xff, 0xff])]
            => "1 POST / @a [] =? | 1 reset flow-control => RST_STREAM 1 FLOW_CONTROL_ERROR";
        "6.9.2 too large a window by settings":
            [open(), frame(WINDOW_UPDATE, 0, 1, [0, 0, 0, 1]), frame(SETTINGS, 0, 0, [0, 4, 0x7f, 0xff, 0xff, 0xff])]
            => "1 POST / @a [] =? | failed flow-control => GOAWAY FLOW_CONTROL_ERROR";
    };
    check(rows, server);
}

#[test]
fn continuation_follows_its_header_block_directly() {
    let rows = rows! {
        "6.10 CONTINUATION after the end": [open(), frame(CONTINUATION, EH, 1, "")]
            => opened(PROTOCOL);
        "6.10 CONTINUATION on stream 0": [headers(END, 1, GET), frame(CONTINUATION, EH, 0, "")]
            => PROTOCOL;
        "6.10 CONTINUATION on another stream":
            [headers(END, 1, GET), frame(CONTINUATION, EH, 3, "")]
            => PROTOCOL;
        "6.10 another frame in between": [headers(END, 1, GET), frame(PING, 0, 0, "12345678")]
            => PROTOCOL;
        "6.10 an unknown frame in between": [headers(END, 1, GET), frame(0x42, 0, 0, "")]
            => PROTOCOL;
        "6.10 CONTINUATION":
            [headers(END, 1, GET), frame(CONTINUATION, 0, 1, block("a: b")), frame(CONTINUATION, EH, 1, block("c: d"))]
            => "1 GET / @a [a: b, c: d] | 1 end";
        "6.10 a field in two frames":
            [frame(HEADERS, END, 1, &block(GET)[..9]), frame(CONTINUATION, EH, 1, &block(GET)[9..])]
            => ANSWERED;
        "9218 7.1 PRIORITY_UPDATE":
            [frame(PRIORITY_UPDATE, 0, 0, "\0\0\0\x01u=0"), get(), frame(PRIORITY_UPDATE, 0, 0, "\0\0\0\x01u=0")]
            => ANSWERED;
        "9218 7.1 PRIORITY_UPDATE on a stream":
            [get(), frame(PRIORITY_UPDATE, 0, 1, "\0\0\0\x01u=0")]
            => then(PROTOCOL);
        "9218 7.1 PRIORITY_UPDATE for stream 0": [frame(PRIORITY_UPDATE, 0, 0, "\0\0\0\0u=0")]
            => PROTOCOL;
        "9218 7.1 PRIORITY_UPDATE without stream": [frame(PRIORITY_UPDATE, 0, 0, "\0\0\0")] => SIZE;
        "7541 a malformed block": [frame(HEADERS, END | EH, 1, [0x80])]
            => "failed compression => GOAWAY COMPRESSION_ERROR";
        "7541 the same in trailers": [open(), frame(HEADERS, END | EH, 1, [0xfe])]
            => "1 POST / @a [] =? | failed compression => GOAWAY COMPRESSION_ERROR";
    };
    check(rows, server);
}
