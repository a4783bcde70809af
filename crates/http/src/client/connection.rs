//! Connections that their owner keeps, outside of any pool.

use std::cell::RefCell;
use std::rc::{Rc, Weak};

use blitz_proto::{BodyLength, RequestHead};
use blitz_reactor::{Address, core_local};

use super::begin;
use super::connect::{ConnectTimings, connect};
use super::datagrams::{self, KeptEndpoint};
use crate::conn::{Protocol, exclusive, multiplexed};
use crate::error::ClientError;
use crate::exchange::{OpenCarrier, ResponseStream, SendBody};
use crate::lifetime::Lifetime;
use crate::options::ClientOptions;
use crate::tls::{AlpnOffer, Handshakes, TlsError, TlsInfo, UpstreamTls};
use crate::transport::Transport;
use crate::waiters::Waiters;

/// An open connection to a server, outside of any pool, that carries requests until it ends. Clones are
/// handles to the same connection.
///
/// Without a handle, the connection closes after the exchanges in progress.
#[derive(Clone)]
pub struct ClientConnection(Rc<ConnectionInner>);

struct ConnectionInner {
    carrier: Rc<dyn OpenCarrier>,
    waiters: Rc<Waiters>,
    timings: ConnectTimings,
    tls: Option<Rc<TlsInfo>>,
    /// Of a connection of QUIC: where it is.
    _endpoint: Option<Rc<KeptEndpoint>>,
}

/// How a [`ClientConnection`] is made.
#[derive(Debug, Clone)]
pub struct ConnectOptions {
    /// The protocol of the connection. Over TLS no other one is offered.
    pub protocol: Protocol,
    /// TLS towards the server; `None` for clear text, which HTTP/3 does not have.
    pub tls: Option<UpstreamTls>,
    /// Whether an HTTP/3 connection has a UDP socket, and so a source port, of its own. Otherwise the connections of
    /// this core with the same `client` share one, for each family of addresses.
    pub own_socket: bool,
    /// Whether the handshake may resume a session of an earlier connection of this core, with the same
    /// [`ClientTls`](crate::ClientTls) to the same name. Connections that may not leave no session either. Early
    /// data is never sent.
    pub resume: bool,
    /// Limits and timeouts. Connections of a core with the same options share memory, and its limits.
    pub client: Rc<ClientOptions>,
}

impl Default for ConnectOptions {
    fn default() -> ConnectOptions {
        ConnectOptions {
            protocol: Protocol::default(),
            tls: None,
            own_socket: false,
            resume: true,
            client: Rc::default(),
        }
    }
}

impl ClientConnection {
    /// Connects to a server.
    ///
    /// # Errors
    /// Those of [`ClientError`] that are about connecting and TLS. If the server has chosen no protocol or
    /// another one, [`TlsError::NoApplicationProtocol`]; a server that supports ALPN may end the handshake itself
    /// with the alert `no_application_protocol`. With HTTP/3, [`ClientError::ConnectTimedOut`] if nothing came from the
    /// server, and [`ClientError::ConnectFailed`] for a unix socket or without TLS.
    pub async fn connect(
        address: &Address,
        options: &ConnectOptions,
    ) -> Result<ClientConnection, ClientError> {
        let handshakes = match options.resume {
            true => Handshakes::Resumable,
            false => Handshakes::Full,
        };
        let handle = match options.protocol == Protocol::DATAGRAMS {
            true => connect_datagrams(address, options, handshakes).await?,
            false => connect_stream(address, options, handshakes).await?,
        };
        Ok(ClientConnection(Rc::new(handle)))
    }

    /// How long connecting took.
    #[must_use]
    pub fn timings(&self) -> ConnectTimings {
        self.0.timings
    }

    /// The protocol of the connection.
    #[must_use]
    pub fn protocol(&self) -> Protocol {
        self.0.carrier.protocol()
    }

    /// The result of the TLS handshake; `None` in clear text.
    #[must_use]
    pub fn tls(&self) -> Option<Rc<TlsInfo>> {
        self.0.tls.clone()
    }

    /// Requests that may begin now: 1 on an idle HTTP/1.1 connection; otherwise what is left of the server's
    /// limit of streams, with HTTP/2 1 until that is known, and with HTTP/3 at most 128 at a time.
    #[must_use]
    pub fn requests_available(&self) -> usize {
        self.0.carrier.requests_available()
    }

