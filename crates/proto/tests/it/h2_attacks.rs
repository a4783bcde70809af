//! Attacks on a server: it must close the connection within a stated number of frames, and hold no
//! more than a stated number of bytes. The traffic of honest peers must not close the connection.

use std::time::Duration;

use blitz_proto::h2::{Code, StreamId};
use blitz_proto::{BodyLength, Error, Limits, ResponseHead, Status};

use crate::h2_frames::*;
use crate::h2_support::{End, settle};

/// The maximum memory of a connection under any attack: a header block and two tables.
const MEMORY_MAX: usize = 160 << 10;

/// Sends frames until the server closes the connection; returns their number and the violated rule.
fn frames_until_close(setup: &[u8], mut attack: impl FnMut(u32) -> Vec<u8>) -> (u32, &'static str) {
    let mut server = started();
    server.receive(setup);
    for count in 1..=100_000 {
        server.receive(&attack(count));
        server.answer();
        server.take_out();
        assert!(
            server.connection.memory() < MEMORY_MAX,
            "{}",
            server.connection.memory()
        );
        if let Some(error) = server.failure {
            assert!(!error.rule().is_empty());
            return (count, error.rule());
        }
    }
    panic!("the attack never closed the connection");
}

fn started() -> End {
    let mut server = End::server(&Limits::default());
    server.receive(PREFACE);
    server.receive(&frame(SETTINGS, 0, 0, []));
    server
}

fn odd(count: u32) -> u32 {
    count * 2 - 1
}

#[test]
fn rapid_reset_ends_after_201_streams() {
    let attack = |count| {
        let id = odd(count);
        [
            headers(EH, id, POST),
            frame(RST_STREAM, 0, id, [0, 0, 0, 8]),
        ]
        .concat()
    };
    assert_eq!(frames_until_close(&[], attack), (201, "reset-flood"));
}

#[test]
fn stream_errors_of_the_peer_count_like_resets() {
    let increment = |count| {
        let id = odd(count);
        [headers(EH, id, POST), frame(WINDOW_UPDATE, 0, id, [0; 4])].concat()
    };
    assert_eq!(frames_until_close(&[], increment), (201, "reset-flood"));
    let length = |count| {
        let fields = format!("{POST}\ncontent-length: 1");
        [
            headers(EH, odd(count), &fields),
            frame(DATA, END, odd(count), "xx"),
        ]
        .concat()
    };
    assert_eq!(frames_until_close(&[], length), (201, "reset-flood"));
    let malformed = |count| headers(END | EH, odd(count), "x: y");
    assert_eq!(frames_until_close(&[], malformed), (201, "reset-flood"));
    let window = |count| {
        let id = odd(count);
        let most = [0x7f, 0xff, 0xff, 0xff];
        [headers(EH, id, POST), frame(WINDOW_UPDATE, 0, id, most)].concat()
    };
    assert_eq!(frames_until_close(&[], window), (201, "reset-flood"));
}

#[test]
fn streams_beyond_the_limit_are_refused_and_then_close_the_connection() {
    let attack = |count| headers(EH, odd(count), POST);
    assert_eq!(frames_until_close(&[], attack), (301, "reset-flood"));
}

#[test]
fn cancels_of_a_busy_proxy_are_no_attack() {
    let mut server = started();
    server.receive(&frame(WINDOW_UPDATE, 0, 0, [0, 16, 0, 0]));
    for count in 1..=10_000 {
        // 250 requests a second.
        server.now += Duration::from_millis(4);
        let id = odd(count);
        // Two in five are cancelled before they get a response.
        if count % 5 < 2 {
            server.receive(&headers(EH, id, POST));
            server.receive(&frame(RST_STREAM, 0, id, [0, 0, 0, 8]));
        } else {
            server.receive(&headers(END | EH, id, GET));
            server.answer();
        }
        server.take_out();
        assert!(server.failure.is_none(), "after {count}");
    }
}

#[test]
fn cancels_of_downloads_are_no_attack() {
    let mut server = started();
    for count in 1..=1_000 {
        let id = odd(count);
        server.receive(&headers(END | EH, id, GET));
        let stream: StreamId = server.complete.pop().expect("a request");
        server.respond(stream, &ResponseHead::default(), vec![b'x'; 100_000], None);
        server.receive(&frame(RST_STREAM, 0, id, [0, 0, 0, 8]));
        server.take_out();
        assert!(server.failure.is_none(), "after {count}");
    }
    assert_eq!(server.connection.stream_count(), 0);
}

