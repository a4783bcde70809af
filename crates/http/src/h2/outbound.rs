//! Messages: heads are encoded at once, content is sent as windows and turns allow.

use std::rc::Rc;
use std::task::{Context, Poll};

use blitz_proto::h2::{Code, StreamId};
use blitz_proto::{BodyLength, Fields, Limits, ResponseHead};
use blitz_reactor::{Buffer, Chunk};

use super::stream::{Body, Ending, Message, note, wake};
use super::wire::{State, Wire};
use crate::body::{RecvBody, SendBody, Tunnel};
use crate::counters::count;
use crate::error::SendError;
use crate::recycle::Pooled;

/// Bytes queued at the socket before streams have to wait for their turn: later choices are better
/// choices, and little waits in front of a stream that is more urgent.
const SOCKET_BYTES_MAX: usize = 128 * 1024;

/// Shares of a stream that a connection may have queued, and hold, while the core is short of memory.
pub(super) const STREAMS_WHEN_SHORT: usize = 4;

/// A connection that has no more than this queued gets more however short the core of memory is.
const UNSENT_MIN: usize = 4 * 1024;

/// How much a stream may have queued.
enum Room {
    Stream(usize),
    /// The connection has enough, whoever asks.
    None,
}

impl Wire {
    pub(crate) fn expects_continue(&self, stream: StreamId) -> bool {
        self.state.borrow().machine.expects_continue(stream)
    }

    /// Whether the request is an extended CONNECT (RFC 8441), or a plain one.
    pub(crate) fn upgrade_requested(&self, stream: StreamId) -> bool {
        let mut state = self.state.borrow_mut();
        state.stream(stream).is_some_and(|stream| stream.is_tunnel)
    }

    pub(crate) fn send_informational(&self, stream: StreamId, head: &ResponseHead) {
        self.in_stream(stream, |state, stream| {
            let (machine, out) = state.machine();
            machine.send_informational(stream, head, out);
        });
    }

    /// Sends a head; content follows.
    pub(crate) fn start_response(
        wire: Rc<Wire>,
        stream: StreamId,
        head: &mut ResponseHead,
        length: BodyLength,
    ) -> SendBody {
        let started = wire.in_stream(stream, |state, stream| {
            state.send_head(stream, head, length);
            state.finish_without_content(stream)
        });
        match started {
            Some(true) if length == BodyLength::Empty => SendBody::done(),
            Some(true) => SendBody::discard(),
            // The handle of a stream that is gone finds out when it is used.
            Some(false) | None => SendBody::h2(wire, stream),
        }
    }

    /// Sends a complete answer.
    pub(crate) fn send_response(&self, stream: StreamId, head: &mut ResponseHead, content: Chunk) {
        self.in_stream(stream, |state, stream| {
            state.send_whole(stream, head, content);
        });
    }

    /// Sends 2xx to CONNECT; from then on both directions are opaque.
    pub(crate) fn start_tunnel(
        wire: Rc<Wire>,
        stream: StreamId,
        head: &mut ResponseHead,
    ) -> Tunnel {
        wire.in_stream(stream, |state, stream| {
            State::edit_tunnel_head(head);
            state.send_head(stream, head, BodyLength::Unknown);
            count(|counters| counters.upgrades += 1);
        });
        Tunnel {
            recv: RecvBody::h2(Rc::clone(&wire), stream, BodyLength::Unknown),
            send: SendBody::h2(wire, stream),
        }
    }

    /// Ends the exchange without an answer.
    pub(crate) fn abort(&self, stream: StreamId) {
        self.in_stream(stream, |state, stream| {
            state.set_message(stream, Message::Cut);
        });
    }

    pub(crate) fn poll_closed(&self, stream: StreamId, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state.borrow_mut();
        match state.stream(stream) {
            Some(known) if !known.is_gone => {
                note(&mut known.closed, cx);
                Poll::Pending
            }
            _ => Poll::Ready(()),
        }
    }

