//! Upstream connections, per core and per address (rule 11).
//!
//! An idle connection is parked in the reactor: it has no task but an armed receive, so that FIN,
//! or any byte on HTTP/1.1, removes it at once. The most recently used connection is reused first,
//! so that a pool shrinks with its traffic. HTTP/2 connections, which requests share, are in
//! [`shared`].
//!
//! Over TLS the server chooses the protocol. The pool expects the last choice. Before the first
//! choice, requests wait for the first connection, since all of them may fit on it.

mod lease;
mod proxy_header;
mod shared;

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::rc::{Rc, Weak};
use std::time::{Duration, Instant};

use blitz_reactor::{Address, Cause, PoolFuture, Resume, Socket};

use crate::client::{Connection, ProxyHeader, connect};
use crate::conn::{Protocol, UpgradeForm, exclusive, multiplexed};
use crate::counters::count;
use crate::error::ClientError;
use crate::free_list::FreeList;
use crate::lifetime::{Lifetime, count_retired};
use crate::options::ClientOptions;
use crate::tls::{AlpnOffer, Handshakes, ReadOutcome, TlsConnector, TlsKey, UpstreamTls};
use crate::transport::{ParkedTransport, Transport};
use proxy_header::ClientsInUse;
use shared::InUse;

pub(crate) use lease::Lease;

/// The upstream connections of a core. Clones are handles to the same pool.
#[derive(Clone)]
pub struct Pool(Rc<PoolState>);

/// One address and its connections. Clones are handles to the same connections.
///
/// Keep a handle to avoid looking up the address for each request.
#[derive(Clone)]
pub struct Upstream(Rc<PoolEndpoint>);

struct PoolState {
    options: Rc<ClientOptions>,
    endpoints: RefCell<HashMap<PoolKey, Weak<PoolEndpoint>>>,
    idle: Cell<usize>,
    next_serial: Cell<u64>,
    /// Free states of connections that carry one request at a time.
    exclusive: Rc<FreeList<exclusive::ClientConn>>,
    /// Shared by the connections that carry many requests.
    multiplexed: Rc<multiplexed::Shared<multiplexed::ClientRole>>,
}

type PoolKey = (Address, ConnectionKind, Heads, Option<ProxyHeader>);

/// Separates connections to one address that must not share a pool.
#[derive(PartialEq, Eq, Hash)]
enum ConnectionKind {
    Plain(Protocol),
    Tls(TlsKey),
}

/// The requests that share the HTTP/2 connections of an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Heads {
    Usual,
    /// Some servers end the connection when a head exceeds their limits, and with it the requests of
    /// others, so requests with large heads share connections only with their like.
    Large,
}

struct PoolEndpoint {
    address: Address,
    /// `None` in clear text.
    tls: Option<EndpointTls>,
    /// The number of the TLS settings for new connections; 0 in clear text.
    settings: Cell<u64>,
    /// The protocol in clear text, or the last choice of the server; `None` before its first.
    protocol: Cell<Option<Protocol>>,
    pool: Rc<PoolState>,
    /// Oldest first; all have the protocol above.
    idle: RefCell<VecDeque<IdleConnection>>,
    /// Connections in use, and HTTP/1.1 connections being made.
    active: Cell<usize>,
    /// HTTP/2 connections in use, and the queue of requests.
    in_use: InUse,
    /// The connections to the same address for requests with large heads, once there was one.
    for_large_heads: OnceCell<Upstream>,
    /// The header at the beginning of each connection; with it the connections are those of one client.
    header: Option<ProxyHeader>,
    /// Connections in use of all clients, where connections are those of one client.
    of_all_clients: Rc<ClientsInUse>,
}

/// The TLS settings of an endpoint, and the connector with the settings known last.
struct EndpointTls {
    upstream: UpstreamTls,
    connector: RefCell<Rc<TlsConnector>>,
}

struct IdleConnection {
    parked: ParkedTransport,
    /// Unique for each time that a connection becomes idle; older ones have lower numbers.
    serial: u64,
    state: IdleState,
}

/// The state of an idle connection.
enum IdleState {
    /// Of a connection that carries one request at a time.
    Exclusive(Lifetime),
    /// Of a connection that carries many.
    Multiplexed(Rc<multiplexed::Conn<multiplexed::ClientRole>>),
}

