//! The connection's task, of a server and of a client: receives for all streams and sends what
//! they have queued.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use blitz_proto::h2::{Code, Event, StreamId};
use blitz_proto::{BodyLength, Error, ErrorKind, Fields, RequestHead, ResponseHead};
use blitz_reactor::{Buffer, Slice};

use super::stream::Loss;
use super::wire::{State, Wire};
use crate::counters::{count, count_refused};
use crate::error::Refusal;
use crate::exchange::Service;
use crate::input::Input;
use crate::recycle::Pooled;
use crate::transport::Transport;

/// Requests begun before the connection lets others have a turn.
const BURST_REQUESTS_MAX: usize = 40;

/// Work on frames before the connection lets others have a turn: bytes that are no content, and so
/// many for each step of the machine.
const BURST_WORK_MAX: usize = 16 * 1024;
const STEP_WORK: usize = 32;
/// What a stream costs that comes to nothing. Who means well has few of them; for others to wait
/// for who does not, they cost a lot.
const LOST_WORK: usize = BURST_WORK_MAX / 8;

/// A socket whose oldest queued byte waits for so long is not left to itself.
const STALL_NOTED_AFTER: Duration = Duration::from_secs(1);

/// Bytes that wait for the peer before nothing more is taken from it: it may be one that only
/// wants to see how many answers to its PINGs we keep.
const UNSENT_BYTES_MAX: usize = 256 * 1024;

/// Streams that an idle connection keeps room for.
const STREAMS_KEPT: usize = 4;

/// What every HTTP/2 connection begins with (RFC 9113, section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Whether the first bytes of a connection are those of HTTP/2 with prior knowledge. Three tell it
/// from every method of HTTP/1.1.
pub(crate) fn begins_like_http2(first: &[u8]) -> bool {
    let len = first.len().min(PREFACE.len());
    len >= 3 && first[..len] == PREFACE[..len]
}

/// Whether the first bytes of a connection are too few to tell.
#[inline]
pub(crate) fn may_begin_like_http2(first: &[u8]) -> bool {
    first.len() < 3 && PREFACE.starts_with(first)
}

/// What becomes of the connection.
pub(crate) enum After {
    /// It has no streams and can be parked.
    Park(Transport),
    /// It is over; nothing is left to do.
    Closed,
}

/// Drives the connection until it has no streams, beginning with what was just received; `begun` is
/// a request that came over HTTP/1.1.
pub(crate) async fn run_connection<S: Service>(
    wire: &Rc<Wire>,
    service: &Rc<S>,
    transport: Transport,
    first: Input,
    begun: Option<Request>,
) -> After {
    wire.state.borrow_mut().wake_up(transport, first);
    let _guard = Guard(wire);
    let start = |request: Request| {
        count(|counters| counters.requests += 1);
        wire.start_exchange(service, request);
    };
    if let Some(request) = begun {
        wire.start_exchange(service, request);
    }
    poll_fn(|cx| wire.poll_drive(start, cx)).await
}

/// As [`run_connection`], of a client: until it carries no request and none was promised a place.
/// `turned` is called at the end of every turn.
pub(crate) async fn run_client(
    wire: &Rc<Wire>,
    transport: Transport,
    first: Option<Slice>,
    turned: impl Fn(),
) -> After {
    let first = first.map(Input::from).unwrap_or_default();
    wire.state.borrow_mut().wake_up(transport, first);
    let _guard = Guard(wire);
    poll_fn(|cx| {
        let after = wire.poll_drive(|_| unreachable!("a server sends no requests"), cx);
        turned();
        after
    })
    .await
}

/// What the connection's task leaves behind when it is aborted: a socket that nobody drives any
/// more. Otherwise it was given away or closed before.
struct Guard<'a>(&'a Wire);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.0.is_driven.set(false);
        let mut state = self.0.state.borrow_mut();
        if state.socket.take().is_some() {
            state.lose_peer(&Loss::Reset);
        }
    }
}

