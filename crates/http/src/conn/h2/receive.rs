//! Messages of the peer: from the machine's events to the streams.

use std::collections::VecDeque;
use std::task::{Context, Poll};

use blitz_proto::h2::StreamId;
use blitz_proto::{Error, Fields, Limits};
use blitz_reactor::{Chunk, Slice};

use super::driver::{Driver, Role};
use crate::conn::streams::stream::Stream;
use crate::error::{BodyError, SendError};
use crate::exchange::{
    BodyState, ExchangeState, Fill, Framing, ReceivedContent, Sent, Transmission,
};
use crate::input::KEPT_MIN;
use crate::recycle::Pooled;

/// The fate of content that has arrived.
enum Pushed {
    /// It has no reader.
    Unwanted,
    Kept,
    /// It is small, and lies in the receive buffer until its reader has had its turn.
    InBuffer,
}

impl Stream {
    /// Keeps content for its reader, if there is one.
    fn push_data(&mut self, slice: Slice, has_ended: bool) -> Pushed {
        let receiving = &mut self.exchange.receiving;
        let mut pushed = match receiving.body {
            BodyState::Open => Pushed::Kept,
            _ => Pushed::Unwanted,
        };
        if let Pushed::Kept = pushed
            && !slice.is_empty()
        {
            receiving.pace.bytes += slice.len() as u64;
            if receiving.reader.is_some() || slice.len() >= KEPT_MIN {
                self.parts.push_back(slice);
            } else if has_ended && self.parts.is_empty() {
                // Most readers take short content whole as soon as they were woken for its head.
                self.parts.push_back(slice);
                pushed = Pushed::InBuffer;
            } else {
                push_kept(&mut self.parts, slice);
            }
        }
        if has_ended && !matches!(receiving.body, BodyState::Failed(_)) {
            receiving.body = BodyState::Done;
        }
        receiving.arrived();
        if has_ended || self.exchange.is_tunnel {
            self.exchange.wake_task();
        }
        pushed
    }
}

/// Frames of many streams share a receive buffer, so a small one that waits is copied out of it.
fn push_kept(parts: &mut VecDeque<Slice>, mut slice: Slice) {
    if !parts.back_mut().is_some_and(|last| last.try_append(&slice)) {
        slice.keep();
        parts.push_back(slice);
    }
}

impl<R: Role> Driver<R> {
    /// Content has arrived.
    pub(super) fn data_arrived(&mut self, stream: StreamId, slice: Slice, has_ended: bool) {
        let bytes = slice.len();
        if bytes > 0 {
            self.received.add(bytes);
        }
        let pushed = self
            .stream(stream)
            .map_or(Pushed::Unwanted, |state| state.push_data(slice, has_ended));
        if has_ended {
            self.role.message_received();
        }
        match pushed {
            Pushed::Unwanted if bytes > 0 => self.discard_arrived(stream, bytes),
            Pushed::InBuffer => self.in_buffer.push(stream),
            Pushed::Unwanted | Pushed::Kept => {}
        }
        if self.stream(stream).is_some_and(|state| state.is_lingering) {
            R::data_after_response(self, stream, bytes, has_ended);
        }
    }

    /// Copies content that its reader has not taken when it had its turn: a small piece must not occupy a receive
    /// buffer for long (rule 3).
    pub(super) fn copy_waiting(&mut self) {
        for stream in self.in_buffer.drain(..) {
            if let Some(state) = self.streams.get_mut(&stream) {
                state.parts.iter_mut().for_each(Slice::keep);
            }
        }
    }

    /// Content without a reader gives the peer credit for more, after the response up to a limit.
    fn discard_arrived(&mut self, stream: StreamId, bytes: usize) {
        let bytes_max = self.limits().discard_unannounced_bytes_max as u64;
        let is_excess = self.stream(stream).is_some_and(|state| {
            state.is_lingering && state.exchange.receiving.pace.bytes > bytes_max
        });
        let (machine, out) = self.machine();
        match is_excess {
            true => machine.release_unread(bytes, out),
            false => machine.release(stream, bytes, out),
        }
    }

