//! One connection.

use std::cell::{Cell, OnceCell, RefCell};
use std::future::poll_fn;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use bytes::Bytes;
use quinn_proto::{ConnectionError, ConnectionHandle, Transmit, VarInt};

use crate::congestion;
use crate::endpoint::{EndpointInner, Protocol};
use crate::handshakes::Handshake;
use crate::migration::{AMPLIFICATION_MAX, Migration};
use crate::packet_key::{self, StreamFrame};

/// Datagrams of one batch, and bytes of all of them.
const SEGMENTS_MAX: usize = 64;
const TRAIN_BYTES_MAX: usize = 65_487;

/// Bytes that each connection may have sent without acknowledgement, beside the bytes that all share.
pub(crate) const UNACKNOWLEDGED_BYTES_FREE: u64 = 64 * 1024;

/// Frames of streams that a connection takes before the protocol is called. A datagram may have hundreds of them, and
/// many datagrams come in one turn.
const FRAMES_MAX: u64 = 256;

/// Frames for which a connection keeps memory.
const FRAMES_KEPT: usize = 64;

/// One connection, and its protocol's state.
pub struct Connection<P: Protocol> {
    pub(crate) quic: RefCell<quinn_proto::Connection>,
    pub(crate) handle: ConnectionHandle,
    endpoint: Weak<EndpointInner<P>>,
    state: OnceCell<P::State>,
    /// It is in the endpoint's list of connections to drive.
    pub(crate) is_listed: Cell<bool>,
    /// `None` once it is complete.
    handshake: Cell<Option<Handshake>>,
    /// Bytes that may be sent to an address that is not validated yet; `None` if it is.
    unvalidated_room: Cell<Option<usize>>,
    /// Something is in progress, or to be acknowledged.
    is_active: Cell<bool>,
    /// The time at which the protocol wants to be called.
    deadline: Cell<Option<Instant>>,
    /// Frames of streams that the library has taken, and their number when the protocol last asked for them.
    frames_taken: Cell<u64>,
    frames_passed: Cell<u64>,
    /// Those that the protocol has not asked for yet.
    frames: RefCell<Vec<StreamFrame>>,
    /// The number of the last datagram with frames of streams.
    datagrams: Cell<u32>,
    /// Bytes that may be sent and not acknowledged, and the part of them that is taken from the bytes that all
    /// connections share.
    window: Cell<u64>,
    reserved: Cell<u64>,
    /// The state machine or the protocol has panicked.
    is_broken: Cell<bool>,
    /// The protocol knows that it is lost.
    pub(crate) is_lost: Cell<bool>,
    migration: RefCell<Migration>,
    /// The address has changed, and the protocol does not know it.
    has_migrated: Cell<bool>,
    /// `None` on a server.
    connecting: Option<Box<Connecting>>,
}

/// The wait for the handshake of a client.
#[derive(Default)]
struct Connecting {
    task: RefCell<Option<Waker>>,
    failure: RefCell<Option<ConnectionError>>,
}

impl<P: Protocol> Connection<P> {
    /// A connection of a client whose first packet has come. `unvalidated_room` is the number of bytes that may be sent
    /// until the address is validated, if it is not.
    pub(crate) fn of_client(
        quic: quinn_proto::Connection,
        handle: ConnectionHandle,
        endpoint: &Rc<EndpointInner<P>>,
        handshake: Handshake,
        unvalidated_room: Option<usize>,
    ) -> Rc<Connection<P>> {
        Connection::new(quic, handle, endpoint, handshake, unvalidated_room, None)
    }

    /// A connection to a server. Its handshake has to be complete at `due`.
    pub(crate) fn to_server(
        quic: quinn_proto::Connection,
        handle: ConnectionHandle,
        endpoint: &Rc<EndpointInner<P>>,
        due: Instant,
    ) -> Rc<Connection<P>> {
        let handshake = Handshake {
            due,
            is_validated: true,
        };
        let connecting = Some(Box::default());
        Connection::new(quic, handle, endpoint, handshake, None, connecting)
    }

    fn new(
        quic: quinn_proto::Connection,
        handle: ConnectionHandle,
        endpoint: &Rc<EndpointInner<P>>,
        handshake: Handshake,
        unvalidated_room: Option<usize>,
        connecting: Option<Box<Connecting>>,
    ) -> Rc<Connection<P>> {
        Rc::new(Connection {
            migration: RefCell::new(Migration::new(quic.remote_address(), handshake.due)),
            has_migrated: Cell::new(false),
            quic: RefCell::new(quic),
            handle,
            endpoint: Rc::downgrade(endpoint),
            state: OnceCell::new(),
            is_listed: Cell::new(false),
            handshake: Cell::new(Some(handshake)),
            unvalidated_room: Cell::new(unvalidated_room),
            is_active: Cell::new(false),
            deadline: Cell::new(None),
            frames_taken: Cell::default(),
            frames_passed: Cell::default(),
            frames: RefCell::default(),
            datagrams: Cell::default(),
            window: Cell::new(UNACKNOWLEDGED_BYTES_FREE),
            reserved: Cell::new(0),
            is_broken: Cell::new(false),
            is_lost: Cell::new(false),
            connecting,
        })
    }

