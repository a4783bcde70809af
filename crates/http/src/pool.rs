//! Upstream connections, per core and per address (rule 11).
//!
//! An idle one waits parked in the reactor: no task, and an armed receive, so that FIN, or any byte
//! of HTTP/1, removes it at once. The one used last is used next, so that a pool shrinks when
//! traffic does. Connections of HTTP/2, which are shared while in use, are in [`shared`].
//!
//! What is spoken over TLS the server chooses. It is taken to choose what it chose last, and until
//! it has chosen, requests wait for the first connection, since all of them may fit on it.

mod lifetime;
mod queue;
mod shared;

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::rc::{Rc, Weak};
use std::time::Instant;

use blitz_reactor::{Address, Cause, PoolFuture, Resume, Socket};

use crate::client::{ClientOptions, Connection, connect};
use crate::conn::{Protocol, exclusive, multiplexed};
use crate::counters::count;
use crate::error::ClientError;
use crate::free_list::FreeList;
use crate::tls::{AlpnOffer, ReadOutcome, TlsConnector, TlsKey, UpstreamTls};
use crate::transport::{ParkedTransport, Transport};
use shared::InUse;

pub(crate) use lifetime::{Lease, Lifetime, count_retired};

/// The upstream connections of a core. Cloning gives another handle to the same pool.
#[derive(Clone)]
pub struct Pool(Rc<PoolState>);

/// One address and its connections. Cloning gives another handle to the same.
///
/// Keep one per endpoint: it spares the look-up of the address per request.
#[derive(Clone)]
pub struct Upstream(Rc<Endpoint>);

struct PoolState {
    options: Rc<ClientOptions>,
    endpoints: RefCell<HashMap<Key, Weak<Endpoint>>>,
    idle: Cell<usize>,
    next_serial: Cell<u64>,
    /// State for connections that carry one request at a time.
    exclusive: Rc<FreeList<exclusive::ClientConn>>,
    /// What connections share that carry many.
    multiplexed: Rc<multiplexed::Shared<multiplexed::Client>>,
}

type Key = (Address, Kind);

/// What tells connections to one address apart that must not be mixed.
#[derive(PartialEq, Eq, Hash)]
enum Kind {
    Plain(Protocol),
    Tls(TlsKey),
}

struct Endpoint {
    address: Address,
    /// Present if connections are to be encrypted.
    tls: Option<EndpointTls>,
    /// Of the settings that connections are made with; 0 in clear text.
    settings: Cell<u64>,
    /// What is spoken in clear text, or was chosen by the server last; `None` until it has.
    protocol: Cell<Option<Protocol>>,
    pool: Rc<PoolState>,
    /// Oldest first; all of the protocol above.
    idle: RefCell<VecDeque<IdleConnection>>,
    /// In use, or being made for HTTP/1.1.
    active: Cell<usize>,
    /// Of HTTP/2.
    in_use: InUse,
}

/// With whom and how TLS is spoken.
struct EndpointTls {
    upstream: UpstreamTls,
    connector: RefCell<Rc<TlsConnector>>,
}

struct IdleConnection {
    parked: ParkedTransport,
    /// Tells this stay in the pool from earlier ones, and orders stays by age.
    serial: u64,
    state: IdleState,
}

/// What is to be known of an idle connection.
enum IdleState {
    /// It carries one request at a time.
    Exclusive(Lifetime),
    /// The state of one that carries many.
    Multiplexed(Rc<multiplexed::Conn<multiplexed::Client>>),
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

    /// The connections to this address, of HTTP/1.1.
    #[must_use]
    pub fn upstream(&self, address: &Address) -> Upstream {
        self.upstream_speaking(address, Protocol::default())
    }

    /// The connections to this address over TLS, of HTTP/2 if the server chooses it (RFC 7301),
    /// and else of HTTP/1.1. They are never used for other settings or for another name.
    #[must_use]
    pub fn upstream_tls(&self, address: &Address, tls: &UpstreamTls) -> Upstream {
        let secure = || EndpointTls {
            upstream: tls.clone(),
            connector: RefCell::new(tls.connector()),
        };
        let key = (address.clone(), Kind::Tls(tls.key()));
        self.endpoint(key, || (Some(secure()), None))
    }

    /// The connections to this address in clear text, of this version of HTTP.
    #[must_use]
    pub fn upstream_speaking(&self, address: &Address, protocol: Protocol) -> Upstream {
        let key = (address.clone(), Kind::Plain(protocol));
        self.endpoint(key, || (None, Some(protocol)))
    }

