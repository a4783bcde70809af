//! A gateway that listens with HTTP/3, and connections of QUIC to it.

use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use blitz_gateway::Options;
use blitz_http::{IoChoice, TlsSlot};
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, Endpoint};

use crate::support::{Proxy, SOON};
use crate::tls_support::Authority;

/// A gateway that listens with TLS, and the authority that its clients trust.
pub(crate) struct QuicServer {
    pub(crate) proxy: Proxy,
    authority: Authority,
}

/// A connection of QUIC.
pub(crate) struct Quic {
    pub(crate) connection: quinn::Connection,
}

impl QuicServer {
    pub(crate) fn to(io: IoChoice, target: &str, options: Options) -> QuicServer {
        QuicServer::with(|slot| Proxy::over_tls_with(io, &[target], slot, options))
    }

    /// A gateway with this listener.
    pub(crate) fn with(gateway: impl FnOnce(TlsSlot) -> Proxy) -> QuicServer {
        let authority = Authority::new();
        QuicServer {
            proxy: gateway(TlsSlot::new(authority.server())),
            authority,
        }
    }

    /// A connection without streams.
    pub(crate) async fn quic(&self) -> Quic {
        let mut outside = self.authority.client_of(&[&rustls::version::TLS13], None);
        outside.change(|config| config.alpn_protocols = vec![b"h3".to_vec()]);
        let tls = QuicClientConfig::try_from(Arc::clone(&outside.config)).unwrap();
        let endpoint = Endpoint::client(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
        let config = ClientConfig::new(Arc::new(tls));
        let connecting = endpoint.connect_with(config, self.proxy.address, "localhost");
        let connection = soon(connecting.unwrap()).await.unwrap();
        Quic { connection }
    }
}

/// Runs clients on the calling thread.
pub(crate) fn block_on<F: Future>(clients: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(clients)
}

/// Waits for what should happen at once.
pub(crate) async fn soon<F: Future>(event: F) -> F::Output {
    let event = tokio::time::timeout(SOON, event);
    event.await.expect("it happens")
}

pub(crate) async fn pause(millis: u64) {
    tokio::time::sleep(Duration::from_millis(millis)).await;
}
