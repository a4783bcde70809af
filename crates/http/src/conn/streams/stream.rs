//! One stream beside its state in the machine: its exchange, and content on its way.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::task::Waker;
use std::time::Instant;

use blitz_proto::{Error, Fields};
use blitz_reactor::{Chunk, Slice};

use super::response::Response;
use crate::error::BodyError;
use crate::exchange::{BodyState, ExchangeState, wake};
use crate::recycle::Pooled;
use crate::tls::TlsError;

/// A connection's state of each of its streams.
pub(in crate::conn) type Streams<Id, State> = HashMap<Id, State, BuildHasherDefault<StreamHasher>>;

/// Numbers of streams ascend, and the machine bounds the number of open streams, so a peer cannot choose
/// numbers that collide.
#[derive(Default)]
pub(in crate::conn) struct StreamHasher(u64);

impl Hasher for StreamHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("a stream is a number")
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

pub(in crate::conn) struct Stream {
    pub(in crate::conn) exchange: ExchangeState,
    /// Content received and not yet taken.
    pub(in crate::conn) parts: VecDeque<Slice>,
    pub(in crate::conn) trailers: Option<Pooled<Fields>>,
    pub(in crate::conn) sending: QueuedContent,
    /// On a client: the response head, until the body follows.
    pub(in crate::conn) response: Response,
    /// The request is CONNECT, so that a 2xx opens a tunnel.
    pub(in crate::conn) is_connect: bool,
    /// The response is complete and the task has ended; the rest of the request is discarded.
    pub(in crate::conn) is_lingering: bool,
}

/// Content of our message that waits.
pub(in crate::conn) struct QueuedContent {
    /// Bytes that no window has room for.
    pub(in crate::conn) queue: VecDeque<Chunk>,
    /// Bytes in it.
    pub(in crate::conn) queued: usize,
    /// The end that follows when the queue is empty.
    pub(in crate::conn) end: Ending,
    /// Woken at `wake_at` bytes or less.
    pub(in crate::conn) writer: Option<Waker>,
    pub(in crate::conn) wake_at: usize,
    /// When the peer last took a byte, or the first was queued.
    pub(in crate::conn) progress: Instant,
}

impl QueuedContent {
    /// Queues content. Pieces of less than `slice_bytes_min` are copied together while they wait: each alone would
    /// occupy a receive buffer, and an entry in the queue that is larger than itself (rule 3).
    pub(in crate::conn) fn push(&mut self, chunk: Chunk, slice_bytes_min: usize) {
        if chunk.len() >= slice_bytes_min {
            return self.queue.push_back(chunk);
        }
        let last = self.queue.back_mut();
        if !last.is_some_and(|last| last.try_append(&chunk)) {
            self.queue.push_back(chunk.kept());
        }
    }
}

pub(in crate::conn) enum Ending {
    /// More content may come.
    Open,
    /// The content is complete.
    Plain,
    /// Trailers come last.
    Trailers(Pooled<Fields>),
}

impl Stream {
    pub(in crate::conn) fn new() -> Box<Stream> {
        Box::new(Stream {
            exchange: ExchangeState::default(),
            parts: VecDeque::new(),
            trailers: None,
            sending: QueuedContent {
                queue: VecDeque::new(),
                queued: 0,
                end: Ending::Open,
                writer: None,
                wake_at: 0,
                progress: blitz_reactor::now(),
            },
            response: Response::default(),
            is_connect: false,
            is_lingering: false,
        })
    }

    /// Drops all content of messages.
    pub(in crate::conn) fn drop_content(&mut self) {
        self.parts.clear();
        self.trailers = None;
        self.sending.queue.clear();
        self.sending.queued = 0;
        self.sending.end = Ending::Open;
        self.response.clear();
    }

    /// Resets the state of a stream that was used before and has no content any more. Its timer may go off for nothing.
    pub(in crate::conn) fn renew(&mut self) {
        self.exchange.clear();
        self.sending.writer = None;
        self.sending.wake_at = 0;
        self.sending.progress = blitz_reactor::now();
        self.is_connect = false;
        self.is_lingering = false;
    }

    /// Whether its memory is small enough to be kept: the queues of some have grown large.
    pub(in crate::conn) fn fits_pool(&self) -> bool {
        self.parts.capacity() + self.sending.queue.capacity() <= 16
    }

    /// Takes out the bytes that were received and not taken. Returns their number.
    pub(in crate::conn) fn drain_parts(&mut self) -> usize {
        self.parts.drain(..).map(|part| part.len()).sum()
    }

    /// The peer is gone: wakes every task that waits for the stream.
    pub(in crate::conn) fn fail(&mut self, reason: &ResetReason) {
        let exchange = &mut self.exchange;
        exchange.is_gone = true;
        if matches!(exchange.receiving.body, BodyState::Open) {
            exchange.receiving.body = BodyState::Failed(reason.of_body());
        }
        self.response.fail(reason);
        exchange.wake_all();
        wake(&mut self.sending.writer);
    }
}

/// Why a stream ended early.
pub(crate) enum ResetReason {
    /// The peer reset it, or the whole connection.
    Reset,
    /// The connection ended.
    Truncated,
    /// The peer broke a rule, here or on the connection.
    Malformed(Error),
    /// The peer ended TLS with an alert.
    Tls(TlsError),
    /// The server has reported that it did not process the request.
    Refused,
}

impl ResetReason {
    fn of_body(&self) -> BodyError {
        match self {
            ResetReason::Reset | ResetReason::Tls(_) | ResetReason::Refused => BodyError::Reset,
            ResetReason::Truncated => BodyError::Truncated,
            ResetReason::Malformed(error) => BodyError::Malformed(*error),
        }
    }
}
