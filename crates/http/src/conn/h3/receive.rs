//! Receiving from peers: messages, and the streams beside them.

use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use blitz_proto::h3::{Code, Event, StreamId};
use blitz_proto::{Error, Fields, Limits};
use blitz_quic::quinn_proto::{self, Dir, ReadError, ReadableError};
use blitz_reactor::{Buffer, Chunk, Slice};
use bytes::Bytes;

use super::driver::{Driver, RequestStream, id_of, stream_of};
use super::role::Role;
use crate::conn::streams::room::is_short;
use crate::conn::streams::stream::ResetReason;
use crate::error::{BodyError, SendError};
use crate::exchange::{
    BodyState, ExchangeState, Fill, Framing, ReceivedContent, Sent, Transmission, wake,
};
use crate::recycle::Pooled;

/// Pieces that are read while a head is awaited: one, and one more to see whether it is the last.
const PIECES_OF_HEAD: usize = 2;

/// Pieces that are read at a time for a reader of content, and bytes that it gets at a time.
const PIECES_OF_CONTENT: usize = 24;
const FILL_BYTES_MAX: usize = 32 * 1024;

/// Bytes of a piece that waits here for its reader, where no window limits it any more. Only merged content could be
/// longer: no datagram is.
const PIECE_BYTES_MAX: usize = 2 * 1024;

/// A peer that acknowledges late does not get a larger window for it.
const RTT_MAX: Duration = Duration::from_millis(500);

/// The result of a step through the input of a stream.
enum InputStep {
    /// Content, which ends the message or not.
    Content(std::ops::Range<usize>, bool),
    /// Anything else that was handled.
    Handled,
    /// Nothing can be done until more arrives.
    Pending,
}

impl<R: Role> Driver<R> {
    /// Takes the streams that the peer has opened.
    pub(super) fn accept(&mut self, dir: Dir) -> Result<(), Error> {
        while let Some(stream) = self.quic(|quic| quic.streams().accept(dir)).flatten() {
            let id = id_of(stream);
            let opened = self.machine.handle_opened(id);
            match (opened, dir) {
                (Err(code), _) => self.reset(id, code),
                (Ok(()), Dir::Uni) => {
                    self.unread.open_beside(id);
                    self.read_beside(stream)?;
                }
                (Ok(()), Dir::Bi) => R::opened(self, id)?,
            }
        }
        R::all_opened(self);
        Ok(())
    }

    /// Something has come on a stream.
    pub(super) fn readable(&mut self, stream: quinn_proto::StreamId) -> Result<(), Error> {
        if stream.dir() == Dir::Uni {
            return self.read_beside(stream);
        }
        let id = id_of(stream);
        let Some(request) = self.streams.get_mut(&id) else {
            return Ok(());
        };
        if request.awaits_head {
            return self.read_head(id);
        }
        let receiving = &mut request.state.exchange.receiving;
        match receiving.body {
            BodyState::Unwanted => self.discard_arrived(id),
            // The reader learns the kind of the input itself.
            _ if receiving.reader.is_some() => {
                wake(&mut receiving.reader);
                Ok(())
            }
            _ => {
                let reset = self.quic(|quic| quic.recv_stream(stream).received_reset());
                match reset {
                    Some(Ok(Some(code))) => self.handle_reset(id, Code(code.into_inner())),
                    _ => Ok(()),
                }
            }
        }
    }

    /// Reads until the head of a message is complete.
    pub(super) fn read_head(&mut self, id: StreamId) -> Result<(), Error> {
        while self
            .streams
            .get(&id)
            .is_some_and(|stream| stream.awaits_head)
        {
            self.refill(id, PIECES_OF_HEAD)?;
            if let InputStep::Pending = self.step(id)? {
                R::head_incomplete(self);
                return Ok(());
            }
        }
        Ok(())
    }

