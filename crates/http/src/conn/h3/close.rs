//! The end of a connection, and its deadlines.

use std::rc::Rc;
use std::task::Waker;
use std::time::{Duration, Instant};

use blitz_proto::Error;
use blitz_proto::h3::{Code, StreamId};
use blitz_quic::quinn_proto;

use super::driver::{Conn, Driver, RequestStream, stream_of, var_int};
use super::receive::count_late_head;
use crate::conn::streams::stream::ResetReason;
use crate::counters::{count, count_refused};
use crate::error::Refusal;

/// Time between the GOAWAY that announces the end and the one that names the last request (RFC 9114, section 5.2):
/// requests that are on their way arrive within.
const GOAWAY_PAUSE: Duration = Duration::from_millis(200);

/// Time after the last response in which a draining connection is not closed: the close discards what the client's
/// QUIC has acknowledged and its application has not read (RFC 9000, section 10.2).
const READ_GRACE: Duration = Duration::from_secs(3);

/// Time between PINGs while there are requests: clients have idle timeouts of 30 s and more.
const PING_INTERVAL_MAX: Duration = Duration::from_secs(15);

/// Streams for which an idle connection keeps memory.
const STREAMS_KEPT: usize = 4;

impl Conn {
    /// The time that [`Driver::settle`] has set has come.
    pub(super) fn deadline(self: &Rc<Self>) {
        self.work(Driver::deadline);
    }

    /// Requests that arrive from now on may be the last.
    pub(super) fn drain(self: &Rc<Self>) {
        self.work(|driver| {
            driver.drain();
            Ok(())
        });
    }

    pub(super) fn lost(&self) {
        self.driver.borrow_mut().lost();
    }

    /// Since when it has nothing to do.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        self.driver.borrow().idle_since
    }

    /// Closes a connection that has nothing to do, if that is still so.
    pub(super) fn evict(&self) -> bool {
        let mut driver = self.driver.borrow_mut();
        let is_idle = driver.idle_since.is_some() && driver.quic.is_some();
        if is_idle {
            driver.close(Code::NO_ERROR);
        }
        is_idle
    }
}

