//! Tests of the reactor; each runs on both drivers, and on the simulated one where no other program takes
//! part.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod admission;
mod cores;
mod datagram_group;
mod datagrams;
mod deadlines;
mod eviction;
mod fairness;
mod files;
mod large_receives;
mod lingering;
mod parking;
mod seccomp;
#[cfg(feature = "simulation")]
mod simulated;
mod streams;
mod tasks;
mod trim;
mod unix;

use std::future::Future;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use blitz_reactor::{Address, Config, IoChoice, Listener, Socket, block_on};

/// Runs `body` once on io_uring and once on epoll. On a machine without io_uring the tests
/// fail instead of testing one driver only.
fn on_both_drivers<F: Future<Output = ()>>(body: impl Fn() -> F) {
    for io in [IoChoice::Uring, IoChoice::Epoll] {
        println!("driver: {io:?}");
        block_on(&config(io), body()).unwrap();
    }
}

/// As [`on_both_drivers`], and on the simulated driver, without faults and with many. Nothing outside of
/// the reactor may take part, and the time is virtual.
fn on_all_drivers<F: Future<Output = ()> + 'static>(body: impl Fn() -> F) {
    on_both_drivers(&body);
    #[cfg(feature = "simulation")]
    {
        simulated::run(0, blitz_reactor::simulation::Conditions::calm(), body());
        for seed in 1..=3 {
            simulated::run(seed, simulated::faults(), body());
        }
    }
}

fn config(io: IoChoice) -> Config {
    Config {
        io,
        seed: Some(1),
        ..Config::default()
    }
}

fn anywhere() -> Address {
    Address::Tcp(SocketAddr::from(([127, 0, 0, 1], 0)))
}

/// A listener of the reactor, and its address.
fn listen() -> (Listener, SocketAddr) {
    let listener = Listener::bind(&anywhere()).unwrap();
    let Address::Tcp(address) = *listener.local() else {
        unreachable!("bound to TCP")
    };
    (listener, address)
}

/// Two ends of a connection, both in the reactor.
async fn pair() -> (Socket, Socket) {
    let (listener, address) = listen();
    let client = Socket::connect(&address.into()).await.unwrap();
    (client, listener.accept().await)
}

/// A connection whose peer is a blocking socket outside the reactor.
async fn with_blocking_peer() -> (Socket, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let socket = Socket::connect(&listener.local_addr().unwrap().into())
        .await
        .unwrap();
    let peer_stream = listener.accept().unwrap().0;
    peer_stream
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    (socket, peer_stream)
}

/// All bytes until FIN.
async fn read_to_end(socket: &Socket) -> Vec<u8> {
    let mut all = Vec::new();
    while let Some(bytes) = socket.recv().await.unwrap() {
        all.extend_from_slice(&bytes);
    }
    all
}

/// Bytes in a pattern that reveals reordering.
fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n * 31 % 251) as u8).collect()
}

/// Runs blocking code of a test outside the reactor.
async fn outside<T: Send + 'static>(job: impl FnOnce() -> T + Send + 'static) -> T {
    blitz_reactor::blocking(job).await
}

fn write_all(mut stream: &TcpStream, bytes: &[u8]) {
    stream.write_all(bytes).unwrap();
}

fn read_exactly(mut stream: &TcpStream, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    stream.read_exact(&mut bytes).unwrap();
    bytes
}
