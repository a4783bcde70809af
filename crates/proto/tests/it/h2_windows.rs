//! Flow control between a client and a server of this crate: the windows of streams and connections, and
//! how they grow.

use std::collections::VecDeque;

use blitz_proto::h2::StreamId;
use blitz_proto::{BodyLength, Limits, ResponseHead};

use crate::h2_support::{End, pair, post, settle};

/// Steps of the path's delay in each direction.
const DELAY: usize = 8;

/// A client uploads over a path with a delay; in each step at most `rate(step)` bytes leave it. Returns
/// the bytes that the server received in the last of `round_trips`.
fn upload(round_trips: usize, rate: impl Fn(usize) -> usize) -> usize {
    let (mut client, mut server) = pair();
    let content = vec![7; round_trips << 20];
    let stream = client.request(&post("/"), content, None).expect("free");
    let mut queue = Vec::new();
    let mut to_server = VecDeque::from(vec![Vec::new(); DELAY]);
    let mut to_client = VecDeque::from(vec![Vec::new(); DELAY]);
    let mut before = 0;
    for step in 0..round_trips * 2 * DELAY {
        if step == (round_trips - 1) * 2 * DELAY {
            before = server.messages[&stream].content.len();
        }
        client.receive(&to_client.pop_front().expect("a delay"));
        client.send();
        queue.extend(client.take_out());
        let bytes = queue.len().min(rate(step));
        to_server.push_back(queue.drain(..bytes).collect());
        for bytes in to_server.pop_front().expect("a delay").chunks(16_384) {
            server.receive(bytes);
        }
        to_client.push_back(server.take_out());
    }
    assert!(client.failure.is_none() && server.failure.is_none());
    server.messages[&stream].content.len() - before
}

#[test]
fn the_window_of_an_upload_grows_to_its_limit_over_a_path_with_a_delay() {
    let bytes = upload(12, |_| usize::MAX);
    let window = Limits::default().stream_window_bytes_max;
    assert!(bytes >= window / 4 * 3, "{bytes} in a round trip");
}

/// The first measurements see the congestion window and not ours.
#[test]
fn the_window_of_an_upload_grows_once_the_congestion_window_has() {
    let window = Limits::default().stream_window_bytes_max;
    for start in [1_000, 2_000, 8_000] {
        let bytes = upload(24, |step| start << (step / (2 * DELAY)).min(8));
        assert!(
            bytes >= window / 4 * 3,
            "{bytes} in a round trip, the first step had {start}"
        );
    }
}

#[test]
fn announced_windows_shrink_with_their_caps() {
    let (mut client, mut server) = pair();
    server.releases = false;
    let stream = client
        .request(&post("/"), vec![0; 400_000], None)
        .expect("free");
    settle(&mut client, &mut server);
    let received = server.messages[&stream].content.len();
    assert_eq!(received, 65_536, "the window of a stream");
    server.connection.cap_windows(10_000, 40_000);
    let (connection, out) = (&mut server.connection, &mut server.out);
    connection.release(stream, received, out);
    settle(&mut client, &mut server);
    assert_eq!(server.messages[&stream].content.len(), received + 10_000);
    // Without memory, windows still open a little; with memory they open wide.
    server.connection.cap_windows(0, 0);
    server.connection.release(stream, 10_000, &mut server.out);
    settle(&mut client, &mut server);
    assert_eq!(server.messages[&stream].content.len(), received + 11_024);
    server.connection.cap_windows(usize::MAX, usize::MAX);
    server.connection.release(stream, 1_024, &mut server.out);
    settle(&mut client, &mut server);
    assert_eq!(
        server.messages[&stream].content.len(),
        received + 11_024 + 2 * 65_536,
        "the window has doubled"
    );
}

/// Sends a request; the server responds with more content than any window.
fn answering(client: &mut End, server: &mut End) -> StreamId {
    let stream = client.get("/");
    let to_server = client.take_out();
    server.receive(&to_server);
    server.complete.clear();
    server.respond(stream, &ResponseHead::default(), vec![7; 3_000_000], None);
    settle(client, server);
    stream
}

#[test]
fn only_the_window_of_a_stream_whose_reader_keeps_up_grows() {
    let (mut client, mut server) = pair();
    client.releases = false;
    let stalled = answering(&mut client, &mut server);
    client.releases = true;
    let fast = answering(&mut client, &mut server);
    assert_eq!(client.messages[&fast].content.len(), 3_000_000);
    // The window of the next stream begins at the initial size, regardless of the connection's.
    client.releases = false;
    let next = answering(&mut client, &mut server);
    for stream in [stalled, next] {
        assert_eq!(client.messages[&stream].content.len(), 65_536);
    }
}

/// A stream that has received one small window of content; the window may still grow.
fn with_small_window(client: &mut End, server: &mut End) -> StreamId {
    answering(client, server);
    client.connection.set_stream_window(16_384, &mut client.out);
    settle(client, server);
    client.releases = false;
    let stream = answering(client, server);
    assert_eq!(client.messages[&stream].content.len(), 16_384);
    stream
}

