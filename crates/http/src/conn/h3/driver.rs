//! The state of one connection, shared by the endpoint's task, its exchanges and their handles.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::{Duration, Instant};

use blitz_proto::h3::{self, Code, Received, StreamId};
use blitz_proto::{Limits, Priority, Schedule};
use blitz_quic::Connection;
use blitz_quic::quinn_proto;
use bytes::{Buf, Bytes};

use super::protocol::Http3;
use super::role::Role;
use super::unread::Unread;
use crate::conn::streams::spare::SpareStreams;
use crate::conn::streams::stream::{ResetReason, Stream, Streams};
use crate::exchange::{ExchangeId, Link, ReceivedContent};

/// One connection, of a client or to a server.
pub(crate) struct Conn<R: Role> {
    pub(super) driver: RefCell<Driver<R>>,
}

/// A connection that carries an exchange on each stream.
pub(crate) struct Driver<R: Role> {
    pub(super) role: R,
    /// `None` once it is lost or closed.
    pub(super) quic: Option<Rc<Connection<Http3<R>>>>,
    pub(super) machine: h3::Connection,
    pub(super) streams: Streams<StreamId, RequestStream>,
    /// Our streams beside the requests: control, and QPACK's decoder.
    pub(super) own: [Option<quinn_proto::StreamId>; 2],
    /// Encoded bytes that are not yet written; a head leaves with the content behind it.
    pub(super) out: Vec<u8>,
    /// Bytes that all streams have queued.
    pub(super) unsent: usize,
    /// Streams whose writers wait because the core is short of memory.
    pub(super) awaiting_memory: Vec<StreamId>,
    /// Streams with something queued, in the order in which they send.
    pub(super) schedule: Schedule<StreamId>,
    /// Streams whose messages were sent completely, and not acknowledged completely.
    pub(super) unacknowledged: Vec<StreamId>,
    /// The last progress of these streams: QUIC took bytes of a message, a message was acknowledged, or the first
    /// stream was listed.
    pub(super) acknowledged_at: Instant,
    /// The time at which the connection became idle.
    pub(super) idle_since: Option<Instant>,
    /// When PING is due. It keeps a connection with requests alive beyond the idle timeouts of both ends.
    pub(super) ping: Option<Instant>,
    pub(super) unread: Unread,
    pub(super) window: ReceiveWindow,
    /// Content of all streams that readers have taken.
    pub(super) received: ReceivedContent,
    pub(super) shared: Rc<Shared<R>>,
}

/// A stream with a request; the machine has a state of its own for it.
pub(crate) struct RequestStream {
    pub(super) state: Box<Stream>,
    /// Pieces that were read from QUIC, and that the machine has not taken yet.
    pub(super) input: Pieces,
    /// The offset behind these pieces; the maximum if QUIC holds nothing more of the stream, whatever arrives.
    pub(super) read_to: u64,
    /// The stream ends behind these pieces.
    pub(super) has_fin: bool,
    /// The machine has taken this end.
    pub(super) is_fin_taken: bool,
    /// The machine waits for instructions of QPACK, and is to be called again without more input.
    pub(super) is_blocked: bool,
    /// The peer's head, to a client the final one, has not come completely.
    pub(super) awaits_head: bool,
    /// QUIC has taken our whole message.
    pub(super) is_finished: bool,
    /// The offset from which the rest of a request is discarded after its response.
    pub(super) discards_from: u64,
    pub(super) priority: Priority,
}

/// A queue that allocates nothing for one piece: most requests have no more.
#[derive(Default)]
pub(super) struct Pieces {
    first: Option<Bytes>,
    /// Empty if `first` is `None`.
    more: VecDeque<Bytes>,
}

impl Pieces {
    pub(super) fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.more.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    pub(super) fn front(&self) -> Option<&Bytes> {
        self.first.as_ref()
    }

    pub(super) fn push(&mut self, piece: Bytes) {
        match self.first {
            None => self.first = Some(piece),
            Some(_) => self.more.push_back(piece),
        }
    }

    /// Drops bytes of the first piece.
    pub(super) fn consume(&mut self, bytes: usize) {
        match &mut self.first {
            Some(first) if bytes < first.len() => first.advance(bytes),
            Some(_) => self.first = self.more.pop_front(),
            None => {}
        }
    }

    pub(super) fn clear(&mut self) {
        *self = Pieces::default();
    }
}

/// The bytes that the peer may send before they are read.
pub(super) struct ReceiveWindow {
    pub(super) bytes: usize,
    /// The window that QUIC has: `bytes`, and above it the credit that was granted and is not taken back yet.
    pub(super) granted: usize,
    /// The shared memory that unread content takes beyond the window.
    pub(super) beyond: usize,
    /// Bytes that were read and frames that came since the last look at the clock, and the time of that look.
    pub(super) read: usize,
    pub(super) frames: usize,
    pub(super) since: Instant,
    /// The window may not grow, and unread content may have used it up.
    pub(super) is_used_up: bool,
}

/// The state that the connections of a listener share, or those to servers with the same options.
pub(crate) struct Shared<R: Role> {
    pub(super) options: Rc<R::Options>,
    pub(super) role: R::Shared,
    pub(super) received: RefCell<Received>,
    /// The start of the machines' time: the first time that one of them read the clock.
    epoch: OnceCell<Instant>,
    pub(super) spare: SpareStreams,
    /// The growth of the windows of all connections, and the memory that is held beyond them, in bytes.
    pub(super) windows_grown: Cell<usize>,
}