impl Pool {
    /// An empty pool.
    #[must_use]
    pub fn new(options: ClientOptions) -> Pool {
        let options = Rc::new(options);
        Pool(Rc::new(PoolState {
            multiplexed: multiplexed::Shared::new(Rc::clone(&options)),
            options,
            endpoints: RefCell::default(),
            idle: Cell::new(0),
            next_serial: Cell::new(0),
            exclusive: Rc::default(),
        }))
    }

    /// The HTTP/1.1 connections to this address.
    #[must_use]
    pub fn upstream(&self, address: &Address) -> Upstream {
        self.upstream_with_protocol(address, Protocol::default())
    }

    /// The connections to this address over TLS: HTTP/2 if ALPN negotiates it (RFC 7301),
    /// otherwise HTTP/1.1. They are never used for other settings or another name.
    #[must_use]
    pub fn upstream_tls(&self, address: &Address, tls: &UpstreamTls) -> Upstream {
        let secure = || EndpointTls {
            upstream: tls.clone(),
            connector: RefCell::new(tls.connector(self.0.handshakes())),
        };
        let key = (
            address.clone(),
            ConnectionKind::Tls(tls.key()),
            Heads::Usual,
            None,
        );
        self.endpoint(key, &Rc::default(), || (Some(secure()), None))
    }

    /// The connections to this address in clear text, with this version of HTTP.
    ///
    /// # Panics
    /// If that is HTTP/3, which has no clear text.
    #[must_use]
    pub fn upstream_with_protocol(&self, address: &Address, protocol: Protocol) -> Upstream {
        assert!(
            protocol != Protocol::DATAGRAMS,
            "pools have no connections of QUIC"
        );
        let key = (
            address.clone(),
            ConnectionKind::Plain(protocol),
            Heads::Usual,
            None,
        );
        self.endpoint(key, &Rc::default(), || (None, Some(protocol)))
    }

    fn endpoint(
        &self,
        key: PoolKey,
        of_all_clients: &Rc<ClientsInUse>,
        make: impl FnOnce() -> (Option<EndpointTls>, Option<Protocol>),
    ) -> Upstream {
        let mut endpoints = self.0.endpoints.borrow_mut();
        if let Some(endpoint) = endpoints.get(&key).and_then(Weak::upgrade) {
            return Upstream(endpoint);
        }
        // Name resolution changes addresses; this removes those without a handle.
        endpoints.retain(|_, endpoint| endpoint.strong_count() > 0);
        let (tls, protocol) = make();
        let endpoint = Rc::new(PoolEndpoint {
            address: key.0.clone(),
            settings: Cell::new(tls.as_ref().map_or(0, |tls| tls.connector.borrow().id)),
            tls,
            protocol: Cell::new(protocol),
            pool: Rc::clone(&self.0),
            idle: RefCell::default(),
            active: Cell::new(0),
            in_use: InUse::default(),
            for_large_heads: OnceCell::new(),
            header: key.3,
            of_all_clients: Rc::clone(of_all_clients),
        });
        endpoints.insert(key, Rc::downgrade(&endpoint));
        Upstream(endpoint)
    }

    /// The number of idle connections to all addresses.
    #[must_use]
    pub fn idle(&self) -> usize {
        self.0.idle.get()
    }
}