    /// Reads and drops the arrived bytes of a request without a reader; after the response up to a limit.
    pub(super) fn discard_arrived(&mut self, id: StreamId) -> Result<(), Error> {
        let bytes_max = self.limits().discard_unannounced_bytes_max as u64;
        loop {
            let Some(stream) = self.streams.get_mut(&id) else {
                return Ok(());
            };
            let is_excess = stream.state.is_lingering
                && stream.read_to != u64::MAX
                && stream.read_to - stream.discards_from > bytes_max;
            if is_excess {
                // The rest of a response is not cut off for it.
                if stream.is_finished {
                    self.close_stream(id, None);
                }
                return Ok(());
            }
            self.refill(id, PIECES_OF_CONTENT)?;
            match self.step(id)? {
                InputStep::Pending => break,
                InputStep::Handled => {}
                InputStep::Content(range, has_ended) => {
                    if let Some(stream) = self.streams.get_mut(&id) {
                        stream.input.consume(range.end);
                        let receiving = &mut stream.state.exchange.receiving;
                        receiving.pace.bytes += range.len() as u64;
                        if has_ended {
                            receiving.body = BodyState::Done;
                        }
                    }
                }
            }
        }
        let Some(stream) = self.streams.get_mut(&id) else {
            return Ok(());
        };
        if self.machine.receive_done(id) {
            stream.state.exchange.wake_task();
        }
        if stream.has_fin && stream.state.is_lingering && stream.is_finished {
            self.close_stream(id, None);
        }
        Ok(())
    }

    /// Reads from QUIC, until so many pieces wait for the machine.
    fn refill(&mut self, id: StreamId, pieces: usize) -> Result<(), Error> {
        self.take_frames();
        let Some(quic) = &self.quic else {
            return Ok(());
        };
        let Some(stream) = self.streams.get_mut(&id) else {
            return Ok(());
        };
        let before = stream.read_to;
        if stream.has_fin || stream.input.len() >= pieces || before == u64::MAX {
            return Ok(());
        }
        let coming = self.unread.before_reading(id, before);
        // A merged piece that waits here would keep its whole allocation.
        let copies = coming.is_merged;
        let mut tried = 0;
        let mut reset = None;
        quic.with(|quic| {
            let mut receiving = quic.recv_stream(stream_of(id));
            let mut chunks = match receiving.read(true) {
                Ok(chunks) => chunks,
                Err(ReadableError::ClosedStream | ReadableError::IllegalOrderedRead) => return,
            };
            while stream.input.len() < pieces {
                tried += 1;
                match chunks.next(PIECE_BYTES_MAX) {
                    Ok(Some(chunk)) => {
                        stream.read_to = chunk.offset + chunk.bytes.len() as u64;
                        stream.input.push(match copies {
                            true => Bytes::copy_from_slice(&chunk.bytes),
                            false => chunk.bytes,
                        });
                    }
                    Ok(None) => {
                        stream.has_fin = true;
                        break;
                    }
                    Err(ReadError::Blocked) => break,
                    Err(ReadError::Reset(code)) => {
                        reset = Some(Code(code.into_inner()));
                        break;
                    }
                }
            }
            // The endpoint sends the due datagrams.
            let _ = chunks.finalize();
        });
        let range = before..stream.read_to;
        let read = range.end - range.start;
        if tried > 0 && reset.is_none() {
            self.unread.read(id, coming, range, tried, PIECE_BYTES_MAX);
        }
        if read > 0 {
            self.note_read(read as usize);
        }
        match reset {
            Some(code) => self.handle_reset(id, code),
            None => Ok(()),
        }
    }

