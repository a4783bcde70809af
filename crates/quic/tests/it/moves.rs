//! Clients whose address changes.

use std::time::Duration;

use blitz_quic::Limits;

use crate::clients::{block_on, connect, echo, endpoint, pattern, socket};
use crate::echo::ADDRESS;
use crate::relay::socket_of;
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

#[test]
fn a_client_that_moves_keeps_the_address_that_was_validated() {
    both_drivers(|io| {
        let server = Server::start(io, 1, Limits::default());
        block_on(async {
            let endpoint = endpoint(&server);
            let connection = connect(&endpoint, server.address).await;
            let before = endpoint.local_addr().unwrap();
            let forged = socket_of([127, 0, 0, 2]);
            let address = async || {
                let (mut send, mut receive) = connection.open_bi().await.unwrap();
                send.write_all(ADDRESS).await.unwrap();
                send.finish().unwrap();
                String::from_utf8(receive.read_to_end(100).await.unwrap()).unwrap()
            };
            assert_eq!(address().await, before.to_string());
            endpoint.rebind(forged).unwrap();
            for _ in 0..50 {
                assert_eq!(address().await, before.to_string());
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        server.stop();
    });
}

/// Packets from a new host cause some of 1,200 bytes that nobody has to want there.
#[test]
fn a_client_that_jumps_between_hosts_is_ignored() {
    both_drivers(|io| {
        let server = Server::start(io, 1, Limits::default());
        block_on(async {
            let endpoint = endpoint(&server);
            let connection = connect(&endpoint, server.address).await;
            for host in 2..40 {
                endpoint.rebind(socket_of([127, 0, 0, host])).unwrap();
                let (mut send, _receive) = connection.open_bi().await.unwrap();
                let _ = send.write_all(&pattern(host.into(), 2_000)).await;
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            // Where it began it is always heard.
            endpoint.rebind(socket()).unwrap();
            echo(&connection, b"back again").await;
        });
        let total = server.stop();
        let refused = total.sum(|counters| counters.moves_refused);
        assert!(refused > 5, "{refused}");
        assert_eq!(total.sum(|counters| counters.panics), 0);
    });
}