#[test]
fn cancels_after_the_head_are_limited_too() {
    let mut server = started();
    let mut count = 0;
    while server.failure.is_none() {
        count += 1;
        let id = odd(count);
        server.receive(&headers(END | EH, id, GET));
        if let Some(stream) = server.complete.pop() {
            server.respond(stream, &ResponseHead::default(), vec![b'x'; 100_000], None);
        }
        server.receive(&frame(RST_STREAM, 0, id, [0, 0, 0, 8]));
        server.take_out();
        assert!(count < 10_000, "never closed");
    }
    assert_eq!(server.failure.map(Error::rule), Some("reset-rate"));
    assert_eq!(count, 2_001);
}

#[test]
fn early_cancels_of_a_minority_of_streams_are_limited_in_total() {
    let attack = |count: u32| {
        let first = count * 6 - 5;
        [
            headers(END | EH, first, GET),
            headers(END | EH, first + 2, GET),
            headers(EH, first + 4, POST),
            frame(RST_STREAM, 0, first + 4, [0, 0, 0, 8]),
        ]
        .concat()
    };
    assert_eq!(frames_until_close(&[], attack), (2_001, "reset-rate"));
}

#[test]
fn occasional_cancels_of_downloads_are_no_attack() {
    let mut server = started();
    for count in 1..=5_000 {
        server.now += Duration::from_millis(10);
        let id = odd(count);
        server.receive(&headers(END | EH, id, GET));
        let stream: StreamId = server.complete.pop().expect("a request");
        server.respond(stream, &ResponseHead::default(), vec![b'x'; 100_000], None);
        server.receive(&frame(RST_STREAM, 0, id, [0, 0, 0, 8]));
        server.take_out();
        assert!(server.failure.is_none(), "after {count}");
    }
}

#[test]
fn slow_cancels_are_no_attack() {
    let mut server = started();
    for count in 1..=2_000 {
        server.now += Duration::from_millis(100);
        let id = odd(count);
        server.receive(&headers(EH, id, POST));
        server.receive(&frame(RST_STREAM, 0, id, [0, 0, 0, 8]));
        assert!(server.failure.is_none(), "after {count}");
    }
}

#[test]
fn endless_header_blocks_close_the_connection() {
    let start = headers(END, 1, GET);
    let small = |_| frame(CONTINUATION, 0, 1, block("a: b"));
    assert_eq!(
        frames_until_close(&start, small),
        (17, "continuation-flood")
    );
    let large = |_| frame(CONTINUATION, 0, 1, vec![0; 16_384]);
    assert_eq!(
        frames_until_close(&start, large),
        (17, "continuation-flood")
    );
    // Trailers get no response of their own.
    let trailers = [headers(EH, 1, POST), frame(HEADERS, END, 1, "")].concat();
    assert_eq!(
        frames_until_close(&trailers, large),
        (5, "continuation-flood")
    );
    let empty = |_| frame(CONTINUATION, 0, 1, "");
    assert_eq!(
        frames_until_close(&start, empty),
        (17, "continuation-flood")
    );
}

/// RFC 9113, section 10.5.1. The decoder has lost its state: requests that are complete still get their
/// response, and nothing is decoded any more.
#[test]
fn a_header_block_that_is_too_long_is_the_last_one() {
    let mut server = End::server(&Limits {
        header_block_bytes_max: 64,
        ..Limits::default()
    });
    server.receive(PREFACE);
    server.receive(&frame(SETTINGS, 0, 0, []));
    server.receive(&headers(EH, 1, POST));
    server.receive(&headers(EH, 3, POST));
    server.receive(&headers(END, 5, GET));
    server.receive(&frame(CONTINUATION, 0, 5, [0xff; 100]));
    assert!(server.refused.is_empty(), "its end is awaited");
    server.receive(&frame(CONTINUATION, EH, 5, [0xff; 10]));
    assert_eq!(server.refused.len(), 1);
    assert_eq!(server.refused[0].1, Status::REQUEST_HEADER_FIELDS_TOO_LARGE);
    assert!(server.connection.has_lost_block());
    // A request beyond the GOAWAY, which a client may send elsewhere.
    server.receive(&frame(HEADERS, END | EH, 7, [0xff; 10]));
    server.receive(&frame(DATA, END, 1, "hi"));
    server.receive(&frame(HEADERS, END | EH, 3, [0xff; 10]));
    assert!(server.failure.is_none(), "{:?}", server.failure);
    assert_eq!(server.refused.len(), 1);
    let [first, second] = [1, 3].map(|id| server.messages[&StreamId::new(id)].clone());
    assert_eq!((first.content, first.reset), (b"hi".to_vec(), None));
    assert_eq!(second.reset, Some("compression"));
    assert!(!server.connection.is_drained());
}

