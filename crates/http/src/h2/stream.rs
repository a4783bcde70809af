//! What is known of one stream beside its state in the machine: bytes on their way, and who waits.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::task::{Context, Waker};
use std::time::Instant;

use blitz_proto::h2::StreamId;
use blitz_proto::{Error, Fields};
use blitz_reactor::{Chunk, Slice};

use super::client::Answer;
use crate::error::BodyError;
use crate::pace::Pace;
use crate::recycle::Pooled;
use crate::timer::LazyTimer;

/// The streams of a connection.
pub(super) type Streams = HashMap<StreamId, Box<Stream>, BuildHasherDefault<StreamHasher>>;

/// Numbers of streams come in order and from a machine that bounds how many are open: nobody can
/// choose them to collide.
#[derive(Default)]
pub(super) struct StreamHasher(u64);

impl Hasher for StreamHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("a stream is a number")
    }

    fn write_u32(&mut self, number: u32) {
        self.0 = u64::from(number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

pub(super) struct Stream {
    pub(super) receiving: Receiving,
    pub(super) sending: Sending,
    /// What a client waits for before the body.
    pub(super) answer: Answer,
    /// The task of the exchange, while it waits.
    pub(super) task: Option<Waker>,
    /// Who waits for the end of the exchange.
    pub(super) closed: Option<Waker>,
    pub(super) timer: LazyTimer,
    /// The peer gave the stream up, or the connection is lost.
    pub(super) is_gone: bool,
    pub(super) is_tunnel: bool,
    /// It carries messages that may be far apart: only the deadline of idle streams holds.
    pub(super) is_patient: bool,
    /// On a server: the client takes problem+json, as the head of a request with content said.
    pub(super) takes_problem: bool,
    /// It is answered, and has no task any more; the rest of the request is passed over.
    pub(super) lingers: bool,
}

/// The message of the peer.
pub(super) struct Receiving {
    /// Received and not yet taken.
    pub(super) parts: VecDeque<Slice>,
    pub(super) trailers: Option<Pooled<Fields>>,
    pub(super) body: Body,
    pub(super) reader: Option<Waker>,
    pub(super) pace: Pace,
    /// When something last arrived.
    pub(super) last: Instant,
}

/// Where it stands.
#[derive(Clone)]
pub(super) enum Body {
    /// All of it was received, though it may not have been taken.
    Done,
    /// More is to come for a reader.
    Open,
    /// Nobody wants what comes.
    Unwanted,
    /// It ended early.
    Failed(BodyError),
}

/// Our message.
pub(super) struct Sending {
    pub(super) message: Message,
    /// What no window was open for.
    pub(super) queue: VecDeque<Chunk>,
    /// Bytes in it.
    pub(super) queued: usize,
    /// What follows when the queue is empty.
    pub(super) end: Ending,
    /// Woken at `wake_at` bytes or less.
    pub(super) writer: Option<Waker>,
    pub(super) wake_at: usize,
    /// When the peer last took a byte, or the first was queued.
    pub(super) progress: Instant,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Message {
    /// Somebody still has to answer.
    Due,
    /// Content is being sent.
    Open,
    /// Complete, down to the last frame.
    Done,
    /// Nobody will answer.
    Missing,
    /// Given up in the middle.
    Cut,
}

pub(super) enum Ending {
    /// More content may come.
    Open,
    /// The content is complete.
    Plain,
    /// Trailers come last.
    Trailers(Pooled<Fields>),
}

impl Stream {
    pub(super) fn new() -> Box<Stream> {
        let now = blitz_reactor::now();
        Box::new(Stream {
            receiving: Receiving {
                parts: VecDeque::new(),
                trailers: None,
                body: Body::Done,
                reader: None,
                pace: Pace::default(),
                last: now,
            },
            sending: Sending {
                message: Message::Due,
                queue: VecDeque::new(),
                queued: 0,
                end: Ending::Open,
                writer: None,
                wake_at: 0,
                progress: now,
            },
            answer: Answer::default(),
            task: None,
            closed: None,
            timer: LazyTimer::default(),
            is_gone: false,
            is_tunnel: false,
            is_patient: false,
            takes_problem: false,
            lingers: false,
        })
    }

    /// Drops all that it holds of messages.
    pub(super) fn drop_content(&mut self) {
        self.receiving.parts.clear();
        self.receiving.trailers = None;
        self.sending.queue.clear();
        self.sending.queued = 0;
        self.sending.end = Ending::Open;
        self.answer.clear();
    }

    /// Makes a stream that was used before, and has no content any more, as good as new. Its timer may
    /// go off for nothing.
    pub(super) fn renew(&mut self) {
        let Stream {
            receiving, sending, ..
        } = self;
        receiving.body = Body::Done;
        receiving.reader = None;
        receiving.pace = Pace::default();
        receiving.last = blitz_reactor::now();
        sending.message = Message::Due;
        sending.writer = None;
        sending.wake_at = 0;
        sending.progress = receiving.last;
        self.task = None;
        self.closed = None;
        self.is_gone = false;
        self.is_tunnel = false;
        self.is_patient = false;
        self.takes_problem = false;
        self.lingers = false;
    }

    /// Whether it is worth keeping: the queues of some have grown large.
    pub(super) fn is_modest(&self) -> bool {
        self.receiving.parts.capacity() + self.sending.queue.capacity() <= 16
    }

    pub(super) fn wake_task(&mut self) {
        wake(&mut self.task);
    }

    /// The peer is gone: whoever waits for anything of the stream has to know.
    pub(super) fn lose_peer(&mut self, loss: &Loss) {
        self.is_gone = true;
        if matches!(self.receiving.body, Body::Open) {
            self.receiving.body = Body::Failed(loss.of_body());
        }
        self.answer.fail(loss);
        wake(&mut self.receiving.reader);
        wake(&mut self.sending.writer);
        wake(&mut self.closed);
        self.wake_task();
    }
}

/// How a stream came to its end before its time.
pub(super) enum Loss {
    /// The peer reset it, or the whole connection.
    Reset,
    /// The connection ended.
    Truncated,
    /// The peer broke a rule, here or on the connection.
    Malformed(Error),
    /// The server has said that it did nothing about the request.
    Refused,
}

impl Loss {
    fn of_body(&self) -> BodyError {
        match self {
            Loss::Reset | Loss::Refused => BodyError::Reset,
            Loss::Truncated => BodyError::Truncated,
            Loss::Malformed(error) => BodyError::Malformed(*error),
        }
    }
}

impl Receiving {
    pub(super) fn wait(&mut self, cx: &Context<'_>) {
        note(&mut self.reader, cx);
        self.pace.begin_waiting();
    }

    /// Something arrived: the time of waiting for it is over.
    pub(super) fn arrived(&mut self) {
        self.last = blitz_reactor::now();
        self.pace.end_waiting();
        wake(&mut self.reader);
    }
}

pub(super) fn wake(waker: &mut Option<Waker>) {
    if let Some(waker) = waker.take() {
        waker.wake();
    }
}

/// Remembers the caller's task.
pub(super) fn note(place: &mut Option<Waker>, cx: &Context<'_>) {
    if !place
        .as_ref()
        .is_some_and(|waker| waker.will_wake(cx.waker()))
    {
        *place = Some(cx.waker().clone());
    }
}