/// What a step through the input brought.
enum Got {
    Nothing,
    NeedMore,
    Request(Request),
}

/// A request that has just come.
pub(crate) struct Request {
    pub(super) stream: StreamId,
    pub(super) head: Pooled<RequestHead>,
    pub(super) length: BodyLength,
    pub(super) has_ended: bool,
}

impl Request {
    /// One that came over HTTP/1.1, without content.
    pub(crate) fn complete(stream: StreamId, head: Pooled<RequestHead>) -> Request {
        Request {
            stream,
            head,
            length: BodyLength::Empty,
            has_ended: true,
        }
    }
}

impl Wire {
    fn poll_drive(&self, start: impl Fn(Request), cx: &mut Context<'_>) -> Poll<After> {
        self.is_driven.set(true);
        self.state.borrow_mut().look_at_clock();
        let taken = self.take_in(start, cx);
        self.is_driven.set(false);
        let mut state = self.state.borrow_mut();
        if state.machine.peer_has_spoken() || state.socket.is_none() {
            state.places.settled();
        }
        if let Err(error) = taken {
            return Poll::Ready(state.fail(error));
        }
        state.send_content();
        state.poll_after(cx)
    }

    /// Receives and hands out what the connection has.
    fn take_in(&self, start: impl Fn(Request), cx: &mut Context<'_>) -> Result<(), Error> {
        let (mut begun, mut work) = (0, 0);
        while begun < BURST_REQUESTS_MAX && work < BURST_WORK_MAX {
            if self.state.borrow().poll_begin(cx).is_pending() {
                return Ok(());
            }
            let got = self.state.borrow_mut().step(&mut work)?;
            match got {
                Got::Nothing => {}
                Got::Request(request) => {
                    start(request);
                    begun += 1;
                }
                Got::NeedMore => {
                    if self.state.borrow_mut().poll_receive(cx).is_pending() {
                        return Ok(());
                    }
                }
            }
        }
        cx.waker().wake_by_ref();
        Ok(())
    }
}

impl State {
    fn wake_up(&mut self, socket: Transport, first: Input) {
        // Streams have windows of their own; this is for all of them together.
        socket.set_window(self.limits().stream_buffer_bytes_max);
        self.socket = Some(socket);
        debug_assert!(self.input.is_empty(), "it was parked");
        self.input = first;
        // The timer wakes the task of the connection's last time.
        self.liveness.expect(blitz_reactor::now());
    }

    fn look_at_clock(&mut self) {
        self.now = self.shared.now();
        self.cap_windows();
    }

    /// Whether what was received may be looked into, since it may begin a request.
    fn poll_begin(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.shared.is_client() || self.input.is_empty() {
            return Poll::Ready(());
        }
        blitz_reactor::poll_admission(cx)
    }

