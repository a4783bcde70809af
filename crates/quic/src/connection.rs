//! One connection.

use std::cell::{Cell, OnceCell, RefCell};
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::{Rc, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use quinn_proto::{ConnectionHandle, VarInt};

use crate::endpoint::{Protocol, Shared};

/// How long a new address of the peer has to stay before it counts as validated. `quinn-proto` returns to the
/// previous address after three probe timeouts (RFC 9000, section 8.2.4), which with the initial estimate of a
/// round trip (RFC 9002, section 6.2.2) are 3 × 1.02 s.
const VALIDATION_TIME: Duration = Duration::from_millis(3_100);
/// The same in round trips, for longer ones: three probe timeouts are at most nine of them.
const VALIDATION_ROUND_TRIPS: u32 = 9;

/// RFC 9000, section 8.1: "Prior to validating the client address, servers MUST NOT send more than three times
/// as many bytes as the number of bytes they have received."
pub(crate) const AMPLIFICATION_MAX: usize = 3;

/// One connection, and what it carries.
pub struct Connection<P: Protocol> {
    pub(crate) quic: RefCell<quinn_proto::Connection>,
    pub(crate) handle: ConnectionHandle,
    endpoint: Weak<Shared<P>>,
    state: OnceCell<P::State>,
    /// It is in the endpoint's list of connections to drive.
    pub(crate) is_listed: Cell<bool>,
    /// When its handshake has to be complete; `None` once it is.
    pub(crate) handshake_due: Cell<Option<Instant>>,
    /// Bytes that may be sent to an address that is not validated yet; `None` if it is.
    unvalidated_room: Cell<Option<usize>>,
    /// The state machine has panicked.
    is_broken: Cell<bool>,
    /// The peer's address, which was validated.
    remote: Cell<SocketAddr>,
    /// An address that the peer uses and that may not be validated yet, and since when.
    candidate: Cell<Option<(SocketAddr, Instant)>>,
}

impl<P: Protocol> Connection<P> {
    pub(crate) fn new(
        quic: quinn_proto::Connection,
        handle: ConnectionHandle,
        endpoint: &Rc<Shared<P>>,
        handshake_due: Instant,
        unvalidated_room: Option<usize>,
    ) -> Rc<Connection<P>> {
        Rc::new(Connection {
            remote: Cell::new(quic.remote_address()),
            quic: RefCell::new(quic),
            handle,
            endpoint: Rc::downgrade(endpoint),
            state: OnceCell::new(),
            is_listed: Cell::new(false),
            handshake_due: Cell::new(Some(handshake_due)),
            unvalidated_room: Cell::new(unvalidated_room),
            is_broken: Cell::new(false),
            candidate: Cell::new(None),
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

    /// As [`Connection::with`], for what has nothing to send.
    pub fn look<T>(&self, act: impl FnOnce(&mut quinn_proto::Connection) -> T) -> Option<T> {
        self.guard(act)
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

    /// Whether the state machine has panicked.
    pub(crate) fn is_broken(&self) -> bool {
        self.is_broken.get()
    }

    /// What the protocol keeps for this connection; `None` until the handshake is complete.
    pub fn state(&self) -> Option<&P::State> {
        self.state.get()
    }

    pub(crate) fn set_state(&self, state: P::State) {
        // The handshake is completed once.
        let _ = self.state.set(state);
    }

    /// The peer's address. After it has moved, that is the new one only once it is validated (RFC 9000, section
    /// 9.3.1).
    pub fn remote(&self) -> SocketAddr {
        self.remote.get()
    }

    /// Closes the connection and tells the peer why (RFC 9000, section 10.2).
    pub fn close(self: &Rc<Self>, code: u32, reason: &'static str) {
        let now = blitz_reactor::now();
        let reason = Bytes::from_static(reason.as_bytes());
        self.with(|quic| quic.close(now, VarInt::from_u32(code), reason));
    }

    /// The handshake is over, or given up. True the first time.
    pub(crate) fn end_handshake(&self) -> bool {
        self.unvalidated_room.set(None);
        self.handshake_due.take().is_some()
    }

    /// A datagram has come.
    pub(crate) fn note_received(&self, bytes: usize) {
        if let Some(room) = self.unvalidated_room.get() {
            let room = room + bytes * AMPLIFICATION_MAX;
            self.unvalidated_room.set(Some(room));
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

    /// Notes the address that the peer uses. Returns when a new one will count as validated.
    pub(crate) fn note_address(&self, address: SocketAddr, rtt: Duration, now: Instant) -> Moved {
        if address == self.remote.get() {
            self.candidate.set(None);
            return Moved::No;
        }
        let since = match self.candidate.get() {
            Some((candidate, since)) if candidate == address => since,
            _ => now,
        };
        let due = since + VALIDATION_TIME.max(rtt * VALIDATION_ROUND_TRIPS);
        if now < due {
            self.candidate.set(Some((address, since)));
            return Moved::Until(due);
        }
        self.candidate.set(None);
        self.remote.set(address);
        Moved::Validated
    }
}

/// Whether the peer has another address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moved {
    No,
    /// It counts as validated then, if it stays.
    Until(Instant),
    Validated,
}