#[test]
fn floods_of_useless_frames_close_the_connection() {
    let open = headers(EH, 1, POST);
    let settings = |_| frame(SETTINGS, 0, 0, [0, 4, 0, 1, 0, 0]);
    assert_eq!(frames_until_close(&[], settings), (100, "settings-flood"));
    let acks = |_| frame(SETTINGS, END, 0, []);
    assert_eq!(frames_until_close(&[], acks), (100, "settings-flood"));
    let pings = |_| frame(PING, 0, 0, [0; 8]);
    assert_eq!(frames_until_close(&[], pings), (1_001, "ping-flood"));
    let pongs = |_| frame(PING, END, 0, [0; 8]);
    assert_eq!(frames_until_close(&[], pongs), (1_001, "ping-ack-flood"));
    let known_pongs = |_| frame(PING, END, 0, "alive???");
    assert_eq!(
        frames_until_close(&[], known_pongs),
        (1_001, "ping-ack-flood")
    );
    let probes = |_| frame(PING, END, 0, "window??");
    assert_eq!(frames_until_close(&[], probes), (1_001, "ping-ack-flood"));
    let goaways = |_| frame(GOAWAY, 0, 0, [0; 8]);
    assert_eq!(frames_until_close(&open, goaways), (11, "goaway-flood"));
    // The opened stream allows one more.
    let empty = |_| frame(DATA, 0, 1, "");
    assert_eq!(frames_until_close(&open, empty), (102, "empty-frame-flood"));
    let padding = |_| frame(DATA, PADDED, 1, [&[200], &[0; 200][..]].concat());
    assert_eq!(
        frames_until_close(&open, padding),
        (102, "empty-frame-flood")
    );
    let small = |_| frame(DATA, 0, 1, "x");
    assert_eq!(
        frames_until_close(&open, small),
        (11_001, "small-data-flood")
    );
    let windows = |_| frame(WINDOW_UPDATE, 0, 0, [0, 0, 0, 1]);
    assert_eq!(
        frames_until_close(&[], windows),
        (2_001, "window-update-flood")
    );
    let priorities = |count| frame(PRIORITY, 0, odd(count), [0, 0, 0, 0, 1]);
    assert_eq!(frames_until_close(&[], priorities), (501, "priority-flood"));
    let updates = |count: u32| {
        frame(
            PRIORITY_UPDATE,
            0,
            0,
            [&odd(count).to_be_bytes()[..], b"u=1"].concat(),
        )
    };
    assert_eq!(frames_until_close(&[], updates), (501, "priority-flood"));
    let unknown = |_| frame(0xfa, 0, 0, "");
    assert_eq!(
        frames_until_close(&[], unknown),
        (501, "unknown-frame-flood")
    );
}

#[test]
fn floods_of_frames_on_closed_streams_close_the_connection() {
    let reset = frame(RST_STREAM, 0, 1, [0, 0, 0, 8]);
    let cancelled = [headers(EH, 1, POST), reset.clone()].concat();
    // The opened stream allows two more.
    assert_eq!(
        frames_until_close(&cancelled, |_| reset.clone()),
        (503, "stray-frame-flood")
    );
    let reset_by_server = [headers(EH, 1, POST), frame(WINDOW_UPDATE, 0, 1, [0; 4])].concat();
    let trailers = |_| headers(END | EH, 1, "a: b");
    assert_eq!(
        frames_until_close(&reset_by_server, trailers),
        (503, "stray-frame-flood")
    );
    let too_large = headers(EH, 1, &format!("{GET}{}", "\na: b".repeat(101)));
    let more = |_| headers(EH, 1, "a: b");
    // The first is an error of its stream.
    assert_eq!(
        frames_until_close(&too_large, more),
        (504, "stray-frame-flood")
    );
}