impl Upstream {
    /// The address of the upstream.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.0.address
    }

    /// Whether its connections use TLS.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        self.0.tls.is_some()
    }

    /// The connections for a request whose head may exceed the server's limits: those of HTTP/2 are
    /// apart from others, because some servers end the whole connection then.
    #[must_use]
    pub fn for_large_heads(&self) -> &Upstream {
        if self.is_exclusive() {
            return self;
        }
        let all = || self.other(Heads::Large, self.0.header);
        self.0.for_large_heads.get_or_init(all)
    }

    /// Other connections to the same address.
    fn other(&self, heads: Heads, header: Option<ProxyHeader>) -> Upstream {
        let PoolEndpoint {
            address, tls, pool, ..
        } = &*self.0;
        let kind = match tls {
            Some(tls) => ConnectionKind::Tls(tls.upstream.key()),
            None => ConnectionKind::Plain(self.0.protocol.get().unwrap_or_default()),
        };
        let secure = |tls: &EndpointTls| EndpointTls {
            upstream: tls.upstream.clone(),
            connector: RefCell::new(tls.upstream.connector(pool.handshakes())),
        };
        let make = || (tls.as_ref().map(secure), self.0.protocol.get());
        let key = (address.clone(), kind, heads, header);
        Pool(Rc::clone(pool)).endpoint(key, &self.0.of_all_clients, make)
    }

    /// A permit on a shared connection, an idle connection, or a new one.
    ///
    /// # Errors
    /// Those of [`ClientError`] that are about connecting.
    pub async fn checkout(&self) -> Result<Connection, ClientError> {
        if !self.is_exclusive() {
            return self.permit(None).await;
        }
        match self.take_idle() {
            Some(connection) => Ok(connection),
            None => self.connect_unless_full(None).await,
        }
    }

    /// The connection that [`checkout`](Upstream::checkout) would return at once; `None` if it would
    /// wait.
    #[must_use]
    pub fn take_ready(&self) -> Option<Connection> {
        match self.is_exclusive() {
            true => self.take_idle(),
            false => self.take_permit(None),
        }
    }

    /// The most recently used idle connection, if it has received nothing.
    fn take_idle(&self) -> Option<Connection> {
        match self.has_room() && self.queue_is_empty() {
            true => self.take_idle_exclusive(),
            false => None,
        }
    }

    fn take_idle_exclusive(&self) -> Option<Connection> {
        self.refresh_tls();
        loop {
            let idle = self.0.idle.borrow_mut().pop_back()?;
            self.0.pool.decrement_idle();
            // If it has just become readable, `resume` will drop it.
            let (Some(socket), IdleState::Exclusive(lifetime)) =
                (idle.parked.unpark_socket(), idle.state)
            else {
                continue;
            };
            let transport = idle.parked.unpark(socket);
            if self.has_expired(lifetime) {
                transport.finish();
                continue;
            }
            self.acquire_active();
            count(|counters| counters.upstream_reused += 1);
            return Some(self.connection(transport, lifetime, true));
        }
    }

    /// A new connection even if there are others, or a permit on a shared connection that was made
    /// after this call. Older connections may be about to close like the previous one.
    ///
    /// # Errors
    /// Those of [`ClientError`] that are about connecting.
    pub async fn connect(&self) -> Result<Connection, ClientError> {
        let now = blitz_reactor::now();
        match self.is_exclusive() {
            true => self.connect_unless_full(Some(now)).await,
            false => self.permit(Some(now)).await,
        }
    }

    /// A new HTTP/1.1 connection. While too many connections are in use, the request waits in the
    /// queue; with `made_since`, it then gets no idle connection.
    async fn connect_unless_full(
        &self,
        made_since: Option<Instant>,
    ) -> Result<Connection, ClientError> {
        if self.has_room() && self.queue_is_empty() {
            return self.connect_alone().await;
        }
        self.check_room_for_client()?;
        count(|counters| counters.upstream_limit_waits += 1);
        self.wait(made_since).await
    }

    /// Whether the limit allows another connection in use.
    #[inline]
    fn has_room(&self) -> bool {
        let connections_max = self.0.pool.options.limits.upstream_connections_max;
        self.0.active.get() < connections_max && self.has_room_for_client()
    }

    /// A connection for a WebSocket: as [`Upstream::checkout`], or as [`Upstream::connect`] if
    /// `fresh`, but never HTTP/2 to a server without extended CONNECT (RFC 8441). Over TLS such a
    /// server gets a new connection that offers only HTTP/1.1.
    ///
    /// # Errors
    /// Those of [`ClientError`] that are about connecting, and [`ClientError::NoExtendedConnect`].
    pub async fn checkout_for_websocket(&self, fresh: bool) -> Result<Connection, ClientError> {
        // Allocated separately, since this future is rare and large.
        PoolFuture::new(for_websocket(self.clone(), fresh)).await
    }

    /// A connection for another `Upgrade`, which only HTTP/1.1 has: as
    /// [`Upstream::checkout_for_websocket`], but never HTTP/2.
    ///
    /// # Errors
    /// As [`Upstream::checkout_for_websocket`].
    pub async fn checkout_for_upgrade(&self, fresh: bool) -> Result<Connection, ClientError> {
        PoolFuture::new(for_upgrade(self.clone(), fresh)).await
    }

    /// How long connecting may take: see [`Limits::connect_timeout`](crate::Limits::connect_timeout).
    #[must_use]
    pub fn connect_timeout(&self) -> Duration {
        self.0.pool.options.limits.connect_timeout
    }

    /// Whether requests wait because all connections that are allowed are in use, and not for one that is being made.
    #[must_use]
    pub fn is_at_limit(&self) -> bool {
        match self.is_exclusive() {
            true => !self.has_room(),
            false => !self.is_coming() && !self.queue_is_empty(),
        }
    }

    /// The number of idle connections.
    #[must_use]
    pub fn idle(&self) -> usize {
        self.0.idle.borrow().len()
    }

    /// The number of connections in use.
    #[must_use]
    pub fn active(&self) -> usize {
        self.0.active.get()
    }

    /// Whether requests wait for a connection, because all that are allowed are in use.
    #[must_use]
    pub fn is_waited_for(&self) -> bool {
        !self.queue_is_empty()
    }

    /// Whether a connection carries one request at a time, according to the last known protocol.
    #[inline]
    fn is_exclusive(&self) -> bool {
        let protocol = self.0.protocol.get();
        protocol.is_some_and(|protocol| !protocol.capabilities().multiplexes)
    }

    /// A new connection for the caller alone.
    async fn connect_alone(&self) -> Result<Connection, ClientError> {
        let permit = Permit::new(self);
        let (transport, lifetime) = self.open(AlpnOffer::All).await?;
        Ok(self.begin(transport, lifetime, permit))
    }

    async fn open(&self, offer: AlpnOffer) -> Result<(Transport, Lifetime), ClientError> {
        let PoolEndpoint {
            address, tls, pool, ..
        } = &*self.0;
        self.refresh_tls();
        let limits = &pool.options.limits;
        let lifetime = Lifetime::new(limits, self.0.settings.get());
        let connector = tls.as_ref().map(|tls| Rc::clone(&tls.connector.borrow()));
        let header = self.0.header.as_ref();
        let (transport, _) = connect(address, header, connector.as_ref(), offer, limits).await?;
        Ok((transport, lifetime))
    }

    /// Applies replaced TLS settings to new connections. Connections with older settings get no
    /// more requests.
    #[inline]
    fn refresh_tls(&self) {
        if let Some(tls) = &self.0.tls
            && tls.upstream.has_replaced(&tls.connector.borrow())
        {
            let connector = tls.upstream.connector(self.0.pool.handshakes());
            self.0.settings.set(connector.id);
            tls.connector.replace(connector);
        }
    }

    /// The first use of a new connection, with the protocol that the server has chosen.
    fn begin(&self, transport: Transport, lifetime: Lifetime, permit: Permit<'_>) -> Connection {
        if self.0.tls.is_some() {
            self.set_protocol(transport.protocol());
        }
        match self.is_exclusive() {
            true => self.begin_exclusive(transport, lifetime, permit),
            // Drops the permit: the connection's task counts the connection.
            false => self.begin_multiplexed(transport, lifetime),
        }
    }

    fn begin_exclusive(
        &self,
        transport: Transport,
        lifetime: Lifetime,
        permit: Permit<'_>,
    ) -> Connection {
        permit.keep();
        self.connection(transport, lifetime, false)
    }

    /// Stores the server's choice. If the choice has changed, the idle connections are closed.
    fn set_protocol(&self, protocol: Protocol) {
        let before = self.0.protocol.replace(Some(protocol));
        if before == Some(protocol) {
            return;
        }
        for idle in self.0.idle.take() {
            self.0.pool.discard(idle);
        }
        // Requests that wait for a permit each need a connection now.
        if !protocol.capabilities().multiplexes {
            self.0.in_use.wake(usize::MAX);
        }
    }

    fn connection(&self, transport: Transport, lifetime: Lifetime, is_reused: bool) -> Connection {
        let PoolState {
            options, exclusive, ..
        } = &*self.0.pool;
        let lease = Lease {
            upstream: self.clone(),
            lifetime,
        };
        let carrier =
            exclusive::ClientConn::new(transport, options, Some(lease), is_reused, Some(exclusive));
        Connection::new(carrier, is_reused)
    }

    fn take_back(&self, transport: Transport, lifetime: Lifetime) {
        if self.has_expired(lifetime) {
            transport.finish();
        } else if self.is_exclusive() {
            self.keep(transport, IdleState::Exclusive(lifetime));
        }
    }

    /// Whether no further request may use a connection.
    #[inline]
    fn has_expired(&self, lifetime: Lifetime) -> bool {
        let (now, settings) = (blitz_reactor::now(), self.0.settings.get());
        let has_expired = lifetime.has_expired(now, settings);
        if has_expired && lifetime.is_over(now, settings) {
            count_retired();
        }
        has_expired
    }

    fn keep(&self, transport: Transport, state: IdleState) {
        let pool = &self.0.pool;
        if !pool.make_room() {
            return match state {
                IdleState::Exclusive(_) => transport.finish(),
                IdleState::Multiplexed(conn) => conn.finish(transport),
            };
        }
        let serial = pool.next_serial.get();
        pool.next_serial.set(serial + 1);
        let resume: Rc<dyn Resume> = Rc::<PoolEndpoint>::clone(&self.0);
        let idle_time = match &state {
            IdleState::Exclusive(lifetime) => lifetime.idle_time(self.0.idle_timeout()),
            IdleState::Multiplexed(_) => self.0.idle_timeout(),
        };
        let parked = transport.park(resume, serial, idle_time);
        self.0.idle.borrow_mut().push_back(IdleConnection {
            parked,
            serial,
            state,
        });
        pool.idle.set(pool.idle.get() + 1);
        count(|counters| counters.upstream_idle += 1);
    }

    /// Counts a connection as in use.
    #[inline]
    fn acquire_active(&self) {
        self.0.active.set(self.0.active.get() + 1);
        if self.0.header.is_some() {
            self.0.of_all_clients.acquire();
        }
    }

    /// Counts a connection as no longer in use, and wakes the first waiting request.
    #[inline]
    fn release_active(&self) {
        self.0.active.set(self.0.active.get() - 1);
        if self.0.header.is_some() {
            self.0.of_all_clients.release();
        }
        if !self.queue_is_empty() {
            self.0.in_use.wake(1);
        }
    }
}