    /// Sends the head of a request. The caller sends content, if any, through the [`SendBody`], and can await the
    /// response before, while and after it sends. See [`Connection::request`](crate::Connection::request).
    ///
    /// # Errors
    /// The request was not sent. [`ClientError::Busy`]: none may begin now, see [`ClientConnection::ready`].
    /// [`ClientError::Unprocessed`]: the connection has ended, or carries no more requests.
    /// [`ClientError::HeadTooLarge`].
    pub fn request(
        &self,
        head: &RequestHead,
        length: BodyLength,
    ) -> Result<(SendBody, ResponseStream), ClientError> {
        let carrier = &self.0.carrier;
        if !carrier.reserve() {
            return Err(match carrier.is_open() {
                true => ClientError::Busy,
                false => ClientError::Unprocessed,
            });
        }
        begin(Rc::<dyn OpenCarrier>::clone(carrier), head, length)
    }

    /// Waits until a request may begin. Tasks are served in the order in which they came; a task that does not wait
    /// here can be faster.
    ///
    /// # Errors
    /// [`ClientError::Unprocessed`]: none will.
    pub async fn ready(&self) -> Result<(), ClientError> {
        let ConnectionInner {
            carrier, waiters, ..
        } = &*self.0;
        let look = || match carrier.requests_available() {
            0 if carrier.is_open() => None,
            0 => Some(Err(ClientError::Unprocessed)),
            _ => Some(Ok(())),
        };
        waiters.until(look).await
    }

    /// Whether requests may begin, now or later: the connection has not ended, and the server has not announced
    /// that it will end (GOAWAY).
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.0.carrier.is_open()
    }

    /// Closes the connection. Exchanges in progress fail.
    pub fn close(&self) {
        self.0.carrier.close();
    }
}

impl Drop for ConnectionInner {
    fn drop(&mut self) {
        self.carrier.retire();
    }
}

async fn connect_stream(
    address: &Address,
    options: &ConnectOptions,
    handshakes: Handshakes,
) -> Result<ConnectionInner, ClientError> {
    let limits = &options.client.limits;
    let connector = options.tls.as_ref().map(|tls| tls.connector(handshakes));
    let offer = AlpnOffer::Only(options.protocol);
    let (transport, timings) = connect(address, None, connector.as_ref(), offer, limits).await?;
    if connector.is_some() && transport.protocol() != options.protocol {
        transport.finish();
        let error = TlsError::NoApplicationProtocol;
        return Err(ClientError::TlsHandshake(error));
    }
    let tls = transport.info().cloned();
    let waiters = Rc::<Waiters>::default();
    let carrier: Rc<dyn OpenCarrier> = match options.protocol.capabilities().multiplexes {
        false => exclusive::ClientConn::kept(transport, &options.client, &waiters),
        true => multiplex(transport, &options.client, &waiters),
    };
    Ok(ConnectionInner {
        carrier,
        waiters,
        timings,
        tls,
        _endpoint: None,
    })
}

async fn connect_datagrams(
    address: &Address,
    options: &ConnectOptions,
    handshakes: Handshakes,
) -> Result<ConnectionInner, ClientError> {
    let (conn, endpoint, timings) = datagrams::connect(address, options, handshakes).await?;
    Ok(ConnectionInner {
        waiters: conn.waiters(),
        tls: conn.info(),
        carrier: conn,
        timings,
        _endpoint: Some(endpoint),
    })
}

/// The carrier of a connection that carries many requests, whose task it starts.
fn multiplex(
    transport: Transport,
    options: &Rc<ClientOptions>,
    waiters: &Rc<Waiters>,
) -> Rc<dyn OpenCarrier> {
    let shared = shared_by_core(options);
    let lifetime = Lifetime::new(&options.limits, 0);
    let is_https = transport.tls().is_some();
    let conn = multiplexed::Conn::kept(&shared, is_https, lifetime);
    let (running, waiters) = (Rc::clone(&conn), Rc::clone(waiters));
    blitz_reactor::spawn_now(|| running.drive_kept(transport, waiters));
    conn
}

type Shared = multiplexed::Shared<multiplexed::ClientRole>;

/// The state that the connections of this core with the same options share.
fn shared_by_core(options: &Rc<ClientOptions>) -> Rc<Shared> {
    SHARED.with_borrow_mut(|all| {
        all.retain(|shared| shared.strong_count() > 0);
        let mut known = all.iter().filter_map(Weak::upgrade);
        let found = known.find(|shared| Rc::ptr_eq(shared.options(), options));
        found.unwrap_or_else(|| {
            let shared = Shared::new(Rc::clone(options));
            all.push(Rc::downgrade(&shared));
            shared
        })
    })
}

core_local! {
    static SHARED: RefCell<Vec<Weak<Shared>>> = const { RefCell::new(Vec::new()) };
}
