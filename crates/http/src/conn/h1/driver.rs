//! The framing of HTTP/1.1: a connection's machine, its socket and what lies between them.

use std::io;
use std::task::{Context, Poll};
use std::time::Instant;

use blitz_proto::h1::{self, Event};
use blitz_proto::{BodyLength, Error, Fields, Limits};
use blitz_reactor::{Buffer, Chunk, File, Slice};

use crate::error::{BodyError, SendError};
use crate::exchange::{
    BodyState, ExchangeId, ExchangeState, Fill, Framing, ReceivedContent, Sent, Side, Transmission,
    wake,
};
use crate::input::Input;
use crate::recycle::Pooled;
use crate::transport::Transport;

/// A connection that carries one exchange at a time, as a server (`R` is [`ServerRole`]) or as a client
/// ([`ClientRole`]).
///
/// [`ServerRole`]: super::server::ServerRole
/// [`ClientRole`]: super::client::ClientRole
pub(crate) struct Driver<R> {
    pub(super) role: R,
    /// `None` once closed or given away.
    pub(super) socket: Option<Transport>,
    /// Number of the current exchange. Handles of earlier ones have no effect.
    pub(super) number: u64,
    pub(super) exchange: ExchangeState,
    /// Received and not yet taken by the machine, in order.
    pub(super) input: Input,
    /// The receive window of the socket.
    window: usize,
    /// When the peer ended its direction; it sends no more.
    pub(super) fin_at: Option<Instant>,
    pub(super) trailers: Pooled<Fields>,
    /// Encoded and not yet queued, so that small pieces leave as one.
    pending: Option<Buffer>,
}

/// The differences between a server and a client: their machines, and the end of a connection.
pub(crate) trait Role: Sized {
    type Side: Side<Driver<Self>>;

    fn limits(&self) -> &Limits;
    /// The receive window while no content is expected.
    fn usual_window(&self) -> usize;
    fn handle_input(&mut self, bytes: &[u8], trailers: &mut Fields) -> Result<h1::Step, Error>;
    /// Whether FIN is the end of the message that is being received.
    fn ends_with_fin(&mut self) -> bool;
    fn send_data_prefix(&mut self, len: usize, out: &mut Vec<u8>) -> Result<(), Error>;
    fn send_data_suffix(&mut self, out: &mut Vec<u8>);
    fn send_end(&mut self, trailers: Option<&Fields>, out: &mut Vec<u8>) -> Result<(), Error>;
    fn has_content_to_send(&self) -> bool;
    /// The bytes of content that are left, where nothing is framed but by their number.
    fn content_left(&self) -> Option<u64>;
    fn is_message_sent(&self) -> bool;
    /// The body that is being received has ended early.
    fn body_failed(driver: &mut Driver<Self>);
    /// The peer takes nothing any more.
    fn send_failed(driver: &mut Driver<Self>);
}

/// The result of one step of the machine.
pub(super) enum InputStep {
    NeedMore,
    /// The rest of the input is for the next exchange, or undecided.
    Paused,
    Head(BodyLength),
    Data(Slice),
    Trailers,
    End,
}

impl<R: Role> Driver<R> {
    pub(super) fn new(socket: Option<Transport>, role: R) -> Driver<R> {
        Driver {
            window: role.usual_window(),
            role,
            socket,
            number: 0,
            exchange: ExchangeState::default(),
            input: Input::default(),
            fin_at: None,
            trailers: Pooled::default(),
            pending: None,
        }
    }

    /// The next event in the received bytes. [`InputStep::NeedMore`] means that the machine has processed all
    /// of them, in however many pieces they arrived (rule 8); only then may a caller wait for more.
    #[inline]
    pub(super) fn step(&mut self) -> Result<InputStep, Error> {
        // The result is not taken apart, which would move it once more.
        let step = self.step_through_front();
        if matches!(step, Ok(InputStep::NeedMore)) && !self.input.is_empty() {
            return self.step_through_rest();
        }
        step
    }

    #[cold]
    fn step_through_rest(&mut self) -> Result<InputStep, Error> {
        loop {
            let step = self.step_through_front()?;
            if !matches!(step, InputStep::NeedMore) || self.input.is_empty() {
                return Ok(step);
            }
        }
    }

