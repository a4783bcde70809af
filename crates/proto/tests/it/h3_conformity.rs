//! Streams of a peer, with the expected reaction of a server or a client. Each arrives whole and in pieces of
//! several sizes.

use blitz_proto::Limits;
use blitz_proto::h3::{Code, Connection, StreamId};

use crate::h3_support::*;

#[test]
fn requests_of_all_forms_arrive() {
    let post = || headers(POST);
    for (what, bytes, expected) in [
        (
            "a request without content",
            headers(GET),
            "0 GET / Empty end",
        ),
        (
            "content of unknown length",
            [post(), data("hello"), data(" world")].concat(),
            "0 POST /up Unknown | 0 \"hello world\" end",
        ),
        (
            "content of declared length",
            [
                headers(&format!("{POST}\ncontent-length: 5")),
                data("hello"),
            ]
            .concat(),
            "0 POST /up Known(5) | 0 \"hello\" end",
        ),
        (
            "trailers",
            [post(), data("hello"), headers("checksum: 1\nother: 2")].concat(),
            "0 POST /up Unknown | 0 \"hello\" | 0 2 trailers",
        ),
        (
            "unknown frames between all others",
            [
                frame(0x21, b"x"),
                post(),
                frame(0x1f * 7 + 0x21, [9; 300]),
                data("hello"),
                frame(0x40, b""),
            ]
            .concat(),
            "0 POST /up Unknown | 0 \"hello\" end",
        ),
        (
            "empty content",
            [post(), data(""), data("")].concat(),
            "0 POST /up Unknown | 0 \"\" end",
        ),
        (
            "4.4 a tunnel",
            [
                headers(":method: CONNECT\n:authority: a:443"),
                data("hello"),
            ]
            .concat(),
            "0 CONNECT  Unknown | 0 \"hello\" end",
        ),
        (
            "9.2 unknown frames behind trailers",
            [post(), headers("a: b"), frame(0x21, b"x")].concat(),
            "0 POST /up Unknown | 0 1 trailers",
        ),
    ] {
        assert_eq!(server(&[last(REQUEST, bytes)]), expected, "{what}");
    }
}

#[test]
fn the_end_of_a_stream_may_come_later() {
    let said = server(&[
        more(REQUEST, [headers(POST), data("a")].concat()),
        last(REQUEST, vec![]),
    ]);
    assert_eq!(said, "0 POST /up Unknown | 0 \"a\" end");
    let said = server(&[more(REQUEST, headers(GET)), last(REQUEST, vec![])]);
    assert_eq!(said, "0 GET / Unknown | 0 \"\" end");
}

#[test]
fn requests_that_are_wrong_end_alone() {
    let with_length = |length: u32| headers(&format!("{POST}\ncontent-length: {length}"));
    for (section, bytes, expected) in [
        (
            "4.1 no head",
            vec![],
            "reset request-incomplete H3_REQUEST_INCOMPLETE",
        ),
        (
            "4.1.2 too little content",
            [with_length(6), data("hello")].concat(),
            "POST /up Known(6) | 0 reset content-length-mismatch H3_MESSAGE_ERROR",
        ),
        (
            "4.1.2 too much content",
            [with_length(4), data("hello")].concat(),
            "POST /up Known(4) | 0 reset content-length-mismatch H3_MESSAGE_ERROR",
        ),
        (
            "4.2 upper case",
            headers(&format!("{GET}\nAbc: d")),
            "reset field-name-uppercase H3_MESSAGE_ERROR",
        ),
        (
            "4.2 a field of HTTP/1.1 connections",
            headers(&format!("{GET}\nconnection: close")),
            "reset connection-specific-field H3_MESSAGE_ERROR",
        ),
        (
            "4.3 a pseudo-header field behind another",
            headers(":method: GET\n:scheme: https\na: b\n:path: /"),
            "reset pseudo-header-after-field H3_MESSAGE_ERROR",
        ),
        (
            "4.3.1 no path",
            headers(":method: GET\n:scheme: https\n:authority: a"),
            "reset pseudo-header-missing H3_MESSAGE_ERROR",
        ),
        (
            "4.3 a pseudo-header field in trailers",
            [headers(POST), headers(":path: /")].concat(),
            "POST /up Unknown | 0 reset pseudo-header-unknown H3_MESSAGE_ERROR",
        ),
    ] {
        let said = server_at_once(&[last(REQUEST, bytes), last(REQUEST + 4, headers(GET))]);
        assert_eq!(
            said,
            format!("0 {expected} | 4 GET / Empty end"),
            "{section}"
        );
    }
}

