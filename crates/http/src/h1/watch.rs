//! What a server's connection is watched for while a service works: the client going away, and
//! deadlines.

use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Instant;

use blitz_proto::Limits;

use super::exchange::Outcome;
use super::inbound::Body;
use super::outbound::Message;
use super::wire::{Got, State};
use crate::counters::count;
use crate::transport::Transport;

/// Bytes of answers queued before a pipelined request has to wait.
const PIPELINED_ANSWER_BYTES_MAX: usize = 64 * 1024;

impl State {
    /// Notices that the client went away although nobody reads. What comes is kept, within the
    /// bound for reading ahead (rule 17).
    pub(super) fn watch_client(&mut self, cx: &mut Context<'_>) {
        let bytes_max = self.limits().pipelined_bytes_max;
        if !self.inbound.is_shrunk && !self.inbound.input.is_empty() {
            self.shrink_window(0);
        }
        while !self.inbound.has_fin() && self.inbound.input.bytes() < bytes_max {
            // Before taking, because that lets the socket ask for as much again at once.
            let unread = self.socket.as_mut().map_or(0, Transport::unread_bytes);
            if unread > 0 {
                self.shrink_window(unread);
            }
            match self.poll_receive_more(cx) {
                Poll::Pending => return,
                Poll::Ready(Ok(_)) => {
                    self.inbound.wake_reader();
                    self.shrink_window(0);
                }
                Poll::Ready(Err(_)) => {
                    self.inbound.wake_reader();
                    self.side.server().gone = true;
                    return;
                }
            }
        }
    }

    pub(super) fn poll_deadlines(&mut self, cx: &mut Context<'_>) -> Poll<Outcome> {
        let options = Rc::clone(&self.side.server().options);
        let limits = &options.limits;
        if let Some(due) = self.stall_due(limits)
            && self.timer.poll_due(due, cx).is_ready()
        {
            return Poll::Ready(Outcome::Stalled);
        }
        if self.is_tunnel {
            let due = self.last_moved() + limits.stream_idle_timeout;
            return self.timer.poll_due(due, cx).map(|()| Outcome::Stalled);
        }
        if self.inbound.has_fin() && self.poll_half_close(limits, cx).is_ready() {
            return Poll::Ready(Outcome::Gone);
        }
        if !matches!(self.inbound.body, Body::Open) {
            return Poll::Pending;
        }
        let (due, outcome) = self.body_due(limits);
        self.timer.poll_due(due, cx).map(|()| outcome)
    }

    /// When the client will have sent too little of its request's body, if nothing comes until
    /// then (rule 18). While nobody waits for the body the client is not to blame; that is looked
    /// at again later, since a reader in another task does not pass through here.
    fn body_due(&self, limits: &Limits) -> (Instant, Outcome) {
        let pace = &self.inbound.pace;
        if self.inbound.is_patient {
            return (
                self.last_moved() + limits.stream_idle_timeout,
                Outcome::Silent,
            );
        }
        if self.outbound.message == Message::Due {
            let later = || blitz_reactor::now() + limits.body_rate_grace;
            return (
                pace.rate_due(limits).unwrap_or_else(later),
                Outcome::TooSlow,
            );
        }
        (pace.silence_due(limits.body_idle_timeout), Outcome::Silent)
    }

    /// Ready once a client that has ended its direction counts as gone: when no byte of the answer
    /// has left for some time (rule 16). Only time in which nothing is queued counts; otherwise the
    /// deadline for stalled sends decides.
    fn poll_half_close(&mut self, limits: &Limits, cx: &mut Context<'_>) -> Poll<()> {
        let Some(grace) = limits.half_close_grace else {
            return Poll::Pending;
        };
        let now = blitz_reactor::now();
        let since = match self.queued() {
            0 => self.inbound.fin_at.max(self.sent_at()).unwrap_or(now),
            _ => now,
        };
        self.timer.poll_due(since + grace, cx)
    }

    fn sent_at(&self) -> Option<Instant> {
        self.socket.as_ref().map(Transport::send_progress)
    }

    /// When bytes last moved in either direction.
    fn last_moved(&self) -> Instant {
        let moved = self.inbound.last.max(self.sent_at());
        moved.unwrap_or_else(blitz_reactor::now)
    }

    /// Reads what is left of a body that nobody wants: at most `left` bytes, until `due`.
    pub(super) fn poll_discard(
        &mut self,
        left: &mut usize,
        due: Instant,
        cx: &mut Context<'_>,
    ) -> Poll<bool> {
        loop {
            match self.step() {
                Ok(Got::End) => {
                    self.inbound.body = Body::Done;
                    return Poll::Ready(true);
                }
                Ok(Got::Data(slice)) if slice.len() > *left => return Poll::Ready(false),
                Ok(Got::Data(slice)) => {
                    *left -= slice.len();
                    continue;
                }
                Ok(Got::Trailers) => continue,
                Ok(Got::NeedMore | Got::Paused) => {}
                Ok(Got::Head(_)) | Err(_) => return Poll::Ready(false),
            }
            match self.poll_receive(cx) {
                Poll::Ready(Ok(true)) => {}
                Poll::Ready(Ok(false) | Err(_)) => return Poll::Ready(false),
                Poll::Pending => return self.timer.poll_due(due, cx).map(|()| false),
            }
        }
    }

    /// Pipelined answers must not pile up before a client that does not read.
    pub(super) fn poll_pipeline_room(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ()>> {
        let Some(socket) = &self.socket else {
            return Poll::Ready(Err(()));
        };
        match socket.poll_send_room(cx, PIPELINED_ANSWER_BYTES_MAX) {
            Poll::Ready(room) => Poll::Ready(room.map_err(drop)),
            Poll::Pending => {
                let options = Rc::clone(&self.side.server().options);
                let Some(due) = self.stall_due(&options.limits) else {
                    return Poll::Pending;
                };
                self.timer.poll_due(due, cx).map(|()| {
                    count(|counters| counters.send_stalls += 1);
                    Err(())
                })
            }
        }
    }
}
