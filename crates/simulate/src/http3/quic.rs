//! A client's connection over QUIC: the state machine of `quinn-proto` on a simulated UDP socket.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use blitz_reactor::simulation::{PeerSocket, World};
use bytes::{Bytes, BytesMut};
use quinn_proto::{
    ClientConfig, Connection, ConnectionError, ConnectionHandle, ConnectionId,
    ConnectionIdGenerator, DatagramEvent, Dir, EcnCodepoint, Endpoint, EndpointConfig, Event,
    StreamEvent, StreamId, Transmit, VarInt,
};

use super::dynamic::Dynamic;
use crate::ledger::Pulse;
use crate::random::Random;

/// Datagrams of one batch.
const SEGMENTS_MAX: usize = 10;

/// Bytes of a connection ID.
const ID_BYTES: usize = 8;

/// Interval of the looks whether the gateway has sent something.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The first reserved type of streams, which is also their content.
const RESERVED_TYPE: u8 = 0x21;
const PADDING_BYTES: usize = 1_000;

/// A connection. Clones are handles to the same.
#[derive(Clone)]
pub(super) struct Quic(Rc<Inner>);

struct Inner {
    world: World,
    /// Set when bytes of a stream were read or written.
    pulse: Pulse,
    endpoint: RefCell<Endpoint>,
    connection: RefCell<Connection>,
    handle: ConnectionHandle,
    /// `None` once the client has vanished.
    socket: RefCell<Option<PeerSocket>>,
    wakers: RefCell<Wakers>,
    /// The time that the driver is woken at.
    timer: Cell<Option<Duration>>,
    is_connected: Cell<bool>,
    /// The gateway has sent something on a stream: it has completed the handshake as well.
    has_read: Cell<bool>,
    /// `None` if requests refer to no dynamic table.
    dynamic: RefCell<Option<Dynamic>>,
    lost: RefCell<Option<ConnectionError>>,
}

/// The tasks that wait.
#[derive(Default)]
struct Wakers {
    driver: Option<Waker>,
    /// For the handshake, for a stream to be opened, or for one of the gateway's.
    any: Vec<Waker>,
    readers: BTreeMap<StreamId, Waker>,
    writers: BTreeMap<StreamId, Waker>,
}

impl Wakers {
    fn wake_all(&mut self) {
        let Wakers {
            any,
            readers,
            writers,
            ..
        } = std::mem::take(self);
        any.into_iter().for_each(Waker::wake);
        readers.into_values().for_each(Waker::wake);
        writers.into_values().for_each(Waker::wake);
    }
}

/// Connection IDs that follow from a seed.
struct Ids(Random);

impl ConnectionIdGenerator for Ids {
    fn generate_cid(&mut self) -> ConnectionId {
        ConnectionId::new(&self.0.next().to_be_bytes())
    }