#[test]
fn what_exceeds_a_limit_is_answered() {
    let many: String = (0..200).map(|number| format!("\nx-{number}: y")).collect();
    let long = format!("{GET}\nx-long: {}", "y".repeat(45_000));
    let too_long = format!("{GET}\nx-long: {}", "\u{1}".repeat(70_000));
    for lines in [format!("{GET}{many}"), long, too_long] {
        let mut end = End::server(&Limits::default());
        let stream = [headers(&lines), data("ignored")].concat();
        end.arrive(&last(REQUEST, stream));
        end.arrive(&last(REQUEST + 4, headers(GET)));
        assert_eq!(end.log, "0 refused 431 | 4 GET / Empty end");
    }
}

#[test]
fn frames_at_the_wrong_place_end_the_connection() {
    let unexpected = "frame-unexpected H3_FRAME_UNEXPECTED";
    for (section, bytes, expected) in [
        ("4.1 content before the head", data("x"), unexpected),
        ("7.2.3 CANCEL_PUSH", frame(0x3, [0]), unexpected),
        ("7.2.4 SETTINGS", frame(0x4, []), unexpected),
        ("7.2.5 PUSH_PROMISE", frame(0x5, [0]), unexpected),
        ("7.2.6 GOAWAY", frame(0x7, [0]), unexpected),
        ("7.2.7 MAX_PUSH_ID", frame(0xd, [0]), unexpected),
        ("7.2.8 PRIORITY of HTTP/2", frame(0x2, [0]), unexpected),
        ("7.2.8 PING of HTTP/2", frame(0x6, [0]), unexpected),
        ("7.2.8 WINDOW_UPDATE of HTTP/2", frame(0x8, [0]), unexpected),
        ("7.2.8 CONTINUATION of HTTP/2", frame(0x9, [0]), unexpected),
        (
            "RFC 9218 7.2 PRIORITY_UPDATE",
            frame(0xf_0700, [0]),
            unexpected,
        ),
        ("7.1 a cut header", vec![0x40], "frame-size H3_FRAME_ERROR"),
        (
            "7.1 a cut head",
            vec![0x1, 5, 0],
            "frame-size H3_FRAME_ERROR",
        ),
        (
            "7.1 a cut unknown frame",
            vec![0x21, 5, 0],
            "frame-size H3_FRAME_ERROR",
        ),
        (
            "an empty section",
            vec![0x1, 0],
            "compression QPACK_DECOMPRESSION_FAILED",
        ),
        (
            "RFC 9204 2.2.3 no such entry",
            frame(HEADERS, [0, 0, 0x80]),
            "compression QPACK_DECOMPRESSION_FAILED",
        ),
    ] {
        assert_eq!(server(&[last(REQUEST, bytes)]), expected, "{section}");
    }
    for (section, bytes, expected) in [
        (
            "4.1 content behind trailers",
            [headers("a: b"), data("x")].concat(),
            unexpected,
        ),
        (
            "4.1 trailers twice",
            [headers("a: b"), headers("a: b")].concat(),
            unexpected,
        ),
        (
            "7.1 cut content",
            vec![0x0, 5, 0],
            "\"\0\" | frame-size H3_FRAME_ERROR",
        ),
    ] {
        let stream = [headers(POST), bytes].concat();
        let said = server(&[last(REQUEST, stream)]);
        assert!(said.ends_with(expected), "{section}: {said}");
    }
}

/// The client's control stream, which goes on like this.
fn begun(bytes: &[u8]) -> Arrival {
    more(CLIENT_CONTROL, [control(), bytes.to_vec()].concat())
}

/// The client's control stream with these settings.
fn settings(settings: &[(u64, u64)]) -> Arrival {
    let pairs = settings.iter();
    let payload: Vec<u8> = pairs
        .flat_map(|(id, value)| [integer(*id), integer(*value)].concat())
        .collect();
    let frame = frame(SETTINGS, &payload);
    more(CLIENT_CONTROL, [integer(0), frame].concat())
}