impl Driver {
    /// Writes what is due beside the requests, and sets the next deadline.
    pub(super) fn settle(&mut self) {
        self.flush_own();
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
                self.shrink();
            }
            true => {}
        }
        if is_idle && self.machine.is_drained() {
            let read_by = self.last_response.map(|at| at + READ_GRACE);
            self.closes_from = self.closes_from.max(read_by);
            if self
                .closes_from
                .is_some_and(|from| from <= blitz_reactor::now())
            {
                return self.close(Code::NO_ERROR);
            }
        }
        self.note_come(is_idle);
        self.keep_window_open();
        if self.holds_too_much() {
            let client = self.peer.remote.map(tracing::field::display);
            tracing::debug!(cause = "unread-flood", client, "connection ended");
            count_refused("unread-flood");
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
        self.heads.shrink_to(STREAMS_KEPT);
        self.lingering.shrink_to(STREAMS_KEPT);
        self.unsent_rests.shrink_to(STREAMS_KEPT);
        self.unacknowledged.shrink_to(STREAMS_KEPT);
        self.out = Vec::new();
        self.machine.shrink();
        self.unread.shrink();
        self.window.read = 0;
        self.set_window(0);
    }

    fn next_deadline(&mut self) -> Option<Instant> {
        let limits = &self.shared.options.limits;
        let idle = self.idle_since.map(|since| since + limits.idle_timeout);
        let stall = (!self.unacknowledged.is_empty())
            .then(|| self.acknowledged_at + limits.send_stall_timeout);
        let head = self.next_head().map(|(_, due)| due);
        let lingering = self.next_lingering().map(|(_, due)| due);
        let rest = self.next_rest().map(|(_, due)| due);
        let due = [
            idle,
            stall,
            head,
            lingering,
            rest,
            self.closes_from.filter(|_| self.idle_since.is_some()),
            self.ping,
            self.final_goaway,
        ];
        due.into_iter().flatten().min()
    }

    fn next_head(&mut self) -> Option<(StreamId, Instant)> {
        let streams = &self.streams;
        let waits = |id| streams.get(&id).is_some_and(|stream| stream.awaits_head);
        self.heads.next(waits)
    }

    /// A limit of what [`DueStreams`](crate::conn::streams::due::DueStreams) keeps of streams behind one whose head
    /// does not come.
    pub(super) fn prune_heads(&mut self) {
        let streams = &self.streams;
        let waits = |id| streams.get(&id).is_some_and(|stream| stream.awaits_head);
        self.heads.prune(waits);
    }

    fn next_rest(&mut self) -> Option<(StreamId, Instant)> {
        let streams = &self.streams;
        let is_open = |stream: &RequestStream| stream.state.is_lingering && !stream.is_finished;
        let waits = |id| streams.get(&id).is_some_and(is_open);
        self.unsent_rests.next(waits)
    }

    fn next_lingering(&mut self) -> Option<(StreamId, Instant)> {
        let streams = &self.streams;
        let waits = |id| {
            streams
                .get(&id)
                .is_some_and(|stream| stream.state.is_lingering && stream.is_finished)
        };
        self.lingering.next(waits)
    }

    /// Gives a client that has as many streams as it may have the place of one that is only lingering.
    pub(super) fn make_room(&mut self) {
        if self.streams.len() >= self.streams_max as usize
            && let Some((id, _)) = self.next_lingering()
        {
            self.close_stream(id, None);
        }
    }

    fn deadline(&mut self) -> Result<(), Error> {
        let now = blitz_reactor::now();
        let limits = self.limits();
        let (idle, stall) = (limits.idle_timeout, limits.send_stall_timeout);
        if self.idle_since.is_some_and(|since| since + idle <= now) {
            count(|counters| counters.idle_timeouts += 1);
            self.close(Code::NO_ERROR);
            return Ok(());
        }
        if !self.unacknowledged.is_empty() && self.acknowledged_at + stall <= now {
            count(|counters| counters.send_stalls += 1);
            self.close(Code::EXCESSIVE_LOAD);
            return Ok(());
        }
        while let Some((id, due)) = self.next_head()
            && due <= now
        {
            count_late_head();
            self.close_stream(id, Some(Code::REQUEST_REJECTED));
        }
        while let Some((id, due)) = self.next_lingering()
            && due <= now
        {
            self.close_stream(id, None);
        }
        self.end_rests(now, stall);
        if self.ping.take_if(|due| *due <= now).is_some() {
            // The next one is due as long as there are requests.
            self.quic(quinn_proto::Connection::ping);
        }
        if self.final_goaway.take_if(|due| *due <= now).is_some() {
            self.machine.drain_now();
            self.closes_from = Some(now + GOAWAY_PAUSE);
        }
        Ok(())
    }

    /// Ends streams whose client has not taken any of the rest of the response for too long.
    fn end_rests(&mut self, now: Instant, stall: Duration) {
        while let Some((id, due)) = self.next_rest()
            && due <= now
        {
            let progress = self.stream(id).map(|state| state.sending.progress);
            match progress.map(|progress| progress + stall) {
                Some(later) if later > now => self.unsent_rests.put_off(later),
                _ => {
                    count(|counters| counters.send_stalls += 1);
                    self.close_stream(id, None);
                }
            }
        }
    }

    fn drain(&mut self) {
        self.machine.drain();
        self.final_goaway = Some(blitz_reactor::now() + GOAWAY_PAUSE);
        self.settle_soon();
    }

    /// Charges the memory of incomplete heads as that of complete ones.
    pub(super) fn charge_partial_heads(&mut self) -> Result<(), Error> {
        let bytes = self.machine.partial_memory();
        if bytes == 0 && self.partial_charge.is_empty() {
            return Ok(());
        }
        let limits = &self.shared.options.limits;
        let bytes = match bytes >= limits.large_head_bytes_min {
            true => bytes,
            false => 0,
        };
        if !self.partial_charge.replace(bytes, limits) {
            count_refused(Refusal::heads_memory().rule);
            self.close(Code::EXCESSIVE_LOAD);
        }
        Ok(())
    }

    /// The client broke a rule that the whole connection depends on.
    pub(super) fn fail(&mut self, error: Error) {
        let client = self.peer.remote.map(tracing::field::display);
        tracing::debug!(cause = error.rule(), client, "connection ended");
        count_refused(error.rule());
        self.close(Code::of(error.kind()));
    }

    /// Closes the connection.
    pub(super) fn close(&mut self, code: Code) {
        if let Some(quic) = &self.quic {
            quic.close(u32::try_from(code.0).unwrap_or(u32::MAX), "");
        }
        self.lost();
    }

    /// The connection is lost.
    fn lost(&mut self) {
        if let Some(quic) = self.quic.take() {
            quic.set_active(false);
            quic.set_deadline(None);
            self.leave();
        }
        self.fail_streams(&ResetReason::Reset);
    }

    /// The connection is no longer one of those that are open.
    fn leave(&mut self) {
        count(|counters| counters.connections -= 1);
        self.idle_since = None;
        self.set_window(0);
        let mut connections = self.shared.connections.borrow_mut();
        connections.remove(self.key);
        if connections.is_empty() {
            self.shared.empty.take().into_iter().for_each(Waker::wake);
        }
    }

    /// Stops what the client sends on a stream.
    pub(super) fn stop(&self, id: StreamId, code: Code) {
        self.quic(|quic| {
            // What has ended already is not stopped.
            let _ = quic.recv_stream(stream_of(id)).stop(var_int(code.0));
        });
    }
}
