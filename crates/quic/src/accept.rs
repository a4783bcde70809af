//! The part of endpoints of servers: the decision about new connections.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use blitz_reactor::DatagramSocket;
use quinn_proto::crypto::ServerConfig as Crypto;
use quinn_proto::{Incoming, ServerConfig, TimeSource, TransportConfig, ValidationTokenConfig};

use crate::connection::Connection;
use crate::endpoint::{Endpoint, EndpointInner, Parts, Protocol};
use crate::handshakes::{Handshake, Handshakes};
use crate::keys::Keys;
use crate::limits::Limits;
use crate::migration::AMPLIFICATION_MAX;

/// Connections beyond the limit that may be closing, however small the limit is.
const CLOSING_MIN: usize = 8;

/// Bytes of Initial packets that wait for a decision. There are none: each is decided at once.
const INITIAL_BYTES_MAX: u64 = 16 * 1024;

/// The parameters of [`Endpoint::new`].
pub struct EndpointOptions {
    /// Secrets that all cores have in common.
    pub keys: Keys,
    /// The number of cores that have a socket of the address.
    pub cores: usize,
    /// Limits.
    pub limits: Limits,
    /// The cryptography of new connections. A replacement applies from the next connection on.
    pub crypto: Rc<dyn Fn() -> Arc<dyn Crypto>>,
}

/// The state that only endpoints of servers have.
pub(crate) struct ServerEndpoint {
    crypto: Rc<dyn Fn() -> Arc<dyn Crypto>>,
    /// The configuration of new connections, and the cryptography that it was made for.
    config: RefCell<Arc<ServerConfig>>,
    handshakes: RefCell<Handshakes>,
    is_refusing: Cell<bool>,
}

impl<P: Protocol> Endpoint<P> {
    /// An endpoint of the calling core for clients.
    #[must_use]
    pub fn new(socket: DatagramSocket, protocol: P, settings: EndpointOptions) -> Endpoint<P> {
        let EndpointOptions {
            keys,
            cores,
            limits,
            crypto,
        } = settings;
        let transport = limits.transport();
        let config = Arc::new(server_config(&keys, &limits, &transport, crypto()));
        let server = ServerEndpoint {
            crypto,
            config: RefCell::new(Arc::clone(&config)),
            handshakes: RefCell::default(),
            is_refusing: Cell::new(false),
        };
        let parts = Parts {
            keys,
            cores,
            limits,
            transport,
            server: Some(server),
            config: Some(config),
        };
        Endpoint::of_parts(socket, protocol, parts)
    }

    /// Refuses new connections from now on.
    pub fn refuse_new(&self) {
        if let Some(server) = &self.0.server {
            server.is_refusing.set(true);
        }
    }
}

impl ServerEndpoint {
    /// Forgets a handshake that is complete, or whose connection ends.
    pub(crate) fn forget_handshake(&self, connection: usize, handshake: Handshake) {
        self.handshakes.borrow_mut().remove(connection, handshake);
    }
}

impl<P: Protocol> EndpointInner<P> {
    /// Accepts a connection, or demands a proof of the client's address first, or ignores the attempt.
    pub(crate) fn decide(
        self: &Rc<Self>,
        incoming: Incoming,
        bytes: usize,
        mut buffer: Vec<u8>,
        now: Instant,
    ) {
        let Some(server) = &self.server else {
            return self.ignore(incoming, buffer);
        };
        if self.is_closing.get() {
            return self.ignore(incoming, buffer);
        }
        if server.is_refusing.get() {
            return self.refuse(incoming, buffer);
        }
        let limits = &self.limits;
        let is_validated = incoming.remote_address_validated();
        let handshakes = server.handshakes.borrow().len();
        let is_busy = handshakes >= limits.handshakes_max;
        // A forged address must not close the connection or the handshake of another client either.
        let is_full = self.open.get() >= limits.connections_max;
        let needs_proof = handshakes >= limits.retry_above || is_busy || is_full;
        if needs_proof && !is_validated && incoming.may_retry() {
            self.counters.retries.add(1);
            let transmit = self.guard(|quinn| quinn.retry(incoming, &mut buffer).ok());
            return self.respond(transmit.flatten(), buffer);
        }
        if is_busy && !self.replace_handshake(server, now) {
            return self.ignore(incoming, buffer);
        }
        // A handshake that was replaced has made room as well.
        if is_full && !is_busy && !self.make_room() {
            return self.refuse(incoming, buffer);
        }
        let config = self.config(server);
        let room = (!is_validated).then_some(bytes * AMPLIFICATION_MAX);
        let handshake = Handshake {
            due: now + limits.handshake_timeout,
            is_validated,
        };
        let mut refusal = None;
        self.guard(
            |quinn| match quinn.accept(incoming, now, &mut buffer, Some(config)) {
                Ok((handle, quic)) => {
                    let connection = Connection::of_client(quic, handle, self, handshake, room);
                    self.counters.accepted.add(1);
                    server.handshakes.borrow_mut().insert(handle.0, handshake);
                    self.insert(connection);
                }
                Err(error) => {
                    self.counters.invalid.add(1);
                    refusal = error.response;
                }
            },
        );
        self.respond(refusal, buffer);
    }

