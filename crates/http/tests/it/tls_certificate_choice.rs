//! The choice among several certificates of a listener.

use std::io::{Read, Write};
use std::sync::Arc;

use blitz_http::ServerTls;
use rcgen::KeyPair;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, SignatureScheme};

use crate::support::on_each_driver;
use crate::tls_server::start;
use crate::tls_support::{Authority, Pair, get};

#[test]
fn the_certificate_matches_the_server_name() {
    on_each_driver(|io| {
        let authority = Authority::new();
        let exact = authority.pair(&["www.example.com"]);
        let wildcard = authority.pair(&["*.example.com", "example.com"]);
        let default = authority.pair(&["localhost"]);
        let tls = ServerTls::builder()
            .certificate(default.load())
            .certificate(exact.load())
            .certificate(wildcard.load())
            .build()
            .unwrap();
        let (server, _) = start(io, tls);
        let mut client = authority.client();
        client.change(|config| {
            let ecdsa = vec![SignatureScheme::ECDSA_NISTP256_SHA256];
            let anyone = Arc::new(Anyone(ecdsa));
            config.dangerous().set_certificate_verifier(anyone);
        });
        let shown = |name: &str| {
            let mut stream = client.connect_as(server.address, name);
            assert!(get(&mut stream, "/hello").ends_with("hello"));
            stream.conn.peer_certificates().unwrap()[0].clone()
        };
        let is = |name: &str, pair: &Pair| assert!(shown(name) == pair.chain()[0], "{name}");
        is("www.example.com", &exact);
        is("other.example.com", &wildcard);
        is("example.com", &wildcard);
        is("a.b.example.com", &default);
        is("localhost", &default);
        is("elsewhere.example", &default);
        is("127.0.0.1", &default);
    });
}

#[test]
fn a_dot_at_the_end_of_the_server_name_changes_nothing() {
    on_each_driver(|io| {
        let authority = Authority::new();
        let other = authority.pair(&["other.example"]);
        let named = authority.pair(&["www.example.com"]);
        let wildcard = authority.pair(&["*.example.com"]);
        let tls = ServerTls::builder()
            .certificate(other.load())
            .certificate(named.load())
            .certificate(wildcard.load())
            .build()
            .unwrap();
        let (server, _) = start(io, tls);
        let client = authority.client_of(&[&rustls::version::TLS12], None);
        for (name, pair) in [("www.example.com", &named), ("a.example.com", &wildcard)] {
            // rustls sends no dot at the end, so the test replaces another character by it.
            let mut stream = client.connect_as(server.address, &format!("{name}x"));
            let mut hello = Vec::new();
            stream.conn.write_tls(&mut hello).unwrap();
            let at = hello
                .windows(name.len())
                .position(|text| text == name.as_bytes());
            hello[at.unwrap() + name.len()] = b'.';
            stream.sock.write_all(&hello).unwrap();
            // TLS 1.2 sends certificates in clear text.
            let mut received = Vec::new();
            let certificate = &pair.chain()[0];
            while !received
                .windows(certificate.len())
                .any(|bytes| bytes == &**certificate)
            {
                let mut piece = [0; 4096];
                let len = stream.sock.read(&mut piece).expect("the certificate comes");
                assert!(len > 0, "{name}: another certificate");
                received.extend_from_slice(&piece[..len]);
            }
        }
    });
}

#[test]
fn the_certificate_matches_the_signature_schemes_of_the_client() {
    on_each_driver(|io| {
        let authority = Authority::new();
        let default = authority.pair(&["localhost"]);
        let other = authority.pair(&["other.example"]);
        let rsa = |names: &[&str]| {
            let key = KeyPair::generate_for(&rcgen::PKCS_RSA_SHA256).unwrap();
            authority.pair_of(&key, names, |_| {})
        };
        let (third, localhost) = (rsa(&["third.example"]), rsa(&["localhost"]));
        let mut tls = ServerTls::builder();
        for pair in [&default, &other, &third, &localhost] {
            tls = tls.certificate(pair.load());
        }
        let (server, _) = start(io, tls.build().unwrap());
        for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
            let shown = |schemes: &[SignatureScheme], name: &str| {
                let mut client = authority.client_of(&[version], None);
                let verifier = Arc::new(Anyone(schemes.to_vec()));
                client.change(|config| config.dangerous().set_certificate_verifier(verifier));
                let mut stream = client.connect_as(server.address, name);
                assert!(get(&mut stream, "/hello").ends_with("hello"));
                stream.conn.peer_certificates().unwrap()[0].clone()
            };
            let ecdsa = [SignatureScheme::ECDSA_NISTP256_SHA256];
            let rsa = [SignatureScheme::RSA_PSS_SHA256];
            let both = [ecdsa[0], rsa[0]];
            // A client must not send an address as the server name.
            for name in ["127.0.0.1", "elsewhere.example"] {
                assert!(shown(&both, name) == default.chain()[0], "{name}");
                assert!(shown(&ecdsa, name) == default.chain()[0], "{name}");
                assert!(shown(&rsa, name) == third.chain()[0], "{name}");
            }
            assert!(shown(&both, "localhost") == default.chain()[0]);
            assert!(shown(&rsa, "localhost") == localhost.chain()[0]);
        }
    });
}

/// Trusts every server with one of these signature schemes: only to look at its certificate.
#[derive(Debug)]
struct Anyone(Vec<SignatureScheme>);

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.clone()
    }
}
