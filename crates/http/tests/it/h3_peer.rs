//! Outside servers of QUIC: `quinn`, with exact bytes on its streams, or with the server of `h3`.

use std::net::SocketAddr;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};

use blitz_http::Address;
use quinn::crypto::rustls::QuicServerConfig;
use quinn::{
    Connection, Endpoint, Incoming, RecvStream, SendStream, ServerConfig, TransportConfig,
};

use crate::h3_support::{block_on, soon};
use crate::tls_support::Authority;

/// How an outside server is made.
pub(crate) struct Peer {
    pub(crate) authority: Authority,
    pub(crate) protocols: Vec<Vec<u8>>,
    pub(crate) transport: TransportConfig,
}

impl Peer {
    pub(crate) fn new() -> Peer {
        Peer {
            authority: Authority::new(),
            protocols: vec![b"h3".to_vec()],
            transport: TransportConfig::default(),
        }
    }

    /// Runs a script with the server's endpoint on another thread.
    pub(crate) fn play<F>(&mut self, script: F) -> (Address, JoinHandle<()>)
    where
        F: AsyncFnOnce(Endpoint) + Send + 'static,
    {
        let pair = self.authority.pair(&["localhost"]);
        let protocols = std::mem::take(&mut self.protocols);
        let tls = self.authority.outside_server(&pair, |config| {
            config.alpn_protocols = protocols;
        });
        let tls = QuicServerConfig::try_from(tls).unwrap();
        let mut config = ServerConfig::with_crypto(Arc::new(tls));
        config.transport_config(Arc::new(std::mem::take(&mut self.transport)));
        let (send, receive) = mpsc::channel();
        let thread = thread::spawn(move || {
            block_on(async {
                let any = SocketAddr::from(([127, 0, 0, 1], 0));
                let endpoint = Endpoint::server(config, any).unwrap();
                send.send(endpoint.local_addr().unwrap()).unwrap();
                script(endpoint.clone()).await;
                endpoint.wait_idle().await;
            });
        });
        let address = receive.recv_timeout(crate::support::SOON).unwrap();
        (Address::Tcp(address), thread)
    }
}

/// The next connection, before its handshake.
pub(crate) async fn incoming(endpoint: &Endpoint) -> Incoming {
    soon(endpoint.accept()).await.unwrap()
}

/// The next connection, with a control stream and empty settings.
pub(crate) async fn accept(endpoint: &Endpoint) -> RawServer {
    let connection = soon(incoming(endpoint).await.into_future()).await.unwrap();
    RawServer::begin(connection).await
}

/// A server that sends exact bytes.
pub(crate) struct RawServer {
    pub(crate) connection: Connection,
    pub(crate) control: SendStream,
}

impl RawServer {
    pub(crate) async fn begin(connection: Connection) -> RawServer {
        let mut control = connection.open_uni().await.unwrap();
        // The type of the stream, and SETTINGS.
        control.write_all(&[0, 4, 0]).await.unwrap();
        RawServer {
            connection,
            control,
        }
    }

    /// The next request, without reading it.
    pub(crate) async fn request(&self) -> (SendStream, RecvStream) {
        soon(self.connection.accept_bi()).await.unwrap()
    }

    /// The next request, read to its end.
    pub(crate) async fn whole_request(&self) -> (SendStream, Vec<u8>) {
        let (send, mut receive) = self.request().await;
        let content = soon(receive.read_to_end(1 << 20)).await.unwrap();
        (send, content)
    }

    /// The code with which the client closes the connection.
    pub(crate) async fn close_code(&self) -> u64 {
        match soon(self.connection.closed()).await {
            quinn::ConnectionError::ApplicationClosed(close) => close.error_code.into_inner(),
            other => panic!("{other}"),
        }
    }
}

/// HEADERS with status 200, and no more.
pub(crate) const OK: &[u8] = &[1, 3, 0, 0, 0xd9];

/// A DATA frame.
pub(crate) fn data(content: &[u8]) -> Vec<u8> {
    assert!(content.len() < 64);
    [&[0, content.len() as u8], content].concat()
}
