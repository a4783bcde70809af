//! Framing drivers: one folder for each version of HTTP. Other modules distinguish connections by
//! capability: [`exclusive`] ones carry one exchange at a time, [`multiplexed`] ones many.

mod h1;
mod h2;
mod h3;
mod streams;

/// Connections that carry one exchange at a time: HTTP/1.1.
pub(crate) mod exclusive {
    pub(crate) use super::h1::{ClientConn, Disposition, ServerConn, Switch, run_exchanges};
}

/// Connections that carry an exchange on each stream: HTTP/2.
pub(crate) mod multiplexed {
    pub(crate) use super::h2::{
        ClientRole, Conn, Disposition, Fitness, IncomingRequest, ServerRole, Shared, WINDOW_WAIT,
    };
}

/// Connections over QUIC, which carry an exchange on each stream: HTTP/3.
pub(crate) mod datagrams {
    pub(crate) use super::h3::{
        ClientRole, Conn, Http3 as Datagrams, NO_ERROR, ServerRole, Shared, shared,
    };
}

/// Tells the two apart by the first bytes of a connection in clear text.
pub(crate) mod first_bytes {
    pub(crate) use super::h2::{
        begins_like_http2 as are_multiplexed, may_begin_like_http2 as may_be_multiplexed,
    };
}

/// The protocol of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Protocol {
    /// HTTP/1.1: a connection carries one request at a time.
    #[default]
    Http1,
    /// HTTP/2: a connection carries as many requests at a time as the server allows. In clear text
    /// it is spoken without asking first (RFC 9113, section 3.3).
    Http2,
    /// HTTP/3: the same over QUIC, which includes TLS. Pools have no such connections.
    Http3,
}

/// The abilities of the connections of an upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// Many exchanges share a connection at the same time.
    pub multiplexes: bool,
    /// Trailers reach the other side in both directions.
    pub carries_trailers: bool,
    /// The server can report that it did not process a request, so that any request may be sent again
    /// (GOAWAY and REFUSED_STREAM: RFC 9113, section 8.7; GOAWAY and H3_REQUEST_REJECTED: RFC 9114, section 5.2).
    pub refuses_unprocessed: bool,
    /// How a request opens a WebSocket.
    pub upgrade: UpgradeForm,
}

/// How a request opens another protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpgradeForm {
    /// `Upgrade`, to which the server responds with 101 (RFC 9110, section 7.8).
    UpgradeField,
    /// Extended CONNECT (RFC 8441, RFC 9220).
    ExtendedConnect,
}

impl Protocol {
    /// The protocol whose connections carry one exchange at a time.
    pub(crate) const EXCLUSIVE: Protocol = Protocol::Http1;
    /// The protocol whose connections are those of QUIC.
    pub(crate) const DATAGRAMS: Protocol = Protocol::Http3;

    /// Its name in ALPN (RFC 7301, section 6; RFC 9113, section 3.2; RFC 9114, section 3.1).
    #[must_use]
    pub fn alpn_name(self) -> &'static str {
        match self {
            Protocol::Http1 => "http/1.1",
            Protocol::Http2 => "h2",
            Protocol::Http3 => "h3",
        }
    }

    /// The protocol that ALPN negotiated on a connection of TCP (RFC 9113, section 3.2); HTTP/1.1 without ALPN.
    pub(crate) fn of_alpn(name: Option<&[u8]>) -> Protocol {
        match name {
            Some(b"h2") => Protocol::Http2,
            Some(_) | None => Protocol::Http1,
        }
    }

    /// The abilities of its connections.
    #[must_use]
    pub fn capabilities(self) -> Capabilities {
        match self {
            Protocol::Http1 => Capabilities {
                multiplexes: false,
                carries_trailers: false,
                refuses_unprocessed: false,
                upgrade: UpgradeForm::UpgradeField,
            },
            Protocol::Http2 | Protocol::Http3 => Capabilities {
                multiplexes: true,
                carries_trailers: true,
                refuses_unprocessed: true,
                upgrade: UpgradeForm::ExtendedConnect,
            },
        }
    }
}
