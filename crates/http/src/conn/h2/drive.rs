//! The connection's task, of a server and of a client: receives for all streams and sends what
//! they have queued.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use blitz_proto::h2::{Code, Event, StreamId};
use blitz_proto::{Error, ErrorKind};
use blitz_reactor::{Buffer, Slice};

use super::driver::{Conn, Driver, Role};
use crate::conn::streams::stream::ResetReason;
use crate::counters::{count, count_refused};
use crate::error::Refusal;
use crate::exchange::note;
use crate::input::Input;
use crate::recycle::Pooled;
use crate::tls::TlsError;
use crate::transport::Transport;

/// Requests started before the connection yields to other tasks.
const BURST_REQUESTS_MAX: usize = 40;

/// Work on frames before the connection yields to other tasks: bytes other than content, plus a constant
/// for each step of the machine.
const BURST_WORK_MAX: usize = 16 * 1024;
const STEP_WORK: usize = 32;
/// The cost of a refused or reset stream: an eighth of a turn, so that abuse exhausts its own turn.
const LOST_WORK: usize = BURST_WORK_MAX / 8;

/// A connection whose oldest queued byte has waited for this long is not parked.
const STALL_NOTED_AFTER: Duration = Duration::from_secs(1);

/// Queued bytes above which nothing more is received: a peer that reads nothing must not fill the queue with
/// acknowledgements of its PINGs.
const UNSENT_BYTES_MAX: usize = 256 * 1024;

/// Streams for which an idle connection keeps memory.
pub(super) const STREAMS_KEPT: usize = 4;

/// The start of every HTTP/2 connection (RFC 9113, section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Whether the first bytes of a connection are those of HTTP/2 with prior knowledge. Three bytes
/// distinguish it from every method of HTTP/1.1.
pub(crate) fn begins_like_http2(first: &[u8]) -> bool {
    let len = first.len().min(PREFACE.len());
    len >= 3 && first[..len] == PREFACE[..len]
}

/// Whether the first bytes of a connection are too few to identify the protocol.
#[inline]
pub(crate) fn may_begin_like_http2(first: &[u8]) -> bool {
    first.len() < 3 && PREFACE.starts_with(first)
}

/// The next state of the connection.
pub(crate) enum Disposition {
    /// It has no streams and can be parked.
    Park(Transport),
    /// It is over; nothing is left to do.
    Closed,
}

impl<R: Role> Conn<R> {
    /// Drives the connection until it has no streams, beginning with what was just received. `start` is
    /// given `upgraded` and each request that comes, and `on_turn_end` is called at the end of every turn.
    pub(super) async fn run(
        &self,
        transport: Transport,
        first: Input,
        upgraded: Option<R::Arrived>,
        start: impl Fn(R::Arrived),
        on_turn_end: impl Fn(),
    ) -> Disposition {
        self.driver.borrow_mut().begin(transport, first);
        let _guard = Guard(self);
        upgraded.into_iter().for_each(&start);
        poll_fn(|cx| {
            let disposition = self.poll_drive(&start, cx);
            on_turn_end();
            disposition
        })
        .await
    }

    fn poll_drive(&self, start: &impl Fn(R::Arrived), cx: &mut Context<'_>) -> Poll<Disposition> {
        self.is_driven.set(true);
        {
            let mut driver = self.driver.borrow_mut();
            driver.update_time();
            driver.copy_waiting();
        }
        let taken = self.process_input(start, cx);
        self.is_driven.set(false);
        let mut driver = self.driver.borrow_mut();
        if driver.machine.settings_received() || driver.socket.is_none() {
            driver.role.settings_known();
        }
        if let Err(error) = taken {
            return Poll::Ready(driver.fail(error));
        }
        driver.credit_waiting_readers();
        driver.send_content();
        driver.needs_task = false;
        driver.poll_disposition(cx)
    }

