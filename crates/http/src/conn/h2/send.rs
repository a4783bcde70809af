//! Our messages: content is sent as windows and turns allow.

use std::task::{Context, Poll};

use blitz_proto::h2::{Code, StreamId};
use blitz_proto::{Error, Fields};
use blitz_reactor::{Buffer, Chunk};

use super::driver::{Driver, Role};
use crate::conn::streams::stream::Ending;
use crate::counters::count;
use crate::error::SendError;
use crate::exchange::{Sent, conclude_sent, wake};
use crate::recycle::Pooled;

/// Bytes queued at the socket before streams have to wait for their turn: few bytes are then queued before
/// those of a more urgent stream.
const SOCKET_BYTES_MAX: usize = 128 * 1024;

impl<R: Role> Driver<R> {
    pub(super) fn poll_stream_room(
        &mut self,
        stream: StreamId,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), SendError>> {
        let room = R::room(self);
        let Some(state) = self.stream(stream) else {
            return Poll::Ready(Err(SendError::Closed));
        };
        if state.sending.poll_room(room, cx).is_ready() {
            return Poll::Ready(Ok(()));
        }
        if room.is_none() && !self.awaiting_memory.contains(&stream) {
            count(|counters| counters.held_back += 1);
            self.awaiting_memory.push(stream);
        }
        Poll::Pending
    }

    /// Some of what streams had queued is gone.
    fn note_sent(&mut self, bytes: usize) {
        self.unsent -= bytes;
        self.wake_awaiting_memory();
    }

    /// Wakes the writers that wait for memory.
    pub(super) fn wake_awaiting_memory(&mut self) {
        if self.awaiting_memory.is_empty() {
            return;
        }
        for stream in std::mem::take(&mut self.awaiting_memory) {
            if let Some(state) = self.stream(stream) {
                wake(&mut state.sending.writer);
            }
        }
    }

    /// Sends what a window is open for and queues the rest.
    pub(super) fn queue_data(
        &mut self,
        stream: StreamId,
        chunk: Chunk,
        is_last: bool,
    ) -> Result<Sent, Error> {
        let is_full = self.queued() > SOCKET_BYTES_MAX;
        let slice_bytes_min = self.limits().slice_bytes_min;
        let Some(state) = self.streams.get_mut(&stream) else {
            return Ok(Sent::Open);
        };
        let sending = &mut state.sending;
        if is_last {
            sending.end = Ending::Plain;
        }
        sending.queued += chunk.len();
        self.unsent += chunk.len();
        // Behind others, and behind a full socket, it has to wait for its turn.
        let waits = !sending.queue.is_empty();
        if waits {
            sending.push(chunk, slice_bytes_min);
            return Ok(Sent::Open);
        }
        sending.progress = blitz_reactor::now();
        if is_full {
            sending.push(chunk, slice_bytes_min);
            self.mark_ready(stream);
            return Ok(Sent::Open);
        }
        self.send_frame(stream, chunk)
    }

    fn mark_ready(&mut self, stream: StreamId) {
        self.needs_task = true;
        self.machine.mark_ready(stream);
    }

    /// Sends a frame of what a stream has queued.
    fn send_queued(&mut self, stream: StreamId) -> Result<Sent, Error> {
        let front = self
            .stream(stream)
            .and_then(|state| state.sending.queue.pop_front());
        match front {
            Some(front) => self.send_frame(stream, front),
            None => self.end_message(stream),
        }
    }

    /// Sends a frame of `chunk`, which was taken from the front of the queue; marks the stream as
    /// ready if something is left.
    fn send_frame(&mut self, stream: StreamId, mut chunk: Chunk) -> Result<Sent, Error> {
        let Some(state) = self.streams.get_mut(&stream) else {
            return Ok(Sent::Open);
        };
        let sending = &mut state.sending;
        let is_last = sending.queue.is_empty() && matches!(sending.end, Ending::Plain);
        let out = self.pending.get_or_insert_with(Buffer::take);
        let now = self.machine.send_data(stream, chunk.len(), is_last, out)?;
        sending.queued -= now;
        let is_whole = now == chunk.len();
        let part = if is_whole {
            chunk
        } else {
            let part = chunk.split_to(now);
            if chunk.len() < self.shared.limits().slice_bytes_min {
                chunk = chunk.kept();
            }
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
            self.mark_ready(stream);
            Ok(Sent::Open)
        } else if is_last {
            Ok(Sent::Complete)
        } else {
            self.end_message(stream)
        }
    }

    /// Nothing is queued: ends the message, if its writer has.
    fn end_message(&mut self, stream: StreamId) -> Result<Sent, Error> {
        let Some(state) = self.stream(stream) else {
            return Ok(Sent::Open);
        };
        let trailers = match std::mem::replace(&mut state.sending.end, Ending::Open) {
            Ending::Open => return Ok(Sent::Open),
            Ending::Plain => None,
            Ending::Trailers(trailers) => Some(trailers),
        };
        let (machine, out) = self.machine();
        machine.send_end(stream, trailers.as_deref(), out)?;
        Ok(Sent::Complete)
    }

    pub(super) fn queue_end(
        &mut self,
        stream: StreamId,
        trailers: Option<&Fields>,
    ) -> Result<Sent, Error> {
        if !self.machine.sends_body(stream) {
            return Ok(Sent::Complete);
        }
        let Some(state) = self.stream(stream) else {
            return Ok(Sent::Open);
        };
        state.sending.end = match trailers {
            None => Ending::Plain,
            Some(trailers) => {
                let mut copy = Pooled::<Fields>::take();
                copy.clone_from(trailers);
                Ending::Trailers(copy)
            }
        };
        match state.sending.queue.is_empty() {
            true => self.end_message(stream),
            false => Ok(Sent::Open),
        }
    }

    /// Sends what windows and the socket have room for, each stream in its turn.
    pub(super) fn send_content(&mut self) {
        while self.queued() <= SOCKET_BYTES_MAX {
            let Some(stream) = self.machine.next_to_send() else {
                break;
            };
            let sent = self.send_queued(stream);
            // A failure is noted in the exchange.
            let _ = conclude_sent(self, stream, &sent);
            // Here, where each stream has its turn: content that a stream queues may have to wait for a more urgent one.
            if let Some(socket) = &mut self.socket {
                socket.send_large();
            }
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

    /// Removes a stream whose exchange is over, and resets it with `code` or if it is incomplete.
    pub(super) fn close_stream(&mut self, stream: StreamId, code: Option<Code>) {
        if let Some(mut state) = self.streams.remove(&stream) {
            self.needs_task = true;
            wake(&mut state.exchange.receiving.reader);
            wake(&mut state.sending.writer);
            self.release(stream, state.drain_parts());
            self.note_sent(state.sending.queued);
            self.shared.spare.keep(state);
            R::streams_changed(self);
        }
        if let Some(code) = code.or(R::code_of_unfinished(self, stream)) {
            self.reset(stream, code);
        }
        self.machine.forget(stream);
    }

    /// When the peer will have taken nothing for too long.
    pub(super) fn stall_due(&self) -> Option<std::time::Instant> {
        let socket = self.socket.as_ref().filter(|socket| socket.queued() > 0)?;
        Some(socket.send_progress() + self.limits().send_stall_timeout)
    }
}
