//! Clients whose address changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use blitz_quic::Limits;
use quinn::{Connection, RecvStream, SendStream};

use crate::clients::{SOON, block_on, connect, echo, endpoint, pattern, socket};
use crate::echo::ADDRESS;
use crate::relay::{Relay, Way};
use crate::server::{Server, both_drivers};

#[test]
fn a_client_that_changes_its_port_ten_times_loses_nothing() {
    both_drivers(|io| {
        let server = Server::start(io, 4, Limits::default());
        block_on(async {
            let endpoint = endpoint(&server);
            let connection = connect(&endpoint, server.address).await;
            let content = pattern(3, 8_000_000);
            let transfer = echo(&connection, &content);
            let moves = async {
                for _ in 0..10 {
                    tokio::time::sleep(Duration::from_millis(40)).await;
                    endpoint.rebind(socket()).unwrap();
                }
            };
            tokio::join!(transfer, moves);
            echo(&connection, b"and it still works").await;
        });
        let total = server.stop();
        assert_eq!(total.sum(|counters| counters.handshakes), 1);
        // Its packets with short headers reach the core by their connection ID.
        assert_eq!(total.sum(|counters| counters.misdelivered), 0);
    });
}

/// The client's address as the server sees it at the beginning of a new stream.
async fn address(connection: &Connection) -> String {
    let (mut send, mut receive) = connection.open_bi().await.unwrap();
    send.write_all(ADDRESS).await.unwrap();
    send.finish().unwrap();
    let received = tokio::time::timeout(SOON, receive.read_to_end(100)).await;
    String::from_utf8(received.expect("soon").unwrap()).unwrap()
}

/// Sends enough to be heard wherever the client is.
async fn announce(connection: &Connection) -> (SendStream, RecvStream) {
    let (mut send, receive) = connection.open_bi().await.unwrap();
    send.write_all(&pattern(1, 2_000)).await.unwrap();
    (send, receive)
}

