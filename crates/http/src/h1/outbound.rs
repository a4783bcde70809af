//! The sending half of a connection: what is encoded, and where the current message stands.

use std::task::{Context, Poll};
use std::time::Instant;

use blitz_proto::{Fields, Limits};
use blitz_reactor::{Buffer, Chunk};

use super::wire::{Side, State, Wire};
use crate::error::SendError;
use crate::transport::Transport;

#[derive(Default)]
pub(super) struct Outbound {
    /// Encoded and not yet queued, so that small pieces leave as one.
    pending: Option<Buffer>,
    pub(super) message: Message,
}

/// Where the message that is being sent stands.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Message {
    /// Not begun: on a server somebody still has to answer.
    #[default]
    Due,
    /// Its content is being sent, or bytes of a tunnel.
    Open,
    /// Complete.
    Done,
    /// Given up before it was begun.
    Missing,
    /// Given up in the middle.
    Cut,
}

impl Outbound {
    pub(super) fn buffer(&mut self) -> &mut Buffer {
        self.pending.get_or_insert_with(Buffer::take)
    }

    pub(super) fn clear(&mut self) {
        self.pending = None;
        self.message = Message::Due;
    }
}

impl Wire {
    pub(crate) fn poll_room(
        &self,
        exchange: u32,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), SendError>> {
        self.in_exchange(exchange, |state| state.poll_room(cx))
            .unwrap_or(Poll::Ready(Err(SendError::Closed)))
    }

    pub(crate) fn send_data(&self, exchange: u32, chunk: Chunk) -> Result<(), SendError> {
        self.in_exchange(exchange, |state| state.send_data(chunk))
            .unwrap_or(Err(SendError::Closed))
    }

    pub(crate) fn send_end(
        &self,
        exchange: u32,
        trailers: Option<&Fields>,
    ) -> Result<(), SendError> {
        self.in_exchange(exchange, |state| state.send_end(trailers))
            .unwrap_or(Err(SendError::Closed))
    }

    /// The writer is gone without having finished.
    pub(crate) fn drop_send(&self, exchange: u32) {
        self.in_exchange(exchange, State::give_up_message);
    }
}

impl State {
    /// Queues what was encoded; it leaves with everything else that is queued in this turn.
    #[inline(always)]
    pub(super) fn flush(&mut self) {
        let Some(buffer) = self.outbound.pending.take() else {
            return;
        };
        if !buffer.is_empty() {
            self.queue(Chunk::from(buffer));
        }
    }

    /// Bytes that wait for the peer to take them.
    pub(super) fn queued(&self) -> usize {
        let pending = self
            .outbound
            .pending
            .as_ref()
            .map_or(0, |buffer| buffer.len());
        pending + self.socket.as_ref().map_or(0, Transport::queued)
    }

    /// When the peer will have taken nothing for too long.
    pub(super) fn stall_due(&self, limits: &Limits) -> Option<Instant> {
        let socket = self.socket.as_ref().filter(|socket| socket.queued() > 0)?;
        Some(socket.send_progress() + limits.send_stall_timeout)
    }

    #[inline(always)]
    fn queue(&mut self, chunk: Chunk) {
        if let Some(socket) = &mut self.socket {
            socket.send(chunk);
        }
    }

    pub(super) fn limits(&self) -> &Limits {
        match &self.side {
            Side::Server(side) => &side.options.limits,
            Side::Client(side) => &side.options.limits,
        }
    }

    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SendError>> {
        if self.outbound.message != Message::Open {
            return Poll::Ready(Err(SendError::Closed));
        }
        // A quarter here and another with the piece that follows; the other half of a stream's
        // share is for what was received and is not yet taken (rule 4). Less while many hold much.
        let below = self.limits().stream_buffer_bytes_max / 4;
        let below = below.min(blitz_reactor::fair_share());
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
                self.lose_peer();
                Poll::Ready(Err(SendError::Closed))
            }
        }
    }

    /// A send failed: the peer is gone.
    fn lose_peer(&mut self) {
        match &mut self.side {
            Side::Server(side) => {
                side.gone = true;
                side.wake_task();
            }
            // What it sent before it went may still be a response, so the reader decides.
            Side::Client(_) => self.outbound.message = Message::Cut,
        }
    }

    pub(super) fn send_data(&mut self, chunk: Chunk) -> Result<(), SendError> {
        if self.outbound.message != Message::Open {
            return Err(SendError::Closed);
        }
        if chunk.is_empty() {
            return Ok(());
        }
        if self.is_tunnel {
            self.append(chunk);
            return Ok(());
        }
        let prefixed = self
            .side
            .send_data_prefix(chunk.len(), self.outbound.buffer());
        if prefixed.is_err() {
            self.cut_message();
            return Err(SendError::Length);
        }
        self.append(chunk);
        self.side.send_data_suffix(self.outbound.buffer());
        Ok(())
    }

    /// Small pieces are copied behind what is encoded already, large ones are queued as they are
    /// (rule 3).
    #[inline]
    pub(super) fn append(&mut self, chunk: Chunk) {
        let bytes: &[u8] = &chunk;
        if bytes.len() < self.limits().slice_bytes_min {
            self.outbound.buffer().extend_from_slice(bytes);
        } else {
            self.flush();
            self.queue(chunk);
        }
    }

    pub(super) fn send_end(&mut self, trailers: Option<&Fields>) -> Result<(), SendError> {
        if self.outbound.message != Message::Open {
            return Err(SendError::Closed);
        }
        if self.is_tunnel {
            self.flush();
            if let Some(socket) = &mut self.socket {
                socket.shutdown_write();
            }
        } else if self
            .side
            .send_end(trailers, self.outbound.buffer())
            .is_err()
        {
            self.cut_message();
            return Err(SendError::Length);
        }
        self.end_message();
        Ok(())
    }

    #[inline]
    pub(super) fn end_message(&mut self) {
        self.outbound.message = Message::Done;
        match &mut self.side {
            Side::Server(side) => side.wake_task(),
            Side::Client(_) => {
                self.flush();
                self.release_client();
            }
        }
    }

    /// Nothing more comes. An answer of which all was sent that its length announced is complete for the
    /// client, whose next request may be on its way.
    fn give_up_message(&mut self) {
        let is_answer = matches!(self.side, Side::Server(_));
        let is_open = self.outbound.message == Message::Open;
        if !(is_open && is_answer && self.finish_without_content()) {
            self.cut_message();
        }
    }

    /// Gives the message up in the middle, so that the peer sees that it is incomplete.
    pub(super) fn cut_message(&mut self) {
        if self.outbound.message != Message::Open {
            return;
        }
        self.outbound.message = Message::Cut;
        match &mut self.side {
            Side::Server(side) => side.wake_task(),
            // An early answer may still be read to its end; without one the request is given up.
            Side::Client(side) if side.machine.response_started() && !self.is_tunnel => {}
            Side::Client(_) => self.close_client(),
        }
    }
}
