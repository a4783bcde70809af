//! The state of an exchange.

use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use blitz_proto::{BodyLength, Limits};

use super::pace::Pace;
use crate::error::BodyError;
use crate::options::RequestOptions;
use crate::timer::LazyTimer;

/// The state of an exchange, apart from that of its machine.
#[derive(Default)]
pub(crate) struct ExchangeState {
    pub(crate) receiving: IncomingMessage,
    /// Our message.
    pub(crate) message: MessageState,
    /// The exchange's task on a server, while it waits.
    pub(crate) task: Option<Waker>,
    /// Moved by storing a deadline; it outlives the exchange in pooled state.
    pub(crate) timer: LazyTimer,
    /// The peer has given the exchange up, or the connection is lost.
    pub(crate) is_gone: bool,
    /// Both directions are bytes of another protocol.
    pub(crate) is_tunnel: bool,
    /// The messages are streams of messages, which may be far apart: only the deadline of idle
    /// streams holds (rule 18).
    pub(crate) has_no_min_rate: bool,
    /// On a server: reading sends no `100 Continue`, and its reader does not hurry the client.
    pub(crate) holds_continue: bool,
    /// On a server, of a request with content: its head accepts problem+json.
    pub(crate) accepts_problem: bool,
    /// The request's own.
    pub(crate) options: RequestOptions,
}

/// The message of the peer.
#[derive(Default)]
pub(crate) struct IncomingMessage {
    pub(crate) body: BodyState,
    pub(crate) pace: Pace,
    /// When something last arrived.
    pub(crate) last: Option<Instant>,
    /// The reader's task, if the socket does not wake it.
    pub(crate) reader: Option<Waker>,
}

/// The state of the body of the peer's message.
#[derive(Debug, Clone, Default)]
pub(crate) enum BodyState {
    /// Received to its end, or there is none.
    #[default]
    Done,
    /// More is to come for a reader.
    Open,
    /// More is to come, and there is no reader.
    Unwanted,
    /// It ended early.
    Failed(BodyError),
}

/// The state of our message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum MessageState {
    /// Not begun: on a server the response is due.
    #[default]
    Due,
    /// Its content is being sent, or bytes of a tunnel.
    Open,
    /// Complete, down to its last frame.
    Done,
    /// Abandoned before it was begun.
    Missing,
    /// Truncated.
    Cut,
}

impl ExchangeState {
    /// Ready for the next exchange. The timer stays, and may go off for nothing.
    pub(crate) fn clear(&mut self) {
        self.receiving.clear();
        self.message = MessageState::Due;
        self.task = None;
        self.is_gone = false;
        self.is_tunnel = false;
        self.has_no_min_rate = false;
        self.holds_continue = false;
        self.accepts_problem = false;
        self.options = RequestOptions::default();
    }

    /// How long streams of messages and tunnels may be silent.
    #[inline]
    pub(crate) fn stream_idle_timeout(&self, limits: &Limits) -> Duration {
        let least = self.options.body_timeout.unwrap_or_default();
        limits.stream_idle_timeout.max(least)
    }

    /// A body is to come.
    #[inline]
    pub(crate) fn begin_body(&mut self, length: BodyLength) {
        self.has_no_min_rate = false;
        self.holds_continue = false;
        self.receiving.body = BodyState::Open;
        self.receiving.pace = Pace::new(length);
        self.receiving.last = None;
    }

    #[inline]
    pub(crate) fn can_send(&self) -> bool {
        self.message == MessageState::Open && !self.is_gone
    }

    #[inline]
    pub(crate) fn wake_task(&mut self) {
        wake(&mut self.task);
    }

    /// Wakes the exchange's task, which watches the deadlines, for a writer in another task that waits
    /// for the peer.
    #[inline]
    pub(crate) fn wake_task_for(&mut self, writer: &Context<'_>) {
        let task = self.task.as_ref();
        if task.is_some_and(|task| !task.will_wake(writer.waker())) {
            self.wake_task();
        }
    }

    /// Wakes the tasks that wait for the exchange.
    pub(crate) fn wake_all(&mut self) {
        wake(&mut self.receiving.reader);
        self.wake_task();
    }
}

impl IncomingMessage {
    #[inline]
    pub(crate) fn is_complete(&self) -> bool {
        matches!(self.body, BodyState::Done)
    }

    /// A reader waits for more.
    pub(crate) fn wait(&mut self, cx: &Context<'_>) {
        self.wait_patiently(cx);
        self.pace.begin_waiting();
    }

    /// The same, while the sender is not told that it may send.
    pub(crate) fn wait_patiently(&mut self, cx: &Context<'_>) {
        note(&mut self.reader, cx);
    }

    /// Something arrived: the time of waiting for it is over.
    pub(crate) fn arrived(&mut self) {
        self.last = Some(blitz_reactor::now());
        self.pace.end_waiting();
        wake(&mut self.reader);
    }

    fn clear(&mut self) {
        self.body = BodyState::Done;
        self.pace = Pace::default();
        self.last = None;
        self.reader = None;
    }
}

#[inline]
pub(crate) fn wake(waker: &mut Option<Waker>) {
    if let Some(waker) = waker.take() {
        waker.wake();
    }
}

/// Stores the caller's waker.
#[inline]
pub(crate) fn note(slot: &mut Option<Waker>, cx: &Context<'_>) {
    if !slot
        .as_ref()
        .is_some_and(|waker| waker.will_wake(cx.waker()))
    {
        *slot = Some(cx.waker().clone());
    }
}