    /// Nobody will answer.
    pub(crate) fn drop_responder(&self, stream: StreamId) {
        self.in_stream(stream, |state, stream| {
            state.set_message(stream, Message::Missing);
        });
    }

    pub(crate) fn poll_room(
        &self,
        stream: StreamId,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), SendError>> {
        self.state.borrow_mut().poll_room(stream, cx)
    }

    pub(crate) fn send_data(&self, stream: StreamId, chunk: Chunk) -> Result<(), SendError> {
        self.in_stream(stream, |state, stream| state.send_data(stream, chunk))
            .unwrap_or(Err(SendError::Closed))
    }

    pub(crate) fn send_end(
        &self,
        stream: StreamId,
        trailers: Option<&Fields>,
    ) -> Result<(), SendError> {
        self.in_stream(stream, |state, stream| state.send_end(stream, trailers))
            .unwrap_or(Err(SendError::Closed))
    }

    /// The writer is gone without having finished.
    pub(crate) fn drop_send(&self, stream: StreamId) {
        self.in_stream(stream, |state, stream| {
            state.cut_message(stream);
        });
    }
}

impl State {
    fn poll_room(&mut self, stream: StreamId, cx: &mut Context<'_>) -> Poll<Result<(), SendError>> {
        let room = self.room();
        let Some(known) = self.stream(stream) else {
            return Poll::Ready(Err(SendError::Closed));
        };
        if known.is_gone || known.sending.message != Message::Open {
            return Poll::Ready(Err(SendError::Closed));
        }
        let below = match room {
            Room::Stream(below) if known.sending.queued <= below => return Poll::Ready(Ok(())),
            Room::Stream(below) => below,
            Room::None => 0,
        };
        note(&mut known.sending.writer, cx);
        known.sending.wake_at = below;
        if matches!(room, Room::None) && !self.crowded.contains(&stream) {
            count(|counters| counters.h2_held_back += 1);
            self.crowded.push(stream);
        }
        Poll::Pending
    }

    /// What a stream may have queued before it gets another piece. Half of its share is for what
    /// was received and is not yet taken (rule 4); when the connection has its share queued, each
    /// stream is down to a piece at a time; and while the core is short of memory one that has more
    /// than a few streams' worth gets nothing. Towards an upstream only the stream counts, since
    /// others' requests must not wait for one whom the server lets wait.
    fn room(&self) -> Room {
        let limits = self.limits();
        let share = blitz_reactor::fair_share();
        let usual = (limits.stream_buffer_bytes_max / 4).min(share);
        if self.shared.is_client() {
            return Room::Stream(usual);
        }
        if is_short(share, limits) && self.unsent > UNSENT_MIN.max(share * STREAMS_WHEN_SHORT) {
            Room::None
        } else if self.unsent <= limits.connection_buffer_bytes_max / 2 {
            Room::Stream(usual)
        } else {
            Room::Stream(0)
        }
    }

    /// Some of what streams had queued is gone.
    fn note_sent(&mut self, bytes: usize) {
        self.unsent -= bytes;
        self.call_crowded();
    }

    /// There may be room for those who got none.
    pub(super) fn call_crowded(&mut self) {
        for stream in std::mem::take(&mut self.crowded) {
            if let Some(known) = self.stream(stream) {
                wake(&mut known.sending.writer);
            }
        }
    }

    pub(super) fn set_message(&mut self, stream: StreamId, message: Message) {
        if let Some(known) = self.stream(stream) {
            known.sending.message = message;
            known.wake_task();
            if self.shared.is_client() {
                self.settle(stream);
            }
        }
    }

    fn send_head(&mut self, stream: StreamId, head: &mut ResponseHead, length: BodyLength) {
        self.decorate(head);
        let class = usize::from(head.status.class()).clamp(1, 5) - 1;
        count(|counters| counters.responses[class] += 1);
        let (machine, out) = self.machine();
        machine.send_head(stream, head, length, out);
        self.set_message(stream, Message::Open);
    }

