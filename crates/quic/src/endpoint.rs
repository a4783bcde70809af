//! The endpoint of one core: all connections on one UDP socket.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use blitz_reactor::{DatagramSocket, Datagrams, Ecn, Timer, Train};
use bytes::{Bytes, BytesMut};
use quinn_proto::{
    ConnectionError, DatagramEvent, EcnCodepoint, EndpointConfig, EndpointEvent, Event,
    ServerConfig, StreamEvent, Transmit, TransportConfig, VarInt,
};

use crate::accept::ServerEndpoint;
use crate::connection::Connection;
use crate::counters::{CounterCells, Counters};
use crate::ids::{Ids, core_of};
use crate::keys::Keys;
use crate::limits::Limits;
use crate::packet_key;
use crate::timers::Timers;

/// Batches that are received before connections are driven.
const TRAINS_PER_POLL: usize = 16;

/// Batches that one connection sends before others have their turn.
const TRAINS_PER_CONNECTION: usize = 4;

/// Bytes of a datagram, as both ends announce (`max_udp_payload_size` in RFC 9000, section 18.2): an Ethernet frame
/// without the headers of IPv4 and UDP. Longer datagrams are ignored. The library counts the whole packet for each
/// frame in it. If that is much, it walks the content of the stream again and again: a datagram of 60 KB took half a
/// second.
const DATAGRAM_BYTES_MAX: u16 = 1_472;

/// Bytes that wait for the kernel before connections have to wait.
const UNSENT_BYTES_MAX: usize = 1024 * 1024;

/// The protocol on the connections of an endpoint.
///
/// The endpoint's task calls the functions, and holds no borrow meanwhile.
pub trait Protocol: Sized + 'static {
    /// Its state for each connection.
    type State: 'static;

    /// The code of CONNECTION_CLOSE for a peer that causes excessive load (RFC 9000, section 20.2).
    const EXCESSIVE_LOAD: u32;

    /// A handshake is complete.
    fn connected(&self, connection: &Rc<Connection<Self>>) -> Self::State;

    /// Something has happened to a stream.
    fn stream(&self, connection: &Rc<Connection<Self>>, event: StreamEvent);

    /// A connection with new events is about to send.
    fn before_sending(&self, _: &Rc<Connection<Self>>) {}

    /// [`Connection::remote`] has changed: the client has moved, and its new address is validated (RFC 9000,
    /// section 9.3).
    fn migrated(&self, _: &Rc<Connection<Self>>) {}

    /// The time of [`Connection::set_deadline`] has come.
    fn deadline(&self, _: &Rc<Connection<Self>>) {}

    /// There are [`Limits::connections_max`] connections: closes the most dispensable one. False if there is none.
    fn evict(&self) -> bool {
        false
    }

    /// A handshake has failed.
    fn failed(&self, _: &Rc<Connection<Self>>, _: &ConnectionError) {}

    /// A connection is lost: the peer or the endpoint has closed it, or it has failed. Not called after
    /// [`Connection::close`].
    fn lost(&self, connection: &Rc<Connection<Self>>, reason: &ConnectionError);
}

/// All connections on one UDP socket. Clones are handles to the same endpoint.
pub struct Endpoint<P: Protocol>(pub(crate) Rc<EndpointInner<P>>);

