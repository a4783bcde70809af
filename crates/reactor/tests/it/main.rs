//! Every behaviour is shown on both drivers, and on the simulated one where no other program takes part.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod beginning;
mod cores;
mod deadlines;
mod fairness;
mod parking;
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

/// Runs `body` once on io_uring and once on epoll. A machine that forbids io_uring fails here
/// rather than testing half.
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

/// A listener of the reactor and where it listens.
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

/// A connection whose other end is a plain blocking socket in the test's hands.
async fn with_outsider() -> (Socket, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let socket = Socket::connect(&listener.local_addr().unwrap().into())
        .await
        .unwrap();
    let outsider = listener.accept().unwrap().0;
    outsider
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    (socket, outsider)
}

/// All that arrives until FIN.
async fn read_to_end(socket: &Socket) -> Vec<u8> {
    let mut all = Vec::new();
    while let Some(bytes) = socket.recv().await.unwrap() {
        all.extend_from_slice(&bytes);
    }
    all
}

/// Bytes that differ enough to show a mix-up.
fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n * 31 % 251) as u8).collect()
}

/// Runs blocking work of a test beside the reactor.
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
