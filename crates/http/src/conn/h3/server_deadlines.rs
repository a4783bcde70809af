//! The deadlines of a client's connection, and its graceful end.

use std::rc::Rc;
use std::time::{Duration, Instant};

use blitz_proto::h3::{Code, StreamId};

use super::driver::{Conn, Driver, RequestStream};
use super::server::ServerRole;
use crate::conn::streams::due::Discarded;
use crate::conn::streams::stream::Streams;
use crate::counters::{count, count_refused};
use crate::error::Refusal;

/// Time between the GOAWAY that announces the end and the one that names the last request (RFC 9114, section 5.2):
/// requests under way arrive within it.
const GOAWAY_PAUSE: Duration = Duration::from_millis(200);

/// Time after the last response in which a draining connection is not closed: the close discards bytes that the
/// client's QUIC has acknowledged and its application has not read (RFC 9000, section 10.2).
const READ_GRACE: Duration = Duration::from_secs(3);

impl Conn<ServerRole> {
    /// Requests that arrive from now on may be the last.
    pub(super) fn drain(self: &Rc<Self>) {
        self.work(|driver| {
            driver.drain();
            Ok(())
        });
    }

    /// The time at which the connection became idle.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        self.driver.borrow().idle_since
    }

    /// Closes a connection if it is still idle.
    pub(super) fn evict(&self) -> bool {
        let mut driver = self.driver.borrow_mut();
        let is_idle = driver.idle_since.is_some() && driver.quic.is_some();
        if is_idle {
            driver.close(Code::NO_ERROR);
        }
        is_idle
    }
}

impl Driver<ServerRole> {
    pub(super) fn next_server_deadline(&mut self) -> Option<Instant> {
        let idle_timeout = self.limits().idle_timeout;
        let idle = self.idle_since.map(|since| since + idle_timeout);
        let head = self.next_head().map(|(_, due)| due);
        let lingering = self.next_lingering().map(|(_, due)| due);
        let rest = self.next_rest().map(|(_, due)| due);
        let closes_from = self.role.closes_from.filter(|_| self.idle_since.is_some());
        let due = [
            idle,
            head,
            lingering,
            rest,
            closes_from,
            self.role.final_goaway,
        ];
        due.into_iter().flatten().min()
    }

    fn next_head(&mut self) -> Option<(StreamId, Instant)> {
        let streams = &self.streams;
        let waits = |id| streams.get(&id).is_some_and(|stream| stream.awaits_head);
        self.role.heads.next(waits)
    }

    /// Bounds the streams that [`DueStreams`](crate::conn::streams::due::DueStreams) keeps behind one whose head does
    /// not come.
    pub(super) fn prune_heads(&mut self) {
        let streams = &self.streams;
        let waits = |id| streams.get(&id).is_some_and(|stream| stream.awaits_head);
        self.role.heads.prune(waits);
    }

    /// The time until which a stream may wait for its first bytes: a frame of a later stream opens it (RFC 9000,
    /// section 3.2), and its own may be queued behind the content of others.
    fn head_may_come_until(&self, id: StreamId) -> Option<Instant> {
        let stream = self.streams.get(&id)?;
        let last = self.received.last.filter(|_| stream.read_to == 0)?;
        Some(last + self.limits().head_timeout)
    }

    fn next_rest(&mut self) -> Option<(StreamId, Instant)> {
        let streams = &self.streams;
        let is_open = |stream: &RequestStream| stream.state.is_lingering && !stream.is_finished;
        let waits = |id| streams.get(&id).is_some_and(is_open);
        self.role.unsent_rests.next(waits)
    }

    fn next_lingering(&mut self) -> Option<(StreamId, Instant)> {
        let streams = &self.streams;
        let next = self
            .role
            .lingering
            .next(|discarded| is_discarded(streams, discarded));
        next.map(|(discarded, due)| (discarded.id, due))
    }

    /// Ends the discarding of a request if its client has as many streams as it may have.
    pub(super) fn make_room(&mut self) {
        if self.streams.len() < self.role.streams_max as usize {
            return;
        }
        // The library tells the client of free streams only when they are more than an eighth.
        for _ in 0..=self.role.streams_max / 8 {
            let Some((id, _)) = self.next_lingering() else {
                return;
            };
            self.close_stream(id, None);
        }
    }