/// The state that the connections of an endpoint share.
pub(crate) struct EndpointInner<P: Protocol> {
    pub(crate) protocol: P,
    socket: DatagramSocket,
    pub(crate) keys: Keys,
    /// The number of cores that have a socket of the address.
    cores: usize,
    pub(crate) limits: Limits,
    pub(crate) transport: Arc<TransportConfig>,
    core: usize,
    quinn: RefCell<quinn_proto::Endpoint>,
    /// `None` at an endpoint that only connects to servers.
    pub(crate) server: Option<ServerEndpoint>,
    /// By their handles.
    connections: RefCell<Vec<Option<Rc<Connection<P>>>>>,
    pub(crate) open: Cell<usize>,
    /// Connections with work in progress, or with unacknowledged bytes.
    pub(crate) active: Cell<usize>,
    /// Bytes that connections may have sent without acknowledgement, beside the free bytes of each.
    pub(crate) reserved: Cell<u64>,
    /// Connections to be driven.
    listed: RefCell<VecDeque<usize>>,
    timers: RefCell<Timers>,
    timer: RefCell<Option<(Instant, Pin<Box<Timer>>)>>,
    task: RefCell<Option<Waker>>,
    /// An empty buffer for the next datagrams.
    pub(crate) spare: RefCell<Vec<u8>>,
    pub(crate) counters: CounterCells,
    pub(crate) is_closing: Cell<bool>,
    /// It ends once it has no connection.
    pub(crate) ends_when_empty: Cell<bool>,
}

/// The parts of an endpoint that its side decides.
pub(crate) struct Parts {
    pub(crate) keys: Keys,
    pub(crate) cores: usize,
    pub(crate) limits: Limits,
    pub(crate) transport: Arc<TransportConfig>,
    pub(crate) server: Option<ServerEndpoint>,
    pub(crate) config: Option<Arc<ServerConfig>>,
}

impl<P: Protocol> Endpoint<P> {
    pub(crate) fn of_parts(socket: DatagramSocket, protocol: P, parts: Parts) -> Endpoint<P> {
        let Parts {
            keys,
            cores,
            limits,
            transport,
            server,
            config: server_config,
        } = parts;
        let core = blitz_reactor::core_index();
        let number = keys.next_endpoint();
        let mut config = EndpointConfig::new(Arc::new(keys.resets()));
        let ids = keys.clone();
        config
            .cid_generator(move || Box::new(Ids::new(&ids, core, number)))
            .supported_versions(vec![VERSION_1])
            .max_udp_payload_size(DATAGRAM_BYTES_MAX)
            .expect("it is long enough")
            .rng_seed(Some(keys.seed(number)));
        let quinn = quinn_proto::Endpoint::new(Arc::new(config), server_config, true, None);
        Endpoint(Rc::new(EndpointInner {
            protocol,
            socket,
            keys,
            cores,
            limits,
            transport,
            core,
            quinn: RefCell::new(quinn),
            server,
            connections: RefCell::default(),
            open: Cell::new(0),
            active: Cell::new(0),
            reserved: Cell::new(0),
            listed: RefCell::default(),
            timers: RefCell::default(),
            timer: RefCell::default(),
            task: RefCell::default(),
            spare: RefCell::default(),
            counters: CounterCells::default(),
            is_closing: Cell::new(false),
            ends_when_empty: Cell::new(false),
        }))
    }

    /// Receives and sends until [`Endpoint::close`] was called and the peers got the close, or as
    /// [`Endpoint::end_when_empty`] says.
    pub async fn run(&self) {
        poll_fn(|cx| self.0.poll(cx)).await;
    }

    /// Closes all connections, and ignores new ones.
    pub fn close(&self, code: u32, reason: &'static str) {
        self.0.is_closing.set(true);
        let connections = self.0.connections.borrow().clone();
        for connection in connections.into_iter().flatten() {
            connection.close(code, reason);
            self.0.lose(&connection, &ConnectionError::LocallyClosed);
        }
        self.0.wake();
    }

    /// Ends [`Endpoint::run`] once there is no connection. That takes some round trips after the last close, because
    /// its peer may not have received it.
    pub fn end_when_empty(&self) {
        self.0.ends_when_empty.set(true);
        self.0.wake();
    }

    /// The bound address.
    #[must_use]
    pub fn local(&self) -> SocketAddr {
        self.0.socket.local()
    }

    /// The number of connections, also of those that are closing.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.0.open.get()
    }

    /// The counts of the endpoint.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.0.counters.read()
    }
}

impl<P: Protocol> Clone for Endpoint<P> {
    fn clone(&self) -> Endpoint<P> {
        Endpoint(Rc::clone(&self.0))
    }
}

