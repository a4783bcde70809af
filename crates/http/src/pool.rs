//! Upstream connections, per core and per address (rule 11).
//!
//! An idle one waits parked in the reactor: no task, and an armed receive, so that FIN, or any byte
//! of HTTP/1, removes it at once. The one used last is used next, so that a pool shrinks when
//! traffic does. Connections of HTTP/2, which are shared while in use, are in [`shared`].

mod shared;

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::rc::{Rc, Weak};

use blitz_reactor::{Address, Cause, Resume, Socket};

use crate::client::{ClientOptions, Connection, Protocol, connect};
use crate::counters::count;
use crate::error::ClientError;
use crate::h1::Shelf;
use crate::h2;
use crate::tls::{News, Target, TlsKey, UpstreamTls};
use crate::transport::{Resting, Transport};
use shared::InUse;

/// The upstream connections of a core. Cloning gives another handle to the same pool.
#[derive(Clone)]
pub struct Pool(Rc<Shared>);

/// One address and its connections. Cloning gives another handle to the same.
///
/// Keep one per endpoint: it spares the look-up of the address per request.
#[derive(Clone)]
pub struct Upstream(Rc<Endpoint>);

struct Shared {
    options: Rc<ClientOptions>,
    endpoints: RefCell<HashMap<Key, Weak<Endpoint>>>,
    idle: Cell<usize>,
    next_serial: Cell<u64>,
    shelf: Shelf,
    h2: Rc<h2::Shared>,
}

/// An address, what is spoken there, and with whom and how TLS, if it is.
type Key = (Address, Protocol, Option<TlsKey>);

struct Endpoint {
    address: Address,
    /// Present if connections are to be encrypted.
    tls: Option<Rc<Target>>,
    protocol: Protocol,
    pool: Rc<Shared>,
    /// Oldest first.
    idle: RefCell<VecDeque<Idle>>,
    active: Cell<usize>,
    /// Of HTTP/2.
    in_use: InUse,
}

struct Idle {
    resting: Resting,
    /// Tells this stay in the pool from earlier ones, and orders stays by age.
    serial: u64,
    /// The state of an HTTP/2 connection.
    wire: Option<Rc<h2::Wire>>,
}

impl Pool {
    /// An empty pool.
    #[must_use]
    pub fn new(options: ClientOptions) -> Pool {
        let options = Rc::new(options);
        Pool(Rc::new(Shared {
            h2: h2::Shared::client(Rc::clone(&options)),
            options,
            endpoints: RefCell::default(),
            idle: Cell::new(0),
            next_serial: Cell::new(0),
            shelf: Shelf::default(),
        }))
    }

    /// The connections to this address, of HTTP/1.1.
    #[must_use]
    pub fn upstream(&self, address: &Address) -> Upstream {
        self.endpoint(address, Protocol::Http1, None)
    }

    /// The connections to this address over TLS, of HTTP/1.1. They are never used for other
    /// settings or for another name.
    #[must_use]
    pub fn upstream_tls(&self, address: &Address, tls: &UpstreamTls) -> Upstream {
        self.endpoint(address, Protocol::Http1, Some(tls))
    }

    /// The connections to this address in clear text, of this version of HTTP.
    #[must_use]
    pub fn upstream_speaking(&self, address: &Address, protocol: Protocol) -> Upstream {
        self.endpoint(address, protocol, None)
    }

