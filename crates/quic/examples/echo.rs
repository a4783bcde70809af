//! An echo server on one core, for measurements; prints its address, and every second what it has counted.
//!
//! ```text
//! cargo run --profile dist -p blitz-quic --example echo -- 127.0.0.1:4433
//! cargo run --profile dist -p blitz-quic --example idle_clients -- 127.0.0.1:4433 1000
//! ```
#![allow(missing_docs, clippy::unwrap_used)]

#[path = "../tests/it/echo.rs"]
mod echo;

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use blitz_quic::quinn_proto::crypto::ServerConfig;
use blitz_quic::quinn_proto::crypto::rustls::QuicServerConfig;
use blitz_quic::{Endpoint, EndpointOptions, Keys, Limits};
use blitz_reactor::{Config, DatagramSocket, block_on, sleep, spawn};

fn main() {
    let address: SocketAddr = match std::env::args().nth(1) {
        Some(address) => address.parse().expect("an address with a port"),
        None => SocketAddr::from(([127, 0, 0, 1], 4433)),
    };
    let config = Config::default();
    block_on(&config, run(address)).expect("the core runs");
}

async fn run(address: SocketAddr) {
    let crypto = crypto();
    let settings = EndpointOptions {
        keys: Keys::new().unwrap(),
        cores: 1,
        limits: Limits {
            retry_above: usize::MAX,
            handshakes_max: usize::MAX,
            ..Limits::default()
        },
        crypto: Rc::new(move || Arc::clone(&crypto)),
    };
    let socket = DatagramSocket::bind(address).expect("the address is free");
    let endpoint = Endpoint::new(socket, echo::Echo, settings);
    println!("echo: {}", endpoint.local());
    let counted = endpoint.clone();
    spawn(async move {
        let mut before = None;
        loop {
            sleep(Duration::from_secs(1)).await;
            let now = counted.counters();
            if before.replace(now) != Some(now) {
                println!("{} connections, {now:?}", counted.connections());
            }
        }
    });
    endpoint.run().await;
}

fn crypto() -> Arc<dyn ServerConfig> {
    let signed = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = signed.signing_key.serialize_der().try_into().unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![signed.cert.der().clone()], key)
        .unwrap();
    config.alpn_protocols = vec![b"echo".to_vec()];
    Arc::new(QuicServerConfig::try_from(config).unwrap())
}