    /// Waits until the handshake with a server is complete, so that there is a [`Connection::state`]. For one task.
    ///
    /// # Errors
    /// Why it has failed.
    pub async fn established(&self) -> Result<(), ConnectionError> {
        poll_fn(|cx| self.poll_established(cx)).await
    }

    fn poll_established(&self, cx: &mut Context<'_>) -> Poll<Result<(), ConnectionError>> {
        let Some(connecting) = &self.connecting else {
            return Poll::Ready(Err(ConnectionError::LocallyClosed));
        };
        if let Some(reason) = &*connecting.failure.borrow() {
            return Poll::Ready(Err(reason.clone()));
        }
        if self.state.get().is_some() {
            return Poll::Ready(Ok(()));
        }
        *connecting.task.borrow_mut() = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Wakes the task that waits for the handshake.
    pub(crate) fn wake_connecting(&self) {
        if let Some(connecting) = &self.connecting
            && let Some(task) = connecting.task.take()
        {
            task.wake();
        }
    }

    /// The connection is lost, perhaps before its handshake was complete.
    pub(crate) fn fail_connecting(&self, reason: &ConnectionError) {
        if let Some(connecting) = &self.connecting {
            connecting
                .failure
                .borrow_mut()
                .get_or_insert_with(|| reason.clone());
            self.wake_connecting();
        }
    }

    /// Works on the streams of the connection. Bytes that it queues are sent soon. `None` if the state machine has
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

    /// As [`Connection::with`], where nothing is queued.
    pub fn look<T>(&self, act: impl FnOnce(&mut quinn_proto::Connection) -> T) -> Option<T> {
        self.guard(act)
    }

    /// Limits the bytes that are sent and not acknowledged to the least of: twice the bytes that the network takes, the
    /// connection's part of the bytes that all share, and the free rest of these.
    pub(crate) fn limit_unacknowledged(&self, endpoint: &EndpointInner<P>, bytes_max: u64) {
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

    /// The state machine takes more, so no more bytes than its window wait for acknowledgements.
    pub fn note_acknowledged(&self) {
        if let Some(endpoint) = self.endpoint.upgrade() {
            self.reserve(&endpoint, self.window.get() - UNACKNOWLEDGED_BYTES_FREE);
        }
    }

    fn reserve(&self, endpoint: &EndpointInner<P>, bytes: u64) {
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

    /// Marks the state as unknown from now on.
    pub(crate) fn set_broken(&self) {
        self.is_broken.set(true);
    }

    /// The protocol's state for this connection; `None` until the handshake is complete.
    pub fn state(&self) -> Option<&P::State> {
        self.state.get()
    }

    pub(crate) fn set_state(&self, state: P::State) {
        // The handshake is completed once.
        let _ = self.state.set(state);
    }

    /// The peer's address. When the peer moves, it is the new one from the validation on: see
    /// [`Protocol::migrated`].
    pub fn remote(&self) -> SocketAddr {
        self.migration.borrow().validated()
    }

    /// Declares whether something is in progress, or to be acknowledged: such connections share the bytes that may be
    /// sent without acknowledgement.
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

    /// Whether the protocol's time has come; true once for each time.
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
        self.fail_connecting(&ConnectionError::LocallyClosed);
    }

    /// When its handshake has to be complete, if it is not.
    pub fn handshake_due(&self) -> Option<Instant> {
        self.handshake.get().map(|handshake| handshake.due)
    }

    /// Ends the handshake: it is complete, so that the address is validated, or it has failed. `None` if it was
    /// complete before.
    pub(crate) fn end_handshake(&self) -> Option<Handshake> {
        self.unvalidated_room.set(None);
        self.handshake.take()
    }

    /// Adds the frames of streams that have come since the last call, including duplicates.
    pub fn take_frames(&self, to: &mut Vec<StreamFrame>) {
        let mut frames = self.frames.borrow_mut();
        to.append(&mut frames);
        // A burst of frames leaves no more memory than usual.
        frames.shrink_to(FRAMES_KEPT);
    }

    /// The protocol has seen all input.
    pub fn note_passed(&self) {
        self.frames_passed.set(self.frames_taken.get());
    }

    /// Notes a datagram that the library has handled, after which it has taken so many frames of streams. The frames of
    /// the datagram count if it has taken some: nobody else can use up the peer's credit by repeating packets.
    pub(crate) fn note_received(&self, datagram_bytes: usize, frames_taken: u64) {
        if self.frames_taken.replace(frames_taken) == frames_taken {
            return;
        }
        let mut frames = self.frames.borrow_mut();
        let datagram = self.datagrams.get().wrapping_add(1);
        self.datagrams.set(datagram);
        let datagram_bytes = packet_key::short(datagram_bytes);
        packet_key::for_each_frame(|frame| {
            frames.push(StreamFrame {
                stream: frame.stream,
                offset: frame.content.start,
                end: frame.content.end,
                datagram,
                datagram_bytes: match frame.is_copied {
                    true => frame.packet_bytes,
                    false => datagram_bytes,
                },
                packet_bytes: frame.packet_bytes,
            });
        });
    }

    /// Whether the protocol is to be called before more frames come. Frames without content are not noted, but the
    /// library has an event for each.
    pub(crate) fn has_many_frames(&self) -> bool {
        self.frames_taken.get() - self.frames_passed.get() >= FRAMES_MAX
    }

    /// Drops the frames that the protocol has not taken.
    pub(crate) fn forget_frames(&self) {
        self.frames_passed.set(self.frames_taken.get());
        self.frames.borrow_mut().clear();
    }

    /// Counts a received datagram. False if it is to be ignored.
    pub(crate) fn admits(&self, from: SocketAddr, bytes: usize, now: Instant) -> bool {
        let mut migration = self.migration.borrow_mut();
        if let Some(room) = self.unvalidated_room.get()
            && from == migration.validated()
        {
            let room = room + bytes * AMPLIFICATION_MAX;
            self.unvalidated_room.set(Some(room));
        }
        migration.admits(from, bytes, now)
    }

    /// Notes the address that the library sends to now. The library has authenticated a datagram from there, so forged
    /// ones do not count.
    pub(crate) fn note_path(&self, path: SocketAddr, now: Instant) {
        self.migration.borrow_mut().note_path(path, now);
    }

    /// A timer of the library has expired.
    pub(crate) fn handle_timeout(&self, now: Instant) {
        let path = self.guard(|quic| {
            quic.handle_timeout(now);
            quic.remote_address()
        });
        // The validation of a new address may have failed.
        if let Some(path) = path {
            self.note_path(path, now);
        }
    }

    /// Writes the next datagrams to send into `buffer`.
    pub(crate) fn poll_transmit(&self, now: Instant, buffer: &mut Vec<u8>) -> Option<Transmit> {
        let (is_pending, room) = {
            let migration = self.migration.borrow();
            (migration.is_pending(), migration.room())
        };
        let room = self.unvalidated_room.get().or(room);
        let transmit = self.guard(|quic| {
            let bytes = usize::from(quic.current_mtu());
            // The state machine may send up to a datagram more than is allowed to an address that is not validated.
            let datagrams = room.map_or(SEGMENTS_MAX, |room| room / bytes);
            let datagrams = datagrams.min(TRAIN_BYTES_MAX / bytes).min(SEGMENTS_MAX);
            let is_closed = quic.is_closed();
            congestion::while_sending(is_closed, || match datagrams {
                0 => None,
                _ if is_pending => self.poll_pending(quic, now, datagrams, buffer),
                _ => quic.poll_transmit(now, datagrams, buffer),
            })
        });
        let transmit = transmit.flatten()?;
        if let Some(room) = self.unvalidated_room.get() {
            let left = room.saturating_sub(transmit.size);
            self.unvalidated_room.set(Some(left));
        }
        self.migration.borrow_mut().note_sent(&transmit);
        Some(transmit)
    }

    /// Sends to an address that was not validated before, and finds out whether it is validated now.
    ///
    /// The library does not report it. But until PATH_RESPONSE has come from the address with the bytes of its
    /// challenge, each packet to it has PATH_CHALLENGE: behind ACK, for which the first datagram has room beside it,
    /// and before STREAM. If the validation fails, the library sends to an older address, which is validated.
    #[cold]
    fn poll_pending(
        &self,
        quic: &mut quinn_proto::Connection,
        now: Instant,
        datagrams: usize,
        buffer: &mut Vec<u8>,
    ) -> Option<Transmit> {
        let before = quic.stats().frame_tx;
        let transmit = quic.poll_transmit(now, datagrams, buffer)?;
        let after = quic.stats().frame_tx;
        let has_packet = (after.acks, after.stream) != (before.acks, before.stream);
        let has_challenge = after.path_challenge != before.path_challenge;
        // The packet of a close has ACK and no challenge.
        if has_packet && !has_challenge && self.is_established(quic) {
            self.migration.borrow_mut().validate();
            self.has_migrated.set(true);
        }
        Some(transmit)
    }

    fn is_established(&self, quic: &quinn_proto::Connection) -> bool {
        self.handshake.get().is_none() && !quic.is_closed()
    }

    /// Whether a new address was validated; true once for each.
    pub(crate) fn takes_migration(&self) -> bool {
        self.has_migrated.get() && self.has_migrated.replace(false)
    }
}
