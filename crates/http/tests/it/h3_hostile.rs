//! Limits that protect a core and the connections of others.

use std::time::Duration;

use blitz_http::Counters;
use blitz_testing::h3::{data, request};
use quinn::TransportConfig;

use crate::deadlines::limits;
use crate::h3_relay::{Relay, SHORT};
use crate::h3_support::{Client, Quic, get, pause, with_options};

/// At the limit of connections, one that has nothing to do is closed for a new one, and none that has.
#[test]
fn idle_connections_make_room_for_new_ones() {
    let options = || limits(|limits| limits.quic.connections_max = 3);
    with_options(options, async |server| {
        let busy = server.connect().await;
        let mut quiet = busy.send(get("/quiet")).await;
        quiet.finish().await.unwrap();
        quiet.recv_response().await.unwrap();
        let oldest = server.connect().await;
        pause(20).await;
        let later = server.connect().await;
        pause(20).await;
        assert_eq!(server.connect().await.get("/hello").await.content, b"hello");
        assert!(oldest.closed().await.is_h3_no_error());
        assert_eq!(later.get("/hello").await.content, b"hello");
        assert_eq!(busy.get("/hello").await.content, b"hello");
        assert_eq!(server.counters().quic.evicted, 1);
        // At the limit an address has to be proved first: a forged one closes nothing.
        assert!(server.counters().quic.retries >= 1);
    });
}

#[test]
fn without_an_idle_connection_new_ones_are_refused() {
    let options = || limits(|limits| limits.quic.connections_max = 1);
    with_options(options, async |server| {
        let busy = server.connect().await;
        let mut quiet = busy.send(get("/quiet")).await;
        quiet.finish().await.unwrap();
        quiet.recv_response().await.unwrap();
        let transport = TransportConfig::default();
        let refused = Quic::connect(
            &server.outside().config,
            transport,
            server.address,
            "localhost",
        )
        .await;
        assert!(
            matches!(refused, Err(quinn::ConnectionError::ConnectionClosed(_))),
            "refused at once"
        );
        // One for each of the client's first datagrams.
        assert!((1..=2).contains(&server.counters().quic.refused));
        assert_eq!(busy.get("/hello").await.content, b"hello");
    });
}

/// Content in frames of a byte takes far more memory than its window.
#[test]
fn a_flood_of_tiny_frames_ends_the_connection() {
    let options = || limits(|limits| limits.quic.unread_frames_max = 100);
    with_options(options, async |server| {
        let client = server.raw_client().await;
        let mut exchange = client.exchange(request("POST", "/never")).await;
        let write = async {
            exchange.write(data(vec![b'x'; 60_000])).await;
            for _ in 0..2_000 {
                if exchange.send.write_all(b"\x00").await.is_err() {
                    return;
                }
                // Each in a packet of its own.
                tokio::task::yield_now().await;
                pause(1).await;
            }
        };
        let closed = client.quic.close_code();
        let (code, ()) = tokio::join!(closed, write);
        assert_eq!(code, 0x107);
        assert_eq!(server.counters().refused_for("unread-flood"), 1);
    });
}

/// Somebody who sees the connection can send datagrams with its ID, and nothing that they are counted as.
#[test]
fn forged_datagrams_do_not_count_against_the_client() {
    let options = || limits(|limits| limits.quic.window_bytes_max = 64 * 1024);
    with_options(options, async |server| {
        let relay = Relay::start(server.address).await;
        let transport = TransportConfig::default();
        let quic = Quic::connect(
            &server.outside().config,
            transport,
            relay.address,
            "localhost",
        )
        .await;
        let client = Client::over(quic.unwrap()).await;
        let mut upload = client.send(crate::h3_support::post("/never")).await;
        upload
            .send_data(bytes::Bytes::from_static(b"begun"))
            .await
            .unwrap();
        pause(50).await;
        let id = relay.id.lock().unwrap().expect("the client has sent");
        let forged = [&[0x40][..], &id, &[7; 1_191]].concat();
        // Far more than a client may send and nobody read.
        for _ in 0..50 {
            for _ in 0..20 {
                relay.to_server.send(&forged).await.unwrap();
            }
            pause(2).await;
        }
        assert_eq!(client.get("/hello").await.content, b"hello");
        assert_eq!(server.counters().refused_for("unread-flood"), 0);
    });
}

/// A client that acknowledges nothing uses up what the network takes, and is told all the same why it is closed.
#[test]
fn a_close_is_not_held_back_by_what_is_not_acknowledged() {
    let options = || limits(|limits| limits.send_stall_timeout = Duration::from_millis(300));
    with_options(options, async |server| {
        let relay = Relay::start(server.address).await;
        let client = relay.connect(server).await;
        client.hello().await;
        relay.lose(SHORT);
        let mut exchange = client.exchange(request("POST", "/echo")).await;
        exchange.write(data(vec![b'x'; 50_000])).await;
        exchange.send.finish().unwrap();
        assert_eq!(client.quic.close_code().await, 0x107);
        assert_eq!(server.counters().send_stalls, 1);
    });
}

/// No packet of QUIC is so long, and what is in one may cost far more than in several.
#[test]
fn long_datagrams_are_ignored() {
    with_options(Default::default, async |server| {
        let client = server.connect().await;
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        for bytes in [1_473, 60_000] {
            socket.send_to(&vec![0xC0; bytes], server.address).unwrap();
        }
        assert_eq!(client.get("/hello").await.content, b"hello");
        let ignored = |counters: &Counters| counters.quic.too_long == 2;
        server.when("ignored", ignored).await;
    });
}