/// The version of RFC 9000. Drafts, and version 2, are not offered.
pub(crate) const VERSION_1: u32 = 1;

impl<P: Protocol> EndpointInner<P> {
    fn poll(self: &Rc<Self>, cx: &mut Context<'_>) -> Poll<()> {
        let now = blitz_reactor::now();
        *self.task.borrow_mut() = None;
        let mut trains = 0;
        while trains < TRAINS_PER_POLL
            && let Poll::Ready(train) = self.socket.poll_recv(cx)
        {
            self.receive(&train, now);
            trains += 1;
        }
        loop {
            let due = self.timers.borrow_mut().pop(now);
            let Some(connection) = due.and_then(|handle| self.connection(handle)) else {
                if due.is_none() {
                    break;
                }
                continue;
            };
            connection.handle_timeout(now);
            self.list(&connection);
        }
        let is_sent = self.drive_listed(now, cx);
        if self.is_closing.get() && self.listed.borrow().is_empty() {
            let all: Vec<_> = self
                .connections
                .borrow()
                .iter()
                .flatten()
                .cloned()
                .collect();
            all.iter().for_each(|connection| self.remove(connection));
            return Poll::Ready(());
        }
        if self.ends_when_empty.get() && self.open.get() == 0 {
            return Poll::Ready(());
        }
        if trains == TRAINS_PER_POLL || !is_sent {
            cx.waker().wake_by_ref();
        }
        self.arm_timer(cx);
        *self.task.borrow_mut() = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Sets the timer for the next deadline.
    fn arm_timer(&self, cx: &mut Context<'_>) {
        let Some(next) = self.timers.borrow().next() else {
            return;
        };
        let mut timer = self.timer.borrow_mut();
        // An earlier timer wakes for nothing, once.
        if timer.as_ref().is_none_or(|(at, _)| next < *at) {
            *timer = Some((next, Box::pin(blitz_reactor::sleep_until(next))));
        }
        if let Some((_, future)) = timer.as_mut()
            && future.as_mut().poll(cx).is_ready()
        {
            *timer = None;
            cx.waker().wake_by_ref();
        }
    }

    fn wake(&self) {
        let task = self.task.borrow_mut().take();
        if let Some(task) = task {
            task.wake();
        }
    }

    fn limit_unacknowledged(&self, connection: &Connection<P>) {
        let limits = &self.limits;
        // Each active connection has its part.
        let part = limits.all_unacknowledged_bytes_max / (self.active.get().max(1) as u64);
        connection.limit_unacknowledged(self, part.min(limits.unacknowledged_bytes_max));
    }

    /// The unreserved rest of the bytes that all connections share.
    pub(crate) fn unreserved_bytes(&self) -> u64 {
        let all = self.limits.all_unacknowledged_bytes_max;
        all.saturating_sub(self.reserved.get())
    }

    pub(crate) fn connection(&self, handle: usize) -> Option<Rc<Connection<P>>> {
        self.connections.borrow().get(handle).cloned().flatten()
    }

    /// Lists a connection to be driven soon.
    pub(crate) fn list(&self, connection: &Connection<P>) {
        if !connection.is_listed.replace(true) {
            self.listed.borrow_mut().push_back(connection.handle.0);
            self.wake();
        }
    }

    /// Gives the datagrams of a batch to their connections.
    fn receive(self: &Rc<Self>, train: &Train, now: Instant) {
        for (number, datagram) in train.datagrams().enumerate() {
            if datagram.len() > usize::from(DATAGRAM_BYTES_MAX) {
                self.counters.too_long.add(1);
                continue;
            }
            match self.other_core(datagram) {
                Some(core) => {
                    self.counters.misdelivered.add(1);
                    self.socket.forward(core, train, number..number + 1);
                }
                // Each datagram gets memory of its own: a stream may keep a part of one for long.
                None => self.receive_datagram(train, BytesMut::from(datagram), now),
            }
        }
    }

    /// The core that a datagram is for, if that is another one.
    fn other_core(&self, datagram: &[u8]) -> Option<usize> {
        let cores = self.cores;
        if cores == 1 {
            return None;
        }
        core_of(self.keys.steering(), datagram).filter(|&core| core != self.core && core < cores)
    }

    fn receive_datagram(self: &Rc<Self>, train: &Train, datagram: BytesMut, now: Instant) {
        let mut response = self.buffer();
        let bytes = datagram.len();
        let event = self.guard(|quinn| {
            let ecn = train.ecn.and_then(|ecn| EcnCodepoint::from_bits(ecn as u8));
            quinn.handle(now, train.from, train.to, ecn, datagram, &mut response)
        });
        match event.flatten() {
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                *self.spare.borrow_mut() = response;
                let Some(connection) = self.connection(handle.0) else {
                    return;
                };
                if connection.admits(train.from, bytes, now) {
                    packet_key::forget_frames();
                    let handled = connection.guard(|quic| {
                        quic.handle_event(event);
                        (quic.remote_address(), quic.stats().frame_rx.stream)
                    });
                    if let Some((remote, frames)) = handled {
                        connection.note_path(remote, now);
                        connection.note_received(bytes, frames);
                    }
                    if packet_key::is_flooded() {
                        return self.end_flood(&connection, now);
                    }
                    self.list(&connection);
                    if connection.has_many_frames() {
                        self.hand_over(&connection);
                    }
                } else {
                    self.counters.moves_refused.add(1);
                }
            }
            Some(DatagramEvent::NewConnection(incoming)) => {
                response.clear();
                self.decide(incoming, bytes, response, now);
            }
            Some(DatagramEvent::Response(transmit)) => self.respond(Some(transmit), response),
            None => *self.spare.borrow_mut() = response,
        }
    }