    /// The request of a stream, whose response was sent, is discarded until its end, or until this time has passed.
    pub(super) fn push_lingering(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get(&id) else {
            return;
        };
        let limits = self.limits();
        // Nothing waits for the end of a tunnel, and a drain does not wait for that of a request.
        let is_brief = stream.state.exchange.is_tunnel || self.shared.role.is_draining.get();
        let (time, silence) = match is_brief {
            true => (limits.discard_timeout, limits.discard_timeout),
            false => (limits.quic.discard_timeout, limits.quic.discard_silence),
        };
        let now = blitz_reactor::now();
        let discarded = Discarded {
            id,
            until: now + time,
            silence,
            bytes: stream.read_to,
        };
        let streams = &self.streams;
        let waits = |discarded| is_discarded(streams, discarded);
        self.role.lingering.prune(waits);
        self.role.lingering.push_discarded(discarded, now);
    }

    pub(super) fn server_deadline(&mut self, now: Instant) {
        let limits = self.limits();
        let (idle, stall) = (limits.idle_timeout, limits.send_stall_timeout);
        if self.idle_since.is_some_and(|since| since + idle <= now) {
            count(|counters| counters.idle_timeouts += 1);
            return self.close(Code::NO_ERROR);
        }
        while let Some((id, due)) = self.next_head()
            && due <= now
        {
            if let Some(later) = self.head_may_come_until(id)
                && later > now
            {
                self.role.heads.put_off(later);
                continue;
            }
            count(|counters| counters.header_timeouts += 1);
            self.close_stream(id, Some(Code::REQUEST_REJECTED));
        }
        while let Some((id, due)) = self.next_lingering()
            && due <= now
        {
            let bytes = self.streams.get(&id).map_or(0, |stream| stream.read_to);
            if !self.role.lingering.renew(bytes, now) {
                self.close_stream(id, None);
            }
        }
        self.end_rests(now, stall);
        if self.role.final_goaway.take_if(|due| *due <= now).is_some() {
            self.drain_now(now);
        }
    }

    /// Whether a connection without requests is to be closed: the last GOAWAY was sent, and the client had time to read.
    pub(super) fn is_drained(&mut self) -> bool {
        if !self.machine.is_drained() {
            return false;
        }
        let read_by = self.role.last_response.map(|at| at + READ_GRACE);
        self.role.closes_from = self.role.closes_from.max(read_by);
        let now = blitz_reactor::now();
        self.role.closes_from.is_some_and(|from| from <= now)
    }

    /// Ends streams whose client has taken no byte of the rest of the response for too long.
    fn end_rests(&mut self, now: Instant, stall: Duration) {
        while let Some((id, due)) = self.next_rest()
            && due <= now
        {
            let progress = self.stream(id).map(|state| state.sending.progress);
            match progress.map(|progress| progress + stall) {
                Some(later) if later > now => self.role.unsent_rests.put_off(later),
                _ => {
                    count(|counters| counters.send_stalls += 1);
                    self.close_stream(id, None);
                }
            }
        }
    }

    /// Requests that arrive from now on are rejected, so that the client may send them elsewhere.
    fn drain_now(&mut self, now: Instant) {
        self.machine.drain_now();
        self.role.final_goaway = None;
        self.role.closes_from = Some(now + GOAWAY_PAUSE);
    }

    /// Drains a connection without requests for its memory, which must not grow meanwhile. False if it drains already.
    pub(super) fn drain_idle(&mut self) -> bool {
        let is_new = self.role.closes_from.is_none();
        if is_new {
            self.drain_now(blitz_reactor::now());
            self.settle_soon();
        }
        is_new
    }

    fn drain(&mut self) {
        self.machine.drain();
        let now = blitz_reactor::now();
        self.role.final_goaway = Some(now + GOAWAY_PAUSE);
        let until = now + self.limits().discard_timeout;
        self.role.lingering.hasten(until);
        self.settle_soon();
    }

    /// Charges the memory of incomplete heads as that of complete ones.
    pub(super) fn charge_partial_heads(&mut self) {
        let bytes = self.machine.partial_memory();
        if bytes == 0 && self.role.partial_charge.is_empty() {
            return;
        }
        let limits = &self.shared.options.limits;
        let bytes = match bytes >= limits.large_head_bytes_min {
            true => bytes,
            false => 0,
        };
        if !self.role.partial_charge.replace(bytes, limits) {
            count_refused(Refusal::heads_memory().rule);
            self.close(Code::EXCESSIVE_LOAD);
        }
    }
}

fn is_discarded(
    streams: &Streams<StreamId, RequestStream>,
    discarded: Discarded<StreamId>,
) -> bool {
    streams
        .get(&discarded.id)
        .is_some_and(RequestStream::is_discarded)
}