    /// Receives, and passes the events on.
    fn process_input(
        &self,
        start: &impl Fn(R::Arrived),
        cx: &mut Context<'_>,
    ) -> Result<(), Error> {
        let (mut started, mut work) = (0, 0);
        while started < BURST_REQUESTS_MAX && work < BURST_WORK_MAX {
            if R::poll_admission(&self.driver.borrow(), cx).is_pending() {
                return Ok(());
            }
            let step = self.driver.borrow_mut().step(&mut work)?;
            match step {
                InputStep::Nothing => {}
                InputStep::Arrived(request) => {
                    start(request);
                    started += 1;
                }
                InputStep::NeedMore => {
                    if self.driver.borrow_mut().poll_receive(cx).is_pending() {
                        return Ok(());
                    }
                }
            }
        }
        cx.waker().wake_by_ref();
        Ok(())
    }
}

/// Closes the socket when the connection's task is aborted. Otherwise the socket was parked or closed
/// before.
struct Guard<'a, R: Role>(&'a Conn<R>);

impl<R: Role> Drop for Guard<'_, R> {
    fn drop(&mut self) {
        self.0.is_driven.set(false);
        let mut driver = self.0.driver.borrow_mut();
        if driver.socket.take().is_some() {
            driver.fail_streams(&ResetReason::Reset);
        }
    }
}

/// The result of a step through the input.
enum InputStep<A> {
    Nothing,
    NeedMore,
    Arrived(A),
}

impl<R: Role> Driver<R> {
    fn begin(&mut self, socket: Transport, first: Input) {
        // Streams have windows of their own; this is for all of them together.
        socket.set_window(self.limits().stream_buffer_bytes_max);
        self.socket = Some(socket);
        debug_assert!(self.input.is_empty(), "it was parked");
        self.input = first;
        // The timer would wake the previous task of the connection.
        self.role.resumed();
    }

    fn update_time(&mut self) {
        self.now = self.shared.now();
        R::cap_windows(self);
    }

    /// One step of the machine through what was received; adds to the `work` that was done.
    fn step(&mut self, work: &mut usize) -> Result<InputStep<R::Arrived>, Error> {
        let shared = Rc::clone(&self.shared);
        let received = &mut *shared.received.borrow_mut();
        let bytes: &[u8] = self.input.front().map_or(&[], |slice| slice);
        let pending = self.pending.get_or_insert_with(Buffer::take);
        let step = self
            .machine
            .handle_input(bytes, self.now, received, pending)?;
        let content = match (&step.event, self.input.front()) {
            (Event::Data { range, .. }, Some(slice)) => Some(slice.slice(range.clone())),
            _ => None,
        };
        *work += STEP_WORK + step.consumed - content.as_ref().map_or(0, Slice::len);
        self.input.consume(step.consumed);
        if step.event != Event::NeedMore {
            self.partial_since = None;
            if step.event != Event::Pong {
                self.role.progressed();
            }
        }
        if matches!(step.event, Event::Reset { .. } | Event::Refused { .. }) {
            *work += LOST_WORK;
        }
        match step.event {
            // The machine has to process all pieces before the task waits for more (rule 8).
            Event::NeedMore if !self.input.is_empty() => {}
            Event::NeedMore => return Ok(InputStep::NeedMore),
            Event::Head {
                stream,
                length,
                end,
            } => {
                if let Some(arrived) = R::head_arrived(self, stream, received, length, end) {
                    return Ok(InputStep::Arrived(arrived));
                }
            }
            Event::Data { stream, end, .. } => {
                let content = content.unwrap_or_else(|| Slice::from_buffer(Buffer::take()));
                self.data_arrived(stream, content, end);
            }
            Event::Trailers { stream } => {
                let mut trailers = Pooled::take();
                std::mem::swap(&mut *trailers, &mut received.trailers);
                self.trailers_arrived(stream, trailers);
            }
            Event::Refused { stream, error } => {
                R::refused(self, stream, error, received);
            }
            Event::Reset { stream, error, .. } => self.lose_stream(stream, error),
            Event::GoAway { code } => R::go_away(self, code),
            Event::Pong => {}
        }
        Ok(InputStep::Nothing)
    }