#[test]
fn a_late_reset_of_every_stream_is_no_attack() {
    let mut server = started();
    server.receive(&frame(WINDOW_UPDATE, 0, 0, [0, 16, 0, 0]));
    for count in 1..=10_000 {
        let id = odd(count);
        server.receive(&headers(END | EH, id, GET));
        server.answer();
        server.receive(&frame(RST_STREAM, 0, id, [0, 0, 0, 8]));
        server.take_out();
        assert!(server.failure.is_none(), "after {count}");
    }
}

#[test]
fn tiny_window_updates_are_limited() {
    // "Data dribble": a window that opens byte by byte.
    let tiny = [
        frame(SETTINGS, 0, 0, [0, 4, 0, 0, 0, 0]),
        headers(END | EH, 1, GET),
    ]
    .concat();
    let mut server = started();
    server.receive(&tiny);
    let stream = server.complete.pop().expect("a request");
    server.respond(stream, &ResponseHead::default(), vec![b'x'; 100_000], None);
    let mut frames = 0;
    while server.failure.is_none() {
        server.receive(&frame(WINDOW_UPDATE, 0, 1, [0, 0, 0, 1]));
        server.send();
        frames += 1;
        assert!(frames < 10_000, "never closed");
    }
    assert_eq!(server.failure.map(Error::rule), Some("window-update-flood"));
    assert!(frames < 2_100, "{frames}");
}

#[test]
fn frequent_frames_during_long_transfers_are_no_attack() {
    let limits = Limits::default();
    let (mut client, mut server) = (End::client(&limits), End::server(&limits));
    // A download of 30 MB, with a PING and two WINDOW_UPDATE for every few frames, in zero time.
    let stream = client.get("/");
    server.receive(&client.take_out());
    server.complete.clear();
    server.respond(
        stream,
        &ResponseHead::default(),
        vec![b'x'; 30_000_000],
        None,
    );
    for _ in 0..20_000 {
        if server.send_frame().is_some() {
            client.connection.ping(&mut client.out);
        }
        client.receive(&server.take_out());
        server.receive(&client.take_out());
    }
    settle(&mut client, &mut server);
    assert!(
        server.failure.is_none() && client.failure.is_none(),
        "{:?}",
        server.failure
    );
    assert_eq!(client.messages[&stream].content.len(), 30_000_000);
}

/// grpc-go sends a PING for each DATA frame that it receives while no other PING is open, and a
/// WINDOW_UPDATE before it; gRPC's C core sends a WINDOW_UPDATE for the stream and for the connection.
#[test]
fn a_ping_and_two_window_updates_for_each_small_message_are_no_attack() {
    let mut server = started();
    server.receive(&headers(EH, 1, POST));
    let stream = *server.messages.keys().next().expect("a request");
    let (head, unknown) = (ResponseHead::default(), BodyLength::Unknown);
    server
        .connection
        .send_head(stream, &head, unknown, &mut server.out);
    let answers = [
        frame(WINDOW_UPDATE, 0, 1, [0, 0, 0, 10]),
        frame(WINDOW_UPDATE, 0, 0, [0, 0, 0, 10]),
        frame(PING, 0, 0, [0; 8]),
        frame(SETTINGS, 0, 0, [0, 4, 0, 1, 0, 0]),
    ];
    for count in 0..20_000 {
        let sent = server
            .connection
            .send_data(stream, 10, false, &mut server.out);
        assert_eq!(sent.ok(), Some(10), "{:?} after {count}", server.failure);
        let frames = if count % 16 == 0 { 4 } else { 3 };
        server.receive(&answers[..frames].concat());
        server.take_out();
        assert!(
            server.failure.is_none(),
            "{:?} after {count}",
            server.failure
        );
    }
}