    /// Calls the state machine that all connections share. If it panics, it keeps its state and the datagram is lost.
    pub(crate) fn guard<T>(&self, act: impl FnOnce(&mut quinn_proto::Endpoint) -> T) -> Option<T> {
        let done = catch_unwind(AssertUnwindSafe(|| act(&mut self.quinn.borrow_mut())));
        done.inspect_err(|_| self.counters.panics.add(1)).ok()
    }

    pub(crate) fn respond(&self, transmit: Option<Transmit>, buffer: Vec<u8>) {
        match transmit {
            Some(_) if self.socket.unsent_bytes() > UNSENT_BYTES_MAX => {
                self.counters.unanswered.add(1);
            }
            Some(transmit) => self.send(&transmit, buffer),
            None => *self.spare.borrow_mut() = buffer,
        }
    }

    /// An empty buffer: bytes that a panic left in it would be sent as well.
    fn buffer(&self) -> Vec<u8> {
        let mut buffer = self.spare.take();
        buffer.clear();
        buffer
    }

    pub(crate) fn insert(&self, connection: Rc<Connection<P>>) {
        let handle = connection.handle.0;
        let mut connections = self.connections.borrow_mut();
        if connections.len() <= handle {
            connections.resize(handle + 1, None);
        }
        self.list(&connection);
        connections[handle] = Some(connection);
        self.open.set(self.open.get() + 1);
    }

    /// Drives the listed connections, each once. Returns whether all of them were driven.
    fn drive_listed(&self, now: Instant, cx: &mut Context<'_>) -> bool {
        let listed = self.listed.borrow().len();
        let mut is_sent = true;
        for _ in 0..listed {
            if self
                .socket
                .poll_send_room(cx, UNSENT_BYTES_MAX)
                .is_pending()
            {
                // The task is woken when there is room.
                return true;
            }
            let next = self.listed.borrow_mut().pop_front();
            let Some(connection) = next.and_then(|handle| self.connection(handle)) else {
                continue;
            };
            if !self.drive(&connection, now) {
                is_sent = false;
                self.list(&connection);
            }
        }
        is_sent && self.listed.borrow().is_empty()
    }

