//! One connection.

use std::cell::{Cell, OnceCell, RefCell};
use std::net::{IpAddr, SocketAddr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::{Rc, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use quinn_proto::{ConnectionHandle, VarInt};

use crate::endpoint::{Protocol, Shared};
use crate::handshakes::Handshake;

/// Datagrams from another host are ignored if they are shorter: the library answers them with 1,200 bytes.
const MOVING_BYTES_MIN: usize = 1_200 / AMPLIFICATION_MAX;

/// Moves to other hosts within [`MOVES_TIME`]; datagrams from further ones are ignored.
const MOVES_MAX: u32 = 4;
const MOVES_TIME: Duration = Duration::from_secs(10);

/// Bytes that each connection may have sent without acknowledgement, beside what all share.
pub(crate) const UNACKNOWLEDGED_BYTES_FREE: u64 = 64 * 1024;

/// RFC 9000, section 8.1: "Prior to validating the client address, servers MUST NOT send more than three times
/// as many bytes as the number of bytes they have received."
pub(crate) const AMPLIFICATION_MAX: usize = 3;

/// What a peer has sent on streams since the beginning.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StreamInput {
    /// Frames with content, or with the end of a stream.
    pub frames: u64,
    /// Bytes of the datagrams that carried them.
    pub datagram_bytes: u64,
}

/// One connection, and what it carries.
pub struct Connection<P: Protocol> {
    pub(crate) quic: RefCell<quinn_proto::Connection>,
    pub(crate) handle: ConnectionHandle,
    endpoint: Weak<Shared<P>>,
    state: OnceCell<P::State>,
    /// It is in the endpoint's list of connections to drive.
    pub(crate) is_listed: Cell<bool>,
    /// `None` once it is complete.
    handshake: Cell<Option<Handshake>>,
    /// Bytes that may be sent to an address that is not validated yet; `None` if it is.
    unvalidated_room: Cell<Option<usize>>,
    /// Something is in progress, or to be acknowledged.
    is_active: Cell<bool>,
    /// When the protocol wants to be called.
    deadline: Cell<Option<Instant>>,
    /// What the peer has sent on streams.
    received: Cell<StreamInput>,
    /// Bytes that may be sent and not acknowledged, and how many of them are taken from what all connections share.
    window: Cell<u64>,
    reserved: Cell<u64>,
    /// The state machine or the protocol has panicked.
    is_broken: Cell<bool>,
    /// The peer's address in the handshake, which has validated it.
    remote: SocketAddr,
    /// The host that the peer was last at, how often it has moved to another, and since when that is counted.
    host: Cell<IpAddr>,
    moves: Cell<(u32, Instant)>,
}

impl<P: Protocol> Connection<P> {
    pub(crate) fn new(
        quic: quinn_proto::Connection,
        handle: ConnectionHandle,
        endpoint: &Rc<Shared<P>>,
        handshake: Handshake,
        unvalidated_room: Option<usize>,
    ) -> Rc<Connection<P>> {
        let remote = quic.remote_address();
        Rc::new(Connection {
            remote,
            host: Cell::new(remote.ip()),
            moves: Cell::new((0, handshake.due)),
            quic: RefCell::new(quic),
            handle,
            endpoint: Rc::downgrade(endpoint),
            state: OnceCell::new(),
            is_listed: Cell::new(false),
            handshake: Cell::new(Some(handshake)),
            unvalidated_room: Cell::new(unvalidated_room),
            is_active: Cell::new(false),
            deadline: Cell::new(None),
            received: Cell::default(),
            window: Cell::new(UNACKNOWLEDGED_BYTES_FREE),
            reserved: Cell::new(0),
            is_broken: Cell::new(false),
        })
    }

    /// Works on the streams of the connection. What that queues is sent soon; `None` if the state machine has
    /// panicked, after which the connection is lost.
    pub fn with<T>(
        self: &Rc<Self>,
        act: impl FnOnce(&mut quinn_proto::Connection) -> T,
    ) -> Option<T> {
        let done = self.guard(act);
        if let Some(endpoint) = self.endpoint.upgrade() {
            endpoint.list(self);
        }
        done
    }

    /// Has the connection driven soon: [`Protocol::before_sending`] is called.
    pub fn drive_soon(&self) {
        if let Some(endpoint) = self.endpoint.upgrade() {
            endpoint.list(self);
        }
    }

    /// As [`Connection::with`], for what has nothing to send.
    pub fn look<T>(&self, act: impl FnOnce(&mut quinn_proto::Connection) -> T) -> Option<T> {
        self.guard(act)
    }

    /// Limits what is sent and not acknowledged: to twice of what the network takes, to the connection's part of what
    /// all may have, and to what is left of that.
    pub(crate) fn limit_unacknowledged(&self, endpoint: &Shared<P>, bytes_max: u64) {
        let in_network = self.guard(|quic| quic.congestion_state().window());
        let wanted = in_network.unwrap_or_default().saturating_mul(2);
        let wanted = match self.is_active.get() {
            true => wanted.clamp(
                UNACKNOWLEDGED_BYTES_FREE,
                bytes_max.max(UNACKNOWLEDGED_BYTES_FREE),
            ),
            false => UNACKNOWLEDGED_BYTES_FREE,
        };
        let reserved = self.reserved.get();
        let more = (wanted - UNACKNOWLEDGED_BYTES_FREE).saturating_sub(reserved);
        let more = more.min(endpoint.unreserved_bytes());
        self.reserve(endpoint, reserved + more);
        let window = wanted.min(UNACKNOWLEDGED_BYTES_FREE + reserved + more);
        if self.window.replace(window) != window {
            self.guard(|quic| quic.set_send_window(window));
        }
    }

    /// The state machine takes more: so no more than its window waits for acknowledgements.
    pub fn note_acknowledged(&self) {
        if let Some(endpoint) = self.endpoint.upgrade() {
            self.reserve(&endpoint, self.window.get() - UNACKNOWLEDGED_BYTES_FREE);
        }
    }

    fn reserve(&self, endpoint: &Shared<P>, bytes: u64) {
        let before = self.reserved.replace(bytes);
        endpoint
            .reserved
            .set(endpoint.reserved.get() - before + bytes);
    }

    /// Calls the state machine. `None` if it has panicked, now or before.
    pub(crate) fn guard<T>(
        &self,
        act: impl FnOnce(&mut quinn_proto::Connection) -> T,
    ) -> Option<T> {
        if self.is_broken.get() {
            return None;
        }
        let done = catch_unwind(AssertUnwindSafe(|| act(&mut self.quic.borrow_mut())));
        done.inspect_err(|_| self.is_broken.set(true)).ok()
    }

    /// Nothing is known any more of its state.
    pub(crate) fn set_broken(&self) {
        self.is_broken.set(true);
    }

    /// What the protocol keeps for this connection; `None` until the handshake is complete.
    pub fn state(&self) -> Option<&P::State> {
        self.state.get()
    }

    pub(crate) fn set_state(&self, state: P::State) {
        // The handshake is completed once.
        let _ = self.state.set(state);
    }

    /// The peer's address in the handshake, which has validated it. It stays when the peer moves: the library does
    /// not say when a new address is validated (RFC 9000, section 9.3.1).
    pub fn remote(&self) -> SocketAddr {
        self.remote
    }

    /// Declares whether something is in progress, or to be acknowledged: such connections share what may be sent
    /// without acknowledgement.
    pub fn set_active(&self, is_active: bool) {
        if self.is_active.replace(is_active) == is_active {
            return;
        }
        if let Some(endpoint) = self.endpoint.upgrade() {
            let active = endpoint.active.get();
            endpoint.active.set(match is_active {
                true => active + 1,
                false => active - 1,
            });
            if !is_active {
                // Nothing waits.
                self.reserve(&endpoint, 0);
            }
        }
    }

    /// Has [`Protocol::deadline`] called at this time, once; it replaces the time that was set before.
    pub fn set_deadline(self: &Rc<Self>, deadline: Option<Instant>) {
        let before = self.deadline.replace(deadline);
        // A later one is noticed when the earlier one has passed.
        let is_earlier = deadline.is_some_and(|at| before.is_none_or(|before| at < before));
        if is_earlier && let Some(endpoint) = self.endpoint.upgrade() {
            endpoint.list(self);
        }
    }

    /// When the protocol wants to be called.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.deadline.get()
    }

    /// Whether the time of the protocol has come; it is called once.
    pub(crate) fn takes_deadline(&self, now: Instant) -> bool {
        let is_due = self.deadline.get().is_some_and(|due| due <= now);
        if is_due {
            self.deadline.set(None);
        }
        is_due
    }

    /// Closes the connection and tells the peer why (RFC 9000, section 10.2).
    pub fn close(self: &Rc<Self>, code: u32, reason: &'static str) {
        let now = blitz_reactor::now();
        let reason = Bytes::from_static(reason.as_bytes());
        self.with(|quic| quic.close(now, VarInt::from_u32(code), reason));
    }

    /// When its handshake has to be complete, if it is not.
    pub(crate) fn handshake_due(&self) -> Option<Instant> {
        self.handshake.get().map(|handshake| handshake.due)
    }

    /// The handshake is complete, so that the address is validated; or it has failed. `None` if it was complete before.
    pub(crate) fn end_handshake(&self) -> Option<Handshake> {
        self.unvalidated_room.set(None);
        self.handshake.take()
    }

    /// What the peer has sent on streams.
    pub fn stream_input(&self) -> StreamInput {
        self.received.get()
    }

    /// Notes a datagram of `bytes` that the library has handled. It counts if a part of it was authentic and of a
    /// stream: nobody else can use up what the peer may send.
    pub(crate) fn note_received(&self, bytes: usize, frames: u64) {
        let before = self.received.get();
        if frames != before.frames {
            let datagram_bytes = before.datagram_bytes + bytes as u64;
            self.received.set(StreamInput {
                frames,
                datagram_bytes,
            });
        }
    }

    /// A datagram has come. False if it is to be ignored.
    pub(crate) fn admits(&self, from: SocketAddr, bytes: usize, now: Instant) -> bool {
        if from == self.remote
            && let Some(room) = self.unvalidated_room.get()
        {
            let room = room + bytes * AMPLIFICATION_MAX;
            self.unvalidated_room.set(Some(room));
        }
        let is_known = from.ip() == self.host.get() || from.ip() == self.remote.ip();
        is_known || (bytes >= MOVING_BYTES_MIN && self.moves_since(now).0 < MOVES_MAX)
    }

    /// Notes where the library sends to now: it has authenticated a datagram from there, so that forged ones do not
    /// count.
    pub(crate) fn note_host(&self, host: IpAddr, now: Instant) {
        if self.host.replace(host) != host && host != self.remote.ip() {
            let (moves, since) = self.moves_since(now);
            self.moves.set((moves + 1, since));
        }
    }

    /// Moves that count, and since when.
    fn moves_since(&self, now: Instant) -> (u32, Instant) {
        match self.moves.get() {
            (_, since) if now.saturating_duration_since(since) >= MOVES_TIME => (0, now),
            counted => counted,
        }
    }

    /// Datagrams of `bytes` that may be sent at once. The state machine sends up to a datagram more than it
    /// may to an address that is not validated.
    pub(crate) fn datagrams_max(&self, bytes: usize) -> usize {
        let room = self.unvalidated_room.get();
        room.map_or(usize::MAX, |room| room / bytes)
    }

    /// Bytes were sent.
    pub(crate) fn note_sent(&self, bytes: usize) {
        if let Some(room) = self.unvalidated_room.get() {
            self.unvalidated_room.set(Some(room.saturating_sub(bytes)));
        }
    }
}