    fn endpoint(
        &self,
        key: Key,
        make: impl FnOnce() -> (Option<EndpointTls>, Option<Protocol>),
    ) -> Upstream {
        let mut endpoints = self.0.endpoints.borrow_mut();
        if let Some(endpoint) = endpoints.get(&key).and_then(Weak::upgrade) {
            return Upstream(endpoint);
        }
        // Addresses come and go with resolution; those that nobody names any more make room here.
        endpoints.retain(|_, endpoint| endpoint.strong_count() > 0);
        let (tls, protocol) = make();
        let endpoint = Rc::new(Endpoint {
            address: key.0.clone(),
            settings: Cell::new(tls.as_ref().map_or(0, |tls| tls.connector.borrow().id)),
            tls,
            protocol: Cell::new(protocol),
            pool: Rc::clone(&self.0),
            idle: RefCell::default(),
            active: Cell::new(0),
            in_use: InUse::default(),
        });
        endpoints.insert(key, Rc::downgrade(&endpoint));
        Upstream(endpoint)
    }

    /// Idle connections to all addresses.
    #[must_use]
    pub fn idle(&self) -> usize {
        self.0.idle.get()
    }
}

impl Upstream {
    /// Where the connections lead.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.0.address
    }

    /// An idle connection, or else a new one; a place on a shared one, if there is one.
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

    /// The idle connection that was used last, if there is one on which nothing has arrived.
    #[must_use]
    pub fn take_idle(&self) -> Option<Connection> {
        if !self.is_exclusive() {
            return self.take_permit(None);
        }
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
            // One that has just become readable is not ours any more: `resume` will drop it.
            let (Some(socket), IdleState::Exclusive(lifetime)) =
                (idle.parked.unpark_socket(), idle.state)
            else {
                continue;
            };
            let transport = idle.parked.unpark(socket);
            if lifetime.is_over(blitz_reactor::now(), self.0.settings.get()) {
                count_retired();
                transport.finish();
                continue;
            }
            self.0.active.set(self.0.active.get() + 1);
            count(|counters| counters.upstream_reused += 1);
            return Some(self.connection(transport, lifetime, true));
        }
    }

    /// A new connection, whether or not there are others; or a place on a shared one that was made
    /// after this was asked for. Those that are in use may be about to end like the one before.
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

    /// A connection of HTTP/1.1 that was made since a moment, if there is one, or any; as long as
    /// too many are in use, the request waits in the queue.
    async fn connect_unless_full(
        &self,
        made_since: Option<Instant>,
    ) -> Result<Connection, ClientError> {
        if self.has_room() && self.queue_is_empty() {
            return self.connect_alone().await;
        }
        count(|counters| counters.upstream_limit_waits += 1);
        self.wait(made_since).await
    }

    /// Whether another connection may be used.
    #[inline]
    fn has_room(&self) -> bool {
        self.0.active.get() < self.0.pool.options.limits.upstream_connections_max
    }

    /// A connection to ask for a WebSocket on: as [`Upstream::checkout`], or as
    /// [`Upstream::connect`] if it has to be `fresh`, but never one of HTTP/2 whose server takes no
    /// extended CONNECT (RFC 8441). Over TLS such a server is asked for HTTP/1.1.
    ///
    /// # Errors
    /// Those of [`ClientError`] that are about connecting, and [`ClientError::NoExtendedConnect`].
    pub async fn checkout_for_websocket(&self, fresh: bool) -> Result<Connection, ClientError> {
        // Apart, since it is rare and large.
        PoolFuture::new(for_websocket(self.clone(), fresh)).await
    }

    /// Idle connections.
    #[must_use]
    pub fn idle(&self) -> usize {
        self.0.idle.borrow().len()
    }

    /// Connections in use.
    #[must_use]
    pub fn active(&self) -> usize {
        self.0.active.get()
    }

    /// Whether it takes one request at a time on a connection, as far as is known.
    #[inline]
    fn is_exclusive(&self) -> bool {
        let protocol = self.0.protocol.get();
        protocol.is_some_and(|protocol| !protocol.capabilities().multiplexes)
    }

    /// A connection that nobody waits for but the caller.
    async fn connect_alone(&self) -> Result<Connection, ClientError> {
        let permit = Permit::new(self);
        let (transport, lifetime) = self.open(AlpnOffer::Http2AndHttp1).await?;
        Ok(self.begin(transport, lifetime, permit))
    }

    async fn open(&self, offer: AlpnOffer) -> Result<(Transport, Lifetime), ClientError> {
        let Endpoint {
            address, tls, pool, ..
        } = &*self.0;
        self.refresh_tls();
        let limits = &pool.options.limits;
        let lifetime = Lifetime::new(limits, self.0.settings.get());
        let connector = tls.as_ref().map(|tls| Rc::clone(&tls.connector.borrow()));
        let transport = connect(address, connector.as_ref(), offer, limits).await?;
        Ok((transport, lifetime))
    }

    /// Makes connections with the present TLS settings from now on; those made with others get no
    /// more requests.
    #[inline]
    fn refresh_tls(&self) {
        if let Some(tls) = &self.0.tls
            && tls.upstream.has_replaced(&tls.connector.borrow())
        {
            let connector = tls.upstream.connector();
            self.0.settings.set(connector.id);
            tls.connector.replace(connector);
        }
    }

    /// A connection that was just made, of what the server has chosen.
    fn begin(&self, transport: Transport, lifetime: Lifetime, permit: Permit<'_>) -> Connection {
        if self.0.tls.is_some() {
            self.set_protocol(transport.protocol());
        }
        match self.is_exclusive() {
            true => self.begin_exclusive(transport, lifetime, permit),
            // The task of the connection counts it from now on.
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

    /// The server has chosen. When it used to choose otherwise, what waits in the pool is of no
    /// use any more.
    fn set_protocol(&self, protocol: Protocol) {
        let before = self.0.protocol.replace(Some(protocol));
        if before == Some(protocol) {
            return;
        }
        for idle in self.0.idle.take() {
            self.0.pool.discard(idle);
        }
        // Those who wait for a place make connections of their own now.
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
        if lifetime.is_over(blitz_reactor::now(), self.0.settings.get()) {
            count_retired();
            transport.finish();
        } else if self.is_exclusive() {
            self.keep(transport, IdleState::Exclusive(lifetime));
        }
    }

    fn keep(&self, transport: Transport, state: IdleState) {
        let pool = &self.0.pool;
        pool.make_room();
        let serial = pool.next_serial.get();
        pool.next_serial.set(serial + 1);
        let resume: Rc<dyn Resume> = Rc::<Endpoint>::clone(&self.0);
        let parked = transport.park(resume, serial, pool.options.idle_timeout);
        self.0.idle.borrow_mut().push_back(IdleConnection {
            parked,
            serial,
            state,
        });
        pool.idle.set(pool.idle.get() + 1);
        count(|counters| counters.upstream_idle += 1);
    }

    /// A connection is not in use any more.
    #[inline]
    fn release_active(&self) {
        self.0.active.set(self.0.active.get() - 1);
        if !self.queue_is_empty() {
            self.0.in_use.wake(1);
        }
    }
}

/// Counts a connection of HTTP/1.1 from the moment that it begins to be made.
struct Permit<'a>(&'a Upstream);