#[test]
fn a_ping_for_each_small_message_of_an_upstream_is_no_attack() {
    let mut client = End::client(&Limits::default());
    client.receive(&frame(SETTINGS, 0, 0, []));
    client.get("/");
    client.receive(&headers(EH, 1, ":status: 200"));
    let message = [
        frame(PING, 0, 0, [0; 8]),
        frame(DATA, 0, 1, [0; 10]),
        frame(DATA, 0, 1, []),
    ]
    .concat();
    for count in 0..20_000 {
        client.receive(&message);
        client.take_out();
        assert!(
            client.failure.is_none(),
            "{:?} after {count}",
            client.failure
        );
    }
}

/// The content that the window of a reset stream allows may be on its way, and no more.
#[test]
fn a_server_that_floods_reset_streams_is_cut_off() {
    let limits = Limits::default();
    let mut client = End::client(&limits);
    client.receive(&frame(SETTINGS, 0, 0, []));
    for stream in [1, 3] {
        let id = client.get("/");
        client.receive(&headers(EH, stream, ":status: 200"));
        client.connection.reset(id, Code::CANCEL, &mut client.out);
    }
    let data = |stream| frame(DATA, 0, stream, vec![0; 1024]);
    let fitting = 2 * limits.stream_window_bytes / 1024;
    for index in 0..fitting {
        client.receive(&data(if index % 3 == 0 { 1 } else { 3 }));
        assert!(client.failure.is_none(), "{index}: {:?}", client.failure);
    }
    client.receive(&data(3));
    assert_eq!(client.failure.map(Error::rule), Some("flow-control"));
}

#[test]
fn websockets_of_many_clients_may_share_an_upstream_connection() {
    let mut client = End::client(&Limits::default());
    client.receive(&frame(SETTINGS, 0, 0, []));
    for count in 1..=50 {
        client.get("/");
        client.receive(&headers(EH, odd(count), ":status: 200"));
    }
    for count in 0..50_000 {
        client.receive(&frame(DATA, 0, odd(count % 50 + 1), [0x81, 1, b'x']));
        client.take_out();
        assert!(
            client.failure.is_none(),
            "{:?} after {count}",
            client.failure
        );
    }
}

#[test]
fn each_request_to_an_upstream_allows_frames_of_unknown_types_and_window_updates() {
    let mut client = End::client(&Limits::default());
    client.receive(&frame(SETTINGS, 0, 0, []));
    for count in 1..=5_000 {
        client.get("/");
        client.receive(&frame(WINDOW_UPDATE, 0, odd(count), [0, 0, 0, 1]));
        client.receive(&frame(0xfa, 0, 0, ""));
        client.receive(&headers(END | EH, odd(count), ":status: 204"));
        client.take_out();
        assert!(
            client.failure.is_none(),
            "{:?} after {count}",
            client.failure
        );
    }
}

#[test]
fn a_small_block_that_decodes_to_many_bytes_costs_little() {
    // One field of 4,000 bytes in the table, then thousands of references to it.
    let mut server = started();
    let mut bomb = block(GET);
    let rest = 4_000u16 - 127;
    bomb.extend_from_slice(&[0x40, 1, b'x', 0x7f, rest as u8 | 0x80, (rest >> 7) as u8]);
    bomb.extend_from_slice(&[b'a'; 4_000]);
    bomb.extend_from_slice(&[0xbe; 10_000]);
    server.receive(&frame(HEADERS, END | EH, 1, &bomb));
    assert!(server.failure.is_none(), "{:?}", server.failure);
    assert_eq!(server.refused.len(), 1);
    assert_eq!(server.refused[0].1.code(), 431);
    assert!(server.connection.memory() < MEMORY_MAX);
    // The table agrees with the client's: the next request may refer to it.
    let next = [&block(GET)[..], &[0xbe]].concat();
    server.receive(&frame(HEADERS, END | EH, 3, next));
    assert_eq!(server.messages.len(), 1);
}

#[test]
fn idle_streams_are_cheap() {
    let limits = Limits {
        concurrent_streams_max: 1_000,
        ..Limits::default()
    };
    let mut server = End::server(&limits);
    server.receive(PREFACE);
    server.receive(&frame(SETTINGS, 0, 0, []));
    let before = server.connection.memory();
    for count in 1..=1_000 {
        server.receive(&headers(EH, odd(count), POST));
        server.messages.clear();
    }
    let each = (server.connection.memory() - before) / 1_000;
    assert!(each <= 120, "{each} bytes for an idle stream");
    assert!(before < 2_500, "{before} bytes for an idle connection");
}