/// Counts an HTTP/1.1 connection as in use while it is being made.
struct Permit<'a>(&'a Upstream);

impl Permit<'_> {
    fn new(upstream: &Upstream) -> Permit<'_> {
        upstream.acquire_active();
        Permit(upstream)
    }

    /// Leaves the connection counted: its lease decrements the count later.
    fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.0.release_active();
    }
}

async fn for_websocket(upstream: Upstream, fresh: bool) -> Result<Connection, ClientError> {
    let connection = match fresh {
        true => upstream.connect().await?,
        false => upstream.checkout().await?,
    };
    let limit = upstream.0.pool.options.limits.connect_timeout;
    match blitz_reactor::timeout(limit, connection.takes_websocket()).await {
        Ok(Ok(true)) => return Ok(connection),
        Ok(Err(error)) => return Err(error),
        // No SETTINGS in time: assume no extended CONNECT.
        Ok(Ok(false)) | Err(_) => drop(connection),
    }
    exclusive(&upstream).await
}

async fn for_upgrade(upstream: Upstream, fresh: bool) -> Result<Connection, ClientError> {
    let connection = match fresh {
        true => upstream.connect().await?,
        false => upstream.checkout().await?,
    };
    if connection.capabilities().upgrade == UpgradeForm::UpgradeField {
        return Ok(connection);
    }
    drop(connection);
    exclusive(&upstream).await
}