    /// Trailers have arrived, and with them the end.
    pub(super) fn trailers_arrived(&mut self, stream: StreamId, trailers: Pooled<Fields>) {
        self.role.message_received();
        let Some(state) = self.stream(stream) else {
            return;
        };
        let receiving = &mut state.exchange.receiving;
        if matches!(receiving.body, BodyState::Open) {
            state.trailers = Some(trailers);
        }
        receiving.body = BodyState::Done;
        receiving.arrived();
        state.exchange.wake_task();
        if state.is_lingering {
            R::data_after_response(self, stream, 0, true);
        }
    }

    /// Lets the peer send for readers that wait while content of other streams, which nobody reads, has
    /// used up the window of the connection (rule 14).
    pub(super) fn credit_waiting_readers(&mut self) {
        let waits = |stream: &Stream| {
            let receiving = &stream.exchange.receiving;
            matches!(receiving.body, BodyState::Open)
                && receiving.reader.is_some()
                && stream.parts.is_empty()
        };
        if self.machine.is_window_used_up() && self.streams.values().any(|stream| waits(stream)) {
            self.credit_reader();
        }
    }

    #[cold]
    fn credit_reader(&mut self) {
        let (machine, out) = self.machine();
        machine.credit_reader(out);
    }

    /// Returns taken or discarded bytes to the windows.
    pub(super) fn release(&mut self, stream: StreamId, bytes: usize) {
        if bytes > 0 {
            let (machine, out) = self.machine();
            machine.release(stream, bytes, out);
            self.note_released();
        }
    }
}

impl<R: Role> Framing for Driver<R> {
    type Id = StreamId;
    type Side = R::Side;

    #[inline]
    fn exchange(&mut self, id: StreamId) -> Option<&mut ExchangeState> {
        self.stream(id).map(|stream| &mut stream.exchange)
    }

    #[inline]
    fn exchange_and_limits(&mut self, id: StreamId) -> Option<(&mut ExchangeState, &Limits)> {
        let stream = self.streams.get_mut(&id)?;
        Some((&mut stream.exchange, self.shared.limits()))
    }

    fn poll_fill(&mut self, id: StreamId, _: &mut Context<'_>) -> Poll<Result<Fill, BodyError>> {
        let Some(stream) = self.stream(id) else {
            return Poll::Ready(Err(BodyError::Cancelled));
        };
        // Content before a failure comes first: some servers reset tunnels that are at their end.
        if let Some(slice) = stream.parts.pop_front() {
            self.release(id, slice.len());
            return Poll::Ready(Ok(Fill::Data(slice)));
        }
        if let BodyState::Failed(error) = &stream.exchange.receiving.body {
            return Poll::Ready(Err(error.clone()));
        }
        if let Some(trailers) = stream.trailers.take() {
            return Poll::Ready(Ok(Fill::Trailers(trailers)));
        }
        if stream.exchange.receiving.is_complete() {
            return Poll::Ready(Ok(Fill::End));
        }
        if self.machine.is_window_used_up() {
            self.credit_reader();
        }
        Poll::Pending
    }

    fn take_whole(&mut self, id: StreamId, length: u64) -> Option<Slice> {
        let stream = self.stream(id)?;
        let front = stream.parts.front()?;
        let is_whole = stream.exchange.receiving.is_complete() && front.len() as u64 == length;
        if !is_whole || stream.trailers.is_some() {
            return None;
        }
        let whole = stream.parts.pop_front()?;
        self.release(id, whole.len());
        Some(whole)
    }

    fn poll_room(&mut self, id: StreamId, cx: &mut Context<'_>) -> Poll<Result<(), SendError>> {
        self.poll_stream_room(id, cx)
    }

    fn send_data(&mut self, id: StreamId, chunk: Chunk, is_last: bool) -> Result<Sent, Error> {
        self.queue_data(id, chunk, is_last)
    }

    fn send_end(&mut self, id: StreamId, trailers: Option<&Fields>) -> Result<Sent, Error> {
        self.queue_end(id, trailers)
    }

    #[inline]
    fn has_content_to_send(&self, id: StreamId) -> bool {
        self.machine.sends_body(id)
    }

    fn transmission(&mut self, id: StreamId) -> Transmission {
        let is_held_back = R::holds_too_much(self) || self.machine.is_window_used_up();
        let sending = self.stream(id).map(|stream| &stream.sending);
        Transmission {
            unsent: sending.map_or(0, |sending| sending.queued),
            progress: sending.map(|sending| sending.progress),
            half_closed: None,
            is_held_back,
            received: ReceivedContent {
                streams: self.streams.len(),
                ..self.received
            },
        }
    }
}