const ID: &str = "stream-id H3_ID_ERROR";

#[test]
fn streams_in_one_direction_have_a_purpose() {
    for (section, arrivals, expected) in [
        (
            "6.2.1 a second control stream",
            vec![more(2, control()), more(14, control())],
            "stream-creation H3_STREAM_CREATION_ERROR",
        ),
        (
            "6.2.1 the end of the control stream",
            vec![last(2, control())],
            "critical-stream-closed H3_CLOSED_CRITICAL_STREAM",
        ),
        (
            "6.2.1 the reset of the control stream",
            vec![more(2, control()), Arrival::Reset(2, 0x100)],
            "critical-stream-closed H3_CLOSED_CRITICAL_STREAM",
        ),
        (
            "6.2.1 our control stream is stopped",
            vec![Arrival::Stopped(3, 0x100)],
            "critical-stream-closed H3_CLOSED_CRITICAL_STREAM",
        ),
        (
            "6.2.1 no SETTINGS",
            vec![more(2, [integer(0), frame(GOAWAY, [0])].concat())],
            "settings-missing H3_MISSING_SETTINGS",
        ),
        (
            "6.2.2 a push of a client",
            vec![more(2, integer(1))],
            "stream-creation H3_STREAM_CREATION_ERROR",
        ),
        (
            "6.2 the end before the type",
            vec![
                last(2, vec![]),
                last(6, vec![0x40]),
                last(REQUEST, headers(GET)),
            ],
            "0 GET / Empty end",
        ),
        (
            "6.2.3 a type that is unknown",
            vec![
                more(2, integer(0x21)),
                more(2, vec![1; 5]),
                last(6, integer(0x2100)),
            ],
            "2 unwanted H3_STREAM_CREATION_ERROR | 6 unwanted H3_STREAM_CREATION_ERROR",
        ),
    ] {
        assert_eq!(server(&arrivals), expected, "{section}");
    }
}

#[test]
fn the_control_stream_begins_with_valid_settings() {
    for (section, arrivals, expected) in [
        (
            "7.2.4 SETTINGS twice",
            vec![begun(&frame(SETTINGS, []))],
            "frame-unexpected H3_FRAME_UNEXPECTED",
        ),
        (
            "7.2.4 a setting twice",
            vec![settings(&[(6, 1), (6, 1)])],
            "settings-invalid H3_SETTINGS_ERROR",
        ),
        (
            "7.2.4.1 a setting of HTTP/2",
            vec![settings(&[(4, 1)])],
            "settings-invalid H3_SETTINGS_ERROR",
        ),
        (
            "7.2.4 a cut setting",
            vec![more(2, [integer(0), frame(SETTINGS, [6])].concat())],
            "frame-size H3_FRAME_ERROR",
        ),
        (
            "7.2.1 DATA",
            vec![begun(&data("x"))],
            "frame-unexpected H3_FRAME_UNEXPECTED",
        ),
        (
            "7.2.2 HEADERS",
            vec![begun(&headers(GET))],
            "frame-unexpected H3_FRAME_UNEXPECTED",
        ),
        (
            "7.2.8 a frame of HTTP/2",
            vec![begun(&frame(0x6, [0; 8]))],
            "frame-unexpected H3_FRAME_UNEXPECTED",
        ),
        (
            "9 unknown frames",
            vec![begun(&[frame(0x21, [1; 100]), frame(GOAWAY, [0])].concat())],
            "2 goes away from 0",
        ),
    ] {
        assert_eq!(server(&arrivals), expected, "{section}");
    }
}

