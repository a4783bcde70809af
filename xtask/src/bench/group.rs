//! Groups of systems that handle the same requests, with their load tool and their bases.

use std::ops::RangeInclusive;

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
pub(crate) enum ServerRole {
    /// A fixed response.
    Respond,
    /// Forwarding to an HTTP/1.1 backend.
    ProxyToHttp1,
    /// Forwarding to an HTTP/2 backend without TLS.
    ProxyToH2c,
    /// Content of a requested size.
    SendContent,
    /// Forwarding to an HTTP/1.1 backend, configured for large bodies.
    ProxyContentToHttp1,
}

/// The program that sends the requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LoadTool {
    Wrk,
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
    pub(crate) role: ServerRole,
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

pub(crate) const FIXED: &Group = &Group {
    name: "fixed",
    title: "HTTP/1.1, fixed response",
    protocol: ClientProtocol::Http1,
    role: ServerRole::Respond,
    load_tool: LoadTool::Wrk,
    bases: &["limit", "nginx"],
    plausible: Some(PlausibleRatio {
        row: "limit",
        base: "nginx",
        range: 0.60..=0.85,
    }),
};

pub(crate) const PROXY: &Group = &Group {
    name: "proxy",
    title: "HTTP/1.1, proxy to one backend",
    protocol: ClientProtocol::Http1,
    role: ServerRole::ProxyToHttp1,
    load_tool: LoadTool::Wrk,
    bases: &["relay", "nginx-proxy"],
    plausible: Some(PlausibleRatio {
        row: "relay",
        base: "nginx-proxy",
        range: 0.45..=0.70,
    }),
};

pub(crate) const H2: &Group = &Group {
    name: "tls-same",
    title: "HTTP/2 over TLS, fixed response, one head repeated",
    protocol: ClientProtocol::Tls,
    role: ServerRole::Respond,
    load_tool: LoadTool::H2load { varied: false },
    bases: &["h2o-h2", "nginx-h2"],
    plausible: None,
};

pub(crate) const H2_VARIED: &Group = &Group {
    name: "tls-varied",
    title: "HTTP/2 over TLS, fixed response, varied heads",
    protocol: ClientProtocol::Tls,
    role: ServerRole::Respond,
    load_tool: LoadTool::H2load { varied: true },
    bases: &["h2o-h2-varied"],
    plausible: None,
};

pub(crate) const H2C: &Group = &Group {
    name: "h2c-same",
    title: "HTTP/2 without TLS, fixed response, one head repeated",
    protocol: ClientProtocol::H2c,
    role: ServerRole::Respond,
    load_tool: LoadTool::H2load { varied: false },
    bases: &["h2o-h2c"],
    plausible: None,
};

pub(crate) const H2C_VARIED: &Group = &Group {
    name: "h2c-varied",
    title: "HTTP/2 without TLS, fixed response, varied heads",
    protocol: ClientProtocol::H2c,
    role: ServerRole::Respond,
    load_tool: LoadTool::H2load { varied: true },
    bases: &["h2o-h2c-varied"],
    plausible: None,
};

pub(crate) const HTTPS: &Group = &Group {
    name: "https",
    title: "HTTP/1.1 over TLS, fixed response",
    protocol: ClientProtocol::Tls,
    role: ServerRole::Respond,
    load_tool: LoadTool::Wrk,
    bases: &["nginx-https"],
    plausible: None,
};

pub(crate) const HANDSHAKES: &Group = &Group {
    name: "handshakes",
    title: "Full TLS handshakes, one request each",
    protocol: ClientProtocol::Tls,
    role: ServerRole::Respond,
    load_tool: LoadTool::Handshakes,
    bases: &["nginx-handshakes"],
    plausible: None,
};

/// A fixed response over TLS, compared with nothing.
const OVER_TLS: Group = Group {
    name: "",
    title: "",
    protocol: ClientProtocol::Tls,
    role: ServerRole::Respond,
    load_tool: LoadTool::H2load { varied: false },
    bases: &[],
    plausible: None,
};

