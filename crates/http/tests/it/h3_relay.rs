//! Datagrams between a client and the server, some of which are lost.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use blitz_testing::quic::RawClient;
use quinn::TransportConfig;
use tokio::net::UdpSocket;

use crate::h3_support::{Quic, QuicServer};
use crate::support::SOON;

/// Passes datagrams on in both directions, and notes the connection ID of the client's packets.
pub(crate) struct Relay {
    pub(crate) address: SocketAddr,
    pub(crate) to_server: Arc<UdpSocket>,
    pub(crate) id: Arc<Mutex<Option<[u8; 8]>>>,
    lost: Arc<Mutex<Range<usize>>>,
}

/// Datagrams that have hardly more than acknowledgements.
pub(crate) const SHORT: Range<usize> = 0..40;

impl Relay {
    pub(crate) async fn start(server: SocketAddr) -> Relay {
        let to_client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let to_server = Arc::new(UdpSocket::bind("127.0.0.1:0").await.unwrap());
        to_server.connect(server).await.unwrap();
        let relay = Relay {
            address: to_client.local_addr().unwrap(),
            to_server: Arc::clone(&to_server),
            id: Arc::default(),
            lost: Arc::default(),
        };
        let (id, lost) = (Arc::clone(&relay.id), Arc::clone(&relay.lost));
        let pass_on = async move {
            let mut client = None;
            let (mut from_client, mut from_server) = ([0; 2_048], [0; 2_048]);
            loop {
                tokio::select! {
                    got = to_client.recv_from(&mut from_client) => {
                        let Ok((len, from)) = got else { return };
                        client = Some(from);
                        if let [0..0x80, rest @ ..] = &from_client[..len] {
                            *id.lock().unwrap() = rest.first_chunk().copied();
                        }
                        if lost.lock().unwrap().contains(&len) {
                            continue;
                        }
                        let _ = to_server.send(&from_client[..len]).await;
                    }
                    got = to_server.recv(&mut from_server) => {
                        let (Ok(len), Some(client)) = (got, client) else { return };
                        let _ = to_client.send_to(&from_server[..len], client).await;
                    }
                }
            }
        };
        tokio::spawn(tokio::time::timeout(6 * SOON, pass_on));
        relay
    }

    /// A client of a server behind it.
    pub(crate) async fn connect(&self, server: &QuicServer) -> RawClient {
        let transport = TransportConfig::default();
        let quic = Quic::connect(
            &server.outside().config,
            transport,
            self.address,
            "localhost",
        )
        .await;
        RawClient::begin(quic.unwrap()).await
    }

    /// From now on, the client's datagrams of these lengths are lost.
    pub(crate) fn lose(&self, bytes: Range<usize>) {
        *self.lost.lock().unwrap() = bytes;
    }
}