#[test]
fn announcements_name_what_there_is() {
    for (section, arrivals, expected) in [
        ("7.2.3 CANCEL_PUSH", vec![begun(&frame(0x3, [0]))], ID),
        (
            "7.2.6 two GOAWAY",
            vec![begun(&[frame(GOAWAY, [5]), frame(GOAWAY, [5])].concat())],
            "2 goes away from 5 | 2 goes away from 5",
        ),
        (
            "5.2 GOAWAY that rises",
            vec![begun(&[frame(GOAWAY, [4]), frame(GOAWAY, [5])].concat())],
            "2 goes away from 4 | stream-id H3_ID_ERROR",
        ),
        (
            "7.2.6 GOAWAY of a wrong size",
            vec![begun(&frame(GOAWAY, [4, 0]))],
            "frame-size H3_FRAME_ERROR",
        ),
        (
            "7.2.7 MAX_PUSH_ID that falls",
            vec![begun(&[frame(0xd, [4]), frame(0xd, [3])].concat())],
            ID,
        ),
        (
            "RFC 9218 7.2 a priority of no request",
            vec![begun(&frame(0xf_0700, b"\x02u=1"))],
            ID,
        ),
        (
            "RFC 9218 7.2 a priority of a push",
            vec![begun(&frame(0xf_0701, b"\x00u=1"))],
            ID,
        ),
    ] {
        assert_eq!(server(&arrivals), expected, "{section}");
    }
}

#[test]
fn the_streams_of_the_compression_stay_open_and_valid() {
    for (section, arrivals, expected) in [
        (
            "RFC 9204 4.2 the end of the encoder's stream",
            vec![last(CLIENT_ENCODER, integer(2))],
            "critical-stream-closed H3_CLOSED_CRITICAL_STREAM",
        ),
        (
            "RFC 9204 4.3 a wrong instruction",
            vec![more(CLIENT_ENCODER, vec![2, 0x80, 0])],
            "compression-instruction QPACK_ENCODER_STREAM_ERROR",
        ),
        (
            "RFC 9204 4.4.1 a section without references",
            vec![more(CLIENT_DECODER, vec![3, 0x80])],
            "compression-report QPACK_DECODER_STREAM_ERROR",
        ),
        (
            "RFC 9204 4.4.3 insertions that never were",
            vec![more(CLIENT_DECODER, vec![3, 0x01])],
            "compression-report QPACK_DECODER_STREAM_ERROR",
        ),
        (
            "RFC 9204 4.4.2 streams that were cancelled",
            vec![
                more(CLIENT_DECODER, vec![3, 0x44, 0x7f, 0x80, 0x01]),
                last(REQUEST, headers(GET)),
            ],
            "0 GET / Empty end",
        ),
    ] {
        assert_eq!(server(&arrivals), expected, "{section}");
    }
}

/// Instructions that insert `x-name` with a value of 3,000 bytes.
fn large_insertion() -> Vec<u8> {
    let mut bytes = vec![2, 0x3f, 0xe1, 0x1f, 0x46];
    bytes.extend_from_slice(b"x-name\x7f\xb9\x16");
    bytes.extend_from_slice(&[b'v'; 3_000]);
    bytes
}

/// A request that needs this insertion.
fn request_with_reference() -> Vec<u8> {
    let mut section = section(GET);
    section[0] = 2;
    section.push(0x80);
    frame(HEADERS, &section)
}

#[test]
fn a_request_waits_for_the_instructions_that_it_needs() {
    let said = server(&[
        last(REQUEST, request_with_reference()),
        last(
            REQUEST + 4,
            [headers(POST), data("others do not wait")].concat(),
        ),
        more(CLIENT_ENCODER, insertion()),
    ]);
    let expected = "4 POST /up Unknown | 4 \"others do not wait\" end | 0 GET / Empty end";
    assert_eq!(said, expected);

    let mut end = End::server(&Limits::default());
    end.machine.decoder_output().clear();
    end.arrive(&last(REQUEST, request_with_reference()));
    end.arrive(&more(CLIENT_ENCODER, insertion()));
    assert_eq!(end.received.request.fields.get_str("x-name"), Some("value"));
    assert_eq!(
        *end.machine.decoder_output(),
        [0x01, 0x80],
        "an insertion, and the section of stream 0"
    );
}

#[test]
fn what_arrives_behind_a_request_that_waits_counts_for_nothing() {
    let mut end = End::server(&Limits::default());
    let mut post = section(POST);
    post[0] = 2;
    post.push(0x80);
    end.arrive(&more(REQUEST, frame(HEADERS, &post)));
    for _ in 0..40 {
        end.arrive(&more(REQUEST, data("more ")));
    }
    assert_eq!((end.failure, end.log.as_str()), (None, ""));
    end.arrive(&more(CLIENT_ENCODER, insertion()));
    let expected = format!("0 POST /up Unknown | 0 \"{}\"", "more ".repeat(40));
    assert_eq!(end.log, expected);
}

