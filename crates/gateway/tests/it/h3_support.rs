//! A gateway that listens with HTTP/3, and connections of QUIC to it.

use blitz_gateway::Options;
use blitz_http::{IoChoice, TlsSlot};
use blitz_testing::quic::{Quic, RawClient};

use crate::support::Proxy;
use crate::tls_support::Authority;

pub(crate) use blitz_testing::quic::block_on;

/// A gateway that listens with TLS, and the authority that its clients trust.
pub(crate) struct QuicServer {
    pub(crate) proxy: Proxy,
    authority: Authority,
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

    /// A client that sends exact bytes.
    pub(crate) async fn raw_client(&self) -> RawClient {
        let mut outside = self.authority.client_of(&[&rustls::version::TLS13], None);
        outside.change(|config| config.alpn_protocols = vec![b"h3".to_vec()]);
        let address = self.proxy.address;
        let quic = Quic::connect(&outside.config, Default::default(), address, "localhost");
        RawClient::begin(quic.await.unwrap()).await
    }
}
