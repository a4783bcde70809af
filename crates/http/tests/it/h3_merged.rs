//! Content that QUIC has merged into a long piece before its reader came.

use std::time::Duration;

use blitz_http::Part;
use quinn::TransportConfig;

use crate::allocations::bytes_in_use;
use crate::client_connection::{ask, connect};
use crate::deadlines::limits;
use crate::h3_client::with_peer;
use crate::h3_frames::{DATA, Exchange, RawClient, headers, integer, request};
use crate::h3_peer::{Peer, accept};
use crate::h3_relay::Relay;
use crate::h3_support::{QuicServer, pattern, pause, with_options};
use crate::support::{IS_LATER, on_each_driver, options};

/// `quinn-proto` merges what is unread of a stream once it has more than 2,048 pieces.
const PIECES: usize = 2_300;

/// An upload in one DATA frame, whose pieces come in packets of their own, to a handler that reads a moment later.
#[test]
fn an_upload_in_small_packets_whose_reader_is_late() {
    with_options(Default::default, async |server| {
        let client = RawClient::connect(server).await;
        let content = pattern(1, PIECES * 100);
        let mut exchange = client.exchange(request("POST", "/after-content")).await;
        exchange.write(integer(DATA)).await;
        exchange.write(integer(content.len() as u64)).await;
        for piece in content.chunks(100) {
            exchange.write(piece).await;
            pause(1).await;
        }
        exchange.send.finish().unwrap();
        exchange.response().await.expect(200, &content);
        let panics = server.ask(|| blitz_http::reactor::counters().task_panics);
        assert_eq!(panics, 0);
    });
}

/// A response in one DATA frame and full packets, which is read a moment later.
#[test]
fn a_long_response_whose_reader_is_late() {
    let bytes = 3_800_000;
    on_each_driver(|io| {
        let script = async move |endpoint: quinn::Endpoint| {
            let raw = accept(&endpoint).await;
            let (mut send, _) = raw.whole_request().await;
            let content = pattern(1, bytes);
            let head = headers(&[(":status", "200")]);
            let frame = [integer(DATA), integer(bytes as u64)].concat();
            send.write_all(&[head, frame, content].concat())
                .await
                .unwrap();
            send.finish().unwrap();
            raw.close_code().await;
        };
        with_peer(Peer::new(), io, script, async |address, options| {
            let connection = connect(&address, &options).await;
            let mut response = ask(&connection, "/").await.unwrap();
            blitz_http::sleep(Duration::from_secs(2)).await;
            let mut received = Vec::new();
            while let Some(part) = response.body.next().await.unwrap() {
                if let Part::Data(slice) = part {
                    received.extend_from_slice(&slice);
                }
            }
            assert!(received == pattern(1, bytes));
            connection.close();
        });
    });
}

/// DATA frames of 60,000 bytes, as proxies forward them, and a reader that pauses now and then.
#[test]
fn long_frames_whose_reader_pauses() {
    let (frames, bytes) = (400, 60_000);
    on_each_driver(|io| {
        let script = async move |endpoint: quinn::Endpoint| {
            let raw = accept(&endpoint).await;
            let (mut send, _) = raw.whole_request().await;
            send.write_all(&headers(&[(":status", "200")]))
                .await
                .unwrap();
            for number in 0..frames {
                let content = crate::h3_frames::data(pattern(number, bytes));
                if send.write_all(&content).await.is_err() {
                    return;
                }
            }
            send.finish().unwrap();
            raw.close_code().await;
        };
        with_peer(Peer::new(), io, script, async |address, options| {
            let connection = connect(&address, &options).await;
            let mut response = ask(&connection, "/").await.unwrap();
            let (mut received, mut pause_at) = (0, 1_000_000);
            while let Some(part) = response.body.next().await.unwrap() {
                let Part::Data(slice) = part else { continue };
                received += slice.len();
                if received >= pause_at {
                    pause_at += 4_507_777;
                    blitz_http::sleep(Duration::from_secs(1)).await;
                }
            }
            assert_eq!(received, frames as usize * bytes);
            connection.close();
        });
    });
}

