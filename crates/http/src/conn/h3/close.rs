//! The end of a connection, and its deadlines.

use std::rc::Rc;
use std::time::{Duration, Instant};

use blitz_proto::Error;
use blitz_proto::h3::{Code, StreamId};
use blitz_quic::quinn_proto;

use super::driver::{Conn, Driver, stream_of, var_int};
use super::role::Role;
use super::unread::Unread;
use crate::conn::streams::stream::ResetReason;
use crate::counters::count;
use crate::exchange::wake;

/// Time between PINGs while there are requests: clients have idle timeouts of 30 s and more.
const PING_INTERVAL_MAX: Duration = Duration::from_secs(15);

/// Streams for which an idle connection keeps memory.
const STREAMS_KEPT: usize = 4;

impl<R: Role> Conn<R> {
    /// The time that [`Driver::settle`] has set has come.
    pub(super) fn deadline(self: &Rc<Self>) {
        self.work(Driver::deadline);
    }

    pub(super) fn lost(&self) {
        self.driver.borrow_mut().lost(&ResetReason::Reset);
    }
}

impl<R: Role> Driver<R> {
    /// Writes the due bytes of the streams beside the requests, and sets the next deadline.
    pub(super) fn settle(&mut self) {
        self.flush_own();
        R::before_sending(self);
        let is_idle = self.streams.is_empty() && self.unacknowledged.is_empty();
        match is_idle {
            false => {
                self.idle_since = None;
                let interval = (self.limits().idle_timeout / 3).min(PING_INTERVAL_MAX);
                let due = || blitz_reactor::now() + interval;
                self.ping.get_or_insert_with(due);
            }
            true if self.idle_since.is_none() => {
                self.idle_since = Some(blitz_reactor::now());
                self.ping = None;
                if R::SHRINKS_WHEN_IDLE {
                    self.shrink();
                }
            }
            true => {}
        }
        if is_idle && R::is_over(self) {
            return self.close(Code::NO_ERROR);
        }
        if is_idle && self.keeps_too_much() {
            R::retire_idle(self);
        }
        self.note_come(is_idle);
        self.keep_window_open();
        self.count_beyond_window();
        if self.holds_too_much() {
            R::note_end(self, "unread-flood");
            return self.close(Code::EXCESSIVE_LOAD);
        }
        if self.sorts_too_much() {
            R::note_end(self, "disordered-flood");
            return self.close(Code::EXCESSIVE_LOAD);
        }
        let due = self.next_deadline();
        if let Some(quic) = &self.quic {
            quic.set_active(!is_idle);
            quic.set_deadline(due);
        }
    }

    /// Has [`Driver::settle`] called.
    pub(super) fn settle_soon(&self) {
        if let Some(quic) = &self.quic {
            quic.drive_soon();
        }
    }

    fn shrink(&mut self) {
        self.streams.shrink_to(STREAMS_KEPT);
        self.role.shrink_to(STREAMS_KEPT);
        self.unacknowledged.shrink_to(STREAMS_KEPT);
        self.out = Vec::new();
        self.machine.shrink();
        self.unread.shrink();
        (self.window.read, self.window.frames) = (0, 0);
        self.set_window(0);
    }

    fn next_deadline(&mut self) -> Option<Instant> {
        let stall = (!self.unacknowledged.is_empty())
            .then(|| self.acknowledged_at + self.limits().send_stall_timeout);
        let due = [stall, self.ping, R::next_deadline(self)];
        due.into_iter().flatten().min()
    }

    fn deadline(&mut self) -> Result<(), Error> {
        let now = blitz_reactor::now();
        let stall = self.limits().send_stall_timeout;
        if !self.unacknowledged.is_empty() && self.acknowledged_at + stall <= now {
            count(|counters| counters.send_stalls += 1);
            self.close(Code::EXCESSIVE_LOAD);
            return Ok(());
        }
        R::deadline(self, now);
        if self.ping.take_if(|due| *due <= now).is_some() {
            // The next one is due as long as there are requests.
            self.quic(quinn_proto::Connection::ping);
        }
        Ok(())
    }

    /// The peer broke a rule that the whole connection depends on.
    pub(super) fn fail(&mut self, error: Error) {
        R::note_end(self, error.rule());
        self.fail_streams(&R::reason_of(error));
        self.close(Code::of(error.kind()));
    }

    /// Closes the connection.
    pub(super) fn close(&mut self, code: Code) {
        if let Some(quic) = &self.quic {
            quic.close(u32::try_from(code.0).unwrap_or(u32::MAX), "");
        }
        self.lost(&ResetReason::Reset);
    }

    /// The connection is lost.
    pub(super) fn lost(&mut self, reason: &ResetReason) {
        if let Some(quic) = self.quic.take() {
            quic.set_active(false);
            quic.set_deadline(None);
            self.idle_since = None;
            self.set_window(0);
            self.unread = Unread::default();
            self.count_beyond_window();
            R::left(self);
        }
        self.fail_streams(reason);
    }

    /// Removes a stream whose exchange is over. A direction that is incomplete is reset or stopped, with `code` if
    /// given.
    pub(super) fn close_stream(&mut self, id: StreamId, code: Option<Code>) {
        self.machine.forget(id);
        let Some(mut stream) = self.streams.remove(&id) else {
            return;
        };
        let state = &mut stream.state;
        wake(&mut state.exchange.receiving.reader);
        wake(&mut state.sending.writer);
        let unsent = state.sending.queued;
        self.shared.spare.keep(stream.state);
        self.schedule.remove(id);
        self.unread.close(id);
        self.note_unsent(unsent);
        if !stream.is_finished {
            self.reset(id, code.unwrap_or(Code::REQUEST_CANCELLED));
        } else if !stream.has_fin || code.is_some() {
            // Only bytes of the peer are left, or only its end: QUIC has to know that nobody waits for them.
            self.stop(id, code.unwrap_or(Code::NO_ERROR));
        }
    }

    /// Stops the peer's direction of a stream.
    pub(super) fn stop(&self, id: StreamId, code: Code) {
        self.quic(|quic| {
            // A stream that has ended already is not stopped.
            let _ = quic.recv_stream(stream_of(id)).stop(var_int(code.0));
        });
    }
}
