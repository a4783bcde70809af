//! Groups of systems that handle the same requests, with their load tool and their bases.

use std::ops::RangeInclusive;

use crate::fixed_response::{FixedResponse, HEALTH, HELLO};

/// The protocol of the clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClientProtocol {
    Http1,
    /// HTTP/1.1 and HTTP/2 over TLS, negotiated by ALPN, and HTTP/3.
    Tls,
    /// HTTP/2 without TLS, by prior knowledge.
    H2c,
}

/// The work of a server for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServerWork {
    /// A fixed response.
    Respond,
    /// The fixed response of a health endpoint.
    RespondHealth,
    /// Forwarding to an HTTP/1.1 backend.
    ProxyToHttp1,
    /// Forwarding to an HTTP/2 backend without TLS.
    ProxyToH2c,
    /// Content of a requested size.
    SendContent,
    /// A file of this size, from a folder of files.
    SendFile { bytes: u64 },
    /// The requests of a [board](crate::board).
    Board,
    /// Forwarding to an HTTP/1.1 backend, configured for large bodies.
    ProxyContentToHttp1,
}

impl ServerWork {
    /// The fixed response, if the work is to send one.
    pub(crate) fn fixed_response(self) -> Option<FixedResponse> {
        match self {
            ServerWork::Respond => Some(HELLO),
            ServerWork::RespondHealth => Some(HEALTH),
            _ => None,
        }
    }
}

/// The program that sends the requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LoadTool {
    Wrk,
    /// wrk whose requests are for all [sites](crate::sites) in turn.
    WrkToSites,
    /// With `varied`, a head repeats after 10,000 others.
    H2load {
        varied: bool,
    },
    /// A new connection with a full handshake for each request.
    Handshakes,
    Http3(Requests),
}

/// The requests of the load tool for HTTP/3.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Requests {
    /// The same request again and again.
    Same,
    /// A head repeats after 10,000 others.
    Varied,
    /// Each request has a connection of its own.
    Handshakes,
}

/// Systems with the same work, in one table.
#[derive(Debug)]
pub(crate) struct Group {
    /// Selects its systems on the command line.
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) protocol: ClientProtocol,
    pub(crate) role: ServerWork,
    pub(crate) load_tool: LoadTool,
    /// The rows by which all others are divided, round by round.
    pub(crate) bases: &'static [&'static str],
    pub(crate) plausible: Option<PlausibleRatio>,
}

/// The plausible range of one row divided by another. Outside it the figures show the machine, not the
/// servers.
#[derive(Debug)]
pub(crate) struct PlausibleRatio {
    pub(crate) row: &'static str,
    pub(crate) base: &'static str,
    pub(crate) range: RangeInclusive<f64>,
}

impl PartialEq for Group {
    fn eq(&self, other: &Group) -> bool {
        self.name == other.name
    }
}
