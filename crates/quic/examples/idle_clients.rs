//! Connections of `quinn` to the example `echo`: each sends one stream and is idle then.
//!
//! ```text
//! idle_clients ADDRESS CONNECTIONS [SECONDS]
//! ```
#![allow(missing_docs, clippy::unwrap_used)]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, Endpoint, IdleTimeout, TransportConfig};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, Error, SignatureScheme};

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let address: SocketAddr = arguments.next().unwrap().parse().unwrap();
    let count: usize = arguments.next().unwrap().parse().unwrap();
    let seconds = arguments.next().map_or(10, |text| text.parse().unwrap());
    let mut endpoint = Endpoint::client(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    endpoint.set_default_client_config(config());
    let start = Instant::now();
    let mut connections = Vec::new();
    while connections.len() < count {
        let mut batch = tokio::task::JoinSet::new();
        for _ in 0..32.min(count - connections.len()) {
            let connecting = endpoint.connect(address, "localhost").unwrap();
            batch.spawn(async move {
                let connection = connecting.await.unwrap();
                let (mut send, mut receive) = connection.open_bi().await.unwrap();
                send.write_all(b"hello").await.unwrap();
                send.finish().unwrap();
                assert_eq!(receive.read_to_end(10).await.unwrap(), b"hello");
                connection
            });
        }
        while let Some(done) = batch.join_next().await {
            connections.push(done.unwrap());
        }
    }
    println!("{count} connections in {:?}", start.elapsed());
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

fn config() -> ClientConfig {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anyone))
        .with_no_client_auth();
    tls.alpn_protocols = vec![b"echo".to_vec()];
    let mut config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).unwrap()));
    let mut transport = TransportConfig::default();
    let timeout = IdleTimeout::try_from(Duration::from_secs(600)).unwrap();
    transport.max_idle_timeout(Some(timeout));
    config.transport_config(Arc::new(transport));
    config
}

/// Accepts every certificate: the server has just made its own.
#[derive(Debug)]
struct Anyone;

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ECDSA_NISTP256_SHA256]
    }
}