    /// Completes the answer if no content is left to send.
    fn finish_without_content(&mut self, stream: StreamId) -> bool {
        let ended = !self.machine.sends_body(stream);
        if ended {
            self.set_message(stream, Message::Done);
        }
        ended
    }

    pub(super) fn send_whole(&mut self, stream: StreamId, head: &mut ResponseHead, content: Chunk) {
        let length = match content.len() {
            0 => BodyLength::Empty,
            bytes => BodyLength::Known(bytes as u64),
        };
        self.send_head(stream, head, length);
        if self.finish_without_content(stream) {
            return;
        }
        let Some(known) = self.stream(stream) else {
            return;
        };
        known.sending.end = Ending::Plain;
        // With a length of its own it cannot be too long or too short.
        let _ = self.send_data(stream, content);
    }

    /// Sends what a window is open for and queues the rest.
    fn send_data(&mut self, stream: StreamId, chunk: Chunk) -> Result<(), SendError> {
        let is_full = self.queued() > SOCKET_BYTES_MAX;
        let Some(known) = self.streams.get_mut(&stream) else {
            return Err(SendError::Closed);
        };
        if known.is_gone || known.sending.message != Message::Open {
            return Err(SendError::Closed);
        }
        if chunk.is_empty() {
            return Ok(());
        }
        let sending = &mut known.sending;
        sending.queued += chunk.len();
        self.unsent += chunk.len();
        // Behind others, and behind a full socket, it has to wait for its turn.
        let waits = !sending.queue.is_empty();
        if waits {
            sending.queue.push_back(chunk);
            return Ok(());
        }
        sending.progress = blitz_reactor::now();
        if is_full {
            sending.queue.push_back(chunk);
            self.machine.mark_ready(stream);
            return Ok(());
        }
        self.send_frame(stream, chunk)
    }

    /// Sends a frame of what a stream has queued.
    fn send_queued(&mut self, stream: StreamId) -> Result<(), SendError> {
        let Some(known) = self.stream(stream) else {
            return Err(SendError::Closed);
        };
        match known.sending.queue.pop_front() {
            Some(front) => self.send_frame(stream, front),
            None => self.end_message(stream),
        }
    }

    /// Sends a frame of `chunk`, which was taken from the front of the queue; marks the stream as
    /// ready if something is left.
    fn send_frame(&mut self, stream: StreamId, mut chunk: Chunk) -> Result<(), SendError> {
        let Some(known) = self.streams.get_mut(&stream) else {
            return Err(SendError::Closed);
        };
        let sending = &mut known.sending;
        let is_last = sending.queue.is_empty() && matches!(sending.end, Ending::Plain);
        let out = self.pending.get_or_insert_with(Buffer::take);
        let Ok(now) = self.machine.send_data(stream, chunk.len(), is_last, out) else {
            self.cut_message(stream);
            return Err(SendError::Length);
        };
        sending.queued -= now;
        let is_whole = now == chunk.len();
        let part = if is_whole {
            chunk
        } else {
            let part = chunk.split_to(now);
            sending.queue.push_front(chunk);
            part
        };
        let has_more = !sending.queue.is_empty();
        if now > 0 {
            sending.progress = blitz_reactor::now();
            if sending.queued <= sending.wake_at {
                wake(&mut sending.writer);
            }
            self.append(part);
            self.note_sent(now);
        }
        if has_more {
            self.machine.mark_ready(stream);
            Ok(())
        } else if is_last {
            self.set_message(stream, Message::Done);
            Ok(())
        } else {
            self.end_message(stream)
        }
    }

    /// Nothing is queued: ends the message, if that was asked for.
    fn end_message(&mut self, stream: StreamId) -> Result<(), SendError> {
        let Some(known) = self.stream(stream) else {
            return Err(SendError::Closed);
        };
        let trailers = match std::mem::replace(&mut known.sending.end, Ending::Open) {
            Ending::Open => return Ok(()),
            Ending::Plain => None,
            Ending::Trailers(trailers) => Some(trailers),
        };
        let (machine, out) = self.machine();
        if machine.send_end(stream, trailers.as_deref(), out).is_err() {
            self.cut_message(stream);
            return Err(SendError::Length);
        }
        self.set_message(stream, Message::Done);
        Ok(())
    }

