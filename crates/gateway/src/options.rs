//! Options of a gateway and their defaults.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::rand;
use blitz_http::{ClientOptions, Limits};
use blitz_site::access_log::AccessLog;
use blitz_site::metrics::SERIES_MAX_DEFAULT;
use blitz_site::rate::RateStore;
use blitz_site::{RecordHook, RecordSink, TraceSettings};

use crate::forward::LoopId;
use crate::trusted::TrustedProxies;

/// Limits, deadlines and behaviour of a gateway.
#[derive(Debug, Clone)]
pub struct Options {
    /// Limits and deadlines towards clients.
    pub limits: Limits,
    /// Limits and deadlines towards upstreams: connecting 4 s, response head 60 s, silence within a
    /// response body 60 s, idle in the pool 55 s. For gRPC calls 300 s without a byte in either
    /// direction (`stream_idle_timeout`) replace those for head and body, and for a body of type
    /// `text/event-stream` they replace that for the body.
    pub client: ClientOptions,
    /// How long a request that was not sent tries to connect again after its first failure to connect, for
    /// example while the upstream restarts; zero, which is not at all.
    pub connect_retry: Duration,
    /// How long the gateway waits for an upstream to answer `Expect: 100-continue` before it sends
    /// `100 Continue` itself; 1 s. Old servers never send it, and careful clients wait for it.
    pub continue_timeout: Duration,
    /// How long connections are still accepted when the gateway stops; zero.
    pub drain_delay: Duration,
    /// How long running requests may take when the gateway stops; 30 s.
    pub drain_timeout: Duration,
    /// Bytes of the content of a request, also of one that no target matches; beyond: 413, or the
    /// exchange is cut off if its response has begun. `None` is no limit, and the default. Tunnels
    /// have none.
    pub body_bytes_max: Option<u64>,
    /// Clients whose forwarding fields are trusted; none.
    pub trusted_proxies: TrustedProxies,
    /// Lets clients in clear text switch to HTTP/2 with `Upgrade: h2c` (RFC 7540, section 3.2); no.
    /// Trusted proxies, clients of unix sockets and forwarded requests never switch.
    pub h2c_upgrade: bool,
    /// Redirects requests in clear text to HTTPS, except ACME challenges (RFC 8555, section 8.3); no.
    /// A request for a host without a port is redirected to port 443, and any other to the port of the
    /// first TLS listener, or to 443 if there is none.
    pub redirect_https: bool,
    /// Adds `Via` to requests and responses (RFC 9110, section 7.6.3); no, because many upstreams
    /// compress nothing for proxies.
    pub via: bool,
    /// The name of this gateway in `CDN-Loop`, by which it finds requests that it has forwarded to itself
    /// (RFC 8586); random. Gateways that share a name take each other's requests for their own.
    pub loop_id: Option<LoopId>,
    /// Sends the client's certificate to upstreams in `Client-Cert` and `Client-Cert-Chain`
    /// (RFC 9440); no. The client's own fields of these names are removed in any case.
    pub client_cert_header: bool,
    /// How often a log line at INFO summarizes failures and refusals, if there were any; 60 s. Zero
    /// turns it off. Only programs that wait for signals have it.
    pub summary_interval: Duration,
    /// A function that is called with the record of each request when it has ended; none.
    pub record_hook: Option<RecordHook>,
    /// The log with a line for each request; none.
    pub access_log: Option<Arc<AccessLog>>,
    /// Takes the records of all cores, writes the lines of the access log, and may want more records than those of
    /// lines; none: each core writes its lines.
    pub record_sink: Option<Arc<dyn RecordSink>>,
    /// How requests take part in traces (W3C Trace Context): none, and their fields `traceparent` and `tracestate` are
    /// forwarded as they are.
    pub tracing: Option<TraceSettings>,
    /// How many lines the requests may fill in a text of metrics; 10,000. Those without lines of their own count as
    /// `route="_other"`.
    pub series_max: usize,
    /// The tokens of rate limits that several processes share, which the program takes from their store; those of a
    /// store that cannot be reached.
    pub rate_store: Option<Arc<RateStore>>,
    /// Returns the secret of the cookies of `sticky`, and is called when a configuration has such cookies for the first
    /// time; random, so that a client gets another cookie after a restart. Gateways with the same secret know each
    /// other's cookies.
    pub sticky_secret: fn() -> [u8; 32],
    /// Name servers for upstreams' names; none means those of `/etc/resolv.conf`.
    pub name_servers: Vec<SocketAddr>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            limits: Limits::default(),
            client: ClientOptions::default(),
            connect_retry: Duration::ZERO,
            continue_timeout: Duration::from_secs(1),
            drain_delay: Duration::ZERO,
            drain_timeout: Duration::from_secs(30),
            body_bytes_max: None,
            trusted_proxies: TrustedProxies::default(),
            h2c_upgrade: false,
            redirect_https: false,
            via: false,
            loop_id: None,
            client_cert_header: false,
            summary_interval: Duration::from_secs(60),
            record_hook: None,
            access_log: None,
            tracing: None,
            rate_store: None,
            record_sink: None,
            series_max: SERIES_MAX_DEFAULT,
            name_servers: Vec::new(),
            sticky_secret: random_secret,
        }
    }
}

fn random_secret() -> [u8; 32] {
    let mut secret = [0; 32];
    rand::fill(&mut secret).expect("the system has random numbers");
    secret
}