impl<R: Role> Shared<R> {
    pub(crate) fn new(options: Rc<R::Options>, role: R::Shared) -> Rc<Shared<R>> {
        Rc::new(Shared {
            options,
            role,
            received: RefCell::default(),
            epoch: OnceCell::new(),
            spare: SpareStreams::default(),
            windows_grown: Cell::new(0),
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
    pub(super) fn new(
        machine: h3::Connection,
        role: R,
        quic: &Rc<Connection<Http3<R>>>,
        shared: &Rc<Shared<R>>,
    ) -> Rc<Conn<R>> {
        let now = blitz_reactor::now();
        let driver = Driver {
            role,
            quic: Some(Rc::clone(quic)),
            machine,
            streams: Streams::default(),
            own: [None; 2],
            out: Vec::new(),
            unsent: 0,
            awaiting_memory: Vec::new(),
            schedule: Schedule::default(),
            unacknowledged: Vec::new(),
            acknowledged_at: now,
            idle_since: None,
            ping: None,
            unread: Unread::default(),
            window: ReceiveWindow {
                bytes: shared.limits().quic.window_bytes_min,
                granted: shared.limits().quic.window_bytes_min,
                beyond: 0,
                read: 0,
                frames: 0,
                since: now,
                is_used_up: false,
            },
            received: ReceivedContent::default(),
            shared: Rc::clone(shared),
        };
        Rc::new(Conn {
            driver: RefCell::new(driver),
        })
    }

    /// Works on the connection, and starts the requests that this has completed.
    pub(super) fn work(
        self: &Rc<Self>,
        act: impl FnOnce(&mut Driver<R>) -> Result<(), blitz_proto::Error>,
    ) {
        {
            let mut driver = self.driver.borrow_mut();
            if let Err(error) = act(&mut driver) {
                driver.fail(error);
            }
        }
        R::start_arrived(self);
    }
}

impl<R: Role> Link for Conn<R> {
    type Framing = Driver<R>;

    #[inline]
    fn with<T>(&self, act: impl FnOnce(&mut Driver<R>) -> T) -> T {
        act(&mut self.driver.borrow_mut())
    }

    #[inline]
    fn look<T>(&self, act: impl FnOnce(&mut Driver<R>) -> T) -> T {
        act(&mut self.driver.borrow_mut())
    }
}

impl RequestStream {
    /// Whether the response was sent, so that the rest of the request is discarded.
    pub(super) fn is_discarded(&self) -> bool {
        self.state.is_lingering && self.is_finished
    }

    pub(super) fn new(state: Box<Stream>) -> RequestStream {
        RequestStream {
            state,
            input: Pieces::default(),
            read_to: 0,
            has_fin: false,
            is_fin_taken: false,
            is_blocked: false,
            awaits_head: true,
            is_finished: false,
            discards_from: 0,
            priority: Priority::UNSTATED,
        }
    }
}

impl<R: Role> Driver<R> {
    pub(super) fn limits(&self) -> &Limits {
        self.shared.limits()
    }

    pub(super) fn stream(&mut self, id: StreamId) -> Option<&mut Stream> {
        self.streams.get_mut(&id).map(|stream| &mut *stream.state)
    }

    /// Works on the streams of QUIC, unless the connection is lost.
    pub(super) fn quic<T>(&self, act: impl FnOnce(&mut quinn_proto::Connection) -> T) -> Option<T> {
        self.quic.as_ref()?.with(act)
    }

    /// The connection is lost.
    pub(super) fn fail_streams(&mut self, reason: &ResetReason) {
        for stream in self.streams.values_mut() {
            stream.state.fail(reason);
        }
        // Streams without handles are removed here, because nothing else ends them.
        self.streams.retain(|_, stream| R::has_handles(stream));
        self.unsent = self
            .streams
            .values()
            .map(|stream| stream.state.sending.queued)
            .sum();
        self.unacknowledged.clear();
        self.schedule = Schedule::default();
    }

    /// Ends our direction of a stream early.
    pub(super) fn reset_sending(&mut self, id: StreamId, code: Code) {
        self.unacknowledged.retain(|other| *other != id);
        self.quic(|quic| {
            let code = var_int(code.0);
            // A stream that has ended already is not reset.
            let _ = quic.send_stream(stream_of(id)).reset(code);
        });
    }

    /// The peer has all of a message.
    pub(super) fn acknowledged(&mut self, id: StreamId) {
        if let Some(at) = self.unacknowledged.iter().position(|other| *other == id) {
            self.unacknowledged.swap_remove(at);
            self.acknowledged_at = blitz_reactor::now();
            R::message_acknowledged(self);
        }
    }

    /// Ends both directions of a stream early.
    pub(super) fn reset(&mut self, id: StreamId, code: Code) {
        self.reset_sending(id, code);
        self.stop(id, code);
    }
}

/// The number of a stream in QUIC's machine.
pub(super) fn stream_of(id: StreamId) -> quinn_proto::StreamId {
    quinn_proto::StreamId::from(var_int(id.get()))
}

pub(super) fn id_of(stream: quinn_proto::StreamId) -> StreamId {
    StreamId::new(quinn_proto::VarInt::from(stream).into_inner())
}

pub(super) fn var_int(value: u64) -> quinn_proto::VarInt {
    quinn_proto::VarInt::from_u64(value).unwrap_or(quinn_proto::VarInt::MAX)
}

impl From<ExchangeId> for StreamId {
    fn from(id: ExchangeId) -> StreamId {
        StreamId::new(id.0)
    }
}

impl From<StreamId> for ExchangeId {
    fn from(id: StreamId) -> ExchangeId {
        ExchangeId(id.get())
    }
}