    /// One step of the machine through what was received; adds to the `work` that was done.
    fn step(&mut self, work: &mut usize) -> Result<Got, Error> {
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
                self.liveness.progress();
            }
        }
        if matches!(step.event, Event::Reset { .. } | Event::Refused { .. }) {
            *work += LOST_WORK;
        }
        match step.event {
            // The machine has to see all pieces before anybody waits for more (rule 8).
            Event::NeedMore if !self.input.is_empty() => {}
            Event::NeedMore => return Ok(Got::NeedMore),
            Event::Head {
                stream,
                length,
                end,
            } if shared.is_client() => {
                let mut head = Pooled::<ResponseHead>::take();
                std::mem::swap(&mut *head, &mut received.response);
                self.take_in_head(stream, head, length, end);
            }
            Event::Head {
                stream,
                length,
                end,
            } => {
                let mut head = Pooled::<RequestHead>::take();
                std::mem::swap(&mut *head, &mut received.request);
                return Ok(Got::Request(Request {
                    stream,
                    head,
                    length,
                    has_ended: end,
                }));
            }
            Event::Data { stream, end, .. } => {
                let content = content.unwrap_or_else(|| Slice::from_buffer(Buffer::take()));
                self.take_in(stream, content, end);
            }
            Event::Trailers { stream } => {
                let mut trailers = Pooled::take();
                std::mem::swap(&mut *trailers, &mut received.trailers);
                self.take_in_trailers(stream, trailers);
            }
            Event::Refused { stream, error } => {
                self.answer_refused(stream, error, &received.request.fields);
            }
            Event::Reset { stream, error, .. } => self.lose_stream(stream, error),
            Event::GoAway { .. } | Event::Pong => {}
        }
        Ok(Got::Nothing)
    }

    /// Answers a request that the machine has refused; `fields` are those that it has.
    fn answer_refused(&mut self, stream: StreamId, error: Error, fields: &Fields) {
        self.streams.insert(stream, self.shared.stream());
        self.idle_since = None;
        let (status, rule) = (error.status(), error.rule());
        self.refuse(stream, Refusal { status, rule }, fields);
        self.close_stream(stream, None);
    }

    /// The peer reset a stream, or broke a rule on it.
    fn lose_stream(&mut self, stream: StreamId, error: Error) {
        let loss = match error.kind() {
            ErrorKind::PeerReset => Loss::Reset,
            ErrorKind::PeerRefused => Loss::Refused,
            _ => Loss::Malformed(error),
        };
        match &loss {
            Loss::Malformed(error) if !self.shared.is_client() => count_refused(error.rule()),
            Loss::Refused => self.places.refused(self.machine.stream_count()),
            _ => {}
        }
        match self.stream(stream) {
            Some(known) if known.lingers => self.close_stream(stream, None),
            Some(known) => known.lose_peer(&loss),
            None => self.machine.forget(stream),
        }
    }

    /// Receives once more into the input. Ready if the machine has something to do.
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.fin || self.queued() > UNSENT_BYTES_MAX || self.is_held_back() {
            return Poll::Pending;
        }
        let Some(socket) = &mut self.socket else {
            return Poll::Pending;
        };
        match socket.poll_recv(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(Some(slice))) => {
                self.liveness.hear();
                self.input.push(slice);
                Poll::Ready(())
            }
            Poll::Ready(Ok(None)) => {
                self.fin = true;
                // The end of the connection cancels every stream (rule 16). What is queued may
                // still leave, unless to a server: one that has ended takes no more requests.
                if self.shared.is_client() {
                    self.socket = None;
                }
                self.lose_peer(&Loss::Truncated);
                Poll::Pending
            }
            Poll::Ready(Err(_)) => {
                self.fin = true;
                self.socket = None;
                self.lose_peer(&Loss::Reset);
                Poll::Pending
            }
        }
    }

    /// A rule was broken that the whole connection depends on.
    fn fail(&mut self, error: Error) -> After {
        let peer = self.remote();
        tracing::debug!(rule = error.rule(), ?peer, "connection ended");
        if self.shared.is_client() {
            self.lose_peer(&Loss::Malformed(error));
        } else {
            count_refused(error.rule());
            self.lose_peer(&Loss::Reset);
        }
        self.close_politely();
        After::Closed
    }

    /// Whether the connection can be parked or is over; if not, the task will be woken when there
    /// is something to do.
    fn poll_after(&mut self, cx: &mut Context<'_>) -> Poll<After> {
        if self.socket.is_none() {
            self.lose_peer(&Loss::Reset);
            return Poll::Ready(After::Closed);
        }
        if !self.shared.is_client() && self.shared.serving().drain.is_triggered() {
            let (machine, out) = self.machine();
            machine.drain(out);
            self.flush();
        }
        if let Some(until) = self.end_lingering() {
            // Only to be woken then: what has passed already is over.
            let _ = self.timer.poll_due(until, cx);
        }
        self.flush();
        if self.poll_settings(cx).is_ready() {
            return Poll::Ready(self.give_up());
        }
        let is_used = !self.streams.is_empty() || self.places.reserved > 0;
        let holds_input = |socket: &Transport| !self.input.is_empty() || socket.holds_content();
        let is_idle = !is_used && !self.socket.as_ref().is_some_and(holds_input);
        let is_over = self.fin || self.machine.is_drained() || self.places.are_none();
        // Who was asked and has not answered would only be asked again by the next request.
        if is_idle && (is_over || self.liveness.is_doubtful()) {
            self.close_politely();
            return Poll::Ready(After::Closed);
        }
        let is_partial = self.machine.is_partial();
        if is_idle
            && !is_partial
            && !self.is_stalling()
            && let Some(socket) = self.socket.take()
        {
            self.let_memory_go();
            return Poll::Ready(After::Park(socket));
        }
        if self.poll_socket_room(cx) == Poll::Ready(false) {
            self.socket = None;
            self.lose_peer(&Loss::Reset);
            return Poll::Ready(After::Closed);
        }
        if let Some(due) = self.stall_due()
            && self.timer.poll_due(due, cx).is_ready()
        {
            count(|counters| counters.send_stalls += 1);
            return Poll::Ready(self.abort());
        }
        if self.poll_liveness(cx).is_ready() {
            tracing::debug!("upstream connection answers no PING");
            count(|counters| counters.upstream_silent += 1);
            return Poll::Ready(self.abort());
        }
        if self.poll_partial(is_partial, cx).is_ready() {
            count(|counters| counters.header_timeouts += 1);
            return Poll::Ready(self.abort());
        }
        if let Some(socket) = &self.socket {
            socket.note_held(self.machine.held() + self.unsent);
        }
        super::stream::note(&mut self.task, cx);
        Poll::Pending
    }

    /// Ready if a frame or a block of fields has begun and does not come to its end in time.
    fn poll_partial(&mut self, is_partial: bool, cx: &mut Context<'_>) -> Poll<()> {
        if !is_partial || self.holds_too_much() {
            self.partial_since = None;
            return Poll::Pending;
        }
        let since = *self.partial_since.get_or_insert_with(blitz_reactor::now);
        let due = since + self.limits().head_timeout;
        self.timer.poll_due(due, cx)
    }

    /// Ready if the peer has not acknowledged our settings in time, unless it can say nothing any
    /// more (rule 16), or it is we who do not read.
    fn poll_settings(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(due) = self.settings_due else {
            return Poll::Pending;
        };
        if self.machine.settings_acknowledged() || self.fin {
            self.settings_due = None;
        } else if self.holds_too_much() {
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
    pub(super) fn give_up(&mut self) -> After {
        count(|counters| counters.settings_timeouts += 1);
        let (machine, out) = self.machine();
        machine.give_up(Code::SETTINGS_TIMEOUT, out);
        self.lose_peer(&Loss::Reset);
        self.close_politely();
        After::Closed
    }

    /// The peer takes nothing. While it is parked nobody would watch its deadline, and frames that
    /// it sends now and then would keep it from being idle.
    fn is_stalling(&self) -> bool {
        self.socket.as_ref().is_some_and(|socket| {
            let now = blitz_reactor::now();
            socket.queued() > 0
                && now.saturating_duration_since(socket.send_progress()) > STALL_NOTED_AFTER
        })
    }

    /// An idle connection holds no buffer, nor room for the streams of its busiest moment.
    fn let_memory_go(&mut self) {
        self.pending = None;
        self.streams.shrink_to(STREAMS_KEPT);
        self.lingering.shrink_to(STREAMS_KEPT);
    }

    /// The client's address, for who reads logs.
    pub(super) fn remote(&self) -> Option<std::net::SocketAddr> {
        self.peer.as_ref().and_then(|peer| peer.remote)
    }

    fn abort(&mut self) -> After {
        self.lose_peer(&Loss::Reset);
        if let Some(socket) = self.socket.take() {
            socket.abort();
        }
        After::Closed
    }
}
