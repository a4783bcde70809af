//! The options of listeners, and of connections to servers.

use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use blitz_proto::{Fields, Limits, ResponseHead};
use blitz_reactor::Chunk;

use crate::drain::Drain;
use crate::error::Refusal;
use crate::exchange::{Peer, Scheme};
use crate::refused::Refused;
use crate::tls::TlsSlot;

/// How connections are served.
#[derive(Clone)]
pub struct ServeOptions {
    /// Bounds and deadlines.
    pub limits: Limits,
    /// Value of the `Server` field for responses without this field.
    pub server: Option<String>,
    /// Whether responses without `Date` get one. RFC 9110, section 6.6.1, requires it of servers
    /// with a clock.
    pub date: bool,
    /// The scheme of requests on this listener.
    pub scheme: Scheme,
    /// TLS of the listener. With it requests have the scheme `https`, whatever `scheme` is.
    pub tls: Option<TlsSlot>,
    /// Decides by the address of the connection which proxies may send a header of the PROXY protocol, version 1 or 2.
    /// With it every connection must begin with one, before TLS; the client is the one that the header tells, or the proxy
    /// itself if it tells none. Connections of other peers, and those without a valid header, are closed. By default
    /// connections have no header.
    pub proxy_protocol: Option<Rc<ProxyRule>>,
    /// Whether clients in clear text must begin with HTTP/2's preface. Other clients get GOAWAY
    /// instead of an HTTP/1.1 response. Over TLS this has no effect: ALPN negotiates the version.
    pub multiplexed_only: bool,
    /// Value of the `Alt-Svc` field (RFC 7838) of responses over TLS without this field: where this server serves
    /// HTTP/3, or `clear`. HTTP/3 itself does not send it.
    pub alt_svc: Option<String>,
    /// Clients that do not get `Alt-Svc`, such as proxies that would pass it on. By default none.
    pub alt_svc_withheld: Option<Rc<PeerRule>>,
    /// Decides which clients may switch to HTTP/2 with `Upgrade: h2c` (RFC 7540, section 3.2;
    /// RFC 9113 removed it). By default none. Requests on a switched connection bypass the access
    /// rules of a proxy in front. Therefore clients of unix sockets, and requests with `Via`,
    /// `Forwarded`, `CDN-Loop`, `X-Real-IP` or `X-Forwarded-*`, never switch.
    pub h2c_upgrade: Option<Rc<PeerRule>>,
    /// Makes the content of responses that the core generates, for example to malformed requests,
    /// from the fields received so far. It may change the status and add fields such as
    /// `Content-Type`. By default, and if it returns `None`, the content is problem+json (RFC 9457)
    /// if a received `Accept` allows it, otherwise one line of plain text.
    pub refusal: Option<Rc<RefusalContent>>,
    /// Is told of each request that is refused before a service gets it, and of each failed handshake; by default nobody
    /// is. Streams that are reset without a response are no requests.
    pub refused: Option<Rc<RefusedObserver>>,
    /// Tells the client of a request that came from a trusted proxy, for log lines, from the fields
    /// received so far and the address of the connection. By default nobody is trusted.
    pub forwarded_client: Option<Rc<ForwardedClientRule>>,
    /// Warns that the core has as many sockets as it may, which is the parameter, at most every 10 s. By default the warning
    /// is about the limit of open files; a program that chooses another limit says what it is of.
    pub warn_at_limit: Option<fn(usize)>,
    /// Whether connections of HTTP/1.1 close after a response while the core is at its limit of sockets, so that those
    /// that are never idle make room as well. By default they stay open.
    pub close_at_limit: bool,
    /// Stops serving gracefully; by default the core's own handle.
    pub drain: Drain,
}

/// A decision about a client.
pub type PeerRule = dyn Fn(&Peer) -> bool;

/// See [`ServeOptions::proxy_protocol`].
pub type ProxyRule = dyn Fn(Option<SocketAddr>) -> bool;

/// See [`ServeOptions::forwarded_client`].
pub type ForwardedClientRule = dyn Fn(&Fields, Option<SocketAddr>) -> Option<IpAddr>;

/// See [`ServeOptions::refused`].
pub type RefusedObserver = dyn Fn(&Refused<'_>);

/// See [`ServeOptions::refusal`].
pub type RefusalContent = dyn Fn(Refusal, &Fields, &mut ResponseHead) -> Option<Chunk>;

impl ServeOptions {
    /// The `Alt-Svc` field for a client.
    pub(crate) fn alt_svc_for(&self, peer: &Peer) -> Option<&str> {
        let is_withheld = |rule: &Rc<PeerRule>| rule(peer);
        peer.tls.as_ref()?;
        match self.alt_svc_withheld.as_ref().is_some_and(is_withheld) {
            true => None,
            false => self.alt_svc.as_deref(),
        }
    }
}

impl Default for ServeOptions {
    fn default() -> ServeOptions {
        ServeOptions {
            limits: Limits::default(),
            server: None,
            date: true,
            scheme: Scheme::Http,
            tls: None,
            proxy_protocol: None,
            multiplexed_only: false,
            alt_svc: None,
            alt_svc_withheld: None,
            h2c_upgrade: None,
            refusal: None,
            refused: None,
            forwarded_client: None,
            warn_at_limit: None,
            close_at_limit: false,
            drain: Drain::of_core(),
        }
    }
}

/// Options of connections to servers.
#[derive(Debug, Clone)]
pub struct ClientOptions {
    /// Limits for responses, buffers, idle connections and connecting.
    pub limits: Limits,
    /// Maximum silence before the response head, counted from the last byte of the request that the
    /// server took. While the client still owes content and the server has taken all that came, at
    /// least [`Limits::body_idle_timeout`] and [`Limits::body_rate_grace`] together: the server is not to
    /// blame for a slow client. Each attempt
    /// has its own time, which begins when the request has a connection.
    pub response_timeout: Duration,
    /// Maximum silence within a response body that a reader waits for.
    pub body_timeout: Duration,
    /// Maximum idle time of a connection; shorter than the idle timeouts of common servers.
    pub idle_timeout: Duration,
    /// Requests that an HTTP/2 connection carries before the server's SETTINGS say how many it allows. A server
    /// refuses what exceeds its limit, unprocessed.
    pub requests_before_settings: usize,
    /// Whether handshakes of a pool may resume sessions of earlier connections of this core. Those of others are
    /// complete, and leave none behind.
    pub resume: bool,
}

/// Options of one request, on the way to its server and of its client's connection while it lasts, before those of the
/// connection, which other requests share. `None` leaves that of the connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct RequestOptions {
    /// See [`ClientOptions::response_timeout`].
    pub response_timeout: Option<Duration>,
    /// See [`ClientOptions::body_timeout`]. Streams that may be silent for
    /// [`Limits::stream_idle_timeout`] may be so for this time, if it is longer.
    pub body_timeout: Option<Duration>,
}

impl Default for ClientOptions {
    fn default() -> ClientOptions {
        ClientOptions {
            limits: Limits::default(),
            response_timeout: Duration::from_secs(60),
            body_timeout: Duration::from_secs(60),
            idle_timeout: Duration::from_secs(55),
            requests_before_settings: 1,
            resume: true,
        }
    }
}
