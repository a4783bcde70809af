//! Endpoints of clients, with our own server.

use std::cell::{Cell, RefCell};
use std::net::{SocketAddr, UdpSocket};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use blitz_quic::quinn_proto::crypto::rustls::QuicClientConfig;
use blitz_quic::quinn_proto::{ClientConfig, ConnectionError, Dir, StreamEvent, StreamId};
use blitz_quic::{ConnectError, Connection, Endpoint, Keys, Limits, Protocol};
use blitz_reactor::{Config, DatagramSocket, IoChoice, Pinning, block_on, sleep, spawn};
use rustls::RootCertStore;

use crate::clients::any_port;
use crate::server::{ALPN, Server, both_drivers};

/// Keeps what comes.
#[derive(Default, Clone)]
struct Collect {
    lost: Rc<Cell<u32>>,
    failed: Rc<Cell<u32>>,
}

impl Protocol for Collect {
    type State = RefCell<Vec<u8>>;

    const EXCESSIVE_LOAD: u32 = 1;

    fn connected(&self, _: &Rc<Connection<Collect>>) -> RefCell<Vec<u8>> {
        RefCell::default()
    }

    fn stream(&self, connection: &Rc<Connection<Collect>>, event: StreamEvent) {
        let StreamEvent::Readable { id } = event else {
            return;
        };
        let content = connection.state().unwrap();
        connection.with(|quic| {
            let mut stream = quic.recv_stream(id);
            // It may have been read to its end before.
            let Ok(mut chunks) = stream.read(true) else {
                return;
            };
            while let Ok(Some(chunk)) = chunks.next(usize::MAX) {
                content.borrow_mut().extend_from_slice(&chunk.bytes);
            }
            let _ = chunks.finalize();
        });
    }

    fn lost(&self, _: &Rc<Connection<Collect>>, _: &ConnectionError) {
        self.lost.set(self.lost.get() + 1);
    }

    fn failed(&self, _: &Rc<Connection<Collect>>, _: &ConnectionError) {
        self.failed.set(self.failed.get() + 1);
    }
}

fn crypto(server: &Server) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(server.certificate.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![ALPN.to_vec()];
    ClientConfig::new(Arc::new(QuicClientConfig::try_from(config).unwrap()))
}

fn run<T>(io: IoChoice, work: impl Future<Output = T>) -> T {
    let config = Config {
        io,
        cores: 1,
        pin: Pinning::Off,
        ..Config::default()
    };
    block_on(&config, work).unwrap()
}

/// An endpoint whose task runs; it says when that has ended.
fn endpoint(collect: &Collect, limits: Limits) -> (Endpoint<Collect>, Rc<Cell<bool>>) {
    let socket = DatagramSocket::bind(any_port()).unwrap();
    let keys = Keys::new().unwrap();
    let endpoint = Endpoint::client(socket, collect.clone(), &keys, limits);
    let (running, has_ended) = (endpoint.clone(), Rc::new(Cell::new(false)));
    let ended = Rc::clone(&has_ended);
    spawn(async move {
        running.run().await;
        ended.set(true);
    });
    (endpoint, has_ended)
}

fn send(connection: &Rc<Connection<Collect>>, content: &[u8]) -> StreamId {
    let sent = connection.with(|quic| {
        let id = quic.streams().open(Dir::Bi).unwrap();
        let mut stream = quic.send_stream(id);
        assert_eq!(stream.write(content).unwrap(), content.len());
        stream.finish().unwrap();
        id
    });
    sent.unwrap()
}

async fn until(holds: impl Fn() -> bool) {
    for _ in 0..2_000 {
        if holds() {
            return;
        }
        sleep(Duration::from_millis(5)).await;
    }
    panic!("it never happens");
}

#[test]
fn connections_of_one_endpoint_carry_streams_until_it_ends() {
    both_drivers(|io| {
        let server = Server::start(io, 1, Limits::default());
        run(io, async {
            let collect = Collect::default();
            let (endpoint, has_ended) = endpoint(&collect, Limits::default());
            let mut connections = Vec::new();
            for number in 0..5_u8 {
                let config = crypto(&server);
                let connection = endpoint.connect(server.address, "localhost", config);
                let connection = connection.unwrap();
                assert!(connection.state().is_none());
                connection.established().await.unwrap();
                assert_eq!(connection.remote(), server.address);
                send(&connection, &[number; 3_000]);
                connections.push(connection);
            }
            for (number, connection) in connections.iter().enumerate() {
                let content = connection.state().unwrap();
                until(|| content.borrow().len() == 3_000).await;
                assert!(content.borrow().iter().all(|byte| *byte == number as u8));
            }
            assert_eq!(endpoint.counters().connects, 5);
            assert_eq!(endpoint.counters().handshakes, 5);
            endpoint.end_when_empty();
            let config = crypto(&server);
            let late = endpoint.connect(server.address, "localhost", config);
            assert_eq!(late.err(), Some(ConnectError::Ended));
            for connection in &connections {
                assert!(!has_ended.get());
                connection.close(5, "enough");
            }
            until(|| has_ended.get()).await;
            assert_eq!((collect.lost.get(), collect.failed.get()), (0, 0));
        });
        let total = server.stop();
        assert_eq!(total.sum(|counts| counts.handshakes), 5);
    });
}

#[test]
fn the_limit_of_connections_and_the_time_of_handshakes_apply_to_clients() {
    both_drivers(|io| {
        let server = Server::start(io, 1, Limits::default());
        let silent = UdpSocket::bind(any_port()).unwrap();
        run(io, async {
            let limits = Limits {
                connections_max: 1,
                handshake_timeout: Duration::from_millis(100),
                ..Limits::default()
            };
            let collect = Collect::default();
            let (endpoint, has_ended) = endpoint(&collect, limits);
            let connect = |to: SocketAddr| endpoint.connect(to, "localhost", crypto(&server));
            let first = connect(silent.local_addr().unwrap()).unwrap();
            let second = connect(server.address);
            assert_eq!(second.err(), Some(ConnectError::Full));
            let error = first.established().await.unwrap_err();
            assert_eq!(error, ConnectionError::TimedOut);
            assert_eq!(collect.failed.get(), 1);
            assert_eq!(endpoint.counters().handshake_timeouts, 1);
            assert_eq!(endpoint.connections(), 0);
            let nowhere = connect(SocketAddr::from(([127, 0, 0, 1], 0)));
            assert_eq!(nowhere.err(), Some(ConnectError::Unusable));
            let third = connect(server.address).unwrap();
            third.established().await.unwrap();
            endpoint.close(7, "");
            until(|| has_ended.get()).await;
        });
        server.stop();
    });
}