    /// One step of the machine, which sees the first piece alone.
    #[inline]
    fn step_through_front(&mut self) -> Result<InputStep, Error> {
        let bytes: &[u8] = self.input.front().map_or(&[], |slice| slice);
        let taken = self.role.handle_input(bytes, &mut self.trailers)?;
        let step = match taken.event {
            Event::NeedMore => {
                debug_assert_eq!(taken.consumed, bytes.len(), "a piece is taken whole");
                InputStep::NeedMore
            }
            Event::Paused => InputStep::Paused,
            Event::Head(length) => InputStep::Head(length),
            Event::Data(range) => match self.input.front() {
                Some(slice) => InputStep::Data(slice.slice(range)),
                None => unreachable!("data is a range of the input"),
            },
            Event::Trailers => InputStep::Trailers,
            Event::End => InputStep::End,
        };
        self.input.consume(taken.consumed);
        Ok(step)
    }

    pub(super) fn push(&mut self, slice: Slice) {
        self.input.push(slice);
        self.exchange.receiving.pace.end_waiting();
    }

    pub(super) fn has_fin(&self) -> bool {
        self.fin_at.is_some()
    }

    /// Receives once more into the input. `false` after FIN.
    pub(super) fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        self.restore_window();
        self.poll_receive_ahead(cx)
    }

    /// As [`Driver::poll_receive`], on top of what is held already.
    #[inline]
    pub(super) fn poll_receive_ahead(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        if self.has_fin() {
            return Poll::Ready(Ok(false));
        }
        let Some(socket) = &mut self.socket else {
            return Poll::Ready(Ok(false));
        };
        match socket.poll_recv(cx)? {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Some(slice)) => {
                self.push(slice);
                Poll::Ready(Ok(true))
            }
            Poll::Ready(None) => {
                self.fin_at = Some(blitz_reactor::now());
                Poll::Ready(Ok(false))
            }
        }
    }

    /// Counts what was read ahead of its use, and `more` that will be, against what may be
    /// received: a client that keeps sending is not read without bound.
    pub(super) fn shrink_window(&mut self, more: usize) {
        let ahead = self.input.bytes() + more;
        let bytes_max = self.role.limits().pipelined_bytes_max;
        self.set_window(bytes_max.saturating_sub(ahead));
    }

    pub(super) fn restore_window(&mut self) {
        if self.input.is_empty() {
            self.set_window(self.role.usual_window());
        }
    }

    /// As [`Driver::restore_window`], but leaves a window for content as it is.
    pub(super) fn widen_window(&mut self) {
        self.set_window(self.window.max(self.role.usual_window()));
    }

    /// Opens the window for content (rule 4), but not for more bytes of other messages than usual
    /// (rule 17). The end of chunked content is not known, so that more may come with its last bytes.
    fn open_window(&mut self) {
        let window_max = self.role.limits().stream_buffer_bytes_max;
        let left = self.exchange.receiving.pace.bytes_left();
        let window = match left.and_then(|left| usize::try_from(left).ok()) {
            Some(left) if left < window_max => {
                // These are taken next, and the socket then receives as many again.
                let unread = self.socket.as_mut().map_or(0, Transport::unread_content);
                let usual = self.role.usual_window();
                (left + usual).saturating_sub(unread).min(window_max)
            }
            _ => window_max,
        };
        self.set_window(window);
    }

    #[inline]
    fn set_window(&mut self, bytes: usize) {
        if self.window != bytes
            && let Some(socket) = &self.socket
        {
            self.window = bytes;
            socket.set_window(bytes);
        }
    }

    /// FIN ends a tunnel's direction and a response delimited by close; any other message is truncated.
    fn end_body_by_fin(&mut self) -> Result<Fill, BodyError> {
        let is_complete = self.role.ends_with_fin();
        // Where the end of the connection ends the message, TLS distinguishes it from a truncation.
        let is_cut = self.socket.as_ref().is_some_and(Transport::is_truncated);
        if !is_complete || is_cut {
            return Err(self.fail_body(BodyError::Truncated));
        }
        self.end_body();
        Ok(Fill::End)
    }

    pub(super) fn end_body(&mut self) {
        self.exchange.receiving.body = BodyState::Done;
        self.exchange.receiving.reader = None;
    }

    fn fail_body(&mut self, error: BodyError) -> BodyError {
        self.exchange.is_gone |= matches!(error, BodyError::Reset);
        self.exchange.receiving.body = BodyState::Failed(error.clone());
        R::body_failed(self);
        error
    }

    #[inline]
    pub(super) fn buffer(&mut self) -> &mut Buffer {
        self.pending.get_or_insert_with(Buffer::take)
    }

    /// The machine's side of the connection, and where it writes.
    #[inline]
    pub(super) fn parts(&mut self) -> (&mut R, &mut Buffer) {
        let pending = self.pending.get_or_insert_with(Buffer::take);
        (&mut self.role, pending)
    }

    /// Queues what was encoded; it leaves with everything else that is queued in this turn.
    #[inline(always)]
    pub(super) fn flush(&mut self) {
        let Some(buffer) = self.pending.take() else {
            return;
        };
        if !buffer.is_empty() {
            self.queue(Chunk::from(buffer));
        }
    }

    /// Bytes that may be queued before another piece is added (rule 4): three quarters of a stream's share,
    /// so that pieces of HTTP/2 and records of TLS leave together. While less than half of the core's
    /// memory is available it is a quarter, and the piece that follows takes another; the other half is
    /// for what was received and is not yet taken. It is less while many streams hold much.
    fn room(&self) -> usize {
        let bytes_max = self.role.limits().stream_buffer_bytes_max;
        match blitz_reactor::is_memory_scarce() {
            false => bytes_max / 4 * 3,
            true => (bytes_max / 4).min(blitz_reactor::fair_share()),
        }
    }

    /// Bytes that wait for the peer to take them.
    #[inline(always)]
    pub(super) fn queued(&self) -> usize {
        let pending = self.pending.as_ref().map_or(0, |buffer| buffer.len());
        pending + self.socket.as_ref().map_or(0, Transport::queued)
    }

    #[inline(always)]
    fn queue(&mut self, chunk: Chunk) {
        if let Some(socket) = &mut self.socket {
            socket.send(chunk);
        }
    }

    /// Small pieces are copied behind what is encoded already, large ones are queued as they are
    /// (rule 3).
    #[inline(always)]
    fn append(&mut self, chunk: Chunk) {
        let bytes: &[u8] = &chunk;
        if bytes.len() < self.role.limits().slice_bytes_min {
            self.buffer().extend_from_slice(bytes);
        } else {
            self.flush();
            self.queue(chunk);
            if let Some(socket) = &mut self.socket {
                socket.send_large();
            }
        }
    }

    /// Ends the exchange for every handle that is still around; the next one has a new number.
    pub(super) fn detach_handles(&mut self) {
        self.number += 1;
        wake(&mut self.exchange.receiving.reader);
    }

    /// Forgets the connection, which has no handle left, and keeps the memory.
    #[inline]
    pub(super) fn clear(&mut self) {
        self.socket = None;
        self.exchange.clear();
        self.input.clear();
        self.window = self.role.usual_window();
        self.fin_at = None;
        self.trailers.clear();
        self.pending = None;
    }
}