    /// Has the protocol take the input of a connection, which is driven soon.
    #[cold]
    fn hand_over(&self, connection: &Rc<Connection<P>>) {
        while let Some(event) = self.next_event(connection) {
            self.handle_event(connection, event);
        }
        if connection.state().is_some() {
            self.call(connection, |protocol| protocol.before_sending(connection));
        }
        connection.forget_frames();
    }

    /// Passes the events of a connection on, and sends its datagrams. False if it has more.
    fn drive(&self, connection: &Rc<Connection<P>>, now: Instant) -> bool {
        if connection.handshake_due().is_some_and(|due| due <= now) {
            connection.is_listed.set(false);
            self.counters.handshake_timeouts.add(1);
            self.end_handshake(connection, b"the handshake took too long", now);
            return true;
        }
        self.limit_unacknowledged(connection);
        if connection.takes_deadline(now) {
            self.call(connection, |protocol| protocol.deadline(connection));
        }
        let mut next = self.next_event(connection);
        let is_sent = loop {
            while let Some(event) = next {
                self.handle_event(connection, event);
                next = self.next_event(connection);
            }
            if connection.state().is_some() {
                self.call(connection, |protocol| protocol.before_sending(connection));
                self.limit_unacknowledged(connection);
            }
            let is_sent = self.send_all(connection, now);
            if connection.takes_migration() {
                self.counters.migrations.add(1);
                self.call(connection, |protocol| protocol.migrated(connection));
            }
            // Sending causes events as well.
            next = self.next_event(connection);
            if next.is_none() {
                break is_sent;
            }
        };
        // It stays listed until here, because the protocol's reactions to its events need no other turn.
        connection.is_listed.set(false);
        match connection.look(|quic| quic.is_drained()) {
            None => self.end_broken(connection),
            Some(true) => self.remove(connection),
            Some(false) => {
                self.set_timer(connection);
                return is_sent;
            }
        }
        true
    }

    /// Ends an incomplete handshake in any state: a client may have closed it, and the library would keep it until it
    /// has been silent for long.
    #[cold]
    pub(crate) fn end_handshake(
        &self,
        connection: &Rc<Connection<P>>,
        reason: &'static [u8],
        now: Instant,
    ) {
        let reason = Bytes::from_static(reason);
        connection.guard(|quic| quic.close(now, VarInt::from_u32(0), reason));
        self.send_all(connection, now);
        self.lose(connection, &ConnectionError::TimedOut);
        self.forget(connection);
    }

    /// Ends a connection whose peer has sent far more CRYPTO frames than a handshake needs (RFC 9000, section 7.5).
    #[cold]
    fn end_flood(&self, connection: &Rc<Connection<P>>, now: Instant) {
        const REASON: &[u8] = b"too many CRYPTO frames";
        self.counters.violations.add(1);
        if connection.handshake_due().is_some() {
            return self.end_handshake(connection, REASON, now);
        }
        let reason = Bytes::from_static(REASON);
        let code = VarInt::from_u32(P::EXCESSIVE_LOAD);
        connection.guard(|quic| quic.close(now, code, reason));
        self.lose(connection, &ConnectionError::LocallyClosed);
        self.list(connection);
    }

    /// Calls the protocol. If it panics, its connection ends.
    fn call<T>(&self, connection: &Connection<P>, act: impl FnOnce(&P) -> T) -> Option<T> {
        let done = catch_unwind(AssertUnwindSafe(|| act(&self.protocol)));
        done.inspect_err(|_| connection.set_broken()).ok()
    }

    /// The next event for the protocol, after those for the endpoint.
    fn next_event(&self, connection: &Connection<P>) -> Option<Event> {
        while let Some(event) = connection.guard(quinn_proto::Connection::poll_endpoint_events)? {
            let handle = connection.handle;
            let answer = self.guard(|quinn| quinn.handle_event(handle, event));
            if let Some(answer) = answer.flatten() {
                connection.guard(|quic| quic.handle_event(answer));
            }
        }
        connection.guard(quinn_proto::Connection::poll)?
    }

