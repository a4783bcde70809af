//! Our messages: written to QUIC as far as it takes them.

use std::task::{Context, Poll};

use blitz_proto::h3::StreamId;
use blitz_proto::{Error, Fields};
use blitz_quic::quinn_proto::{self, Dir, SendStream, WriteError};
use blitz_reactor::{Buffer, Chunk};

use super::driver::{Driver, stream_of};
use super::role::Role;
use crate::conn::streams::stream::Ending;
use crate::counters::count;
use crate::error::SendError;
use crate::exchange::{Sent, conclude_sent, wake};

/// Content of at most this is written together with the frames before it.
const COPIED_MAX: usize = 4 * 1024;

/// Bytes of a stream before others have their turn.
const PIECE_BYTES: usize = 16 * 1024;

impl<R: Role> Driver<R> {
    pub(super) fn poll_stream_room(
        &mut self,
        id: StreamId,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), SendError>> {
        let room = R::room(self);
        let Some(state) = self.stream(id) else {
            return Poll::Ready(Err(SendError::Closed));
        };
        if state.sending.poll_room(room, cx).is_ready() {
            return Poll::Ready(Ok(()));
        }
        if room.is_none() && !self.awaiting_memory.contains(&id) {
            count(|counters| counters.held_back += 1);
            self.awaiting_memory.push(id);
        }
        Poll::Pending
    }

    /// Notes that queued bytes of streams are gone.
    pub(super) fn note_unsent(&mut self, bytes: usize) {
        self.unsent -= bytes;
        for id in std::mem::take(&mut self.awaiting_memory) {
            if let Some(state) = self.stream(id) {
                wake(&mut state.sending.writer);
            }
        }
    }

    pub(super) fn queue_data(
        &mut self,
        id: StreamId,
        chunk: Chunk,
        is_last: bool,
    ) -> Result<Sent, Error> {
        let framed = self
            .machine
            .send_data(id, chunk.len(), is_last, &mut self.out);
        if framed.is_err() {
            self.write(id, Chunk::from(""));
        }
        if framed? {
            self.end_after(id);
        }
        Ok(self.write(id, chunk))
    }

    pub(super) fn queue_end(
        &mut self,
        id: StreamId,
        trailers: Option<&Fields>,
    ) -> Result<Sent, Error> {
        let framed = self.machine.send_end(id, trailers, &mut self.out);
        if framed.is_err() {
            self.write(id, Chunk::from(""));
        }
        if framed? {
            self.end_after(id);
        }
        // The message of a head without content is complete, although some of it may be queued.
        Ok(self.write(id, Chunk::from("")))
    }

    /// Ends the stream behind its queued bytes.
    pub(super) fn end_after(&mut self, id: StreamId) {
        if let Some(state) = self.stream(id) {
            state.sending.end = Ending::Plain;
        }
    }

    /// Writes the encoded bytes of a stream, and content behind them.
    pub(super) fn write(&mut self, id: StreamId, mut content: Chunk) -> Sent {
        let slice_bytes_min = self.limits().slice_bytes_min;
        if content.len() <= COPIED_MAX {
            self.out.extend_from_slice(&content);
            content = Chunk::from("");
        }
        let stream = match self.streams.get_mut(&id) {
            Some(stream) if !stream.is_finished => stream,
            found => {
                self.out.clear();
                return match found {
                    Some(_) => Sent::Complete,
                    None => Sent::Open,
                };
            }
        };
        let sending = &mut stream.state.sending;
        let before = sending.queued;
        let mut is_awaited = false;
        if sending.queue.is_empty() {
            sending.progress = blitz_reactor::now();
            if let Some(quic) = &self.quic {
                let is_ended = matches!(sending.end, Ending::Plain);
                let out = &mut self.out;
                quic.with(|quic| {
                    let mut stream_of = quic.send_stream(stream_of(id));
                    let written = write_some(&mut stream_of, out);
                    out.drain(..written);
                    if out.is_empty() {
                        let written = write_some(&mut stream_of, &content);
                        content.advance(written);
                    }
                    if out.is_empty() && content.is_empty() && is_ended {
                        is_awaited = stream_of.finish().is_ok();
                        stream.is_finished = true;
                    }
                });
            }
        }
        if stream.is_finished {
            return self.message_finished(id, is_awaited);
        }
        if !self.out.is_empty() {
            sending.queued += self.out.len();
            let out = Buffer::from(std::mem::take(&mut self.out));
            sending.push(Chunk::from(out), slice_bytes_min);
        }
        if !content.is_empty() {
            sending.queued += content.len();
            sending.push(content, slice_bytes_min);
        }
        let more = sending.queued - before;
        self.unsent += more;
        if more > 0 {
            self.schedule.add(id, stream.priority);
        }
        Sent::Open
    }

    /// All of a message was given to QUIC. QUIC reports the acknowledgement if it `is_awaited`: not if the peer has
    /// stopped the stream.
    fn message_finished(&mut self, id: StreamId, is_awaited: bool) -> Sent {
        if self.unacknowledged.is_empty() {
            self.acknowledged_at = blitz_reactor::now();
        }
        if is_awaited {
            self.unacknowledged.push(id);
        }
        Sent::Complete
    }

