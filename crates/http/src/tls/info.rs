//! The result of a handshake, for services.

use std::net::IpAddr;
use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use rustls::pki_types::CertificateDer;
use rustls::{CommonState, HandshakeKind, ProtocolVersion};

use super::certificate::Certificate;
use super::server::Choice;

/// The negotiated parameters of a TLS connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsInfo {
    /// The version.
    pub version: TlsVersion,
    /// The cipher suite, by its registered name; empty if the handshake failed before it was chosen.
    pub cipher_suite: &'static str,
    /// The key exchange, by the registered name of its group; `None` for a resumed session of
    /// TLS 1.2, which has no key exchange.
    pub key_exchange: Option<&'static str>,
    /// The server name that the client sent (SNI), in lower case.
    pub server_name: Option<Box<str>>,
    /// The negotiated application protocol (ALPN), for example `h2`.
    pub alpn: Option<Box<[u8]>>,
    /// Whether an earlier session was resumed.
    pub is_resumed: bool,
    /// The verified certificate of the client, if the server requested one and the client sent it.
    pub client: Option<ClientCertificate>,
    /// The certificate that this server sent, or would have sent if no session had been resumed.
    pub(super) certificate: Option<Arc<Certificate>>,
}

/// A version of TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TlsVersion {
    /// RFC 5246.
    V1_2,
    /// RFC 8446.
    V1_3,
}

impl TlsVersion {
    /// The version as written in logs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            TlsVersion::V1_2 => "TLSv1.2",
            TlsVersion::V1_3 => "TLSv1.3",
        }
    }
}

impl TlsInfo {
    /// Whether requests for `host` may use this connection (rule 23): its certificate covers the
    /// host, or the host is the server name of the handshake. A client that sent no server name
    /// may also use an address, because SNI has no form for addresses (RFC 6066, section 3). `host`
    /// has no port, and an IPv6 address has no brackets.
    #[must_use]
    pub fn covers(&self, host: &str) -> bool {
        let Some(certificate) = &self.certificate else {
            return true;
        };
        let host = host.strip_suffix('.').unwrap_or(host);
        // One dot names the root; libraries that compare names leave out another.
        if host.ends_with('.') {
            return false;
        }
        // The server name is compared first, since each look at the certificate parses it.
        let is_named = match &self.server_name {
            Some(name) => name.eq_ignore_ascii_case(host),
            None => host.parse::<IpAddr>().is_ok(),
        };
        is_named || certificate.covers(host)
    }

    /// The facts that are known of a client's handshake before it is complete; `None` until the version is chosen.
    pub(super) fn of_incomplete(common: &CommonState, choice: Option<Choice>) -> Option<TlsInfo> {
        let is_chosen = common.protocol_version().is_some();
        is_chosen.then(|| TlsInfo::new(common, true, choice))
    }

    pub(super) fn new(common: &CommonState, is_server: bool, choice: Option<Choice>) -> TlsInfo {
        let choice = choice.unwrap_or_default();
        let suite = common.negotiated_cipher_suite();
        let group = common.negotiated_key_exchange_group();
        TlsInfo {
            version: match common.protocol_version() {
                Some(ProtocolVersion::TLSv1_3) => TlsVersion::V1_3,
                _ => TlsVersion::V1_2,
            },
            cipher_suite: suite.map_or("", |suite| registered(suite.suite().as_str())),
            key_exchange: group.and_then(|group| group.name().as_str()),
            server_name: choice.server_name,
            alpn: common.alpn_protocol().map(Box::from),
            is_resumed: common.handshake_kind() == Some(HandshakeKind::Resumed),
            client: common
                .peer_certificates()
                .filter(|_| is_server)
                .and_then(ClientCertificate::new),
            certificate: choice.certificate,
        }
    }
}

/// The registered name of a cipher suite: rustls has its own names for the suites of TLS 1.3.
fn registered(name: Option<&'static str>) -> &'static str {
    match name {
        Some("TLS13_AES_128_GCM_SHA256") => "TLS_AES_128_GCM_SHA256",
        Some("TLS13_AES_256_GCM_SHA384") => "TLS_AES_256_GCM_SHA384",
        Some("TLS13_CHACHA20_POLY1305_SHA256") => "TLS_CHACHA20_POLY1305_SHA256",
        Some(name) => name,
        None => "",
    }
}

/// A client's verified certificate, with the other certificates that it sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertificate {
    /// The client's own certificate first. Never empty.
    chain: Arc<[CertificateDer<'static>]>,
}

impl ClientCertificate {
    fn new(chain: &[CertificateDer<'static>]) -> Option<ClientCertificate> {
        (!chain.is_empty()).then(|| ClientCertificate {
            chain: Arc::from(chain),
        })
    }

    /// The client's own certificate (X.509, DER).
    #[must_use]
    pub fn der(&self) -> &[u8] {
        self.chain.first().map_or(&[], |own| own)
    }

    /// The other certificates that the client sent, in its order (DER).
    fn intermediates(&self) -> impl Iterator<Item = &[u8]> {
        self.chain.iter().skip(1).map(|der| &**der)
    }

    /// Value of the field `Client-Cert` (RFC 9440, section 2.2).
    #[must_use]
    pub fn field_value(&self) -> String {
        byte_sequence(self.der())
    }

    /// Value of the field `Client-Cert-Chain` (RFC 9440, section 2.3), unless it would be empty.
    #[must_use]
    pub fn chain_field_value(&self) -> Option<String> {
        let others: Vec<_> = self.intermediates().map(byte_sequence).collect();
        (!others.is_empty()).then(|| others.join(", "))
    }
}

/// A byte sequence of structured fields (RFC 8941, section 3.3.5).
fn byte_sequence(bytes: &[u8]) -> String {
    format!(":{}:", BASE64_STANDARD.encode(bytes))
}