/// RFC 9204, section 2.2.2.2: otherwise the client could never evict what such a section refers to.
#[test]
fn sections_that_are_not_decoded_are_cancelled() {
    let long = |section: &[u8]| frame(HEADERS, [section, &[0xff; 70_000]].concat());
    let many: String = (0..200).map(|number| format!("\nx-{number}: y")).collect();
    let refused = headers(&format!("{GET}{many}"));
    for stream in [
        long(&[2, 0, 0x80]),
        [refused, frame(HEADERS, [2, 0, 0x80])].concat(),
    ] {
        let mut end = End::server(&Limits::default());
        end.machine.decoder_output().clear();
        end.arrive(&last(8, stream));
        assert_eq!(end.log, "8 refused 431");
        assert_eq!(*end.machine.decoder_output(), [0x48]);
    }
}

#[test]
fn waiting_requests_are_limited_and_can_be_cancelled() {
    let mut end = End::server(&Limits::default());
    for number in 0..16 {
        end.arrive(&last(number * 4, request_with_reference()));
    }
    end.arrive(&Arrival::Reset(0, 0x10c));
    assert_eq!(end.log, "0 reset reset-by-peer H3_REQUEST_CANCELLED");
    end.arrive(&last(64, request_with_reference()));
    assert_eq!(end.failure, None, "one was cancelled");
    end.arrive(&last(68, request_with_reference()));
    assert!(end.log.ends_with("compression QPACK_DECOMPRESSION_FAILED"));
}

#[test]
fn priorities_come_before_and_after_the_request() {
    let mut end = End::server(&Limits::default());
    let update = |stream: u64, value: &str| {
        frame(0xf_0700, [&integer(stream)[..], value.as_bytes()].concat())
    };
    end.arrive(&more(
        CLIENT_CONTROL,
        [control(), update(4, "u=1"), update(8, "u=6, i")].concat(),
    ));
    for stream in [0, 4, 8] {
        let with_priority = format!("{GET}\npriority: u=5");
        end.arrive(&more(stream, headers(&with_priority)));
    }
    let priority = |end: &End, stream| {
        let priority = end.machine.priority(StreamId::new(stream))?;
        Some((priority.urgency, priority.incremental))
    };
    assert_eq!(priority(&end, 0), Some((5, false)));
    assert_eq!(priority(&end, 4), Some((1, false)));
    assert_eq!(priority(&end, 8), Some((6, true)));
    end.arrive(&more(CLIENT_CONTROL, update(0, "u=0, i")));
    assert_eq!(priority(&end, 0), Some((0, true)));
    assert!(end.log.ends_with("2 reprioritized 0"));
}

#[test]
fn floods_end_the_connection() {
    let repeated = |bytes: &[u8]| bytes.repeat(20_000);
    let cases: &[(&str, u64, Vec<u8>, &str)] = &[
        (
            "unknown frames",
            REQUEST,
            repeated(&frame(0x21, b"")),
            "unknown-frame-flood",
        ),
        (
            "empty content",
            REQUEST,
            [headers(POST), repeated(&data(""))].concat(),
            "empty-frame-flood",
        ),
        (
            "content in tiny pieces",
            REQUEST,
            [headers(POST), repeated(&data("x"))].concat(),
            "small-data-flood",
        ),
        (
            "GOAWAY",
            CLIENT_CONTROL,
            [control(), repeated(&frame(GOAWAY, [0]))].concat(),
            "goaway-flood",
        ),
        (
            "priorities",
            CLIENT_CONTROL,
            [control(), repeated(&frame(0xf_0700, b"\x00u=1"))].concat(),
            "priority-flood",
        ),
        (
            "duplicates of a large entry",
            CLIENT_ENCODER,
            [large_insertion(), repeated(&[0x00])].concat(),
            "insertion-flood",
        ),
        (
            "changes of the table's capacity",
            CLIENT_ENCODER,
            [vec![2], repeated(&[0x20])].concat(),
            "insertion-flood",
        ),
        (
            "cancelled sections",
            CLIENT_DECODER,
            [vec![3], repeated(&[0x40])].concat(),
            "insertion-flood",
        ),
        (
            "instructions whose acknowledgements are not taken",
            CLIENT_ENCODER,
            [insertion(), repeated(&[0x00])].concat(),
            "",
        ),
    ];
    for (what, stream, bytes, rule) in cases {
        flood(what, *stream, bytes, rule);
    }
}

