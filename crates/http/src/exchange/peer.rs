//! The client of a connection.

use std::net::SocketAddr;
use std::rc::Rc;

use blitz_reactor::wall_clock;

use crate::tls::{ClientCertificate, TlsInfo};

/// The other end of the connection that a request came in on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Address of the client, also on a listener for both families as IPv4 or IPv6; `None` on a unix socket. Behind a
    /// PROXY header the client that it tells. Over HTTP/3 the last one that was validated when the request began.
    pub remote: Option<SocketAddr>,
    /// Address of the listener; its IP may be unspecified. `None` on a unix socket.
    pub listener: Option<SocketAddr>,
    /// Whether the connection is encrypted.
    pub scheme: Scheme,
    /// The results of the TLS handshake; `None` in clear text.
    pub tls: Option<Rc<TlsInfo>>,
}

impl Peer {
    /// The certificate of the client, if its handshake has verified one that is still valid. A connection, and a session
    /// that is resumed, may outlive it.
    ///
    /// Only a core may ask, whose clock decides.
    #[inline]
    #[must_use]
    pub fn client_certificate(&self) -> Option<&ClientCertificate> {
        let certificate = self.handshake_certificate()?;
        (!certificate.has_expired(wall_clock())).then_some(certificate)
    }

    /// The certificate that the handshake has verified. It may have expired since, so it identifies nobody: it is for
    /// telling apart a client without a certificate and one whose certificate has expired.
    #[inline]
    #[must_use]
    pub fn handshake_certificate(&self) -> Option<&ClientCertificate> {
        self.tls.as_ref()?.client.as_ref()
    }
}

/// How the request came to us.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scheme {
    /// In clear text.
    #[default]
    Http,
    /// Over TLS or QUIC.
    Https,
}

impl Scheme {
    /// `http` or `https`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Scheme::Http => "http",
            Scheme::Https => "https",
        }
    }

    /// The port of URLs without one (RFC 9110, section 4.2).
    #[must_use]
    pub const fn default_port(self) -> u16 {
        match self {
            Scheme::Http => 80,
            Scheme::Https => 443,
        }
    }

    /// The same as text.
    #[must_use]
    pub const fn default_port_text(self) -> &'static str {
        match self {
            Scheme::Http => "80",
            Scheme::Https => "443",
        }
    }
}
