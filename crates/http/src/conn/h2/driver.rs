//! The state of one connection, shared by its task, its exchanges and their handles.

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use blitz_proto::h2::{self, Code, Received, StreamId, WasReset};
use blitz_proto::{BodyLength, Error, Limits};
use blitz_reactor::{Buffer, Chunk, Socket};

use crate::conn::streams::spare::SpareStreams;
use crate::conn::streams::stream::{ResetReason, Stream, Streams};
use crate::exchange::{ExchangeId, Link, ReceivedContent, Side, wake};
use crate::input::Input;
use crate::recycle::HeadCharge;
use crate::timer::LazyTimer;
use crate::transport::{ParkedTransport, Transport};

/// One connection, of a server or of a client.
pub(crate) struct Conn<R: Role> {
    pub(super) driver: RefCell<Driver<R>>,
    /// The connection's task is at work: what is queued meanwhile leaves when it is done.
    pub(super) is_driven: Cell<bool>,
}

/// A connection that carries many exchanges at a time, each on a stream.
pub(crate) struct Driver<R: Role> {
    pub(super) role: R,
    /// `None` while parked, and once closed.
    pub(super) socket: Option<Transport>,
    /// The state of a parked connection beside its socket, if there is any.
    parked: Option<ParkedTransport>,
    /// The time as the machine knows it.
    pub(super) now: Duration,
    pub(super) machine: h2::Connection,
    /// Received and not yet taken by the machine, in order.
    pub(super) input: Input,
    /// The peer sends no more.
    pub(super) has_fin: bool,
    /// Encoded and not yet queued.
    pub(super) pending: Option<Buffer>,
    pub(super) streams: Streams<StreamId, Box<Stream>>,
    /// The most streams at a time since there were none.
    streams_peak: u32,
    /// Bytes that all of them have queued for windows to open.
    pub(super) unsent: usize,
    /// Streams whose writers wait because the core is short of memory.
    pub(super) awaiting_memory: Vec<StreamId>,
    /// Streams whose content lies in a receive buffer, from its arrival until the connection's task runs again.
    pub(super) in_buffer: Vec<StreamId>,
    /// Nothing was read when it was tried last, since too much is held.
    pub(super) was_held_back: bool,
    /// Unread content had used up the window of the connection then.
    pub(super) was_used_up: bool,
    /// Bytes of content that were last reported to the socket.
    held_noted: usize,
    /// Content of all streams.
    pub(super) received: ReceivedContent,
    pub(super) shared: Rc<Shared<R>>,
    /// The connection's task, while it waits.
    pub(super) task: Option<Waker>,
    /// The connection's task has work to do.
    pub(super) needs_task: bool,
    pub(super) timer: LazyTimer,
    /// When the bytes began to come that are no whole frame or header section yet.
    pub(super) partial_since: Option<Instant>,
    /// The memory that holds those bytes, if it is much.
    pub(super) partial_charge: HeadCharge,
    /// When our settings have to be acknowledged, unless they are.
    pub(super) settings_due: Option<Instant>,
}

