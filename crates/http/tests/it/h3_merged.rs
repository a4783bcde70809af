//! Content that QUIC has merged into a long piece before its reader came.

use std::time::Duration;

use blitz_http::Part;
use blitz_testing::h3::kind::DATA;
use blitz_testing::h3::{headers, integer, request};

use crate::client_connection::{ask, connect};
use crate::h3_client::with_peer;
use crate::h3_peer::{Peer, accept};
use crate::h3_support::{pattern, pause, with_options};
use crate::support::{IS_LATER, on_each_driver, options};

/// `quinn-proto` merges what is unread of a stream once it has more than 2,048 pieces.
const PIECES: usize = 2_300;

/// An upload in one DATA frame, whose pieces come in packets of their own, to a handler that reads a moment later.
#[test]
fn an_upload_in_small_packets_whose_reader_is_late() {
    with_options(Default::default, async |server| {
        let client = server.raw_client().await;
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
                let content = blitz_testing::h3::data(pattern(number, bytes));
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
        let client = server.raw_client().await;
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