    /// The peer has reset its direction of a stream.
    pub(super) fn handle_reset(&mut self, id: StreamId, code: Code) -> Result<(), Error> {
        let now = self.shared.now();
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.has_fin = true;
            stream.is_fin_taken = true;
            stream.input.clear();
            stream.read_to = u64::MAX;
            self.unread.forget(id);
        }
        let event = self.machine.handle_reset(id, code, now)?;
        if let Some(Event::Reset { error, code }) = event {
            self.lose_stream(id, error, code);
        }
        Ok(())
    }

    /// The peer stops our direction of a stream.
    pub(super) fn handle_stopped(&mut self, id: StreamId, code: Code) -> Result<(), Error> {
        let now = self.shared.now();
        let event = self.machine.handle_stopped(id, code, now)?;
        R::stopped(self, id, code, event);
        Ok(())
    }

    /// One step of the machine through the input of a request.
    fn step(&mut self, id: StreamId) -> Result<InputStep, Error> {
        let shared = Rc::clone(&self.shared);
        let mut received = shared.received.borrow_mut();
        let Some(stream) = self.streams.get_mut(&id) else {
            return Ok(InputStep::Pending);
        };
        let is_last = stream.has_fin && stream.input.len() <= 1;
        let bytes: &[u8] = match stream.input.front() {
            Some(front) => front,
            None if stream.is_blocked || (is_last && !stream.is_fin_taken) => &[],
            None => return Ok(InputStep::Pending),
        };
        let len = bytes.len();
        stream.is_blocked = false;
        let step = self
            .machine
            .handle_input(id, bytes, is_last, shared.now(), &mut received)?;
        if let Event::Data { range, end } = &step.event {
            let content = InputStep::Content(range.clone(), *end);
            stream.is_fin_taken = *end;
            return Ok(content);
        }
        stream.input.consume(step.consumed);
        stream.is_fin_taken = is_last && step.consumed == len;
        match step.event {
            Event::NeedMore if stream.input.is_empty() => return Ok(InputStep::Pending),
            Event::NeedMore | Event::Data { .. } | Event::Unwanted { .. } => {}
            Event::Blocked => {
                stream.is_blocked = true;
                return Ok(InputStep::Pending);
            }
            Event::Head { length, end } => {
                R::head_arrived(self, id, &mut received, length, end);
            }
            Event::Trailers => {
                stream.is_fin_taken = true;
                let mut trailers = Pooled::take();
                std::mem::swap(&mut *trailers, &mut received.trailers);
                stream.take_trailers(trailers);
            }
            Event::Refused { error } => {
                stream.awaits_head = false;
                R::refused(self, id, error, &received);
                // The rest of the request is read with the same memory.
                drop(received);
                R::discard_refused(self, id);
            }
            Event::Reset { error, code } => self.lose_stream(id, error, code),
            Event::GoAway { .. } => {}
            Event::Reprioritized { stream } => self.note_priority(stream),
        }
        Ok(InputStep::Handled)
    }

    /// The peer reset a stream, or broke a rule on it.
    pub(super) fn lose_stream(&mut self, id: StreamId, error: Error, code: Code) {
        let (reason, code) = R::loss(self, id, error, code);
        self.lose(id, &reason, code);
    }

    /// A stream has ended early.
    pub(super) fn lose(&mut self, id: StreamId, reason: &ResetReason, code: Code) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return self.machine.forget(id);
        };
        if R::has_handles(stream) {
            stream.state.fail(reason);
            stream.input.clear();
            stream.read_to = u64::MAX;
            self.unread.forget(id);
            stream.is_finished = true;
            self.reset(id, code);
        } else {
            self.close_stream(id, Some(code));
        }
    }

    /// Reads a stream beside the requests.
    fn read_beside(&mut self, stream: quinn_proto::StreamId) -> Result<(), Error> {
        let id = id_of(stream);
        let now = self.shared.now();
        self.take_frames();
        loop {
            let next = self.quic(|quic| {
                let mut receiving = quic.recv_stream(stream);
                let mut chunks = receiving.read(true).ok()?;
                let next = chunks.next(usize::MAX);
                let _ = chunks.finalize();
                Some(next)
            });
            let Some(Some(next)) = next else {
                return Ok(());
            };
            let bytes = match next {
                Ok(Some(chunk)) => {
                    let end = chunk.offset + chunk.bytes.len() as u64;
                    self.unread.read_beside(id, Some(end));
                    chunk.bytes
                }
                Ok(None) => Bytes::new(),
                Err(ReadError::Blocked) => {
                    self.unread.read_beside(id, None);
                    break;
                }
                Err(ReadError::Reset(code)) => {
                    self.unread.close_beside(id);
                    self.machine
                        .handle_reset(id, Code(code.into_inner()), now)?;
                    break;
                }
            };
            self.note_read(bytes.len());
            self.take_beside(id, &bytes)?;
            if bytes.is_empty() {
                self.unread.close_beside(id);
                break;
            }
        }
        while let Some(id) = self.machine.next_unblocked() {
            match self.streams.get_mut(&id) {
                Some(stream) if stream.awaits_head => self.read_head(id)?,
                Some(stream)
                    if matches!(stream.state.exchange.receiving.body, BodyState::Unwanted) =>
                {
                    self.discard_arrived(id)?;
                }
                Some(stream) => wake(&mut stream.state.exchange.receiving.reader),
                None => {}
            }
        }
        R::beside_read(self);
        Ok(())
    }

    /// Passes input of a stream beside the requests to the machine; without bytes, the stream has ended.
    fn take_beside(&mut self, id: StreamId, mut bytes: &[u8]) -> Result<(), Error> {
        let shared = Rc::clone(&self.shared);
        let has_fin = bytes.is_empty();
        loop {
            let step = {
                let received = &mut *shared.received.borrow_mut();
                self.machine
                    .handle_input(id, bytes, has_fin, shared.now(), received)?
            };
            bytes = &bytes[step.consumed..];
            match step.event {
                Event::Reprioritized { stream } => self.note_priority(stream),
                Event::GoAway { from } => R::go_away(self, from),
                Event::Unwanted { code } => {
                    self.unread.close_beside(id);
                    self.quic(|quic| {
                        let code = super::driver::var_int(code.0);
                        let _ = quic.recv_stream(stream_of(id)).stop(code);
                    });
                    return Ok(());
                }
                _ if bytes.is_empty() => return Ok(()),
                _ => {}
            }
        }
    }

    /// Lets a peer send more while its content is read as fast as it comes, and less while the core is short of memory.
    /// Content in small frames does not count: as many of them might wait as the window has room for.
    fn note_read(&mut self, bytes: usize) {
        self.take_back(bytes);
        let window = &mut self.window;
        window.read += bytes;
        if window.read < window.bytes / 2 {
            return;
        }
        let now = blitz_reactor::now();
        let took = now.saturating_duration_since(window.since);
        let read = std::mem::take(&mut window.read) as u64;
        let frames = std::mem::take(&mut window.frames) as u64;
        window.since = now;
        let bytes = window.bytes;
        let rtt = self.quic(|quic| quic.rtt()).unwrap_or_default();
        let is_fast = took < rtt.min(RTT_MAX) * 2;
        let more = bytes * 2;
        let wanted = match is_fast && frames * more as u64 <= read * self.frames_usual(more) {
            true => more,
            false => bytes,
        };
        self.set_window(wanted);
    }

    /// Takes back credit beyond the window for content that was read. QUIC would take back all of it at once. But it
    /// would grant the same credit again if the window grew before that is done, so the credit of a client would grow
    /// without end.
    fn take_back(&mut self, read: usize) {
        let window = &mut self.window;
        let excess = window.granted.saturating_sub(window.bytes);
        if excess > 0 {
            window.granted -= excess.min(read);
            let granted = super::driver::var_int(window.granted as u64);
            self.quic(|quic| quic.set_receive_window(granted));
        }
    }

    /// Changes the window, as far as the memory allows: a quarter is reserved for memory beyond windows. A smaller
    /// window counts at once, but credit cannot be taken back (RFC 9000, section 4.1) before it is used.
    pub(super) fn set_window(&mut self, wanted: usize) {
        let limits = self.limits();
        let first = limits.quic.window_bytes_min;
        let others = self.shared.windows_grown.get() - (self.window.bytes - first);
        let left = (limits.core_buffer_bytes_max / 4 * 3).saturating_sub(others);
        let bytes_max = match is_short(blitz_reactor::fair_share(), limits) {
            true => first,
            false => limits.quic.window_bytes_max.min(first + left).max(first),
        };
        let bytes = wanted.clamp(first, bytes_max);
        self.shared.windows_grown.set(others + bytes - first);
        self.window.bytes = bytes;
        if bytes > self.window.granted {
            self.window.granted = bytes;
            let granted = super::driver::var_int(bytes as u64);
            self.quic(|quic| quic.set_receive_window(granted));
        }
    }

    /// Fills a reader's next part.
    fn fill(&mut self, id: StreamId) -> Result<Option<Slice>, Error> {
        let mut content: Option<Buffer> = None;
        loop {
            let gathered = content.as_ref().map_or(0, |content| content.len());
            if gathered >= FILL_BYTES_MAX {
                break;
            }
            self.refill(id, PIECES_OF_CONTENT)?;
            match self.step(id)? {
                InputStep::Pending => break,
                InputStep::Handled => {}
                InputStep::Content(range, has_ended) => {
                    let Some(stream) = self.streams.get_mut(&id) else {
                        break;
                    };
                    let content = content.get_or_insert_with(Buffer::take);
                    if let Some(front) = stream.input.front() {
                        content.extend_from_slice(&front[range.clone()]);
                    }
                    stream.input.consume(range.end);
                    if has_ended {
                        stream.state.exchange.receiving.body = BodyState::Done;
                        break;
                    }
                }
            }
        }
        Ok(content
            .filter(|content| !content.is_empty())
            .map(Slice::from_buffer))
    }

    /// The next part of a message for its reader.
    fn poll_next_part(&mut self, id: StreamId) -> Poll<Result<Fill, BodyError>> {
        let filled = match self.streams.get(&id) {
            None => return Poll::Ready(Err(BodyError::Cancelled)),
            Some(stream) if stream.may_have_more() => self.fill(id),
            Some(_) => Ok(None),
        };
        let content = filled.unwrap_or_else(|error| {
            if let Some(state) = self.stream(id) {
                // The reader does not know yet that the message is complete, if it is.
                state.exchange.receiving.body = BodyState::Open;
            }
            self.fail(error);
            None
        });
        if let Some(content) = &content {
            self.received.add(content.len());
        }
        let Some(state) = self.stream(id) else {
            return Poll::Ready(Err(BodyError::Reset));
        };
        let receiving = &mut state.exchange.receiving;
        if let Some(content) = content {
            receiving.pace.bytes += content.len() as u64;
            receiving.arrived();
            if receiving.is_complete() {
                state.exchange.wake_task();
            }
            return Poll::Ready(Ok(Fill::Data(content)));
        }
        if let BodyState::Failed(error) = &receiving.body {
            return Poll::Ready(Err(error.clone()));
        }
        if let Some(trailers) = state.trailers.take() {
            return Poll::Ready(Ok(Fill::Trailers(trailers)));
        }
        if receiving.is_complete() {
            state.exchange.wake_task();
            return Poll::Ready(Ok(Fill::End));
        }
        Poll::Pending
    }
}