#[test]
fn a_client_that_moves_has_its_new_address_once_it_is_validated() {
    both_drivers(|io| {
        // To another host, and to another port.
        for hosts in [[[127, 0, 0, 2], [127, 0, 0, 3]], [[127, 0, 0, 2]; 2]] {
            let server = Server::start(io, 1, Limits::default());
            block_on(async {
                let endpoint = endpoint(&server);
                let relay = Relay::start(server.address, &hosts);
                let connection = connect(&endpoint, relay.address).await;
                let [before, after] = [0, 1].map(|number| relay.hosts[number].to_string());
                assert_eq!(address(&connection).await, before);
                relay.change(|rules| rules.from = vec![1]);
                let _announcement = announce(&connection).await;
                assert_eq!(address(&connection).await, before, "not validated");
                let start = Instant::now();
                while address(&connection).await != after {
                    assert!(start.elapsed() < SOON);
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                for _ in 0..20 {
                    assert_eq!(address(&connection).await, after);
                }
            });
            let total = server.stop();
            assert_eq!(total.sum(|counters| counters.migrations), 1);
        }
    });
}

/// A relay whose second host hears nothing, with the bytes that it has sent from there and those that it should hear.
fn relay_with_deaf_host(server: &Server) -> (Relay, Arc<[AtomicUsize; 2]>) {
    let relay = Relay::start(server.address, &[[127, 0, 0, 2], [127, 0, 0, 3]]);
    let bytes = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
    let counted = Arc::clone(&bytes);
    relay.change(|rules| {
        rules.passes = Box::new(move |way, datagram| {
            let is_heard = way == Way::Down(1);
            if is_heard || way == Way::Up(1) {
                counted[usize::from(is_heard)].fetch_add(datagram.len(), Ordering::Relaxed);
            }
            !is_heard
        });
    });
    (relay, bytes)
}

#[test]
fn an_address_that_nobody_validates_is_never_the_clients() {
    both_drivers(|io| {
        let server = Server::start(io, 1, Limits::default());
        block_on(async {
            let endpoint = endpoint(&server);
            let (relay, bytes) = relay_with_deaf_host(&server);
            let connection = connect(&endpoint, relay.address).await;
            let before = relay.hosts[0].to_string();
            assert_eq!(address(&connection).await, before);
            // Alone, and as a copy that overtakes each datagram of the client.
            for from in [vec![1], vec![1, 0]] {
                relay.change(|rules| rules.from = from);
                let _announcement = announce(&connection).await;
                let asked = address(&connection);
                let back = async {
                    tokio::time::sleep(Duration::from_millis(500)).await;
                    let heard = bytes[1].swap(0, Ordering::Relaxed);
                    assert!(heard > 0, "the server has moved");
                    relay.change(|rules| rules.from = vec![0]);
                };
                let (seen, ()) = tokio::join!(asked, back);
                assert_eq!(seen, before);
                for _ in 0..20 {
                    assert_eq!(address(&connection).await, before);
                }
            }
        });
        let total = server.stop();
        assert_eq!(total.sum(|counters| counters.migrations), 0);
    });
}

#[test]
fn a_client_that_sends_only_short_datagrams_from_its_new_host_is_heard() {
    both_drivers(|io| {
        let server = Server::start(io, 1, Limits::default());
        block_on(async {
            let endpoint = endpoint(&server);
            let relay = Relay::start(server.address, &[[127, 0, 0, 2], [127, 0, 0, 3]]);
            let connection = connect(&endpoint, relay.address).await;
            echo(&connection, b"before").await;
            tokio::time::sleep(Duration::from_millis(100)).await;
            relay.change(|rules| rules.from = vec![1]);
            for _ in 0..3 {
                echo(&connection, b"short").await;
            }
        });
        let total = server.stop();
        assert!(
            total.sum(|counters| counters.moves_refused) > 0,
            "they were short"
        );
        assert_eq!(total.sum(|counters| counters.migrations), 1);
    });
}

#[test]
fn a_new_host_gets_at_most_three_times_its_bytes_until_it_is_validated() {
    // The client can always open one more stream: acknowledgements alone are too short for a move.
    let limits = Limits {
        connection_window_bytes: 16 << 20,
        ..Limits::default()
    };
    both_drivers(|io| {
        let server = Server::start(io, 1, limits.clone());
        block_on(async {
            let endpoint = endpoint(&server);
            let (relay, bytes) = relay_with_deaf_host(&server);
            let connection = connect(&endpoint, relay.address).await;
            echo(&connection, b"before").await;
            let content = pattern(3, 20_000_000);
            let transfer = echo(&connection, &content);
            let moves = async {
                tokio::time::sleep(Duration::from_millis(30)).await;
                relay.change(|rules| rules.from = vec![1]);
                let _announcement = announce(&connection).await;
                for _ in 0..20 {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    let [heard, sent] = [1, 0].map(|way| bytes[way].load(Ordering::Relaxed));
                    assert!(heard <= 3 * sent, "{heard} for {sent}");
                }
                assert!(
                    bytes[1].load(Ordering::Relaxed) >= 1_200,
                    "the server has moved"
                );
                relay.change(|rules| rules.from = vec![0]);
            };
            tokio::join!(transfer, moves);
        });
        assert_eq!(server.stop().sum(|counters| counters.migrations), 0);
    });
}

/// Each move costs packets of 1,200 bytes that nobody may want there.
#[test]
fn a_client_that_jumps_between_hosts_without_validation_is_ignored() {
    both_drivers(|io| {
        let server = Server::start(io, 1, Limits::default());
        block_on(async {
            let endpoint = endpoint(&server);
            let hosts: Vec<_> = (2..40).map(|host| [127, 0, 0, host]).collect();
            let relay = Relay::start(server.address, &hosts);
            let connection = connect(&endpoint, relay.address).await;
            echo(&connection, b"before").await;
            relay.change(|rules| {
                rules.passes = Box::new(|way, _| matches!(way, Way::Up(_) | Way::Down(0)));
            });
            for host in 1..hosts.len() {
                relay.change(|rules| rules.from = vec![host]);
                let _announcement = announce(&connection).await;
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            // Where it was validated it is always heard.
            relay.change(|rules| rules.from = vec![0]);
            echo(&connection, b"back again").await;
        });
        let total = server.stop();
        let refused = total.sum(|counters| counters.moves_refused);
        assert!(refused > 5, "{refused}");
        assert_eq!(total.sum(|counters| counters.migrations), 0);
        assert_eq!(total.sum(|counters| counters.panics), 0);
    });
}
