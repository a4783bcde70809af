//! Servers that echo, on threads of their own.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use blitz_quic::quinn_proto::crypto::ServerConfig as Crypto;
use blitz_quic::quinn_proto::crypto::rustls::QuicServerConfig;
use blitz_quic::{Counters, Endpoint, EndpointOptions, Keys, Limits};
use blitz_reactor::{Config, Cores, DatagramGroup, IoChoice, Pinning, sleep, spawn, start};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::echo::Echo;

pub(crate) const ALPN: &[u8] = b"echo";

/// Code and reason of the last close.
pub(crate) const CLOSE: (u32, &str) = (77, "the server ends");

pub(crate) struct Server {
    cores: Cores,
    pub(crate) address: SocketAddr,
    pub(crate) certificate: CertificateDer<'static>,
    is_over: Arc<AtomicBool>,
    counts: Receiver<Counters>,
}

/// The counts of the endpoints of all cores.
pub(crate) struct Total {
    pub(crate) quic: Vec<Counters>,
    pub(crate) reactor: blitz_reactor::Counters,
}

impl Total {
    pub(crate) fn sum(&self, of: impl Fn(&Counters) -> u64) -> u64 {
        self.quic.iter().map(of).sum()
    }
}

impl Server {
    pub(crate) fn start(io: IoChoice, cores: usize, limits: Limits) -> Server {
        let signed = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let certificate = signed.cert.der().clone();
        let crypto = crypto(certificate.clone(), signed.signing_key.serialize_der());
        let keys = Keys::new().unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let group = DatagramGroup::bind(address, cores, keys.steering()).unwrap();
        let address = group.local();
        let config = Config {
            io,
            cores,
            pin: Pinning::Off,
            ..Config::default()
        };
        let is_over = Arc::new(AtomicBool::new(false));
        let (counter, counts) = mpsc::channel();
        let over = Arc::clone(&is_over);
        let cores = start(&config, move |_| {
            let (group, keys, limits) = (group.clone(), keys.clone(), limits.clone());
            let (crypto, counter, is_over) = (crypto.clone(), counter.clone(), over.clone());
            async move {
                let settings = EndpointOptions {
                    keys,
                    cores,
                    limits,
                    crypto: Rc::new(move || Arc::clone(&crypto)),
                };
                let endpoint = Endpoint::new(group.socket().unwrap(), Echo, settings);
                let handle = endpoint.clone();
                spawn(async move {
                    while !is_over.load(Ordering::Acquire) {
                        sleep(Duration::from_millis(10)).await;
                    }
                    handle.close(CLOSE.0, CLOSE.1);
                });
                endpoint.run().await;
                counter.send(endpoint.counters()).unwrap();
            }
        })
        .unwrap();
        Server {
            cores,
            address,
            certificate,
            is_over,
            counts,
        }
    }

    /// Closes all connections and waits for their end.
    pub(crate) fn stop(self) -> Total {
        self.is_over.store(true, Ordering::Release);
        let soon = Duration::from_secs(20);
        let quic = (0..self.cores.count())
            .map(|_| self.counts.recv_timeout(soon).expect("an endpoint ends"))
            .collect();
        let reactor = self.cores.counters();
        self.cores.join().unwrap();
        Total { quic, reactor }
    }
}

fn crypto(certificate: CertificateDer<'static>, key: Vec<u8>) -> Arc<dyn Crypto> {
    let key = PrivateKeyDer::try_from(key).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    config.alpn_protocols = vec![ALPN.to_vec()];
    Arc::new(QuicServerConfig::try_from(config).unwrap())
}

pub(crate) fn both_drivers(test: impl Fn(IoChoice)) {
    for io in [IoChoice::Uring, IoChoice::Epoll] {
        test(io);
    }
}
