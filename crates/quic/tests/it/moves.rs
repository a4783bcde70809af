//! Clients whose address changes.

use blitz_quic::Limits;

use crate::clients::{block_on, connect, echo, endpoint, pattern, socket};
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
                    tokio::time::sleep(std::time::Duration::from_millis(40)).await;
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
fn an_address_counts_only_once_it_has_stayed() {
    both_drivers(|io| {
        let server = Server::start(io, 1, Limits::default());
        block_on(async {
            let endpoint = endpoint(&server);
            let connection = connect(&endpoint, server.address).await;
            endpoint.rebind(socket()).unwrap();
            for _ in 0..45 {
                echo(&connection, b"here").await;
                tokio::time::sleep(std::time::Duration::from_millis(80)).await;
            }
        });
        assert_eq!(server.stop().sum(|counters| counters.migrations), 1);
    });
}