    /// The peer reset a stream, or broke a rule on it.
    fn lose_stream(&mut self, stream: StreamId, error: Error) {
        let reason = match error.kind() {
            ErrorKind::PeerReset => ResetReason::Reset,
            ErrorKind::PeerRefused => ResetReason::Refused,
            _ => ResetReason::Malformed(error),
        };
        let is_lingering = self.stream(stream).is_some_and(|state| state.is_lingering);
        // The rest of a request whose response is complete may end anyhow.
        if !is_lingering {
            R::stream_reset(self, stream, &reason);
        }
        match self.stream(stream) {
            Some(_) if is_lingering => self.close_stream(stream, None),
            Some(state) => state.fail(&reason),
            None => self.machine.forget(stream),
        }
    }

    /// Receives once more into the input. Ready if the machine has something to do.
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.has_fin || self.queued() > UNSENT_BYTES_MAX || self.is_held_back() {
            return Poll::Pending;
        }
        let Some(socket) = &mut self.socket else {
            return Poll::Pending;
        };
        match socket.poll_recv(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(Some(slice))) => {
                self.role.bytes_received();
                self.input.push(slice);
                Poll::Ready(())
            }
            Poll::Ready(Ok(None)) => {
                self.has_fin = true;
                // The end of the connection cancels every stream (rule 16).
                R::ended(self);
                self.fail_streams(&ResetReason::Truncated);
                Poll::Pending
            }
            Poll::Ready(Err(_)) => {
                self.fail_receiving();
                Poll::Pending
            }
        }
    }

    /// The connection was reset, or TLS failed. An alert is kept, since it may name the server's reason:
    /// in TLS 1.3 a client's certificate is rejected after the handshake.
    #[cold]
    fn fail_receiving(&mut self) {
        self.has_fin = true;
        let socket = self.socket.take();
        let reason = match socket.and_then(|socket| socket.failure()) {
            Some(alert @ TlsError::Alert(_)) => ResetReason::Tls(alert),
            _ => ResetReason::Reset,
        };
        self.fail_streams(&reason);
    }

    /// The peer violated the protocol in a way that ends the whole connection.
    fn fail(&mut self, error: Error) -> Disposition {
        self.fail_streams(&R::failed(self, error));
        self.finish();
        Disposition::Closed
    }

    /// Whether the connection can be parked or is over; if not, the task will be woken when there
    /// is something to do.
    fn poll_disposition(&mut self, cx: &mut Context<'_>) -> Poll<Disposition> {
        if self.socket.is_none() {
            self.fail_streams(&ResetReason::Reset);
            return Poll::Ready(Disposition::Closed);
        }
        R::before_waiting(self, cx);
        self.flush();
        if self.poll_settings(cx).is_ready() {
            return Poll::Ready(self.close_for_settings_timeout());
        }
        let is_used = !self.streams.is_empty() || self.role.is_reserved();
        let holds_input = |socket: &Transport| !self.input.is_empty() || socket.holds_content();
        let is_idle = !is_used && !self.socket.as_ref().is_some_and(holds_input);
        let is_over = self.has_fin || self.machine.is_drained() || self.role.is_retired();
        // Close instead of parking while a PING is unanswered.
        if is_idle && (is_over || self.role.is_ping_pending()) {
            self.finish();
            return Poll::Ready(Disposition::Closed);
        }
        let is_partial = self.machine.is_partial();
        if R::CHARGES_PARTIAL_HEADS
            && (is_partial || !self.partial_charge.is_empty())
            && !self.charge_partial_head()
        {
            return Poll::Ready(self.close_for_heads_memory());
        }
        if is_idle
            && !is_partial
            && self.role.may_park()
            && !self.is_stalling()
            && let Some(socket) = self.socket.take()
        {
            self.shrink();
            return Poll::Ready(Disposition::Park(socket));
        }
        if self.poll_socket_room(cx) == Poll::Ready(false) {
            self.socket = None;
            self.fail_streams(&ResetReason::Reset);
            return Poll::Ready(Disposition::Closed);
        }
        if let Some(due) = self.stall_due()
            && self.timer.poll_due(due, cx).is_ready()
        {
            count(|counters| counters.send_stalls += 1);
            return Poll::Ready(self.abort());
        }
        if R::poll_silence(self, cx).is_ready() {
            return Poll::Ready(self.abort());
        }
        if self.poll_partial(is_partial, cx).is_ready() {
            count(|counters| counters.header_timeouts += 1);
            return Poll::Ready(self.abort());
        }
        if is_idle {
            R::await_request(self);
        }
        if !self.in_buffer.is_empty() {
            // Behind the readers, which were woken before.
            cx.waker().wake_by_ref();
        }
        self.note_held();
        note(&mut self.task, cx);
        Poll::Pending
    }

    /// Charges the memory of an incomplete head as that of a complete one; `false` if the core has no
    /// more for heads.
    #[cold]
    fn charge_partial_head(&mut self) -> bool {
        let limits = self.shared.limits();
        let bytes = match self.machine.partial_memory() {
            bytes if bytes >= limits.large_head_bytes_min => bytes,
            _ => 0,
        };
        self.partial_charge.replace(bytes, limits)
    }

    /// Only a complete header section can be refused on its stream: later ones depend on the state of
    /// the decoder.
    #[cold]
    fn close_for_heads_memory(&mut self) -> Disposition {
        count_refused(Refusal::heads_memory().rule);
        let (machine, out) = self.machine();
        machine.close_with(Code::ENHANCE_YOUR_CALM, out);
        self.partial_charge.clear();
        self.fail_streams(&ResetReason::Reset);
        self.finish();
        Disposition::Closed
    }

    /// Ready if a frame or a block of fields has begun and does not come to its end in time.
    fn poll_partial(&mut self, is_partial: bool, cx: &mut Context<'_>) -> Poll<()> {
        if !is_partial || R::holds_too_much(self) {
            self.partial_since = None;
            return Poll::Pending;
        }
        let since = *self.partial_since.get_or_insert_with(blitz_reactor::now);
        let due = since + self.limits().head_timeout;
        self.timer.poll_due(due, cx)
    }

    /// Ready if the peer has not acknowledged our settings in time, unless it has ended its direction
    /// (rule 16), or nothing is received at the moment.
    fn poll_settings(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(due) = self.settings_due else {
            return Poll::Pending;
        };
        if self.machine.settings_acknowledged() || self.has_fin {
            self.settings_due = None;
        } else if R::holds_too_much(self) {
            self.settings_due = Some(blitz_reactor::now() + self.limits().settings_timeout);
        } else {
            return self.timer.poll_due(due, cx);
        }
        Poll::Pending
    }

    /// RFC 9113, section 6.5.3: "If the sender of a SETTINGS frame does not receive an
    /// acknowledgment within a reasonable amount of time, it MAY issue a connection error [...] of
    /// type SETTINGS_TIMEOUT."
    #[cold]
    pub(super) fn close_for_settings_timeout(&mut self) -> Disposition {
        count(|counters| counters.settings_timeouts += 1);
        let (machine, out) = self.machine();
        machine.close_with(Code::SETTINGS_TIMEOUT, out);
        self.fail_streams(&ResetReason::Reset);
        self.finish();
        Disposition::Closed
    }

    /// Whether the peer reads nothing. Such a connection is not parked: a parked one has no deadline for
    /// its queue, and each frame of the peer would restart its idle timeout.
    fn is_stalling(&self) -> bool {
        self.socket.as_ref().is_some_and(|socket| {
            let now = blitz_reactor::now();
            socket.queued() > 0
                && now.saturating_duration_since(socket.send_progress()) > STALL_NOTED_AFTER
        })
    }

    /// Frees the buffer and the memory for streams of an idle connection.
    fn shrink(&mut self) {
        self.pending = None;
        self.streams.shrink_to(STREAMS_KEPT);
        self.in_buffer.clear();
        self.in_buffer.shrink_to(STREAMS_KEPT);
        self.role.shrink();
    }

    fn abort(&mut self) -> Disposition {
        self.fail_streams(&ResetReason::Reset);
        if let Some(socket) = self.socket.take() {
            socket.abort();
        }
        Disposition::Closed
    }
}
