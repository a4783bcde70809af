//! Packets of those who do not want a connection.

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use blitz_quic::Limits;

use crate::clients::{block_on, connect, echo, endpoint, pattern, socket};
use crate::relay::{Relay, Way};
use crate::server::{Server, both_drivers};

/// The datagrams that a client of the server begins with: the keys of X25519MLKEM768 need two.
fn first_flight(server: &Server) -> Vec<Vec<u8>> {
    let trap = socket();
    let address = trap.local_addr().unwrap();
    block_on(async {
        let endpoint = endpoint(server);
        let _connecting = endpoint.connect(address, "localhost").unwrap();
        let flight = tokio::task::spawn_blocking(move || {
            trap.set_read_timeout(Some(Duration::from_millis(200)))
                .unwrap();
            std::iter::from_fn(|| {
                let mut datagram = vec![0; 2_000];
                let len = trap.recv(&mut datagram).ok()?;
                datagram.truncate(len);
                Some(datagram)
            })
            .collect::<Vec<_>>()
        });
        let flight = flight.await.unwrap();
        assert!(flight.iter().map(Vec::len).sum::<usize>() >= 2_400);
        flight
    })
}

fn send(flight: &[Vec<u8>], from: &UdpSocket, server: &Server) {
    for datagram in flight {
        from.send_to(datagram, server.address).unwrap();
    }
}

/// All bytes that come until `quiet` has passed without any.
fn received_bytes(socket: &UdpSocket, quiet: Duration) -> usize {
    socket.set_read_timeout(Some(quiet)).unwrap();
    let mut bytes = 0;
    let mut datagram = [0; 2_000];
    while let Ok(len) = socket.recv(&mut datagram) {
        bytes += len;
    }
    bytes
}

#[test]
fn a_client_whose_address_is_not_proved_gets_at_most_three_times_its_bytes() {
    both_drivers(|io| {
        let limits = Limits {
            handshake_timeout: Duration::from_secs(3),
            ..Limits::default()
        };
        let server = Server::start(io, 1, limits);
        let (flight, victim) = (first_flight(&server), socket());
        send(&flight, &victim, &server);
        let sent: usize = flight.iter().map(Vec::len).sum();
        // Longer than any pause: the close comes when the handshake has taken too long.
        let received = received_bytes(&victim, Duration::from_secs(4));
        assert!(received > 1_200, "the server answers: {received}");
        assert!(received <= 3 * sent, "{received} for {sent}");
        server.stop();
    });
}

#[test]
fn with_many_incomplete_handshakes_clients_prove_their_address_first() {
    both_drivers(|io| {
        let limits = Limits {
            retry_above: 4,
            ..Limits::default()
        };
        let server = Server::start(io, 1, limits);
        let flights: Vec<_> = (0..4).map(|_| first_flight(&server)).collect();
        let attacker = socket();
        for flight in &flights {
            send(flight, &attacker, &server);
        }
        std::thread::sleep(Duration::from_millis(100));
        block_on(async {
            let endpoint = endpoint(&server);
            let connection = connect(&endpoint, server.address).await;
            echo(&connection, b"I am here").await;
        });
        let total = server.stop();
        // One for each of the client's first datagrams.
        assert!((1..=2).contains(&total.sum(|counters| counters.retries)));
        assert_eq!(total.sum(|counters| counters.handshakes), 1);
        assert_eq!(total.sum(|counters| counters.handshakes_failed), 4);
    });
}

#[test]
fn incomplete_handshakes_are_limited_and_end() {
    both_drivers(|io| {
        let limits = Limits {
            handshakes_max: 3,
            handshake_timeout: Duration::from_millis(500),
            ..Limits::default()
        };
        let server = Server::start(io, 1, limits);
        let flights: Vec<_> = (0..6).map(|_| first_flight(&server)).collect();
        let attacker = socket();
        for flight in &flights {
            send(flight, &attacker, &server);
        }
        std::thread::sleep(Duration::from_millis(100));
        let start = Instant::now();
        block_on(async {
            let endpoint = endpoint(&server);
            let connection = connect(&endpoint, server.address).await;
            echo(&connection, b"now there is room").await;
        });
        assert!(start.elapsed() < Duration::from_secs(5));
        let total = server.stop();
        assert_eq!(total.sum(|counters| counters.handshake_timeouts), 3);
        // At the limit, nobody is heard without a proof.
        assert!(total.sum(|counters| counters.retries) >= 3);
        assert_eq!(total.sum(|counters| counters.handshakes), 1);
    });
}

#[test]
fn a_new_client_replaces_the_oldest_incomplete_handshake() {
    both_drivers(|io| {
        let limits = Limits {
            handshakes_max: 3,
            ..Limits::default()
        };
        let server = Server::start(io, 1, limits);
        let flights: Vec<_> = (0..3).map(|_| first_flight(&server)).collect();
        let attacker = socket();
        for flight in &flights {
            send(flight, &attacker, &server);
        }
        // Longer than a handshake is safe from being replaced.
        std::thread::sleep(Duration::from_millis(1_200));
        let start = Instant::now();
        block_on(async {
            let endpoint = endpoint(&server);
            let connection = connect(&endpoint, server.address).await;
            echo(&connection, b"at once").await;
        });
        let elapsed = start.elapsed();
        assert!(elapsed < Duration::from_millis(800), "{elapsed:?}");
        let total = server.stop();
        assert_eq!(total.sum(|counters| counters.handshakes_replaced), 1);
        assert_eq!(total.sum(|counters| counters.ignored), 0);
        assert_eq!(total.sum(|counters| counters.handshakes), 1);
    });
}