/// A new connection that offers only HTTP/1.1 over TLS.
async fn exclusive(upstream: &Upstream) -> Result<Connection, ClientError> {
    match upstream.0.tls {
        None => Err(ClientError::NoExtendedConnect),
        Some(_) => {
            if !upstream.has_room() {
                return Err(ClientError::Busy);
            }
            let permit = Permit::new(upstream);
            let (transport, lifetime) = upstream.open(AlpnOffer::Only(Protocol::EXCLUSIVE)).await?;
            Ok(upstream.begin_exclusive(transport, lifetime, permit))
        }
    }
}

impl PoolState {
    fn handshakes(&self) -> Handshakes {
        match self.options.resume {
            true => Handshakes::Resumable,
            false => Handshakes::Full,
        }
    }

    fn decrement_idle(&self) {
        self.idle.set(self.idle.get() - 1);
        count(|counters| counters.upstream_idle -= 1);
    }

    /// Makes room for an idle connection; `false` if the pool keeps none.
    #[inline]
    fn make_room(&self) -> bool {
        let idle_max = self.options.limits.pool_idle_max;
        if self.idle.get() >= idle_max {
            self.close_oldest();
        }
        idle_max > 0
    }

    /// Closes the connection with the longest idle time.
    #[cold]
    fn close_oldest(&self) {
        let endpoints = self.endpoints.borrow();
        let oldest_serial = |endpoint: &Rc<PoolEndpoint>| {
            endpoint
                .idle
                .borrow()
                .front()
                .map_or(u64::MAX, |idle| idle.serial)
        };
        let oldest = endpoints
            .values()
            .filter_map(Weak::upgrade)
            .min_by_key(oldest_serial);
        let front = oldest.and_then(|endpoint| endpoint.idle.borrow_mut().pop_front());
        if let Some(idle) = front {
            self.discard(idle);
        }
    }

