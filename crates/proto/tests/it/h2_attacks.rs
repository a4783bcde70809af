//! Attacks on a server: each has to be cut off within a stated number of frames, and must not make
//! the machine keep more than a stated number of bytes. What honest peers do, must not be.

use std::time::Duration;

use blitz_proto::h2::StreamId;
use blitz_proto::{Error, Limits, ResponseHead};

use crate::h2_frames::*;
use crate::h2_support::{End, settle};

/// The most that the machine may occupy, whatever the attack: a header block and two tables.
const MEMORY_MAX: usize = 160 << 10;

/// Sends frames until the server gives up; says after how many, and by which rule.
fn cut_off(setup: &[u8], mut attack: impl FnMut(u32) -> Vec<u8>) -> (u32, &'static str) {
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
    panic!("the attack was never cut off");
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
    assert_eq!(cut_off(&[], attack), (201, "reset-flood"));
}

#[test]
fn faults_that_make_us_reset_count_like_resets() {
    let increment = |count| {
        let id = odd(count);
        [headers(EH, id, POST), frame(WINDOW_UPDATE, 0, id, [0; 4])].concat()
    };
    assert_eq!(cut_off(&[], increment), (201, "reset-flood"));
    let length = |count| {
        let fields = format!("{POST}\ncontent-length: 1");
        [
            headers(EH, odd(count), &fields),
            frame(DATA, END, odd(count), "xx"),
        ]
        .concat()
    };
    assert_eq!(cut_off(&[], length), (201, "reset-flood"));
    let malformed = |count| headers(END | EH, odd(count), "x: y");
    assert_eq!(cut_off(&[], malformed), (201, "reset-flood"));
    let window = |count| {
        let id = odd(count);
        let most = [0x7f, 0xff, 0xff, 0xff];
        [headers(EH, id, POST), frame(WINDOW_UPDATE, 0, id, most)].concat()
    };
    assert_eq!(cut_off(&[], window), (201, "reset-flood"));
}

#[test]
fn streams_beyond_the_limit_are_refused_and_then_cut_off() {
    let attack = |count| headers(EH, odd(count), POST);
    assert_eq!(cut_off(&[], attack), (301, "reset-flood"));
}