    fn handle_event(&self, connection: &Rc<Connection<P>>, event: Event) {
        match event {
            Event::Connected => {
                self.forget_handshake(connection);
                self.counters.handshakes.add(1);
                let state = self.call(connection, |protocol| protocol.connected(connection));
                if let Some(state) = state {
                    connection.set_state(state);
                    connection.wake_connecting();
                }
            }
            Event::Stream(event) => {
                self.call(connection, |protocol| protocol.stream(connection, event));
            }
            Event::ConnectionLost { reason } => self.lose(connection, &reason),
            Event::HandshakeDataReady | Event::DatagramReceived | Event::DatagramsUnblocked => {}
        }
    }

    /// Tells the protocol that a connection is lost, once.
    fn lose(&self, connection: &Rc<Connection<P>>, reason: &ConnectionError) {
        if connection.is_lost.replace(true) {
            return;
        }
        if let ConnectionError::TransportError(error) = reason {
            self.counters.violations.add(1);
            let peer = tracing::field::display(connection.remote());
            tracing::debug!(cause = %error, peer, "QUIC connection ended");
        }
        connection.fail_connecting(reason);
        self.call(connection, |protocol| match connection.state() {
            Some(_) => protocol.lost(connection, reason),
            None => protocol.failed(connection, reason),
        });
    }

    /// Sends the datagrams of a connection, up to a limit. False if it has more.
    fn send_all(&self, connection: &Connection<P>, now: Instant) -> bool {
        for _ in 0..TRAINS_PER_CONNECTION {
            let mut buffer = self.buffer();
            let Some(transmit) = connection.poll_transmit(now, &mut buffer) else {
                *self.spare.borrow_mut() = buffer;
                return true;
            };
            self.send(&transmit, buffer);
        }
        false
    }

    fn send(&self, transmit: &Transmit, mut content: Vec<u8>) {
        content.truncate(transmit.size);
        let segment_bytes = transmit
            .segment_size
            .and_then(|size| u16::try_from(size).ok());
        self.socket.send(Datagrams {
            to: transmit.destination,
            from: transmit.src_ip,
            ecn: transmit.ecn.map(|ecn| match ecn {
                EcnCodepoint::Ect0 => Ecn::Ect0,
                EcnCodepoint::Ect1 => Ecn::Ect1,
                EcnCodepoint::Ce => Ecn::Ce,
            }),
            content,
            segment_bytes,
        });
        *self.spare.borrow_mut() = self.socket.buffer();
    }

    fn set_timer(&self, connection: &Connection<P>) {
        let due = connection.look(quinn_proto::Connection::poll_timeout);
        let due = [
            due.flatten(),
            connection.handshake_due(),
            connection.deadline(),
        ];
        let due = due.into_iter().flatten().min();
        self.timers.borrow_mut().set(connection.handle.0, due);
    }

    /// Removes a connection that the library has not finished with.
    fn forget(&self, connection: &Rc<Connection<P>>) {
        let handle = connection.handle;
        self.guard(|quinn| quinn.handle_event(handle, EndpointEvent::drained()));
        self.remove(connection);
    }

    fn remove(&self, connection: &Rc<Connection<P>>) {
        let handle = connection.handle.0;
        if self.connections.borrow_mut()[handle].take().is_none() {
            return;
        }
        self.open.set(self.open.get() - 1);
        connection.set_active(false);
        self.timers.borrow_mut().set(handle, None);
        if self.forget_handshake(connection) {
            self.counters.handshakes_failed.add(1);
        }
    }

    /// Forgets a handshake that is complete, or whose connection ends. False if it was complete before.
    fn forget_handshake(&self, connection: &Connection<P>) -> bool {
        let Some(handshake) = connection.end_handshake() else {
            return false;
        };
        if let Some(server) = &self.server {
            server.forget_handshake(connection.handle.0, handshake);
        }
        true
    }

    /// Ends a connection whose state machine or protocol has panicked.
    #[cold]
    fn end_broken(&self, connection: &Rc<Connection<P>>) {
        self.counters.panics.add(1);
        self.forget(connection);
        self.lose(connection, &ConnectionError::Reset);
    }
}
