//! Clients of `quinn`.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, Connection, Endpoint, TransportConfig};
use rustls::RootCertStore;

use crate::server::{ALPN, Server};

/// Far more than any step of these tests takes.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// Runs clients on a thread of their own runtime.
pub(crate) fn block_on<F: Future>(clients: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(async {
            tokio::time::timeout(4 * SOON, clients)
                .await
                .expect("clients end")
        })
}

pub(crate) fn endpoint(server: &Server) -> Endpoint {
    let mut roots = RootCertStore::empty();
    roots.add(server.certificate.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![ALPN.to_vec()];
    let config = QuicClientConfig::try_from(config).unwrap();
    let mut endpoint = Endpoint::client(any_port()).unwrap();
    let mut config = ClientConfig::new(Arc::new(config));
    let mut transport = TransportConfig::default();
    // Its packets are no larger than what they say.
    transport.mtu_discovery_config(None);
    config.transport_config(Arc::new(transport));
    endpoint.set_default_client_config(config);
    endpoint
}

pub(crate) fn any_port() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

pub(crate) fn socket() -> UdpSocket {
    UdpSocket::bind(any_port()).unwrap()
}

pub(crate) async fn connect(endpoint: &Endpoint, to: SocketAddr) -> Connection {
    let connecting = endpoint.connect(to, "localhost").unwrap();
    let connected = tokio::time::timeout(SOON, connecting).await;
    connected.expect("soon").expect("connected")
}

/// Bytes that differ at every offset and for every seed.
pub(crate) fn pattern(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    })
    .take(bytes)
    .collect()
}

/// Sends content on a new stream and expects it back.
pub(crate) async fn echo(connection: &Connection, content: &[u8]) {
    let (mut send, mut receive) = connection.open_bi().await.unwrap();
    let send = async {
        send.write_all(content).await.unwrap();
        send.finish().unwrap();
    };
    let receive = receive.read_to_end(content.len() + 1);
    let (_, received) = tokio::time::timeout(SOON, async { tokio::join!(send, receive) })
        .await
        .expect("soon");
    assert!(received.unwrap() == content, "{} bytes", content.len());
}