impl Permit<'_> {
    fn new(upstream: &Upstream) -> Permit<'_> {
        upstream.0.active.set(upstream.0.active.get() + 1);
        Permit(upstream)
    }

    /// The connection was made, and its lease counts it from now on.
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
        // Who takes so long to say what it takes is treated as if it took nothing.
        Ok(Ok(false)) | Err(_) => drop(connection),
    }
    match upstream.0.tls {
        None => Err(ClientError::NoExtendedConnect),
        Some(_) => {
            if !upstream.has_room() {
                return Err(ClientError::Busy);
            }
            let permit = Permit::new(&upstream);
            let (transport, lifetime) = upstream.open(AlpnOffer::Http1).await?;
            Ok(upstream.begin_exclusive(transport, lifetime, permit))
        }
    }
}

impl PoolState {
    fn decrement_idle(&self) {
        self.idle.set(self.idle.get() - 1);
        count(|counters| counters.upstream_idle -= 1);
    }

    /// Closes the connection that was idle the longest if the pool is full.
    fn make_room(&self) {
        if self.idle.get() < self.options.limits.pool_idle_max {
            return;
        }
        let endpoints = self.endpoints.borrow();
        let oldest_serial = |endpoint: &Rc<Endpoint>| {
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

impl Endpoint {
    /// Takes in what has arrived on an idle connection and gives it back if that was for TLS
    /// alone, such as a ticket to resume the session with.
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

impl Resume for Endpoint {
    /// FIN, an error, a byte that nobody asked for, or the idle timeout: the connection closes. Of
    /// HTTP/2 bytes are asked for at any time.
    fn resume(self: Rc<Self>, socket: Socket, tag: u64, cause: Cause) {
        let mut all = self.idle.borrow_mut();
        let Some(at) = all.iter().rposition(|idle| idle.serial == tag) else {
            return;
        };
        let Some(idle) = all.remove(at) else {
            unreachable!("it was just found")
        };
        let lifetime = match idle.state {
            IdleState::Exclusive(lifetime) => lifetime,
            IdleState::Multiplexed(conn) => {
                drop(all);
                self.pool.decrement_idle();
                return Upstream(self).resume(conn, idle.parked.unpark(socket), cause);
            }
        };
        let is_late = matches!(cause, Cause::Expired);
        if let Some(transport) = Endpoint::receive_idle(idle.parked, socket, cause) {
            let resume: Rc<dyn Resume> = Rc::<Endpoint>::clone(&self);
            let parked = transport.park(resume, tag, self.pool.options.idle_timeout);
            let idle = IdleConnection {
                parked,
                serial: tag,
                state: IdleState::Exclusive(lifetime),
            };
            return all.insert(at, idle);
        }
        drop(all);
        self.pool.decrement_idle();
        if !is_late {
            count(|counters| counters.upstream_idle_lost += 1);
        }
    }
}