/// The differences between a server and a client.
pub(crate) trait Role: Sized + 'static {
    type Options;
    /// State that the connections of a listener, or of a pool, share.
    type Shared: Default;
    type Side: Side<Driver<Self>>;
    /// A message that has begun and is not the driver's to keep.
    type Arrived;

    /// Whether incomplete heads count against the core's budget for heads.
    const CHARGES_PARTIAL_HEADS: bool;

    fn limits(options: &Self::Options) -> &Limits;

    /// The machine has a head.
    fn head_arrived(
        driver: &mut Driver<Self>,
        stream: StreamId,
        received: &mut Received,
        length: BodyLength,
        has_ended: bool,
    ) -> Option<Self::Arrived>;

    /// The machine has refused a request; `received` has the fields before the fault.
    fn refused(driver: &mut Driver<Self>, stream: StreamId, error: Error, received: &Received);

    /// A stream was reset, or its message was malformed.
    fn stream_reset(driver: &mut Driver<Self>, stream: StreamId, reason: &ResetReason);

    /// The peer will process no more streams.
    fn go_away(_: &mut Driver<Self>, _: Code) {}

    /// RST_STREAM was sent.
    fn reset_sent(_: &mut Driver<Self>, _: WasReset) {}

    /// Content, or the end of a message, has arrived on a stream whose response is complete.
    fn data_after_response(_: &mut Driver<Self>, _: StreamId, _bytes: usize, _has_ended: bool) {}

    /// A message of the peer was received to its end.
    fn message_received(&mut self) {}

    /// Ready when what was received may be looked into, since it may begin an exchange.
    fn poll_admission(_: &Driver<Self>, _: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }

    /// The connection's task begins.
    fn resumed(&mut self) {}
    /// Bytes have come.
    fn bytes_received(&mut self) {}
    /// A frame has come that is more than an acknowledgement of PING.
    fn progressed(&mut self) {}
    /// The peer's SETTINGS were received, or will never be.
    fn settings_known(&mut self) {}

    /// The peer has ended its direction.
    fn ended(_: &mut Driver<Self>) {}

    /// The peer broke a rule that the whole connection depends on; why its streams end.
    fn failed(driver: &Driver<Self>, error: Error) -> ResetReason;

    /// Looks at deadlines and announcements before the connection's task waits.
    fn before_waiting(driver: &mut Driver<Self>, cx: &mut Context<'_>);

    /// The connection waits for the rest of a frame or head, and has no stream.
    fn await_request(_: &mut Driver<Self>) {}

    /// Whether exchanges are about to begin.
    fn is_reserved(&self) -> bool {
        false
    }

    /// Whether the connection takes no more exchanges.
    fn is_retired(&self) -> bool {
        false
    }

    /// Whether an idle connection is parked.
    fn may_park(&self) -> bool {
        true
    }

    /// A PING is unanswered, so that no exchange is to begin.
    fn is_ping_pending(&self) -> bool {
        false
    }

    /// Ready when the peer has not acknowledged a PING in time.
    fn poll_silence(_: &mut Driver<Self>, _: &mut Context<'_>) -> Poll<()> {
        Poll::Pending
    }

    /// Adjusts the windows to the memory that is left.
    fn cap_windows(driver: &mut Driver<Self>);

    /// Whether nothing more should be read until some of what came is taken.
    fn holds_too_much(_: &Driver<Self>) -> bool {
        false
    }

    /// Bytes that each stream may have queued; `None` if the connection has enough.
    fn room(driver: &Driver<Self>) -> Option<usize>;

    /// The number of streams has changed.
    fn streams_changed(_: &mut Driver<Self>) {}

    /// The code of the reset of a stream whose message is incomplete.
    fn code_of_unfinished(_: &Driver<Self>, _: StreamId) -> Option<Code> {
        None
    }

    /// Frees memory that an idle connection does not need.
    fn shrink(&mut self) {}
}

/// The state that the connections of a listener share, or those of a pool.
pub(crate) struct Shared<R: Role> {
    pub(super) options: Rc<R::Options>,
    pub(super) role: R::Shared,
    pub(super) received: RefCell<Received>,
    /// The start of the machines' time: the first time that one of them read the clock.
    epoch: OnceCell<Instant>,
    /// Streams that wait to be used again.
    pub(super) spare: SpareStreams,
}

/// A report to a socket is corrected if it was of more bytes than this.
const HELD_NOTED_MIN: usize = 16 * 1024;

impl<R: Role> Shared<R> {
    pub(crate) fn new(options: Rc<R::Options>) -> Rc<Shared<R>> {
        Rc::new(Shared {
            options,
            role: R::Shared::default(),
            received: RefCell::default(),
            epoch: OnceCell::new(),
            spare: SpareStreams::default(),
        })
    }

    /// The options of these connections.
    pub(crate) fn options(&self) -> &Rc<R::Options> {
        &self.options
    }

    #[inline]
    pub(super) fn limits(&self) -> &Limits {
        R::limits(&self.options)
    }

    pub(super) fn now(&self) -> Duration {
        let now = blitz_reactor::now();
        now.saturating_duration_since(*self.epoch.get_or_init(|| now))
    }
}

impl<R: Role> Conn<R> {
    pub(super) fn new(machine: h2::Connection, role: R, shared: &Rc<Shared<R>>) -> Rc<Conn<R>> {
        let mut driver = Driver {
            role,
            socket: None,
            parked: None,
            now: Duration::ZERO,
            machine,
            input: Input::default(),
            has_fin: false,
            pending: None,
            streams: Streams::default(),
            streams_peak: 0,
            unsent: 0,
            awaiting_memory: Vec::new(),
            in_buffer: Vec::new(),
            was_held_back: false,
            was_used_up: false,
            held_noted: 0,
            received: ReceivedContent::default(),
            shared: Rc::clone(shared),
            task: None,
            needs_task: false,
            timer: LazyTimer::default(),
            partial_since: None,
            partial_charge: HeadCharge::default(),
            settings_due: Some(blitz_reactor::now() + shared.limits().settings_timeout),
        };
        R::cap_windows(&mut driver);
        let (machine, out) = driver.machine();
        machine.start(out);
        Rc::new(Conn {
            driver: RefCell::new(driver),
            is_driven: Cell::new(false),
        })
    }

    /// Keeps what is left of a transport that is parked.
    pub(crate) fn park(&self, parked: ParkedTransport) {
        if let ParkedTransport::Tls(_) = parked {
            self.driver.borrow_mut().parked = Some(parked);
        }
    }

    /// Puts the transport together again with its socket, which has come back.
    pub(crate) fn unpark(&self, socket: Socket) -> Transport {
        match self.driver.borrow_mut().parked.take() {
            Some(parked) => parked.unpark(socket),
            None => Transport::Plain(socket),
        }
    }