    fn ignore(&self, incoming: Incoming, buffer: Vec<u8>) {
        self.counters.ignored.add(1);
        self.guard(|quinn| quinn.ignore(incoming));
        *self.spare.borrow_mut() = buffer;
    }

    fn refuse(&self, incoming: Incoming, mut buffer: Vec<u8>) {
        self.counters.refused.add(1);
        let transmit = self.guard(|quinn| quinn.refuse(incoming, &mut buffer));
        self.respond(transmit, buffer);
    }

    /// Closes a connection for a new one. Closing connections count until they are forgotten, so there may be an eighth
    /// more than the limit.
    fn make_room(&self) -> bool {
        let limit = self.limits.connections_max;
        if self.open.get() >= limit + (limit / 8).max(CLOSING_MIN) {
            return false;
        }
        let is_evicted = catch_unwind(AssertUnwindSafe(|| self.protocol.evict())).unwrap_or(false);
        self.counters.evicted.add(u64::from(is_evicted));
        is_evicted
    }

    /// The configuration of new connections.
    fn config(&self, server: &ServerEndpoint) -> Arc<ServerConfig> {
        let mut config = server.config.borrow_mut();
        let crypto = (server.crypto)();
        if !Arc::ptr_eq(&config.crypto, &crypto) {
            *config = Arc::new(server_config(
                &self.keys,
                &self.limits,
                &self.transport,
                crypto,
            ));
        }
        Arc::clone(&config)
    }

    /// At the limit of incomplete handshakes: ends one for a new client whose address is validated. False if all are
    /// too young.
    #[cold]
    fn replace_handshake(&self, server: &ServerEndpoint, now: Instant) -> bool {
        let timeout = self.limits.handshake_timeout;
        let found = server.handshakes.borrow().replaceable(timeout, now);
        let Some(connection) = found.and_then(|handle| self.connection(handle)) else {
            return false;
        };
        // It may just have been completed, and not be driven yet.
        let is_complete =
            |quic: &mut quinn_proto::Connection| !quic.is_handshaking() && !quic.is_closed();
        if connection.look(is_complete) == Some(true) {
            return false;
        }
        self.counters.handshakes_replaced.add(1);
        self.end_handshake(&connection, b"too many handshakes", now);
        true
    }
}

fn server_config(
    keys: &Keys,
    limits: &Limits,
    transport: &Arc<TransportConfig>,
    crypto: Arc<dyn Crypto>,
) -> ServerConfig {
    let mut tokens = ValidationTokenConfig::default();
    // A token for one more connection: each token costs the derivation of a key.
    tokens.sent(1).log(keys.tokens_used());
    let mut config = ServerConfig::new(crypto, Arc::new(keys.tokens()));
    config
        .transport_config(Arc::clone(transport))
        .validation_token_config(tokens)
        .max_incoming(limits.handshakes_max)
        .incoming_buffer_size(INITIAL_BYTES_MAX)
        .incoming_buffer_size_total(INITIAL_BYTES_MAX)
        .time_source(Arc::new(CoreClock));
    config
}

/// The wall clock of the core.
struct CoreClock;

impl TimeSource for CoreClock {
    fn now(&self) -> SystemTime {
        blitz_reactor::wall_clock()
    }
}
