//! What a handshake has established, for those who answer requests.

use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use rustls::pki_types::CertificateDer;
use rustls::{CommonState, HandshakeKind, ProtocolVersion};

use super::certificate::Certificate;
use super::server::Choice;

/// What both ends of a TLS connection have agreed upon.
#[derive(Debug, PartialEq, Eq)]
pub struct TlsInfo {
    /// The version.
    pub version: TlsVersion,
    /// The cipher suite, by its registered name.
    pub cipher_suite: &'static str,
    /// The key exchange, by the registered name of its group; `None` where a session of TLS 1.2
    /// was resumed, which has none.
    pub key_exchange: Option<&'static str>,
    /// The name that the client asked for (SNI), in lower case. On a client: the one it sent.
    pub server_name: Option<Box<str>>,
    /// The application protocol that was agreed upon (ALPN), for example `h2`.
    pub alpn: Option<Box<[u8]>>,
    /// Whether an earlier session was resumed.
    pub is_resumed: bool,
    /// Who the client has proved to be, if it was asked and has.
    pub client: Option<ClientCertificate>,
    /// The certificate that this server showed, or stands for when a session was resumed.
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
    /// As it stands in logs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            TlsVersion::V1_2 => "TLSv1.2",
            TlsVersion::V1_3 => "TLSv1.3",
        }
    }
}

impl TlsInfo {
    /// Whether the client speaks HTTP/2 on this connection (RFC 9113, section 3.2).
    #[must_use]
    pub fn is_h2(&self) -> bool {
        self.alpn.as_deref() == Some(b"h2")
    }

    /// Whether requests for `host` may come on this connection (rule 23): its certificate covers
    /// the host, or the host is the server name of the handshake. A client that sent no server name
    /// may also use an address, because SNI has no form for addresses (RFC 6066, section 3). An
    /// address of IPv6 stands without brackets, and there is no port.
    #[must_use]
    pub fn covers(&self, host: &str) -> bool {
        let Some(certificate) = &self.certificate else {
            return true;
        };
        // The usual case comes first, since the certificate is parsed each time.
        let is_named = match &self.server_name {
            Some(name) => name.eq_ignore_ascii_case(host),
            None => host.parse::<IpAddr>().is_ok(),
        };
        is_named || certificate.covers(host)
    }

    pub(super) fn new(
        common: &CommonState,
        is_server: bool,
        choice: Option<Choice>,
    ) -> Rc<TlsInfo> {
        let choice = choice.unwrap_or_default();
        let suite = common.negotiated_cipher_suite();
        let group = common.negotiated_key_exchange_group();
        Rc::new(TlsInfo {
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
        })
    }
}

/// rustls names the suites of TLS 1.3 in its own way.
fn registered(name: Option<&'static str>) -> &'static str {
    match name {
        Some("TLS13_AES_128_GCM_SHA256") => "TLS_AES_128_GCM_SHA256",
        Some("TLS13_AES_256_GCM_SHA384") => "TLS_AES_256_GCM_SHA384",
        Some("TLS13_CHACHA20_POLY1305_SHA256") => "TLS_CHACHA20_POLY1305_SHA256",
        Some(name) => name,
        None => "",
    }
}

/// A certificate that a client has shown and that was verified, with what it showed beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertificate {
    /// The client's own first. Never empty.
    chain: Rc<[CertificateDer<'static>]>,
}

impl ClientCertificate {
    fn new(chain: &[CertificateDer<'static>]) -> Option<ClientCertificate> {
        (!chain.is_empty()).then(|| ClientCertificate {
            chain: Rc::from(chain),
        })
    }

    /// The client's own certificate (X.509, DER).
    #[must_use]
    pub fn der(&self) -> &[u8] {
        self.chain.first().map_or(&[], |own| own)
    }

    /// The certificates that the client showed beside its own, in its order (DER).
    pub fn intermediates(&self) -> impl Iterator<Item = &[u8]> {
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