    /// QUIC takes more of a stream, or of any stream: it names them in no useful order.
    pub(super) fn writable(&mut self, stream: quinn_proto::StreamId) {
        self.acknowledged_at = blitz_reactor::now();
        if let Some(quic) = &self.quic {
            quic.note_acknowledged();
        }
        if stream.dir() == Dir::Uni {
            return self.flush_own();
        }
        let id = super::driver::id_of(stream);
        if let Some(stream) = self.streams.get(&id)
            && !stream.state.sending.queue.is_empty()
        {
            self.schedule.add(id, stream.priority);
        }
        self.send_in_turns();
    }

    /// Writes pieces of the queued bytes of streams, each stream in its turn, until QUIC takes no more.
    fn send_in_turns(&mut self) {
        let mut refused = Vec::new();
        while let Some(turn) = self.schedule.next_turn() {
            let id = turn.id();
            let Some((sent, bytes)) = self.send_piece(id) else {
                continue;
            };
            if bytes == 0 && matches!(sent, Sent::Open) {
                refused.push(turn);
                continue;
            }
            // QUIC takes other streams, so the peers of these take no more: QUIC will report them.
            refused.clear();
            if let Some(stream) = self.streams.get(&id)
                && !stream.state.sending.queue.is_empty()
            {
                self.schedule.add(id, stream.priority);
            }
            // A failure is noted in the exchange.
            let _ = conclude_sent(self, id, &Ok(sent));
            R::queued_sent(self, id);
        }
        for turn in refused {
            if self.streams.contains_key(&turn.id()) {
                self.schedule.give_back(turn);
            }
        }
    }

    /// Writes a piece of the queued bytes of a stream. Returns its length as well.
    fn send_piece(&mut self, id: StreamId) -> Option<(Sent, usize)> {
        let quic = self.quic.as_ref()?;
        let stream = self.streams.get_mut(&id)?;
        let sending = &mut stream.state.sending;
        if stream.is_finished || sending.queue.is_empty() {
            return None;
        }
        let (mut sent, mut is_awaited) = (0, false);
        quic.with(|quic| {
            let mut stream_of = quic.send_stream(stream_of(id));
            while let Some(front) = sending.queue.front_mut()
                && sent < PIECE_BYTES
            {
                let len = front.len().min(PIECE_BYTES - sent);
                let written = write_some(&mut stream_of, &front[..len]);
                sent += written;
                match front.len() == written {
                    true => drop(sending.queue.pop_front()),
                    false => front.advance(written),
                }
                if written < len {
                    break;
                }
            }
            if sending.queue.is_empty() && matches!(sending.end, Ending::Plain) {
                is_awaited = stream_of.finish().is_ok();
                stream.is_finished = true;
            }
        });
        sending.queued -= sent;
        let is_finished = stream.is_finished;
        if sent > 0 {
            sending.progress = blitz_reactor::now();
            if sending.queued <= sending.wake_at {
                wake(&mut sending.writer);
            }
            self.note_unsent(sent);
        }
        let outcome = match is_finished {
            true => self.message_finished(id, is_awaited),
            false => Sent::Open,
        };
        Some((outcome, sent))
    }

    /// Opens the streams beside the requests, and writes their due bytes.
    pub(super) fn flush_own(&mut self) {
        let Some(quic) = &self.quic else { return };
        for at in 0..self.own.len() {
            let output = match at {
                0 => self.machine.control_output(),
                _ => self.machine.decoder_output(),
            };
            if output.is_empty() {
                continue;
            }
            let own = &mut self.own[at];
            quic.with(|quic| {
                if own.is_none() {
                    *own = quic.streams().open(Dir::Uni);
                    if let Some(stream) = *own {
                        // Before any message.
                        let _ = quic.send_stream(stream).set_priority(i32::MAX);
                    }
                }
                if let Some(stream) = *own {
                    let written = write_some(&mut quic.send_stream(stream), output);
                    output.drain(..written);
                }
            });
        }
    }

    /// The priority of a response is known, or has changed.
    pub(super) fn note_priority(&mut self, id: StreamId) {
        let Some(priority) = self.machine.priority(id) else {
            return;
        };
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.priority = priority;
            self.schedule.change(id, priority);
        }
    }
}

/// Writes until all is written, or until QUIC takes no more: only then QUIC reports when it takes more. On a stream
/// that the peer has stopped, nothing more is sent, so all bytes count as written.
fn write_some(stream: &mut SendStream<'_>, bytes: &[u8]) -> usize {
    let mut written = 0;
    while written < bytes.len() {
        match stream.write(&bytes[written..]) {
            Ok(more) => written += more,
            Err(WriteError::Blocked) => break,
            Err(WriteError::Stopped(_) | WriteError::ClosedStream) => return bytes.len(),
        }
    }
    written
}
