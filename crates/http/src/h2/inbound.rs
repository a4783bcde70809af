//! Bodies: from the machine's events to whoever reads them.

use std::task::{Context, Poll};

use blitz_proto::h2::{Code, StreamId};
use blitz_proto::{Fields, Name, ResponseHead, Status};
use blitz_reactor::Slice;

use super::stream::{Body, Stream, wake};
use super::wire::{State, Wire};
use crate::body::Part;
use crate::error::BodyError;
use crate::recycle::Pooled;

/// A slice of less than this that has to wait is copied out of its buffer, which others could be
/// received into (rule 3): frames of many streams share one.
const KEPT_MIN: usize = 4 * 1024;

impl Wire {
    /// The next part of a body for its reader.
    pub(crate) fn poll_part(
        &self,
        stream: StreamId,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Part>, BodyError>> {
        self.in_stream(stream, |state, stream| state.poll_part(stream, cx))
            .unwrap_or(Poll::Ready(Err(BodyError::Cancelled)))
    }

    /// The whole body, if nothing was taken yet and it came in one piece.
    pub(crate) fn take_whole(&self, stream: StreamId, length: u64) -> Option<Slice> {
        self.in_stream(stream, |state, stream| state.take_whole(stream, length))?
    }

    /// The reader is gone.
    pub(crate) fn drop_recv(&self, stream: StreamId) {
        self.in_stream(stream, State::drop_recv);
    }
}

impl Stream {
    /// Keeps content for its reader, if there is one; whether that was so.
    fn take_in(&mut self, mut slice: Slice, has_ended: bool) -> bool {
        let receiving = &mut self.receiving;
        let is_wanted = matches!(receiving.body, Body::Open);
        if is_wanted && !slice.is_empty() {
            if receiving.reader.is_none() && slice.len() < KEPT_MIN {
                slice = slice.copied();
            }
            receiving.pace.bytes += slice.len() as u64;
            receiving.parts.push_back(slice);
        }
        if has_ended && !matches!(receiving.body, Body::Failed(_)) {
            receiving.body = Body::Done;
        }
        receiving.arrived();
        if has_ended || self.is_tunnel {
            self.wake_task();
        }
        is_wanted
    }
}

impl State {
    /// Content has arrived.
    pub(super) fn take_in(&mut self, stream: StreamId, slice: Slice, has_ended: bool) {
        let bytes = slice.len();
        let is_wanted = self
            .stream(stream)
            .is_some_and(|known| known.take_in(slice, has_ended));
        if has_ended {
            self.places.answered();
        }
        if !is_wanted && bytes > 0 {
            let (machine, out) = self.machine();
            machine.release(stream, bytes, out);
        }
        if self.stream(stream).is_some_and(|known| known.lingers) {
            self.pass_over(stream, bytes, has_ended);
        }
    }

    /// Trailers have arrived, and with them the end.
    pub(super) fn take_in_trailers(&mut self, stream: StreamId, trailers: Pooled<Fields>) {
        self.places.answered();
        if let Some(known) = self.stream(stream) {
            if matches!(known.receiving.body, Body::Open) {
                known.receiving.trailers = Some(trailers);
            }
            known.receiving.body = Body::Done;
            known.receiving.arrived();
            known.wake_task();
            if known.lingers {
                self.close_stream(stream, None);
            }
        }
    }

    fn poll_part(
        &mut self,
        stream: StreamId,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Part>, BodyError>> {
        let Some(known) = self.stream(stream) else {
            return Poll::Ready(Err(BodyError::Cancelled));
        };
        let receiving = &mut known.receiving;
        // What came before a failure comes first: some servers reset tunnels that are at their end.
        if let Some(slice) = receiving.parts.pop_front() {
            let (machine, out) = self.machine();
            machine.release(stream, slice.len(), out);
            return Poll::Ready(Ok(Some(Part::Data(slice))));
        }
        if let Body::Failed(error) = &receiving.body {
            return Poll::Ready(Err(error.clone()));
        }
        if let Some(trailers) = receiving.trailers.take() {
            return Poll::Ready(Ok(Some(Part::Trailers(trailers))));
        }
        let is_done = matches!(receiving.body, Body::Done);
        if !is_done {
            receiving.wait(cx);
        }
        match (self.shared.is_client(), is_done) {
            (true, true) => self.finish_reading(stream),
            (true, false) => return self.poll_body_deadline(stream, cx).map(Err),
            (false, true) => {}
            (false, false) => self.ask_for_content(stream),
        }
        match is_done {
            true => Poll::Ready(Ok(None)),
            false => Poll::Pending,
        }
    }

    fn take_whole(&mut self, stream: StreamId, length: u64) -> Option<Slice> {
        let receiving = &mut self.stream(stream)?.receiving;
        let front = receiving.parts.front()?;
        let is_whole = matches!(receiving.body, Body::Done) && front.len() as u64 == length;
        if !is_whole || receiving.trailers.is_some() {
            return None;
        }
        let whole = receiving.parts.pop_front()?;
        let (machine, out) = self.machine();
        machine.release(stream, whole.len(), out);
        if self.shared.is_client() {
            self.finish_reading(stream);
        }
        Some(whole)
    }

    pub(super) fn drop_recv(&mut self, stream: StreamId) {
        if self.shared.is_client() {
            return self.close_stream(stream, Some(Code::CANCEL));
        }
        let Some(known) = self.stream(stream) else {
            return;
        };
        if matches!(known.receiving.body, Body::Open) {
            known.receiving.body = Body::Unwanted;
        }
        known.receiving.trailers = None;
        wake(&mut known.receiving.reader);
        // A tunnel may have to be torn down for it.
        known.wake_task();
        let unread = known.receiving.parts.drain(..).map(|part| part.len()).sum();
        if unread > 0 {
            let (machine, out) = self.machine();
            machine.release(stream, unread, out);
        }
    }

    /// The first read of a body sends the `100 Continue` that its sender waits for.
    fn ask_for_content(&mut self, stream: StreamId) {
        let (machine, out) = self.machine();
        if machine.expects_continue(stream) && !machine.response_started(stream) {
            machine.send_informational(stream, &ResponseHead::new(Status::CONTINUE), out);
        }
    }

    /// Fields that only mean something to HTTP/1.1 (RFC 9113, section 8.2.2) are the encoder's
    /// business; this is for those that would say something wrong about this connection.
    pub(super) fn edit_tunnel_head(head: &mut ResponseHead) {
        if head.status == Status::SWITCHING_PROTOCOLS {
            // RFC 8441, section 5.1: what 101 says in HTTP/1.1 is 200 here.
            head.status = Status::OK;
        }
        for name in [Name::Upgrade, Name::Connection] {
            head.fields.remove(name);
        }
        head.fields.remove("sec-websocket-accept");
    }
}