impl RequestStream {
    /// Whether its reader gets more. RFC 9114, section 4.1: "Receipt of an invalid sequence of frames MUST be treated
    /// as a connection error of type H3_FRAME_UNEXPECTED". Bytes behind trailers are therefore read as well.
    fn may_have_more(&self) -> bool {
        match self.state.exchange.receiving.body {
            BodyState::Open => true,
            BodyState::Done => !self.has_fin,
            _ => false,
        }
    }

    fn take_trailers(&mut self, trailers: Pooled<Fields>) {
        let receiving = &mut self.state.exchange.receiving;
        if matches!(receiving.body, BodyState::Open) {
            self.state.trailers = Some(trailers);
        }
        if !matches!(receiving.body, BodyState::Failed(_)) {
            receiving.body = BodyState::Done;
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
        Some((&mut stream.state.exchange, self.shared.limits()))
    }

    fn poll_fill(&mut self, id: StreamId, _: &mut Context<'_>) -> Poll<Result<Fill, BodyError>> {
        self.poll_next_part(id)
    }

    fn take_whole(&mut self, id: StreamId, length: u64) -> Option<Slice> {
        let stream = self.streams.get(&id)?;
        let is_last = stream.has_fin && stream.input.len() == 1;
        let last = stream.input.front().filter(|_| is_last)?;
        if !self.machine.is_whole_content(id, last, length) {
            return None;
        }
        match self.poll_next_part(id) {
            Poll::Ready(Ok(Fill::Data(content))) => Some(content),
            // The reader learns the kind of the input itself.
            _ => None,
        }
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
        let sending = self.stream(id).map(|stream| &stream.sending);
        Transmission {
            unsent: sending.map_or(0, |sending| sending.queued),
            progress: sending.map(|sending| sending.progress),
            half_closed: None,
            is_held_back: self.window.is_used_up,
            received: ReceivedContent {
                streams: self.streams.len(),
                ..self.received
            },
        }
    }
}