#[test]
fn cancels_of_a_busy_proxy_are_no_attack() {
    let mut server = started();
    server.receive(&frame(WINDOW_UPDATE, 0, 0, [0, 16, 0, 0]));
    for count in 1..=10_000 {
        // 250 requests a second.
        server.now += Duration::from_millis(4);
        let id = odd(count);
        // Two in five are cancelled before they are answered.
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
fn cancels_behind_the_head_are_bounded_too() {
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
        assert!(count < 10_000, "never cut off");
    }
    assert_eq!(server.failure.map(Error::rule), Some("reset-rate"));
    assert_eq!(count, 2_001);
}

#[test]
fn early_cancels_that_are_few_of_many_streams_are_bounded_in_total() {
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
    assert_eq!(cut_off(&[], attack), (2_001, "reset-rate"));
}

#[test]
fn downloads_that_are_cancelled_now_and_then_are_no_attack() {
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
fn header_blocks_without_end_are_cut_off() {
    let start = headers(END, 1, GET);
    let small = |_| frame(CONTINUATION, 0, 1, block("a: b"));
    assert_eq!(cut_off(&start, small), (17, "continuation-flood"));
    let large = |_| frame(CONTINUATION, 0, 1, vec![0; 16_384]);
    assert_eq!(cut_off(&start, large), (4, "continuation-flood"));
    let empty = |_| frame(CONTINUATION, 0, 1, "");
    assert_eq!(cut_off(&start, empty), (17, "continuation-flood"));
}

#[test]
fn frames_without_use_are_cut_off() {
    let open = headers(EH, 1, POST);
    let settings = |_| frame(SETTINGS, 0, 0, [0, 4, 0, 1, 0, 0]);
    assert_eq!(cut_off(&[], settings), (100, "settings-flood"));
    let acks = |_| frame(SETTINGS, END, 0, []);
    assert_eq!(cut_off(&[], acks), (100, "settings-flood"));
    let pings = |_| frame(PING, 0, 0, [0; 8]);
    assert_eq!(cut_off(&[], pings), (1_001, "ping-flood"));
    let pongs = |_| frame(PING, END, 0, [0; 8]);
    assert_eq!(cut_off(&[], pongs), (1_001, "ping-ack-flood"));
    let known_pongs = |_| frame(PING, END, 0, "alive???");
    assert_eq!(cut_off(&[], known_pongs), (1_001, "ping-ack-flood"));
    let probes = |_| frame(PING, END, 0, "window??");
    assert_eq!(cut_off(&[], probes), (1_001, "ping-ack-flood"));
    let goaways = |_| frame(GOAWAY, 0, 0, [0; 8]);
    assert_eq!(cut_off(&open, goaways), (11, "goaway-flood"));
    let empty = |_| frame(DATA, 0, 1, "");
    assert_eq!(cut_off(&open, empty), (101, "empty-frame-flood"));
    let padding = |_| frame(DATA, PADDED, 1, [&[200], &[0; 200][..]].concat());
    assert_eq!(cut_off(&open, padding), (101, "empty-frame-flood"));
    let small = |_| frame(DATA, 0, 1, "x");
    assert_eq!(cut_off(&open, small), (10_001, "small-data-flood"));
    let windows = |_| frame(WINDOW_UPDATE, 0, 0, [0, 0, 0, 1]);
    assert_eq!(cut_off(&[], windows), (2_001, "window-update-flood"));
    let priorities = |count| frame(PRIORITY, 0, odd(count), [0, 0, 0, 0, 1]);
    assert_eq!(cut_off(&[], priorities), (501, "priority-flood"));
    let updates = |count: u32| {
        frame(
            PRIORITY_UPDATE,
            0,
            0,
            [&odd(count).to_be_bytes()[..], b"u=1"].concat(),
        )
    };
    assert_eq!(cut_off(&[], updates), (501, "priority-flood"));
    let unknown = |_| frame(0xfa, 0, 0, "");
    assert_eq!(cut_off(&[], unknown), (501, "unknown-frame-flood"));
}

#[test]
fn frames_on_streams_that_are_over_are_cut_off() {
    let reset = frame(RST_STREAM, 0, 1, [0, 0, 0, 8]);
    let cancelled = [headers(EH, 1, POST), reset.clone()].concat();
    // Two are for the stream that was opened.
    assert_eq!(
        cut_off(&cancelled, |_| reset.clone()),
        (503, "stray-frame-flood")
    );
    let given_up = [headers(EH, 1, POST), frame(WINDOW_UPDATE, 0, 1, [0; 4])].concat();
    let trailers = |_| headers(END | EH, 1, "a: b");
    assert_eq!(cut_off(&given_up, trailers), (503, "stray-frame-flood"));
    let too_large = headers(EH, 1, &format!("{GET}{}", "\na: b".repeat(101)));
    let more = |_| headers(EH, 1, "a: b");
    assert_eq!(cut_off(&too_large, more), (503, "stray-frame-flood"));
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
fn a_tiny_window_makes_no_flood_of_tiny_frames() {
    // The "data dribble": a window that opens byte by byte.
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
        assert!(frames < 10_000, "never cut off");
    }
    assert_eq!(server.failure.map(Error::rule), Some("window-update-flood"));
    assert!(frames < 2_100, "{frames}");
}

#[test]
fn frames_in_the_course_of_long_transfers_are_no_attack() {
    let limits = Limits::default();
    let (mut client, mut server) = (End::client(&limits), End::server(&limits));
    // 30 MB down, with a PING and two WINDOW_UPDATE for every few frames, in no time at all.
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

#[test]
fn a_small_block_that_means_a_lot_costs_little() {
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
    // The table is as the client thinks: the next request may refer to it.
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