#[test]
fn the_window_of_a_slow_reader_does_not_grow() {
    let (mut client, mut server) = pair();
    let slow = with_small_window(&mut client, &mut server);
    // It releases half a window at a time and always holds the other half.
    for taken in 1..=10 {
        client.connection.release(slow, 8_192, &mut client.out);
        settle(&mut client, &mut server);
        let received = client.messages[&slow].content.len();
        assert_eq!(received, 16_384 + taken * 8_192);
    }
}

#[test]
fn windows_grow_no_further_than_the_caller_allows() {
    let (mut client, mut server) = pair();
    let stream = with_small_window(&mut client, &mut server);
    for (allowed, received) in [(0, 32_768), (1 << 20, 65_536)] {
        client.connection.cap_window_growth(allowed);
        client.connection.release(stream, 16_384, &mut client.out);
        settle(&mut client, &mut server);
        assert_eq!(client.messages[&stream].content.len(), received);
    }
    assert_eq!(client.connection.window_growth(), 16_384);
}

#[test]
fn initial_windows_may_change_on_an_open_connection() {
    let (mut client, mut server) = pair();
    client.releases = false;
    let before = answering(&mut client, &mut server);
    let untouched = client.get("/");
    settle(&mut client, &mut server);
    let open = client.get("/");
    let to_server = client.take_out();
    server.receive(&to_server);
    server.complete.clear();

    client.connection.set_stream_window(8_192, &mut client.out);
    assert_eq!(client.connection.stream_window(), 8_192);
    // Content in flight was sent within the old window.
    server.respond(open, &ResponseHead::default(), vec![7; 50_000], None);
    server.send();
    let in_flight = server.take_out();
    let next = client.get("/");
    client.receive(&in_flight);
    assert_eq!(client.messages[&open].content.len(), 50_000);
    let to_server = client.take_out();
    server.receive(&to_server);
    server.complete.clear();
    server.respond(next, &ResponseHead::default(), vec![7; 50_000], None);
    settle(&mut client, &mut server);
    assert_eq!(client.messages[&next].content.len(), 8_192);
    assert_eq!(client.messages[&before].content.len(), 65_536);
    assert!(client.messages[&untouched].is_complete && client.failure.is_none());

    // The next change needs the server's acknowledgement; released bytes reopen the smaller window.
    client.connection.set_stream_window(16_384, &mut client.out);
    client.connection.set_stream_window(4_096, &mut client.out);
    assert_eq!(client.connection.stream_window(), 16_384);
    settle(&mut client, &mut server);
    assert_eq!(client.messages[&next].content.len(), 16_384);
    client.connection.release(next, 16_384, &mut client.out);
    settle(&mut client, &mut server);
    // Its reader has kept up, so its window grows.
    assert_eq!(client.messages[&next].content.len(), 16_384 + 32_768);
    assert!(client.failure.is_none() && server.failure.is_none());
}

/// Credit that is announced before the server acknowledges the smaller window is cancelled by the
/// change.
#[test]
fn a_stream_continues_after_its_exhausted_window_was_reduced() {
    let limits = Limits::default();
    let does_not_grow = Limits {
        stream_window_bytes_max: limits.stream_buffer_bytes_max,
        ..limits.clone()
    };
    let (mut client, mut server) = (End::client(&does_not_grow), End::server(&limits));
    settle(&mut client, &mut server);
    let stream = client.get("/");
    let to_server = client.take_out();
    server.receive(&to_server);
    server.complete.clear();
    server.respond(stream, &ResponseHead::default(), vec![7; 200_000], None);
    server.send();
    let in_flight = server.take_out();
    client.connection.set_stream_window(8_192, &mut client.out);
    client.receive(&in_flight);
    assert_eq!(client.messages[&stream].content.len(), 65_536);
    settle(&mut client, &mut server);
    assert_eq!(client.messages[&stream].content.len(), 200_000);
    assert!(client.messages[&stream].is_complete);
}

/// RFC 9113, section 6.9.2: a change of the initial size may leave a window below zero. Frames without
/// content use no window.
#[test]
fn a_request_may_end_while_its_window_is_below_zero() {
    let limits = Limits {
        stream_buffer_bytes_max: 1_000,
        ..Limits::default()
    };
    let (mut client, mut server) = (End::client(&Limits::default()), End::server(&limits));
    server.releases = false;
    let stream = client
        .connection
        .send_request(&post("/"), BodyLength::Unknown, &mut client.out)
        .expect("a free stream");
    let frame = |kind: u8, flags: u8, stream: u32, content: &[u8]| {
        let length = u32::try_from(content.len()).expect("a frame is small");
        let head = [
            &length.to_be_bytes()[1..],
            &[kind, flags],
            &stream.to_be_bytes(),
        ]
        .concat();
        [&head, content].concat()
    };
    // The client uses the default windows until it receives and acknowledges the SETTINGS.
    let mut bytes = client.take_out();
    bytes.extend(frame(0, 0, 1, &[7; 16_000]));
    bytes.extend(frame(4, 1, 0, &[]));
    bytes.extend(frame(0, 1, 1, &[]));
    server.receive(&bytes);
    assert_eq!(server.failure, None);
    assert_eq!(server.messages[&stream].reset, None);
    assert_eq!(server.messages[&stream].content.len(), 16_000);
    assert_eq!(server.complete, [stream]);
}