    /// Closes a connection without streams, after GOAWAY.
    pub(crate) fn finish(&self, transport: Transport) {
        let mut driver = self.driver.borrow_mut();
        driver.socket = Some(transport);
        let (machine, out) = driver.machine();
        machine.drain_now(out);
        driver.finish();
    }
}

impl<R: Role> Link for Conn<R> {
    type Framing = Driver<R>;

    #[inline]
    fn with<T>(&self, act: impl FnOnce(&mut Driver<R>) -> T) -> T {
        let mut driver = self.driver.borrow_mut();
        let done = act(&mut driver);
        if !self.is_driven.get() {
            driver.wake_if_needed();
        }
        done
    }

    #[inline]
    fn look<T>(&self, act: impl FnOnce(&mut Driver<R>) -> T) -> T {
        act(&mut self.driver.borrow_mut())
    }
}

impl<R: Role> Driver<R> {
    /// Adds a stream. The first one makes room for as many as there were last time, so that the map grows
    /// once.
    #[inline]
    pub(super) fn insert_stream(&mut self, id: StreamId, stream: Box<Stream>) {
        if self.streams.is_empty() {
            let peak = std::mem::take(&mut self.streams_peak);
            self.streams.reserve(peak as usize);
        }
        self.streams.insert(id, stream);
        self.streams_peak = self.streams_peak.max(self.streams.len() as u32);
    }

    pub(super) fn limits(&self) -> &Limits {
        self.shared.limits()
    }

    /// The machine, and where it writes.
    pub(super) fn machine(&mut self) -> (&mut h2::Connection, &mut Buffer) {
        let pending = self.pending.get_or_insert_with(Buffer::take);
        (&mut self.machine, pending)
    }

    pub(super) fn stream(&mut self, stream: StreamId) -> Option<&mut Stream> {
        self.streams.get_mut(&stream).map(|stream| &mut **stream)
    }

    /// Wakes the connection's task if there is something for it: frames to send, a stream that has
    /// ended, or memory that it waits for.
    #[inline]
    pub(super) fn wake_if_needed(&mut self) {
        let has_pending = self
            .pending
            .as_ref()
            .is_some_and(|buffer| !buffer.is_empty());
        if has_pending || self.needs_task || self.was_held_back {
            wake(&mut self.task);
        }
    }

    /// Queues what was encoded; it leaves with everything else that is queued in this turn.
    pub(super) fn flush(&mut self) {
        if let Some(buffer) = self.pending.take_if(|buffer| !buffer.is_empty())
            && let Some(socket) = &mut self.socket
        {
            socket.send(Chunk::from(buffer));
        }
    }

    /// Small pieces are copied behind what is encoded already, large ones are queued as they are
    /// (rule 3).
    pub(super) fn append(&mut self, chunk: Chunk) {
        if chunk.len() < self.limits().slice_bytes_min {
            self.machine().1.extend_from_slice(&chunk);
        } else {
            self.flush();
            self.needs_task = true;
            if let Some(socket) = &mut self.socket {
                socket.send(chunk);
            }
        }
    }

    /// Reports to the socket how much the streams hold: when a full core closes connections, those that
    /// hold the most come first (rule 4).
    pub(super) fn note_held(&mut self) {
        self.held_noted = self.machine.held() + self.unsent;
        if let Some(socket) = &self.socket {
            socket.note_held(self.held_noted);
        }
    }

    /// The same after some of it was taken, without the connection's task. Small differences make no
    /// connection the largest holder.
    #[inline]
    pub(super) fn note_released(&mut self) {
        if self.held_noted > HELD_NOTED_MIN {
            self.note_held();
        }
    }

    /// Bytes that wait for the peer to take them.
    #[inline(always)]
    pub(super) fn queued(&self) -> usize {
        let pending = self.pending.as_ref().map_or(0, |buffer| buffer.len());
        pending + self.socket.as_ref().map_or(0, Transport::queued)
    }

    /// The connection is lost.
    pub(super) fn fail_streams(&mut self, reason: &ResetReason) {
        for stream in self.streams.values_mut() {
            stream.fail(reason);
        }
        self.role.settings_known();
    }

    /// Resets a stream and sends the reset.
    pub(super) fn reset(&mut self, stream: StreamId, code: Code) {
        let (machine, out) = self.machine();
        if let Some(was_reset) = machine.reset(stream, code, out) {
            R::reset_sent(self, was_reset);
        }
    }

    /// Lets the peer read what was sent, although it may still be sending (rule 16).
    pub(super) fn finish(&mut self) {
        self.flush();
        if let Some(socket) = self.socket.take() {
            socket.finish();
        }
    }
}

impl From<ExchangeId> for StreamId {
    fn from(id: ExchangeId) -> StreamId {
        StreamId::new(id.0 as u32)
    }
}

impl From<StreamId> for ExchangeId {
    fn from(id: StreamId) -> ExchangeId {
        ExchangeId(u64::from(id.get()))
    }
}
