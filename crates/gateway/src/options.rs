//! What can be set about a gateway, each with its default.

use std::net::SocketAddr;
use std::time::Duration;

use blitz_http::{ClientOptions, Limits};

use crate::trusted::TrustedProxies;

/// Bounds and deadlines of a gateway.
#[derive(Debug, Clone)]
pub struct Options {
    /// Bounds and deadlines towards clients.
    pub limits: Limits,
    /// Bounds and deadlines towards upstreams: connecting 1 s, response head 60 s, silence within a
    /// response body 60 s (instead of both for calls of gRPC: nothing moving, 300 s), idle in the pool
    /// 55 s.
    pub client: ClientOptions,
    /// How long an upstream may leave a client's `Expect: 100-continue` without an answer before
    /// the gateway sends `100 Continue` itself; 1 s. Old servers never send it, and careful
    /// clients wait for it.
    pub continue_timeout: Duration,
    /// How long requests that run are given when the gateway stops; 30 s.
    pub drain_timeout: Duration,
    /// Clients whose word about the real client is believed; none.
    pub trusted_proxies: TrustedProxies,
    /// Lets clients in clear text switch to HTTP/2 with `Upgrade: h2c` (RFC 7540, section 3.2); no.
    /// Trusted proxies, clients of unix sockets and forwarded requests never switch.
    pub h2c_upgrade: bool,
    /// Sends requests in clear text to the first listener that speaks TLS, or to port 443 if none
    /// does, but for the proofs that authorities ask for (RFC 8555, section 8.3); no.
    pub redirect_https: bool,
    /// Tells upstreams who the client has proved to be, in `Client-Cert` and `Client-Cert-Chain`
    /// (RFC 9440); no. What clients write there themselves is removed in any case.
    pub client_cert_header: bool,
    /// Name servers for upstreams' names; none means those of `/etc/resolv.conf`.
    pub name_servers: Vec<SocketAddr>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            limits: Limits::default(),
            client: ClientOptions::default(),
            continue_timeout: Duration::from_secs(1),
            drain_timeout: Duration::from_secs(30),
            trusted_proxies: TrustedProxies::default(),
            h2c_upgrade: false,
            redirect_https: false,
            client_cert_header: false,
            name_servers: Vec::new(),
        }
    }
}