    /// Closes an idle connection.
    fn discard(&self, idle: IdleConnection) {
        self.decrement_idle();
        match (idle.parked.unpark_socket(), idle.state) {
            (Some(socket), IdleState::Multiplexed(conn)) => conn.finish(idle.parked.unpark(socket)),
            (socket, _) => drop(socket),
        }
    }
}

impl PoolEndpoint {
    /// Processes the bytes that an idle connection has received. Returns the connection if they
    /// were for TLS alone, such as a session ticket.
    fn receive_idle(parked: ParkedTransport, socket: Socket, cause: Cause) -> Option<Transport> {
        let mut transport = parked.unpark(socket);
        let Cause::Received(slice) = cause else {
            return None;
        };
        let (tls, socket) = transport.secure_parts()?;
        let is_quiet = matches!(tls.handle_received(slice, socket), ReadOutcome::NoContent);
        (is_quiet && transport.is_untouched()).then_some(transport)
    }
}

impl Resume for PoolEndpoint {
    /// Closes an HTTP/1.1 connection after FIN, an error, an unsolicited byte or the idle timeout.
    /// An HTTP/2 connection may receive bytes at any time.
    fn resume(self: Rc<Self>, socket: Socket, tag: u64, cause: Cause) {
        let mut all = self.idle.borrow_mut();
        let Some(at) = all.iter().rposition(|idle| idle.serial == tag) else {
            return;
        };
        let Some(idle) = all.remove(at) else {
            unreachable!("the position was just found")
        };
        let lifetime = match idle.state {
            IdleState::Exclusive(lifetime) => lifetime,
            IdleState::Multiplexed(conn) => {
                drop(all);
                self.pool.decrement_idle();
                return Upstream(self).resume(conn, idle.parked.unpark(socket), cause);
            }
        };
        let is_lost = !matches!(cause, Cause::Expired | Cause::Evicted);
        if let Some(transport) = PoolEndpoint::receive_idle(idle.parked, socket, cause) {
            let resume: Rc<dyn Resume> = Rc::<PoolEndpoint>::clone(&self);
            let idle_time = lifetime.idle_time(self.idle_timeout());
            let parked = transport.park(resume, tag, idle_time);
            let idle = IdleConnection {
                parked,
                serial: tag,
                state: IdleState::Exclusive(lifetime),
            };
            return all.insert(at, idle);
        }
        drop(all);
        self.pool.decrement_idle();
        if is_lost {
            count(|counters| counters.upstream_idle_lost += 1);
        }
    }
}