/// Content whose reader takes a part of it and pauses is not read ahead of it: the client gets no credit for the rest.
#[test]
fn merged_content_is_not_read_ahead_of_its_reader() {
    with_options(Default::default, async |server| {
        let client = RawClient::connect(server).await;
        let mut exchange = client.exchange(request("POST", "/read-once-later")).await;
        exchange
            .write([integer(DATA), integer(1 << 24)].concat())
            .await;
        for _ in 0..PIECES {
            exchange.write([7; 200]).await;
            pause(1).await;
        }
        server.ask(|| IS_LATER.set(true));
        pause(100).await;
        let mut sent = PIECES * 200;
        let wait = Duration::from_millis(300);
        while let Ok(written) = tokio::time::timeout(wait, exchange.send.write(&[7; 4_096])).await {
            sent += written.unwrap();
        }
        server.ask(|| IS_LATER.set(false));
        let window = options().limits.quic.stream_window_bytes;
        assert!((window..window + 100_000).contains(&sent), "{sent}");
    });
}

/// Streams with a frame in each datagram: so small a part of it that QUIC merges them.
const STREAMS: usize = 4;
const FRAME: usize = 270;
/// QUIC merges the frames of a stream for the fourth and the fifth time at about 150 and 285 of them.
const FRAMES: usize = 300;
const LOST_AT: usize = 270;
/// Datagrams with frames of this length are longer than all others.
const LOST_FRAME: usize = 284;
const LOST_DATAGRAMS: std::ops::Range<usize> = 1_165..1_500;

/// Content behind a gap keeps the memory of what it was merged with, though that was read. A connection that has too
/// much of it is closed.
#[test]
fn merged_content_behind_gaps_is_limited() {
    if !blitz_testing::is_alone() {
        return;
    }
    let limited = || limits(|limits| limits.core_buffer_bytes_max = 512 * 1024);
    with_options(limited, async |server| {
        let (rounds, bytes) = rounds_with_gaps(server, LOST_DATAGRAMS, 10).await;
        // In the windows, beyond them, and what each connection has.
        let room = (64 + 512 + 32) * 1024;
        assert!((3..8).contains(&rounds), "{rounds} rounds, {bytes} bytes");
        assert!(
            (room / 2..room * 2).contains(&bytes),
            "{rounds} rounds, {bytes} bytes"
        );
        assert_eq!(server.counters().refused_for("unread-flood"), 1);
    });
    with_options(limited, async |server| {
        let (rounds, bytes) = rounds_with_gaps(server, 0..0, 10).await;
        assert_eq!(rounds, 10);
        assert!(bytes < 100_000, "{bytes} bytes");
    });
}

/// Uploads that are read after a while, as far as they have come, and stay open; these datagrams of them are lost.
/// Returns the rounds until the connection was closed, and the most memory that was in use after one.
async fn rounds_with_gaps(
    server: &QuicServer,
    lost: std::ops::Range<usize>,
    rounds: usize,
) -> (usize, usize) {
    let relay = Relay::start(server.address).await;
    let mut transport = TransportConfig::default();
    transport.mtu_discovery_config(None);
    let client = RawClient::connect_through(server, &relay, transport).await;
    client.hello().await;
    let (before, mut most) = (bytes_in_use(), 0);
    let mut open = Vec::new();
    for round in 0..rounds {
        if client.quic.connection.close_reason().is_some() {
            assert_eq!(client.quic.close_code().await, 0x107);
            return (round, most);
        }
        let mut uploads = Vec::new();
        for _ in 0..STREAMS {
            let mut exchange = client.exchange(request("POST", "/later")).await;
            exchange
                .write([integer(DATA), integer(1 << 20)].concat())
                .await;
            uploads.push(exchange);
        }
        pause(20).await;
        write_frames(&mut uploads, FRAME, LOST_AT).await;
        relay.lose(lost.clone());
        write_frames(&mut uploads, LOST_FRAME, 1).await;
        write_frames(&mut uploads, FRAME, FRAMES - LOST_AT).await;
        server.ask(|| IS_LATER.set(true));
        pause(200).await;
        server.ask(|| IS_LATER.set(false));
        most = most.max(bytes_in_use().saturating_sub(before));
        open.push(uploads);
    }
    (rounds, most)
}

/// Writes so many frames on each stream. Those at one time are in one datagram.
async fn write_frames(uploads: &mut [Exchange], bytes: usize, frames: usize) {
    for _ in 0..frames {
        for upload in &mut *uploads {
            // An error is seen as the end of the connection.
            let _ = upload.send.write_all(&vec![7; bytes]).await;
        }
        pause(1).await;
    }
}