/// A client that proves its address, and sends nothing after that.
fn stuck_client(server: &Server) -> Relay {
    let relay = Relay::start(server.address, &[[127, 0, 0, 1]]);
    let mut is_answered = false;
    relay.change(|rules| {
        rules.passes = Box::new(move |way, datagram| {
            const LONG_HEADER_AND_TYPE: u8 = 0xB0;
            const RETRY: u8 = 0xB0;
            is_answered |=
                matches!(way, Way::Down(_)) && datagram[0] & LONG_HEADER_AND_TYPE != RETRY;
            !is_answered
        });
    });
    relay
}

#[test]
fn a_client_that_proves_its_address_does_not_replace_young_handshakes() {
    both_drivers(|io| {
        let limits = Limits {
            handshakes_max: 2,
            retry_above: 0,
            ..Limits::default()
        };
        let server = Server::start(io, 1, limits);
        block_on(async {
            let endpoint = endpoint(&server);
            let stuck: Vec<_> = (0..2).map(|_| stuck_client(&server)).collect();
            let connecting: Vec<_> = stuck
                .iter()
                .map(|relay| endpoint.connect(relay.address, "localhost").unwrap())
                .collect();
            tokio::time::sleep(Duration::from_millis(200)).await;
            // Ignored at first; the client repeats itself after 1 s.
            let start = Instant::now();
            let connection = connect(&endpoint, server.address).await;
            assert!(start.elapsed() > Duration::from_millis(500));
            assert!(start.elapsed() < Duration::from_secs(5));
            echo(&connection, b"now they are old").await;
            drop(connecting);
        });
        let total = server.stop();
        assert!(total.sum(|counters| counters.ignored) >= 1);
        assert_eq!(total.sum(|counters| counters.handshakes_replaced), 1);
        assert_eq!(total.sum(|counters| counters.handshakes), 1);
    });
}

#[test]
fn garbage_harms_nobody() {
    both_drivers(|io| {
        let server = Server::start(io, 1, Limits::default());
        let initial = first_flight(&server).swap_remove(0);
        let attacker = socket();
        for seed in 0..2_000_u64 {
            let mut datagram = match seed % 4 {
                0 => pattern(seed, (seed % 1_500) as usize + 1),
                _ => initial.clone(),
            };
            let at = seed as usize * 7 % datagram.len();
            match seed % 4 {
                1 => datagram[at] ^= 1 << (seed % 8),
                2 => datagram.truncate(at + 1),
                3 => datagram[..60].copy_from_slice(&pattern(seed, 60)),
                _ => {}
            }
            attacker.send_to(&datagram, server.address).unwrap();
            if seed % 100 == 0 {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        block_on(async {
            let endpoint = endpoint(&server);
            let connection = connect(&endpoint, server.address).await;
            echo(&connection, &pattern(1, 100_000)).await;
        });
        assert_eq!(server.stop().sum(|counters| counters.panics), 0);
    });
}

/// Each of them gets Version Negotiation, which must not stop the datagrams of connections.
#[test]
fn unknown_versions_do_not_stop_others() {
    both_drivers(|io| {
        let server = Server::start(io, 1, Limits::default());
        let address = server.address;
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let attacker = std::thread::spawn(move || {
            let socket = socket();
            let mut datagram = vec![0; 1_200];
            datagram[..6].copy_from_slice(&[0xC0, 0x1a, 0x2a, 0x3a, 0x4a, 8]);
            while !over.load(Ordering::Relaxed) {
                for _ in 0..20 {
                    socket.send_to(&datagram, address).unwrap();
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let start = Instant::now();
        block_on(async {
            let endpoint = endpoint(&server);
            let mut tasks = tokio::task::JoinSet::new();
            for number in 0..12 {
                let endpoint = endpoint.clone();
                tasks.spawn(async move {
                    let connection = connect(&endpoint, address).await;
                    echo(&connection, &pattern(number, 200_000)).await;
                });
            }
            while let Some(done) = tasks.join_next().await {
                done.unwrap();
            }
        });
        let took = start.elapsed();
        is_over.store(true, Ordering::Relaxed);
        attacker.join().unwrap();
        assert!(took < Duration::from_secs(10), "{took:?}");
        server.stop();
    });
}

/// The library would keep a connection that its client has closed before the handshake was complete.
#[test]
fn handshakes_that_the_client_gives_up_end_in_time() {
    both_drivers(|io| {
        let limits = Limits {
            handshake_timeout: Duration::from_millis(500),
            ..Limits::default()
        };
        let server = Server::start(io, 1, limits);
        block_on(async {
            let endpoint = endpoint(&server);
            for _ in 0..20 {
                drop(endpoint.connect(server.address, "localhost").unwrap());
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            tokio::time::sleep(Duration::from_millis(1_000)).await;
        });
        let start = Instant::now();
        let total = server.stop();
        assert!(
            start.elapsed() < Duration::from_millis(400),
            "none was left"
        );
        let accepted = total.sum(|counters| counters.accepted);
        assert!(accepted > 0);
        assert_eq!(total.sum(|counters| counters.handshakes_failed), accepted);
    });
}
