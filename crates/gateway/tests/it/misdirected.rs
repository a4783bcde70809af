//! Requests on a connection whose certificate does not cover their host (rule 23).

use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;

use blitz_gateway::{Gateway, Rejection};
use blitz_http::{Address, ServerTls, TlsSlot};
use blitz_testing::read_head;
use rustls::ClientConfig;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, Error, SignatureScheme};

use crate::sites::{compiled, free_address};
use crate::support::{Proxy, Upstream};
use crate::tls_support::{Authority, Outside};

/// Accepts every certificate.
#[derive(Debug)]
struct AcceptAnyCertificate;

impl ServerCertVerifier for AcceptAnyCertificate {
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
        vec![
            SignatureScheme::ECDSA_NISTP256_SHA256,
            SignatureScheme::ED25519,
            SignatureScheme::RSA_PSS_SHA256,
        ]
    }
}

/// Two sites; clients without a server name get the first.
fn sites(authority: &Authority) -> TlsSlot {
    let tls = ServerTls::builder()
        .certificate(authority.pair(&["a.example", "*.a.example"]).load())
        .certificate(authority.pair(&["b.example"]).load());
    TlsSlot::new(tls.build().unwrap())
}

fn client(authority: &Authority, sends_name: bool) -> Outside {
    let mut client = authority.client();
    client.change(|config: &mut ClientConfig| {
        config.enable_sni = sends_name;
        config
            .dangerous()
            .set_certificate_verifier(Arc::new(AcceptAnyCertificate));
    });
    client
}

/// The status of a request for `host` on a new connection.
fn status(client: &Outside, address: SocketAddr, name: &str, host: &str) -> String {
    let mut stream = client.connect_as(address, name);
    let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    read_head(&mut stream)[9..12].to_owned()
}

scenarios! {
    fn without_a_server_name_the_certificate_in_use_decides(io) {
        let authority = Authority::new();
        let upstream = Upstream::with_text("hello");
        let proxy = Proxy::over_tls(io, &[&upstream.url()], sites(&authority));
        let client = client(&authority, false);
        let here = proxy.address.to_string();
        for (host, wanted) in [
            ("a.example", "200"),
            ("a.example:443", "200"),
            ("A.EXAMPLE", "200"),
            ("x.a.example", "200"),
            (&here, "200"),
            ("192.0.2.1", "200"),
            ("[2001:db8::1]:443", "200"),
            ("b.example", "421"),
            ("b.example:443", "421"),
            ("internal", "421"),
        ] {
            assert_eq!(status(&client, proxy.address, "a.example", host), wanted, "{host}");
        }
        assert_eq!(proxy.counters().rejected(Rejection::Misdirected), 3);
    }

    fn a_host_whose_site_has_other_listeners_is_misdirected(io) {
        let authority = Authority::new();
        let text = "[site]\n\"a.example\" = { respond = 204 }\n\"*\" = { respond = 204 }\n";
        let mut all = compiled(text);
        let own = free_address();
        all[0].listeners = Some([own].into());
        let tls = sites(&authority);
        let gateway = all
            .into_iter()
            .fold(Proxy::gateway_over_tls(io, tls.clone()), Gateway::site)
            .listen_tls(Address::Tcp(own), tls);
        let proxy = Proxy::start(gateway, &[]);
        let client = client(&authority, true);
        for (address, host, wanted) in [
            (own, "a.example", "204"),
            (own, "b.example", "204"),
            (proxy.address, "a.example", "421"),
            (proxy.address, "b.example", "204"),
        ] {
            assert_eq!(status(&client, address, host, host), wanted, "{host} at {address}");
        }
        assert_eq!(proxy.counters().rejected(Rejection::Misdirected), 1);
    }

    fn with_a_server_name_its_host_and_the_hosts_of_the_certificate_are_accepted(io) {
        let authority = Authority::new();
        let upstream = Upstream::with_text("hello");
        let proxy = Proxy::over_tls(io, &[&upstream.url()], sites(&authority));
        let client = client(&authority, true);
        for (name, host, wanted) in [
            ("a.example", "x.a.example", "200"),
            ("unknown.example", "unknown.example", "200"),
            ("a.example", "b.example", "421"),
            ("a.example", "a.example..", "421"),
            ("a.example", "192.0.2.1", "421"),
        ] {
            assert_eq!(status(&client, proxy.address, name, host), wanted, "{name}: {host}");
        }
    }
}
