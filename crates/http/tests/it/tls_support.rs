//! Generated certificates, and rustls's blocking connections as the outside peer.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use blitz_http::{CaSet, Certificate, ClientAuth, ServerTls, TicketKeys};
use blitz_testing::{Raw, read_head};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
};
use rustls::client::Resumption;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, StreamOwned,
    SupportedProtocolVersion,
};

/// An authority that issues the certificates of the tests.
pub(crate) struct Authority {
    pub(crate) pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key, in PEM.
#[derive(Clone)]
pub(crate) struct Pair {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new() -> Authority {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        // Verifiers would confuse authorities with the same name and different keys.
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("authority {}", NEXT.fetch_add(1, Ordering::Relaxed));
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        Authority {
            pem: certificate.pem(),
            issuer: Issuer::new(params, key),
        }
    }

    pub(crate) fn pair(&self, names: &[&str]) -> Pair {
        self.pair_with(names, |_| {})
    }

    pub(crate) fn pair_with(
        &self,
        names: &[&str],
        change: impl FnOnce(&mut CertificateParams),
    ) -> Pair {
        self.pair_of(&KeyPair::generate().unwrap(), names, change)
    }

    pub(crate) fn pair_of(
        &self,
        key: &KeyPair,
        names: &[&str],
        change: impl FnOnce(&mut CertificateParams),
    ) -> Pair {
        let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        change(&mut params);
        let certificate = params.signed_by(key, &self.issuer).unwrap();
        Pair {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        }
    }

    pub(crate) fn set(&self) -> CaSet {
        CaSet::from_pem(self.pem.as_bytes()).unwrap()
    }

    pub(crate) fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        let der = CertificateDer::from_pem_slice(self.pem.as_bytes()).unwrap();
        roots.add(der).unwrap();
        roots
    }

    /// A snapshot for `localhost` alone.
    pub(crate) fn server(&self) -> ServerTls {
        self.server_with(ClientAuth::None, &TicketKeys::new().unwrap())
    }

    pub(crate) fn server_with(&self, client_auth: ClientAuth, keys: &TicketKeys) -> ServerTls {
        ServerTls::builder()
            .certificate(self.pair(&["localhost"]).load())
            .client_auth(client_auth)
            .ticket_keys(keys)
            .build()
            .unwrap()
    }

    /// An outside client that trusts this authority.
    pub(crate) fn client(&self) -> Outside {
        self.client_of(rustls::DEFAULT_VERSIONS, None)
    }

    pub(crate) fn client_of(
        &self,
        versions: &[&'static SupportedProtocolVersion],
        own: Option<&Pair>,
    ) -> Outside {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(self.roots());
        let mut config = match own {
            None => builder.with_no_client_auth(),
            Some(own) => builder
                .with_client_auth_cert(own.chain(), own.key_der())
                .unwrap(),
        };
        config.resumption = Resumption::in_memory_sessions(32);
        Outside {
            config: Arc::new(config),
        }
    }

    /// The configuration of an outside server.
    pub(crate) fn outside_server(
        &self,
        pair: &Pair,
        change: impl FnOnce(&mut ServerConfig),
    ) -> Arc<ServerConfig> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(pair.chain(), pair.key_der())
            .unwrap();
        change(&mut config);
        Arc::new(config)
    }
}

impl Pair {
    pub(crate) fn load(&self) -> Certificate {
        Certificate::from_pem(self.certificate.as_bytes(), self.key.as_bytes()).unwrap()
    }

    pub(crate) fn chain(&self) -> Vec<CertificateDer<'static>> {
        CertificateDer::pem_slice_iter(self.certificate.as_bytes())
            .map(Result::unwrap)
            .collect()
    }

    pub(crate) fn key_der(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::from_pem_slice(self.key.as_bytes()).unwrap()
    }
}

/// A client outside of the reactor.
#[derive(Clone)]
pub(crate) struct Outside {
    pub(crate) config: Arc<ClientConfig>,
}

pub(crate) type Stream = StreamOwned<ClientConnection, TcpStream>;

impl Outside {
    pub(crate) fn change(&mut self, change: impl FnOnce(&mut ClientConfig)) {
        let mut config = ClientConfig::clone(&self.config);
        change(&mut config);
        self.config = Arc::new(config);
    }

    pub(crate) fn connect(&self, address: SocketAddr) -> Stream {
        self.connect_as(address, "localhost")
    }

    pub(crate) fn connect_as(&self, address: SocketAddr, name: &str) -> Stream {
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let session = ClientConnection::new(Arc::clone(&self.config), name).unwrap();
        StreamOwned::new(session, Raw::connect(address).0)
    }

    /// Sends one request on a new connection; returns the response.
    pub(crate) fn get(&self, address: SocketAddr, path: &str) -> (String, Stream) {
        let mut stream = self.connect(address);
        let answer = get(&mut stream, path);
        (answer, stream)
    }
}

/// Sends a request on an open connection; returns its complete small response.
pub(crate) fn get<S: Read + Write>(stream: &mut S, path: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let head = read_head(stream);
    let length = length(&head);
    let mut content = vec![0; length];
    stream.read_exact(&mut content).unwrap();
    format!("{head}{}", String::from_utf8(content).unwrap())
}

pub(crate) fn length(head: &str) -> usize {
    let field = head
        .lines()
        .find_map(|line| line.strip_prefix("Content-Length: "));
    field.map_or(0, |length| length.parse().unwrap())
}
