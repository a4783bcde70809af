//! Streams that come back whole.

use std::sync::Arc;
use std::time::Duration;

use blitz_quic::Limits;
use quinn::{ConnectionError, VarInt};

use crate::clients::{block_on, connect, echo, endpoint, pattern};
use crate::echo::{PANIC, PANIC_OUTSIDE, STOP_A_WHILE};
use crate::server::{CLOSE, Server, both_drivers};

#[test]
fn streams_of_all_sizes_come_back() {
    both_drivers(|io| {
        let server = Server::start(io, 1, Limits::default());
        block_on(async {
            let endpoint = endpoint(&server);
            let connection = connect(&endpoint, server.address).await;
            for bytes in [0, 1, 1_199, 1_200, 65_536, 3_000_000] {
                echo(&connection, &pattern(bytes as u64, bytes)).await;
            }
        });
        let total = server.stop();
        assert_eq!(total.sum(|counters| counters.handshakes), 1);
        assert_eq!(total.sum(|counters| counters.handshakes_failed), 0);
        let reactor = total.reactor;
        let per_train = reactor.datagrams_sent as f64 / reactor.trains_sent as f64;
        assert!(per_train > 3.0, "{per_train} datagrams in a train");
    });
}

#[test]
fn many_streams_of_many_connections_on_many_cores_come_back() {
    both_drivers(|io| {
        let server = Server::start(io, 3, Limits::default());
        block_on(async {
            // The connections of one client socket have one address, and so one core.
            let endpoints: Vec<_> = (0..12).map(|_| endpoint(&server)).collect();
            let mut tasks = tokio::task::JoinSet::new();
            for number in 0..36 {
                let endpoint = endpoints[number % endpoints.len()].clone();
                let address = server.address;
                tasks.spawn(async move {
                    let connection = Arc::new(connect(&endpoint, address).await);
                    let mut streams = tokio::task::JoinSet::new();
                    for stream in 0..20 {
                        let connection = Arc::clone(&connection);
                        streams.spawn(async move {
                            let bytes = 1 + stream * 1_777;
                            echo(&connection, &pattern((number * 100 + stream) as u64, bytes))
                                .await;
                        });
                    }
                    while let Some(done) = streams.join_next().await {
                        done.unwrap();
                    }
                });
            }
            while let Some(done) = tasks.join_next().await {
                done.unwrap();
            }
        });
        let total = server.stop();
        assert_eq!(total.sum(|counters| counters.handshakes), 36);
        assert_eq!(total.sum(|counters| counters.misdelivered), 0);
        let used = total.quic.iter().filter(|counters| counters.handshakes > 0);
        assert!(used.count() >= 2, "12 addresses are distributed");
    });
}

#[test]
fn a_closing_endpoint_tells_its_clients() {
    both_drivers(|io| {
        let server = Server::start(io, 1, Limits::default());
        block_on(async {
            let endpoint = endpoint(&server);
            let connection = connect(&endpoint, server.address).await;
            echo(&connection, b"before").await;
            let stopping = std::thread::spawn(move || server.stop());
            match connection.closed().await {
                ConnectionError::ApplicationClosed(close) => {
                    assert_eq!(close.error_code, VarInt::from_u32(CLOSE.0));
                    assert_eq!(close.reason, CLOSE.1.as_bytes());
                }
                other => panic!("{other}"),
            }
            stopping.join().unwrap();
        });
    });
}

#[test]
fn a_panic_within_a_connection_ends_only_that_connection() {
    both_drivers(|io| {
        let server = Server::start(io, 1, Limits::default());
        block_on(async {
            let endpoint = endpoint(&server);
            let neighbour = connect(&endpoint, server.address).await;
            echo(&neighbour, b"before").await;
            for panic in [PANIC, PANIC_OUTSIDE] {
                let connection = connect(&endpoint, server.address).await;
                // Until the handshake is confirmed, its packets have long headers, to which no reset is sent.
                echo(&connection, b"confirmed").await;
                let (mut send, _receive) = connection.open_bi().await.unwrap();
                send.write_all(panic).await.unwrap();
                // Its packets are for an unknown connection now, and get a stateless reset.
                let _ = send.write_all(&pattern(1, 50_000)).await;
                let end = connection.closed().await;
                assert!(matches!(end, ConnectionError::Reset), "{end:?}");
            }
            echo(&neighbour, b"after").await;
        });
        let total = server.stop();
        assert_eq!(total.sum(|counters| counters.panics), 2);
    });
}

/// The frames of all datagrams that come in one turn, with an event for each, take far more memory than the datagrams.
#[test]
fn the_protocol_gets_the_events_of_many_datagrams_in_parts() {
    both_drivers(|io| {
        let server = Server::start(io, 1, Limits::default());
        block_on(async {
            let endpoint = endpoint(&server);
            let connection = connect(&endpoint, server.address).await;
            let mut streams = Vec::new();
            for _ in 0..60 {
                let (send, receive) = connection.open_bi().await.unwrap();
                streams.push((send, receive, Vec::new()));
            }
            streams[0].0.write_all(STOP_A_WHILE).await.unwrap();
            streams[0].2.extend_from_slice(STOP_A_WHILE);
            tokio::time::sleep(Duration::from_millis(50)).await;
            // Each round is a datagram with a frame for each stream.
            for round in 0..30 {
                for (send, _, content) in &mut streams {
                    send.write_all(&[round]).await.unwrap();
                    content.push(round);
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            for (send, receive, content) in &mut streams {
                send.finish().unwrap();
                assert!(receive.read_to_end(1_000).await.unwrap() == *content);
            }
        });
        let total = server.stop();
        assert_eq!(total.sum(|counters| counters.panics), 0);
    });
}