    fn endpoint(
        &self,
        address: &Address,
        protocol: Protocol,
        tls: Option<&UpstreamTls>,
    ) -> Upstream {
        let key = (address.clone(), protocol, tls.map(UpstreamTls::key));
        let mut endpoints = self.0.endpoints.borrow_mut();
        if let Some(endpoint) = endpoints.get(&key).and_then(Weak::upgrade) {
            return Upstream(endpoint);
        }
        // Addresses come and go with resolution; those that nobody names any more make room here.
        endpoints.retain(|_, endpoint| endpoint.strong_count() > 0);
        let endpoint = Rc::new(Endpoint {
            address: address.clone(),
            tls: tls.map(UpstreamTls::target),
            protocol,
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
        if self.0.protocol == Protocol::Http2 {
            return self.place(true).await;
        }
        match self.take_idle() {
            Some(connection) => Ok(connection),
            None => self.connect().await,
        }
    }

    /// The idle connection that was used last, if there is one on which nothing has arrived.
    #[must_use]
    pub fn take_idle(&self) -> Option<Connection> {
        if self.0.protocol == Protocol::Http2 {
            return self.take_place(true);
        }
        loop {
            let idle = self.0.idle.borrow_mut().pop_back()?;
            self.0.pool.left();
            // One that has just become readable is not ours any more: `resume` will drop it.
            if let Some(socket) = idle.resting.unpark() {
                self.0.active.set(self.0.active.get() + 1);
                count(|counters| counters.upstream_reused += 1);
                return Some(self.connection(idle.resting.wake(socket), true));
            }
        }
    }

    /// A new connection, whether or not there are idle ones; or a place on one that is in use, and
    /// thus known to be alive.
    ///
    /// # Errors
    /// Those of [`ClientError`] that are about connecting.
    pub async fn connect(&self) -> Result<Connection, ClientError> {
        if self.0.protocol == Protocol::Http2 {
            return self.place(false).await;
        }
        let Endpoint {
            address, tls, pool, ..
        } = &*self.0;
        let transport = connect(address, tls.as_ref(), &pool.options.limits).await?;
        self.0.active.set(self.0.active.get() + 1);
        Ok(self.connection(transport, false))
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

    fn connection(&self, socket: Transport, reused: bool) -> Connection {
        let options = Rc::clone(&self.0.pool.options);
        Connection::new(socket, options, Some(self.clone()), reused)
    }

    /// Where states of connections wait to be used again.
    pub(crate) fn shelf(&self) -> &Shelf {
        &self.0.pool.shelf
    }

    /// Takes a connection back. The caller has made sure that it is in the state of a new one.
    pub(crate) fn put_back(&self, transport: Transport) {
        self.lost();
        self.keep(transport, None);
    }

    fn keep(&self, transport: Transport, wire: Option<Rc<h2::Wire>>) {
        let pool = &self.0.pool;
        pool.make_room();
        let serial = pool.next_serial.get();
        pool.next_serial.set(serial + 1);
        let resume: Rc<dyn Resume> = Rc::<Endpoint>::clone(&self.0);
        let resting = transport.park(resume, serial, pool.options.idle_timeout);
        self.0.idle.borrow_mut().push_back(Idle {
            resting,
            serial,
            wire,
        });
        pool.idle.set(pool.idle.get() + 1);
        count(|counters| counters.upstream_idle += 1);
    }

    /// A connection that was in use is closed instead of coming back.
    pub(crate) fn lost(&self) {
        self.0.active.set(self.0.active.get() - 1);
    }
}

impl Shared {
    fn left(&self) {
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
            self.left();
            match (idle.resting.unpark(), idle.wire) {
                (Some(socket), Some(wire)) => wire.finish(idle.resting.wake(socket)),
                (socket, _) => drop(socket),
            }
        }
    }
}

impl Endpoint {
    /// Takes in what has arrived on an idle connection and gives it back if that was for TLS
    /// alone, such as a ticket to resume the session with.
    fn take_in(idle: Idle, socket: Socket, cause: Cause) -> Option<Transport> {
        let mut transport = idle.resting.wake(socket);
        let Cause::Received(slice) = cause else {
            return None;
        };
        let (tls, socket) = transport.secure_parts()?;
        let is_quiet = matches!(tls.handle_received(slice, socket), News::Nothing);
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
        let Some(mut idle) = all.remove(at) else {
            unreachable!("it was just found")
        };
        if let Some(wire) = idle.wire.take() {
            drop(all);
            self.pool.left();
            return Upstream(self).resume(wire, idle.resting.wake(socket), cause);
        }
        let is_late = matches!(cause, Cause::Expired);
        if let Some(transport) = Endpoint::take_in(idle, socket, cause) {
            let resume: Rc<dyn Resume> = Rc::<Endpoint>::clone(&self);
            let resting = transport.park(resume, tag, self.pool.options.idle_timeout);
            let idle = Idle {
                resting,
                serial: tag,
                wire: None,
            };
            return all.insert(at, idle);
        }
        drop(all);
        self.pool.left();
        if !is_late {
            count(|counters| counters.upstream_idle_lost += 1);
        }
    }
}