/// Sends what has to end the connection for this rule, or for another one if it is empty.
fn flood(what: &str, stream: u64, bytes: &[u8], rule: &str) {
    let mut end = End::server(&Limits::default());
    end.piece = if rule.is_empty() { 1 } else { 64 };
    end.arrive(&more(stream, bytes.to_vec()));
    match rule {
        "" => assert_eq!(end.failure.map(Code::as_str), Some("H3_EXCESSIVE_LOAD")),
        rule => assert!(
            end.log.ends_with(&format!("{rule} H3_EXCESSIVE_LOAD")),
            "{what}"
        ),
    }
    assert!(end.machine.memory() < 256 * 1024, "{what}");
}

/// Seven references to a value of 4,000 bytes are a short section, but a head of 28 KB: it is not kept for the case
/// that it repeats.
#[test]
fn a_repeated_head_of_references_occupies_no_memory() {
    let mut end = End::server(&Limits::default());
    let long = vec![b'a'; 4_000];
    let insertion = [
        &[2, 0x3f, 0xe1, 0x1f, 0x41, b'x', 0x7f, 0xa1, 0x1e],
        &long[..],
    ]
    .concat();
    end.arrive(&more(2, insertion));
    let mut section = section(GET);
    section[0] = 2;
    section.extend_from_slice(&[0x80; 7]);
    let mut memory = Vec::new();
    for stream in [0, 4, 8] {
        end.arrive(&last(stream, frame(HEADERS, &section)));
        assert!(end.failure.is_none(), "{}", end.log);
        end.received = Default::default();
        memory.push(end.machine.memory());
    }
    // Only the streams take more.
    assert!(memory[2] < memory[0] + 500, "{memory:?}");
}

/// RFC 9204, section 7.1: one byte duplicates an entry. Clients that use the whole table for each request may go on.
#[test]
fn instructions_are_limited_by_requests() {
    // An entry and duplicates of it.
    let insertions = |count: usize| [vec![0x41, b'x', 0x00], vec![0x00; count - 1]].concat();
    let capacity = vec![2, 0x3f, 0xe1, 0x1f];
    let mut honest = End::server(&Limits::default());
    honest.arrive(&more(CLIENT_ENCODER, capacity.clone()));
    for number in 0..200 {
        honest.arrive(&more(CLIENT_ENCODER, insertions(128)));
        honest.arrive(&last(number * 4, headers(GET)));
        honest.machine.decoder_output().clear();
    }
    assert_eq!(honest.failure, None);
    let mut attacker = End::server(&Limits::default());
    attacker.arrive(&more(CLIENT_ENCODER, capacity));
    let mut sent = 0;
    while attacker.failure.is_none() {
        attacker.arrive(&more(CLIENT_ENCODER, insertions(200)));
        attacker.machine.decoder_output().clear();
        sent += 200;
    }
    assert!(attacker.log.ends_with("insertion-flood H3_EXCESSIVE_LOAD"));
    assert!((4_096..4_700).contains(&sent), "{sent}");
}

#[test]
fn floods_of_streams_end_the_connection() {
    let mut end = End::server(&Limits::default());
    for number in 0..2_000 {
        end.arrive(&more(2 + number * 4, integer(0x21 + 0x1f * number)));
    }
    assert!(end.log.ends_with("stream-flood H3_EXCESSIVE_LOAD"));

    let mut end = End::server(&Limits::default());
    for number in 0..2_000 {
        end.arrive(&more(number * 4, headers(GET)));
        end.arrive(&Arrival::Reset(number * 4, 0x10c));
        end.machine.forget(StreamId::new(number * 4));
    }
    assert!(end.log.ends_with("reset-flood H3_EXCESSIVE_LOAD"));
}

#[test]
fn an_idle_connection_is_small() {
    assert!(
        size_of::<Connection>() <= 1_024,
        "{}",
        size_of::<Connection>()
    );
}
