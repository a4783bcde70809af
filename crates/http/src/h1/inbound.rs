//! The receiving half of a connection: what was received, and where the current body stands.

use std::task::{Context, Poll, Waker};
use std::time::Instant;

use blitz_proto::{BodyLength, Fields};
use blitz_reactor::Slice;

use super::wire::{Got, Side, State, Wire};
use crate::body::Part;
use crate::error::BodyError;
use crate::input::Input;
use crate::pace::Pace;
use crate::recycle::Pooled;
use crate::transport::Transport;

#[derive(Default)]
pub(super) struct Inbound {
    /// Received and not yet taken by the machine, in order.
    pub(super) input: Input,
    /// The receive window was made smaller by what the input holds.
    pub(super) is_shrunk: bool,
    /// When the peer ended its direction; it sends no more.
    pub(super) fin_at: Option<Instant>,
    pub(super) body: Body,
    pub(super) trailers: Pooled<Fields>,
    pub(super) pace: Pace,
    /// When something last arrived of a body.
    pub(super) last: Option<Instant>,
    /// It carries messages that may be far apart: nothing is asked of its rate.
    pub(super) is_patient: bool,
    /// Who waits for more of the body, if it is not the one the socket wakes.
    reader: Option<Waker>,
}

/// Where the body that is being received stands.
#[derive(Default)]
pub(super) enum Body {
    /// Complete, or there is none.
    #[default]
    Done,
    /// More is to come for a reader.
    Open,
    /// More is to come, and nobody wants it.
    Unwanted,
    /// It ended early.
    Failed(BodyError),
}

impl Inbound {
    pub(super) fn push(&mut self, slice: Slice) {
        self.input.push(slice);
        self.pace.end_waiting();
    }

    pub(super) fn has_fin(&self) -> bool {
        self.fin_at.is_some()
    }

    pub(super) fn is_body_complete(&self) -> bool {
        matches!(self.body, Body::Done)
    }

    pub(super) fn wake_reader(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }

    fn wait(&mut self, cx: &Context<'_>) {
        if !self
            .reader
            .as_ref()
            .is_some_and(|reader| reader.will_wake(cx.waker()))
        {
            self.reader = Some(cx.waker().clone());
        }
        self.pace.begin_waiting();
    }

    pub(super) fn begin_body(&mut self, length: BodyLength) {
        self.body = Body::Open;
        self.is_patient = false;
        self.pace = Pace::new(length);
        self.last = None;
    }

    pub(super) fn clear(&mut self) {
        self.input.clear();
        self.is_shrunk = false;
        self.fin_at = None;
        self.body = Body::Done;
        self.trailers.clear();
        self.reader = None;
    }
}