pub(crate) const H2_BESIDE_H3: &Group = &Group {
    name: "h2",
    title: "HTTP/2 over TLS, fixed response, one head repeated",
    ..OVER_TLS
};

pub(crate) const H2_BESIDE_H3_VARIED: &Group = &Group {
    name: "h2-varied",
    title: "HTTP/2 over TLS, fixed response, varied heads",
    load_tool: LoadTool::H2load { varied: true },
    ..OVER_TLS
};

pub(crate) const H3_SAME: &Group = &Group {
    name: "h3-same",
    title: "HTTP/3, fixed response, one head repeated",
    load_tool: LoadTool::Http3(Requests::Same),
    bases: &["blitz-h2-beside", "caddy-h3", "envoy-h3"],
    ..OVER_TLS
};

pub(crate) const H3_VARIED: &Group = &Group {
    name: "h3-varied",
    title: "HTTP/3, fixed response, varied heads",
    load_tool: LoadTool::Http3(Requests::Varied),
    bases: &[
        "blitz-h2-varied-beside",
        "caddy-h3-varied",
        "envoy-h3-varied",
    ],
    ..OVER_TLS
};

pub(crate) const HANDSHAKES_BESIDE_H3: &Group = &Group {
    name: "tcp-handshakes",
    title: "Full TLS handshakes over TCP, one request each",
    load_tool: LoadTool::Handshakes,
    ..OVER_TLS
};

pub(crate) const H3_HANDSHAKES: &Group = &Group {
    name: "h3-handshakes",
    title: "Full QUIC handshakes, one request each",
    load_tool: LoadTool::Http3(Requests::Handshakes),
    bases: &["blitz-tcp-handshakes", "caddy-h3-handshakes"],
    ..OVER_TLS
};

pub(crate) const H3_ON_CORES: &Group = &Group {
    name: "h3-cores",
    title: "HTTP/3, fixed response, two workers",
    load_tool: LoadTool::Http3(Requests::Same),
    bases: &["h3-apart"],
    ..OVER_TLS
};

pub(crate) const H2_TO_H1: &Group = &Group {
    name: "to-h1",
    title: "HTTP/2 over TLS, proxy to one HTTP/1.1 backend",
    protocol: ClientProtocol::Tls,
    role: ServerRole::ProxyToHttp1,
    load_tool: LoadTool::H2load { varied: false },
    bases: &["h2o-to-h1", "nginx-to-h1"],
    plausible: None,
};

pub(crate) const H2_TO_H2C: &Group = &Group {
    name: "to-h2c",
    title: "HTTP/2 over TLS, proxy to one HTTP/2 backend without TLS",
    protocol: ClientProtocol::Tls,
    role: ServerRole::ProxyToH2c,
    load_tool: LoadTool::H2load { varied: false },
    bases: &["haproxy-to-h2c", "envoy-to-h2c"],
    plausible: None,
};

pub(crate) const FIXED_ON_CORES: &Group = &Group {
    name: "cores-fixed",
    title: "HTTP/1.1, fixed response, two workers",
    protocol: ClientProtocol::Http1,
    role: ServerRole::Respond,
    load_tool: LoadTool::Wrk,
    bases: &["apart", "apart-epoll", "nginx-apart"],
    plausible: None,
};

pub(crate) const PROXY_ON_CORES: &Group = &Group {
    name: "cores-proxy",
    title: "HTTP/1.1, proxy to one backend, two workers",
    protocol: ClientProtocol::Http1,
    role: ServerRole::ProxyToHttp1,
    load_tool: LoadTool::Wrk,
    bases: &["apart-proxy", "apart-proxy-epoll", "nginx-apart-proxy"],
    plausible: None,
};

impl PartialEq for Group {
    fn eq(&self, other: &Group) -> bool {
        self.name == other.name
    }
}