    fn send_end(&mut self, stream: StreamId, trailers: Option<&Fields>) -> Result<(), SendError> {
        let Some(known) = self.stream(stream) else {
            return Err(SendError::Closed);
        };
        if known.is_gone || known.sending.message != Message::Open {
            return Err(SendError::Closed);
        }
        known.sending.end = match trailers {
            None => Ending::Plain,
            Some(trailers) => {
                let mut copy = Pooled::<Fields>::take();
                copy.clone_from(trailers);
                Ending::Trailers(copy)
            }
        };
        if known.sending.queue.is_empty() {
            self.end_message(stream)
        } else {
            Ok(())
        }
    }

    /// Gives the message up in the middle, so that the peer sees that it is incomplete.
    fn cut_message(&mut self, stream: StreamId) {
        if let Some(known) = self.stream(stream)
            && known.sending.message == Message::Open
        {
            known.sending.message = Message::Cut;
            known.wake_task();
            if self.shared.is_client() {
                self.give_up_request(stream);
            }
        }
    }

    /// Sends what windows and the socket have room for, each stream in its turn.
    pub(super) fn send_content(&mut self) {
        while self.queued() <= SOCKET_BYTES_MAX {
            let Some(stream) = self.machine.next_to_send() else {
                break;
            };
            // What goes wrong is noted in the stream.
            let _ = self.send_queued(stream);
        }
        self.flush();
    }

    /// Ready while the socket has room for more.
    pub(super) fn poll_socket_room(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        let Some(socket) = &self.socket else {
            return Poll::Ready(false);
        };
        match socket.poll_send_room(cx, SOCKET_BYTES_MAX) {
            Poll::Ready(room) => Poll::Ready(room.is_ok()),
            Poll::Pending => Poll::Pending,
        }
    }

    /// Whether nothing of the request is left to be received.
    pub(super) fn is_received(&mut self, stream: StreamId) -> bool {
        self.machine.receive_done(stream)
            || self
                .stream(stream)
                .is_none_or(|known| matches!(known.receiving.body, Body::Done))
    }

    /// Gives a stream up that we have finished with in one way or another.
    pub(super) fn close_stream(&mut self, stream: StreamId, code: Option<Code>) {
        if let Some(mut known) = self.streams.remove(&stream) {
            wake(&mut known.closed);
            wake(&mut known.receiving.reader);
            let unread = known.receiving.parts.drain(..).map(|part| part.len()).sum();
            if unread > 0 {
                let (machine, out) = self.machine();
                machine.release(stream, unread, out);
            }
            self.note_sent(known.sending.queued);
            self.shared.keep(known);
            self.count_streams();
        }
        if let Some(code) = code.or(self.code_of_unfinished(stream)) {
            self.reset(stream, code);
        }
        self.machine.forget(stream);
    }

    /// What the client of an answer is told that is given up before its end: otherwise it would
    /// wait for the rest, and the stream count against it for ever.
    fn code_of_unfinished(&self, stream: StreamId) -> Option<Code> {
        let is_complete = self.machine.response_started(stream) && !self.machine.sends_body(stream);
        (!self.shared.is_client() && !is_complete).then_some(Code::CANCEL)
    }

    /// Room at the socket, for whoever wants to know how much waits there.
    pub(super) fn stall_due(&self) -> Option<std::time::Instant> {
        let socket = self.socket.as_ref().filter(|socket| socket.queued() > 0)?;
        Some(socket.send_progress() + self.limits().send_stall_timeout)
    }
}

/// Less than half of the core's memory is left, by what a stream's share of it is.
pub(super) fn is_short(share: usize, limits: &Limits) -> bool {
    share < limits.stream_buffer_bytes_max / 2
}