impl Wire {
    /// The next part of the body for its reader.
    pub(crate) fn poll_part(
        &self,
        exchange: u32,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Part>, BodyError>> {
        self.in_exchange(exchange, |state| state.poll_part(cx))
            .unwrap_or(Poll::Ready(Err(BodyError::Cancelled)))
    }

    /// See [`RecvBody::take_whole`](crate::RecvBody::take_whole).
    pub(crate) fn take_whole(&self, exchange: u32, length: u64) -> Option<Slice> {
        self.in_exchange(exchange, |state| state.take_whole(length))
            .flatten()
    }

    /// The sender may take its time.
    pub(crate) fn be_patient(&self, exchange: u32) {
        self.in_exchange(exchange, |state| state.inbound.is_patient = true);
    }

    /// The reader is gone.
    pub(crate) fn drop_recv(&self, exchange: u32) {
        self.in_exchange(exchange, |state| {
            // What ended early stays on record: it may decide the answer.
            if !matches!(state.inbound.body, Body::Open) {
                return;
            }
            state.inbound.body = Body::Unwanted;
            match &mut state.side {
                // A tunnel may have to be torn down for it.
                Side::Server(side) => side.wake_task(),
                Side::Client(_) => state.close_client(),
            }
        });
    }
}

impl State {
    fn poll_part(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Part>, BodyError>> {
        match &self.inbound.body {
            Body::Done => return Poll::Ready(Ok(None)),
            Body::Failed(error) => return Poll::Ready(Err(error.clone())),
            Body::Open | Body::Unwanted => {}
        }
        self.inbound.reader = None;
        loop {
            match self.step() {
                Ok(Got::Data(slice)) => {
                    self.inbound.pace.bytes += slice.len() as u64;
                    return Poll::Ready(Ok(Some(Part::Data(slice))));
                }
                Ok(Got::Trailers) => {
                    return Poll::Ready(Ok(Some(Part::Trailers(self.take_trailers()))));
                }
                Ok(Got::End) => {
                    self.end_body();
                    return Poll::Ready(Ok(None));
                }
                Ok(Got::NeedMore | Got::Paused | Got::Head(_)) => {}
                Err(error) => return Poll::Ready(Err(self.fail_body(BodyError::Malformed(error)))),
            }
            self.ask_for_content();
            match self.poll_receive(cx) {
                Poll::Ready(Ok(true)) => self.inbound.last = Some(blitz_reactor::now()),
                Poll::Ready(Ok(false)) => return Poll::Ready(self.end_body_by_fin()),
                Poll::Ready(Err(_)) => return Poll::Ready(Err(self.fail_body(BodyError::Reset))),
                Poll::Pending => {
                    self.inbound.wait(cx);
                    return match self.poll_body_deadline(cx) {
                        Poll::Ready(()) => Poll::Ready(Err(self.fail_body(BodyError::TimedOut))),
                        Poll::Pending => Poll::Pending,
                    };
                }
            }
        }
    }

    fn take_whole(&mut self, length: u64) -> Option<Slice> {
        let received = self.inbound.input.front().map_or(0, Slice::len);
        let is_whole = self.inbound.pace.bytes == 0 && received as u64 >= length;
        if !is_whole || !matches!(self.inbound.body, Body::Open) {
            return None;
        }
        let (Ok(Got::Data(whole)), Ok(Got::End)) = (self.step(), self.step()) else {
            self.fail_body(BodyError::Truncated);
            return None;
        };
        self.end_body();
        Some(whole)
    }

    pub(super) fn end_body(&mut self) {
        self.inbound.body = Body::Done;
        self.inbound.reader = None;
        if matches!(self.side, Side::Client(_)) {
            self.release_client();
        }
    }

    /// FIN ends a tunnel's direction and a response delimited by close; anything else is cut off.
    fn end_body_by_fin(&mut self) -> Result<Option<Part>, BodyError> {
        let complete = match &mut self.side {
            Side::Server(side) => side.machine.handle_eof().is_ok(),
            Side::Client(side) => {
                matches!(side.machine.handle_eof(), Ok(blitz_proto::h1::Event::End))
            }
        };
        // Where the end of the connection is the end of the message, TLS tells it from a cut.
        let is_cut = self.socket.as_ref().is_some_and(Transport::is_truncated);
        if !complete || is_cut {
            return Err(self.fail_body(BodyError::Truncated));
        }
        self.end_body();
        Ok(None)
    }

    fn fail_body(&mut self, error: BodyError) -> BodyError {
        self.inbound.body = Body::Failed(error.clone());
        match &mut self.side {
            Side::Server(side) => {
                side.gone |= matches!(error, BodyError::Reset);
                side.wake_task();
            }
            Side::Client(_) => self.close_client(),
        }
        error
    }

    /// The first read of a body sends the `100 Continue` that its sender waits for.
    fn ask_for_content(&mut self) {
        if let Side::Server(side) = &mut self.side
            && side.machine.expects_continue()
        {
            side.send_continue(self.outbound.buffer());
            self.flush();
        }
    }

    /// Servers watch their deadlines in the exchange's task.
    fn poll_body_deadline(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &self.side {
            Side::Client(side) if !self.is_tunnel => {
                let (limits, pace) = (&side.options.limits, &self.inbound.pace);
                let due = match self.inbound.is_patient {
                    true => pace.silence_due(limits.stream_idle_timeout),
                    false => pace.response_due(side.options.body_timeout, limits),
                };
                self.timer.poll_due(due, cx)
            }
            _ => Poll::Pending,
        }
    }
}