    fn cid_len(&self) -> usize {
        ID_BYTES
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

impl Quic {
    /// Completes a handshake. A task drives the connection until it is over.
    ///
    /// # Errors
    /// The handshake fails.
    pub(super) async fn connect(
        world: &World,
        pulse: Pulse,
        mut config: ClientConfig,
        gateway: SocketAddr,
        from: IpAddr,
        seed: u64,
    ) -> Result<Quic, ConnectionError> {
        let mut random = Random::new(seed);
        let first_id = random.next();
        config
            .initial_dst_cid_provider(Arc::new(move || ConnectionId::new(&first_id.to_be_bytes())));
        let mut endpoint = endpoint(&mut random);
        let connected = endpoint.connect(world.instant(), config, gateway, "gateway");
        let (handle, connection) = connected.expect("the configuration is valid");
        let quic = Quic(Rc::new(Inner {
            world: world.clone(),
            pulse,
            endpoint: RefCell::new(endpoint),
            connection: RefCell::new(connection),
            handle,
            socket: RefCell::new(Some(world.bind_udp(SocketAddr::new(from, 0)))),
            wakers: RefCell::default(),
            timer: Cell::new(None),
            is_connected: Cell::new(false),
            has_read: Cell::new(false),
            dynamic: RefCell::new(None),
            lost: RefCell::new(None),
        }));
        let driven = quic.clone();
        world.spawn(poll_fn(move |cx| driven.drive(cx)));
        poll_fn(|cx| match (quic.0.is_connected.get(), quic.lost()) {
            (_, Some(error)) => Poll::Ready(Err(error)),
            (true, None) => Poll::Ready(Ok(())),
            (false, None) => quic.await_any(cx),
        })
        .await?;
        Ok(quic)
    }

    /// Works on the connection, which is driven afterwards.
    pub(super) fn with<R>(&self, act: impl FnOnce(&mut Connection) -> R) -> R {
        let done = act(&mut self.0.connection.borrow_mut());
        if let Some(driver) = self.0.wakers.borrow_mut().driver.take() {
            driver.wake();
        }
        done
    }

    pub(super) fn world(&self) -> &World {
        &self.0.world
    }

    /// From now on requests refer to the dynamic table.
    pub(super) fn set_dynamic(&self, dynamic: Dynamic) {
        *self.0.dynamic.borrow_mut() = Some(dynamic);
    }

    /// Works on the references to the dynamic table, if there are any.
    pub(super) fn dynamic<R>(&self, act: impl FnOnce(&mut Dynamic) -> R) -> Option<R> {
        self.0.dynamic.borrow_mut().as_mut().map(act)
    }

    /// Why the connection has ended, if it has.
    pub(super) fn lost(&self) -> Option<ConnectionError> {
        self.0.lost.borrow().clone()
    }

    /// Bytes of a stream were written.
    pub(super) fn note_written(&self) {
        self.0.pulse.set(self.0.world.now());
    }

    /// Bytes of a stream, or its end, were read.
    pub(super) fn note_read(&self) {
        self.0.pulse.set(self.0.world.now());
        self.0.has_read.set(true);
    }

    /// Waits until the gateway has completed the handshake as well. A client that sends much before may never
    /// complete it: quinn-proto 0.11.19 does not send a lost `Finished` again while its window is full of data, which
    /// the gateway cannot decrypt yet.
    ///
    /// # Errors
    /// The connection is lost.
    pub(super) async fn await_confirmation(&self) -> Result<(), ConnectionError> {
        while !self.0.has_read.get() {
            if let Some(error) = self.lost() {
                return Err(error);
            }
            self.0.world.sleep(LOOK_EVERY).await;
        }
        Ok(())
    }

    pub(super) fn close(&self, code: u64, reason: &[u8]) {
        let world = &self.0.world;
        world.note(|| format!("a client closes its connection with {code:#x}"));
        let now = self.0.world.instant();
        let code = VarInt::from_u64(code).unwrap_or(VarInt::MAX);
        self.with(|quic| quic.close(now, code, Bytes::copy_from_slice(reason)));
        self.lose(ConnectionError::LocallyClosed);
    }

    /// From now on nothing is sent or received.
    pub(super) fn vanish(&self) {
        self.0.world.note(|| "a client vanishes".to_owned());
        *self.0.socket.borrow_mut() = None;
        self.lose(ConnectionError::LocallyClosed);
    }

    /// Moves to another port and, if it is another one, host. `is_noticed`: the client knows, and says so
    /// (RFC 9000, section 9.2); else a NAT has changed its address.
    pub(super) fn rebind(&self, from: IpAddr, is_noticed: bool) {
        let mut socket = self.0.socket.borrow_mut();
        if socket.is_none() || self.lost().is_some() {
            return;
        }
        let fresh = self.0.world.bind_udp(SocketAddr::new(from, 0));
        let world = &self.0.world;
        world.note(|| format!("a client moves to {}", fresh.local()));
        *socket = Some(fresh);
        drop(socket);
        // The driver waits at the new socket from now on.
        self.with(|quic| {
            if is_noticed {
                quic.local_address_changed();
            }
        });
    }

    /// Sends a datagram that is not short, on a stream of a reserved type (RFC 9114, section 6.2.3).
    pub(super) fn send_padding(&self) {
        self.with(|quic| {
            let Some(id) = quic.streams().open(Dir::Uni) else {
                return;
            };
            // The gateway stops it when it sees the type.
            let mut stream = quic.send_stream(id);
            let _ = stream.write(&[RESERVED_TYPE; PADDING_BYTES]);
            let _ = stream.finish();
        });
    }

    pub(super) fn await_any<R>(&self, cx: &Context<'_>) -> Poll<R> {
        self.0.wakers.borrow_mut().any.push(cx.waker().clone());
        Poll::Pending
    }

    pub(super) fn await_readable<R>(&self, id: StreamId, cx: &Context<'_>) -> Poll<R> {
        let mut wakers = self.0.wakers.borrow_mut();
        wakers.readers.insert(id, cx.waker().clone());
        Poll::Pending
    }

    pub(super) fn await_writable<R>(&self, id: StreamId, cx: &Context<'_>) -> Poll<R> {
        let mut wakers = self.0.wakers.borrow_mut();
        wakers.writers.insert(id, cx.waker().clone());
        Poll::Pending
    }

    fn lose(&self, error: ConnectionError) {
        self.0.lost.borrow_mut().get_or_insert(error);
        let mut wakers = self.0.wakers.borrow_mut();
        wakers.driver.take().into_iter().for_each(Waker::wake);
        wakers.wake_all();
    }

    /// Receives, sends and reports until the connection is forgotten or the client has vanished.
    fn drive(&self, cx: &mut Context<'_>) -> Poll<()> {
        let now = self.0.world.instant();
        if self.0.socket.borrow().is_none() {
            return Poll::Ready(());
        }
        self.receive(cx, now);
        let mut quic = self.0.connection.borrow_mut();
        if quic.poll_timeout().is_some_and(|due| due <= now) {
            quic.handle_timeout(now);
        }
        drop(quic);
        self.pass_events();
        self.send(now);
        self.pass_events();
        let mut quic = self.0.connection.borrow_mut();
        if quic.is_drained() {
            *self.0.socket.borrow_mut() = None;
            return Poll::Ready(());
        }
        let due = quic.poll_timeout();
        drop(quic);
        self.arm_timer(due, now, cx);
        self.0.wakers.borrow_mut().driver = Some(cx.waker().clone());
        Poll::Pending
    }

    /// A timer that has been set stays, and may wake for nothing.
    fn arm_timer(&self, due: Option<Instant>, now: Instant, cx: &Context<'_>) {
        let Some(due) = due else { return };
        let left = due.saturating_duration_since(now);
        let at = self.0.world.now() + left;
        let armed = self.0.timer.get();
        if armed.is_none_or(|armed| at < armed || armed <= self.0.world.now()) {
            self.0.timer.set(Some(at));
            self.0.world.wake_after(left, cx.waker());
        }
    }

    fn receive(&self, cx: &Context<'_>, now: Instant) {
        let socket = self.0.socket.borrow();
        let Some(socket) = &*socket else { return };
        while let Poll::Ready(datagram) = socket.poll_recv(cx) {
            let mut response = Vec::new();
            let content = BytesMut::from(&datagram.content[..]);
            let ecn = EcnCodepoint::from_bits(datagram.ecn);
            let mut endpoint = self.0.endpoint.borrow_mut();
            let event = endpoint.handle(now, datagram.from, None, ecn, content, &mut response);
            match event {
                Some(DatagramEvent::ConnectionEvent(_, event)) => {
                    self.0.connection.borrow_mut().handle_event(event);
                }
                Some(DatagramEvent::Response(transmit)) => send(socket, &transmit, &response),
                Some(DatagramEvent::NewConnection(_)) | None => {}
            }
        }
    }

    fn send(&self, now: Instant) {
        let socket = self.0.socket.borrow();
        let Some(socket) = &*socket else { return };
        loop {
            let mut content = Vec::new();
            let mut quic = self.0.connection.borrow_mut();
            match quic.poll_transmit(now, SEGMENTS_MAX, &mut content) {
                Some(transmit) => send(socket, &transmit, &content),
                None => return,
            }
        }
    }

    /// Passes events to the endpoint and to the tasks that wait for them.
    fn pass_events(&self) {
        let mut quic = self.0.connection.borrow_mut();
        while let Some(event) = quic.poll_endpoint_events() {
            let mut endpoint = self.0.endpoint.borrow_mut();
            if let Some(event) = endpoint.handle_event(self.0.handle, event) {
                quic.handle_event(event);
            }
        }
        while let Some(event) = quic.poll() {
            let mut wakers = self.0.wakers.borrow_mut();
            match event {
                Event::Connected => {
                    self.0.is_connected.set(true);
                    wakers.any.drain(..).for_each(Waker::wake);
                }
                Event::ConnectionLost { reason } => {
                    self.0.lost.borrow_mut().get_or_insert(reason);
                    wakers.wake_all();
                }
                Event::Stream(StreamEvent::Readable { id }) => {
                    wakers.readers.remove(&id).into_iter().for_each(Waker::wake);
                }
                Event::Stream(StreamEvent::Writable { id } | StreamEvent::Stopped { id, .. }) => {
                    wakers.writers.remove(&id).into_iter().for_each(Waker::wake);
                }
                Event::Stream(StreamEvent::Opened { .. } | StreamEvent::Available { .. }) => {
                    wakers.any.drain(..).for_each(Waker::wake);
                }
                _ => {}
            }
        }
    }

    /// A stream of ours, as soon as the gateway allows one more.
    pub(super) fn poll_open(
        &self,
        dir: Dir,
        cx: &Context<'_>,
    ) -> Poll<Result<StreamId, ConnectionError>> {
        if let Some(error) = self.lost() {
            return Poll::Ready(Err(error));
        }
        match self.with(|quic| quic.streams().open(dir)) {
            Some(id) => Poll::Ready(Ok(id)),
            None => self.await_any(cx),
        }
    }

    /// The next stream of the gateway.
    pub(super) fn poll_accept(
        &self,
        dir: Dir,
        cx: &Context<'_>,
    ) -> Poll<Result<StreamId, ConnectionError>> {
        if let Some(error) = self.lost() {
            return Poll::Ready(Err(error));
        }
        match self.with(|quic| quic.streams().accept(dir)) {
            Some(id) => Poll::Ready(Ok(id)),
            None => self.await_any(cx),
        }
    }
}

fn endpoint(random: &mut Random) -> Endpoint {
    let mut seed = [0; 32];
    for part in seed.chunks_exact_mut(8) {
        part.copy_from_slice(&random.next().to_be_bytes());
    }
    let ids = random.next();
    let mut config = EndpointConfig::default();
    config
        .rng_seed(Some(seed))
        .cid_generator(move || Box::new(Ids(Random::new(ids))));
    Endpoint::new(Arc::new(config), None, true, None)
}

/// Sends the datagrams of a batch.
fn send(socket: &PeerSocket, transmit: &Transmit, content: &[u8]) {
    let content = &content[..transmit.size];
    let ecn = transmit.ecn.map_or(0, |ecn| ecn as u8);
    let segment = transmit.segment_size.unwrap_or(content.len()).max(1);
    for datagram in content.chunks(segment) {
        socket.send(transmit.destination, ecn, datagram.to_vec());
    }
}