impl<R: Role> Framing for Driver<R> {
    type Id = u64;
    type Side = R::Side;

    #[inline]
    fn exchange(&mut self, id: u64) -> Option<&mut ExchangeState> {
        (id == self.number).then_some(&mut self.exchange)
    }

    #[inline]
    fn exchange_and_limits(&mut self, id: u64) -> Option<(&mut ExchangeState, &Limits)> {
        (id == self.number).then_some((&mut self.exchange, self.role.limits()))
    }

    fn poll_fill(&mut self, id: u64, cx: &mut Context<'_>) -> Poll<Result<Fill, BodyError>> {
        if id != self.number {
            return Poll::Ready(Err(BodyError::Cancelled));
        }
        match &self.exchange.receiving.body {
            BodyState::Done => return Poll::Ready(Ok(Fill::End)),
            BodyState::Failed(error) => return Poll::Ready(Err(error.clone())),
            BodyState::Open | BodyState::Unwanted => {}
        }
        self.exchange.receiving.reader = None;
        loop {
            match self.step() {
                Ok(InputStep::Data(slice)) => {
                    self.exchange.receiving.pace.bytes += slice.len() as u64;
                    return Poll::Ready(Ok(Fill::Data(slice)));
                }
                Ok(InputStep::Trailers) => {
                    let trailers = std::mem::take(&mut self.trailers);
                    return Poll::Ready(Ok(Fill::Trailers(trailers)));
                }
                Ok(InputStep::End) => {
                    self.end_body();
                    return Poll::Ready(Ok(Fill::End));
                }
                Ok(InputStep::NeedMore | InputStep::Paused | InputStep::Head(_)) => {}
                Err(error) => return Poll::Ready(Err(self.fail_body(BodyError::Malformed(error)))),
            }
            if self.input.is_empty() {
                self.open_window();
            }
            match self.poll_receive_ahead(cx) {
                Poll::Ready(Ok(true)) => {
                    self.exchange.receiving.last = Some(blitz_reactor::now());
                }
                Poll::Ready(Ok(false)) => return Poll::Ready(self.end_body_by_fin()),
                Poll::Ready(Err(_)) => return Poll::Ready(Err(self.fail_body(BodyError::Reset))),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    fn take_whole(&mut self, id: u64, length: u64) -> Option<Slice> {
        let received = self.input.front().map_or(0, Slice::len);
        let receiving = &self.exchange.receiving;
        let is_whole = receiving.pace.bytes == 0 && received as u64 >= length;
        if id != self.number || !is_whole || !matches!(receiving.body, BodyState::Open) {
            return None;
        }
        let (Ok(InputStep::Data(whole)), Ok(InputStep::End)) = (self.step(), self.step()) else {
            self.fail_body(BodyError::Truncated);
            return None;
        };
        self.end_body();
        Some(whole)
    }

    fn poll_room(&mut self, _: u64, cx: &mut Context<'_>) -> Poll<Result<(), SendError>> {
        let below = self.room();
        if self.queued() > below {
            self.flush();
        }
        let Some(socket) = &self.socket else {
            return Poll::Ready(Err(SendError::Closed));
        };
        match socket.poll_send_room(cx, below) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(())) => Poll::Ready(Ok(())),
            Poll::Ready(Err(_)) => {
                R::send_failed(self);
                Poll::Ready(Err(SendError::Closed))
            }
        }
    }

    #[inline(always)]
    fn send_data(&mut self, id: u64, chunk: Chunk, is_last: bool) -> Result<Sent, Error> {
        if self.exchange.is_tunnel {
            self.append(chunk);
            return Ok(Sent::Open);
        }
        let len = chunk.len();
        let (role, out) = self.parts();
        role.send_data_prefix(len, out)?;
        self.append(chunk);
        let (role, out) = self.parts();
        role.send_data_suffix(out);
        match is_last {
            true => self.send_end(id, None),
            false => Ok(Sent::Open),
        }
    }

    fn poll_send_file(
        &mut self,
        _: u64,
        cx: &mut Context<'_>,
        file: &File,
        offset: u64,
        len: u64,
    ) -> Poll<Result<Option<usize>, SendError>> {
        let len = len.min(self.role.content_left().unwrap_or(0));
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        if len == 0 || self.exchange.is_tunnel {
            return Poll::Ready(Ok(None));
        }
        self.flush();
        let Some(socket) = &mut self.socket else {
            return Poll::Ready(Err(SendError::Closed));
        };
        match socket.poll_send_file(cx, file, offset, len) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(Some(sent))) => {
                let (role, out) = self.parts();
                let counted = role.send_data_prefix(sent, out);
                debug_assert!(counted.is_ok() && out.is_empty(), "only bytes are counted");
                Poll::Ready(Ok(Some(sent)))
            }
            Poll::Ready(Ok(None)) => Poll::Ready(Ok(None)),
            Poll::Ready(Err(_)) => {
                R::send_failed(self);
                Poll::Ready(Err(SendError::Closed))
            }
        }
    }

    #[inline(always)]
    fn send_end(&mut self, _: u64, trailers: Option<&Fields>) -> Result<Sent, Error> {
        if self.exchange.is_tunnel {
            self.flush();
            if let Some(socket) = &mut self.socket {
                socket.shutdown_write();
            }
        } else if !self.role.is_message_sent() {
            let (role, out) = self.parts();
            role.send_end(trailers, out)?;
        }
        Ok(Sent::Complete)
    }

    #[inline]
    fn has_content_to_send(&self, _: u64) -> bool {
        self.role.has_content_to_send()
    }

    #[inline]
    fn transmission(&mut self, _: u64) -> Transmission {
        Transmission {
            unsent: self.queued(),
            progress: self.socket.as_ref().map(Transport::send_progress),
            half_closed: self.fin_at,
            is_held_back: false,
            received: ReceivedContent::default(),
        }
    }
}

/// A connection carries one exchange at a time, so the number identifies it.
impl From<ExchangeId> for u64 {
    fn from(id: ExchangeId) -> u64 {
        id.0
    }
}
