//! The result of a handshake, for services.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::digest;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use rustls::pki_types::CertificateDer;
use rustls::{CommonState, HandshakeKind, ProtocolVersion};

use super::certificate::Certificate;
use super::policies::TlsPolicyId;
use super::server::Choice;
use super::validity::{self, Validity};

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
    /// The verified certificate of the client, if the server requested one and the client sent it. It may have expired
    /// since: [`Peer::client_certificate`](crate::Peer::client_certificate) is the one that identifies the client.
    pub client: Option<ClientCertificate>,
    /// The policy of the site that the client named in its handshake; `None` is that of the listener.
    pub policy: Option<TlsPolicyId>,
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
            policy: choice.policy,
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

/// A client's verified certificate, with the other certificates that it sent. It is read once, at the end of the
/// handshake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertificate {
    /// The client's own certificate first. Never empty.
    chain: Arc<[CertificateDer<'static>]>,
    identity: Arc<Identity>,
}

#[derive(Debug, PartialEq, Eq)]
struct Identity {
    subject: Option<String>,
    fingerprint: String,
    not_after: SystemTime,
}

impl ClientCertificate {
    fn new(chain: &[CertificateDer<'static>]) -> Option<ClientCertificate> {
        let own = chain.first()?;
        let digest = digest::digest(&digest::SHA256, own);
        let identity = Identity {
            subject: validity::subject(own),
            fingerprint: digest.as_ref().iter().fold(String::new(), |hex, byte| {
                let digits =
                    [byte >> 4, byte & 15].map(|digit| b"0123456789abcdef"[usize::from(digit)]);
                hex + &String::from_utf8_lossy(&digits)
            }),
            // The verifier has read it, so it is readable.
            not_after: Validity::read(own).map_or(UNIX_EPOCH, |validity| validity.not_after),
        };
        Some(ClientCertificate {
            chain: Arc::from(chain),
            identity: Arc::new(identity),
        })
    }

    /// The certificate of a client that was verified elsewhere, and the others of its chain (DER). `None` without any.
    #[must_use]
    pub fn from_der(chain: Vec<Vec<u8>>) -> Option<ClientCertificate> {
        let chain: Vec<_> = chain.into_iter().map(CertificateDer::from).collect();
        ClientCertificate::new(&chain)
    }

    /// The name of the subject: its common name; without one, the first e-mail address, DNS name or URI of its
    /// alternative names. `None` if it has none of them, several common names, or one that is no plain text.
    #[must_use]
    pub fn subject(&self) -> Option<&str> {
        self.identity.subject.as_deref()
    }

    /// SHA-256 of the certificate, in hexadecimal digits.
    #[must_use]
    pub fn fingerprint(&self) -> &str {
        &self.identity.fingerprint
    }

    /// The time at which the certificate expires.
    #[must_use]
    pub fn not_after(&self) -> SystemTime {
        self.identity.not_after
    }

    /// Whether the certificate has expired (RFC 5280, section 4.1.2.5: the last second is a part of its validity).
    #[must_use]
    pub fn has_expired(&self, now: SystemTime) -> bool {
        now > self.identity.not_after
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
