//! A connection of HTTP/2 on a server, and its exchanges: each has a task that drives the service and
//! watches the client.

use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use blitz_proto::h2::{self, Code, Received, StreamId, UpgradeSettings};
use blitz_proto::{
    BodyLength, Error, Fields, Limits, Method, Name, RequestHead, ResponseHead, Version,
};
use blitz_reactor::Chunk;

use super::drive::{Disposition, STREAMS_KEPT};
use super::driver::{Conn, Driver, Role, Shared};
use crate::conn::streams::due::{Discarded, DueStreams};
use crate::conn::streams::exchange_task::{self, WithTasks};
use crate::conn::streams::response_head::{adapt_tunnel_head, add_default_headers};
use crate::conn::streams::room::{STREAMS_WHEN_SHORT, is_short, room_of_server};
use crate::conn::streams::stream::ResetReason;
use crate::counters::{count_refused, count_request};
use crate::error::{Refusal, refusal_response};
use crate::exchange::{
    BodyState, Conclusion, Exchange, ExchangeId, ExchangeOutcome, LoggedRefusal, Peer, RecvBody,
    Responder, ServerFraming, ServerSide, Service, conclude, refusal_of, refuse_request,
    refuse_stream, send_response, tell_reset_head, wake,
};
use crate::input::Input;
use crate::options::ServeOptions;
use crate::problem::accepts_problem;
use crate::recycle::Pooled;
use crate::refused::{Refused, RefusedRequest, tell};
use crate::transport::Transport;

pub(crate) struct ServerRole {
    peer: Rc<Peer>,
    /// Streams whose response is sent and whose request is not yet received to its end, with the time for it.
    lingering: DueStreams<Discarded<StreamId>>,
    /// When the connection was first parked after its last stream.
    idle_since: Option<Instant>,
}

/// A request that has just come.
pub(crate) struct IncomingRequest {
    stream: StreamId,
    head: Pooled<RequestHead>,
    length: BodyLength,
    has_ended: bool,
}

impl Conn<ServerRole> {
    /// A connection whose client is about to send its preface.
    pub(crate) fn server(peer: Peer, shared: &Rc<Shared<ServerRole>>) -> Rc<Conn<ServerRole>> {
        let role = ServerRole {
            peer: Rc::new(peer),
            lingering: DueStreams::new(),
            idle_since: None,
        };
        Conn::new(h2::Connection::server(shared.limits()), role, shared)
    }

    /// Takes the request over that the connection began with in HTTP/1.1, as stream 1.
    pub(crate) fn upgrade(
        &self,
        head: Pooled<RequestHead>,
        settings: &UpgradeSettings,
    ) -> IncomingRequest {
        let mut driver = self.driver.borrow_mut();
        IncomingRequest {
            stream: driver.machine.upgrade(&head, settings),
            head,
            length: BodyLength::Empty,
            has_ended: true,
        }
    }

    /// Drives the connection until it has no streams, beginning with what was just received; `upgraded`
    /// is a request that came over HTTP/1.1.
    pub(crate) async fn serve<S: Service>(
        self: &Rc<Self>,
        service: &Rc<S>,
        transport: Transport,
        first: Input,
        upgraded: Option<IncomingRequest>,
    ) -> Disposition {
        let start = |request| self.start_exchange(service, request);
        self.run(transport, first, upgraded, start, || {}).await
    }

    /// The time that is left for a parked connection's client to acknowledge our settings; `None` if it
    /// has.
    pub(crate) fn settings_left(&self) -> Option<Duration> {
        let driver = self.driver.borrow();
        let due = driver.settings_due?;
        let is_open = !driver.machine.settings_acknowledged();
        is_open.then(|| due.saturating_duration_since(blitz_reactor::now()))
    }

    /// Whether a connection that is about to be parked has had no stream since it was last parked.
    pub(crate) fn is_idle_since_before(&self) -> bool {
        self.driver.borrow().role.idle_since.is_some()
    }

    /// How long a connection that is about to be parked may still be idle: only streams renew that
    /// time, PING does not (rule 18).
    pub(crate) fn idle_left(&self, idle_timeout: Duration) -> Duration {
        let now = blitz_reactor::now();
        let mut driver = self.driver.borrow_mut();
        let since = *driver.role.idle_since.get_or_insert(now);
        (since + idle_timeout).saturating_duration_since(now)
    }

    /// Closes a parked connection whose client has not acknowledged our settings.
    pub(crate) fn close_for_settings_timeout(&self, transport: Transport) {
        let mut driver = self.driver.borrow_mut();
        driver.socket = Some(transport);
        driver.close_for_settings_timeout();
    }

    /// Starts to work on a request.
    fn start_exchange<S: Service>(self: &Rc<Self>, service: &Rc<S>, request: IncomingRequest) {
        let stream = request.stream;
        let exchange = self.exchange(request);
        let (conn, service) = (Rc::clone(self), Rc::clone(service));
        if blitz_reactor::spawn_now(|| exchange_task::run(conn, service, stream, exchange))
            .is_some()
        {
            blitz_reactor::consume_admission();
        }
    }

    /// `None` if the request was refused because its head is too large for what the core holds.
    fn exchange(self: &Rc<Self>, request: IncomingRequest) -> Option<Exchange> {
        let IncomingRequest {
            stream,
            mut head,
            length,
            has_ended,
        } = request;
        let mut driver = self.driver.borrow_mut();
        let mut state = driver.shared.spare.take();
        state.is_connect = head.method == Method::Connect;
        let is_done = has_ended || length == BodyLength::Empty;
        if !is_done {
            state.exchange.begin_body(length);
            state.exchange.accepts_problem = accepts_problem(&head.fields) == Some(true);
        }
        // Bytes behind CONNECT belong to the tunnel, if there will be one.
        let has_content = !is_done && !state.is_connect;
        driver.insert_stream(stream, state);
        driver.make_room();
        driver.role.idle_since = None;
        let peer = Rc::clone(&driver.role.peer);
        let is_charged = head.charge(driver.limits()) || driver.charge_completed(&mut head);
        drop(driver);
        let id = ExchangeId::from(stream);
        let body = match has_content {
            true => RecvBody::new(Rc::<Conn<ServerRole>>::clone(self), id, length),
            false if is_done => RecvBody::complete(length),
            false => RecvBody::empty(),
        };
        let exchange = Exchange {
            request: head,
            body,
            responder: Responder::new(Rc::<Conn<ServerRole>>::clone(self), id),
            peer,
        };
        if !is_charged {
            self.refuse_head(exchange);
            return None;
        }
        Some(exchange)
    }

    #[cold]
    fn refuse_head(&self, exchange: Exchange) {
        let options = Rc::clone(&self.driver.borrow().shared.options);
        exchange.refuse_head(&options);
    }
}

impl WithTasks for Driver<ServerRole> {
    fn conclude(&mut self, stream: StreamId, outcome: ExchangeOutcome) {
        let is_tunnel = self
            .stream(stream)
            .is_some_and(|state| state.exchange.is_tunnel);
        match conclude(self, stream, outcome) {
            Conclusion::Complete | Conclusion::Refused if self.is_received(stream) => {
                self.close_stream(stream, None);
            }
            Conclusion::Complete | Conclusion::Refused => self.linger(stream),
            Conclusion::Gone => self.close_stream(stream, None),
            Conclusion::Cancelled => self.close_stream(stream, Some(Code::CANCEL)),
            // RFC 9113, section 8.5: so ends a tunnel whose other end has failed.
            Conclusion::Failed if is_tunnel => {
                self.close_stream(stream, Some(Code::CONNECT_ERROR));
            }
            Conclusion::Failed => self.close_stream(stream, Some(Code::INTERNAL_ERROR)),
        }
    }
}

impl Driver<ServerRole> {
    /// Charges a head whose parts may still be charged.
    #[cold]
    fn charge_completed(&mut self, head: &mut Pooled<RequestHead>) -> bool {
        self.partial_charge.clear();
        head.charge(self.limits())
    }

    /// Whether nothing of the request is left to be received.
    fn is_received(&mut self, stream: StreamId) -> bool {
        self.machine.receive_done(stream)
            || self
                .stream(stream)
                .is_none_or(|state| state.exchange.receiving.is_complete())
    }

    /// The response is complete, the request is not: its rest is discarded for a moment, and then the
    /// stream is reset with NO_ERROR (RFC 9113, section 8.1). A reset directly behind the response would
    /// hide it from clients such as curl.
    fn linger(&mut self, stream: StreamId) {
        let now = blitz_reactor::now();
        let limits = self.limits();
        let (time, silence) = (limits.discard_timeout, limits.discard_silence);
        let is_tunnel = self
            .stream(stream)
            .is_some_and(|state| state.exchange.is_tunnel);
        let discarded = Discarded {
            id: stream,
            until: now + time,
            silence: if is_tunnel { time } else { silence },
            bytes: 0,
        };
        if let Some(state) = self.stream(stream) {
            if matches!(state.exchange.receiving.body, BodyState::Open) {
                state.exchange.receiving.body = BodyState::Unwanted;
            }
            state.is_lingering = true;
            // From now on it counts what is discarded.
            state.exchange.receiving.pace.bytes = 0;
            self.discard(stream);
            self.role.lingering.push_discarded(discarded, now);
            // It has a deadline now.
            self.needs_task = true;
            self.make_room();
        }
    }

    /// Resets the streams whose moment has passed; returns when that of the next one will have passed.
    fn end_lingering(&mut self) -> Option<Instant> {
        let now = blitz_reactor::now();
        loop {
            let (stream, due) = self.next_lingering()?;
            if due > now {
                return Some(due);
            }
            let state = self.stream(stream);
            let bytes = state.map_or(0, |state| state.exchange.receiving.pace.bytes);
            if !self.role.lingering.renew(bytes, now) {
                self.close_stream(stream, Some(Code::NO_ERROR));
            }
        }
    }

    fn next_lingering(&mut self) -> Option<(StreamId, Instant)> {
        let streams = &self.streams;
        let lingers = |discarded: Discarded<_>| streams.contains_key(&discarded.id);
        let next = self.role.lingering.next(lingers);
        next.map(|(discarded, due)| (discarded.id, due))
    }

    /// Keeps a stream free for another request while any is only lingering: for clients such as Firefox a stream is
    /// over with its response, and they would open more than they may.
    fn make_room(&mut self) {
        let streams_max = self.limits().concurrent_streams_max as usize;
        if self.machine.stream_count() >= streams_max
            && let Some((stream, _)) = self.next_lingering()
        {
            self.close_stream(stream, Some(Code::NO_ERROR));
        }
    }

    /// Responds to a request whose header block was too long to be decoded, and announces that it is the last one. The
    /// response has no content, because the method is unknown.
    #[cold]
    fn refuse_lost_head(&mut self, stream: StreamId, refusal: Refusal) {
        let options = Rc::clone(&self.shared.options);
        let (mut head, _) = refusal_response(refusal, &Fields::new(), false, &options);
        head.fields.remove(Name::ContentType);
        count_refused(refusal.rule);
        let logged = LoggedRefusal {
            request: None,
            is_whole: false,
            response: Some(&head),
            version: Self::VERSION,
            peer: self.role.peer.remote,
        };
        logged.log(refusal, &options);
        tell(&options, || {
            Refused::Request(RefusedRequest {
                head: None,
                refusal,
                status: Some(head.status),
                content_bytes: 0,
                version: Self::VERSION,
                peer: &self.role.peer,
            })
        });
        send_response(self, stream, &mut head, Chunk::from(""));
        self.close_stream(stream, Some(Code::NO_ERROR));
        let (machine, out) = self.machine();
        machine.announce_lost_block(out);
    }
}

impl Role for ServerRole {
    type Options = ServeOptions;
    type Shared = ();
    type Side = ServerSide;
    type Arrived = IncomingRequest;
    const CHARGES_PARTIAL_HEADS: bool = true;

    fn limits(options: &ServeOptions) -> &Limits {
        &options.limits
    }

    fn head_arrived(
        _: &mut Driver<ServerRole>,
        stream: StreamId,
        received: &mut Received,
        length: BodyLength,
        has_ended: bool,
    ) -> Option<IncomingRequest> {
        count_request(Driver::<ServerRole>::VERSION);
        let mut head = Pooled::<RequestHead>::take();
        std::mem::swap(&mut *head, &mut received.request);
        Some(IncomingRequest {
            stream,
            head,
            length,
            has_ended,
        })
    }

    fn refused(
        driver: &mut Driver<ServerRole>,
        stream: StreamId,
        error: Error,
        received: &Received,
    ) {
        let state = driver.shared.spare.take();
        driver.insert_stream(stream, state);
        driver.role.idle_since = None;
        if driver.machine.has_lost_block() {
            return driver.refuse_lost_head(stream, refusal_of(error));
        }
        refuse_request(driver, stream, refusal_of(error), &received.request);
        match driver.machine.receive_done(stream) {
            true => driver.close_stream(stream, None),
            false => driver.linger(stream),
        }
    }

    /// The connection may be evicted (rule 20).
    #[cold]
    fn await_request(driver: &mut Driver<ServerRole>) {
        let idle_since = &mut driver.role.idle_since;
        let had_streams = idle_since.is_none();
        idle_since.get_or_insert_with(blitz_reactor::now);
        if let Some(socket) = &driver.socket {
            socket.await_request(had_streams);
        }
    }

    fn stream_reset(driver: &mut Driver<ServerRole>, stream: StreamId, reason: &ResetReason) {
        if let ResetReason::Malformed(error) = reason {
            refuse_stream(*error, driver.role.peer.remote);
            if driver.stream(stream).is_none() {
                let options = &driver.shared.options;
                tell_reset_head(*error, options, Version::Http2, &driver.role.peer);
            }
        }
    }

    fn data_after_response(
        driver: &mut Driver<ServerRole>,
        stream: StreamId,
        bytes: usize,
        has_ended: bool,
    ) {
        if has_ended {
            driver.close_stream(stream, None);
        } else if let Some(state) = driver.stream(stream) {
            state.exchange.receiving.pace.bytes += bytes as u64;
        }
    }

    fn poll_admission(driver: &Driver<ServerRole>, cx: &mut Context<'_>) -> Poll<()> {
        match driver.input.is_empty() {
            true => Poll::Ready(()),
            false => blitz_reactor::poll_admission(cx),
        }
    }

    fn failed(driver: &Driver<ServerRole>, error: Error) -> ResetReason {
        let client = driver.role.peer.remote.map(tracing::field::display);
        tracing::debug!(cause = error.rule(), client, "connection ended");
        count_refused(error.rule());
        ResetReason::Reset
    }

    fn before_waiting(driver: &mut Driver<ServerRole>, cx: &mut Context<'_>) {
        if driver.shared.options.drain.is_triggered() {
            let (machine, out) = driver.machine();
            machine.drain(out);
            driver.flush();
        }
        if let Some(until) = driver.end_lingering() {
            // Only to be woken then: what has passed already is over.
            let _ = driver.timer.poll_due(until, cx);
        }
    }

    fn cap_windows(driver: &mut Driver<ServerRole>) {
        let share = blitz_reactor::fair_share();
        if is_short(share, driver.limits()) {
            driver
                .machine
                .cap_windows(share, share * STREAMS_WHEN_SHORT);
        } else {
            driver.machine.cap_windows(usize::MAX, usize::MAX);
            driver.wake_awaiting_memory();
        }
    }

    /// Not while content waits for a window: the frame that opens it may be the next to be received, and
    /// the streams that hold content may be those that wait.
    fn holds_too_much(driver: &Driver<ServerRole>) -> bool {
        driver.unsent == 0 && driver.holds_more_than_its_share()
    }

    fn room(driver: &Driver<ServerRole>) -> Option<usize> {
        room_of_server(driver.unsent, driver.limits())
    }

    /// Without the reset, the client of a truncated response would wait for the rest, and the stream would
    /// count against its limit for ever.
    fn code_of_unfinished(driver: &Driver<ServerRole>, stream: StreamId) -> Option<Code> {
        let machine = &driver.machine;
        let is_complete = machine.response_started(stream) && !machine.sends_body(stream);
        (!is_complete).then_some(Code::CANCEL)
    }

    fn shrink(&mut self) {
        self.lingering.shrink_to(STREAMS_KEPT);
    }
}

impl ServerFraming for Driver<ServerRole> {
    const VERSION: Version = Version::Http2;

    fn options(&self) -> &Rc<ServeOptions> {
        &self.shared.options
    }

    fn peer(&self) -> &Rc<Peer> {
        &self.role.peer
    }

    fn expects_continue(&self, id: StreamId) -> bool {
        self.machine.expects_continue(id)
    }

    /// Whether the request is an extended CONNECT (RFC 8441), or a plain one.
    fn is_upgrade_requested(&mut self, id: StreamId) -> bool {
        self.stream(id).is_some_and(|state| state.is_connect)
    }

    fn send_informational(&mut self, id: StreamId, head: &ResponseHead) {
        let (machine, out) = self.machine();
        machine.send_informational(id, head, out);
    }

    fn send_head(
        &mut self,
        id: StreamId,
        head: &mut ResponseHead,
        length: BodyLength,
        is_whole: bool,
    ) {
        // END_STREAM means the same as `Content-Length: 0`.
        let length = match length {
            BodyLength::Known(0) if is_whole => BodyLength::Empty,
            length => length,
        };
        let options = &self.shared.options;
        add_default_headers(head, options, options.alt_svc_for(&self.role.peer));
        let (machine, out) = self.machine();
        machine.send_head(id, head, length, out);
    }

    fn send_tunnel_head(&mut self, id: StreamId, head: &mut ResponseHead) {
        adapt_tunnel_head(head);
        self.send_head(id, head, BodyLength::Unknown, false);
    }

    fn is_response_started(&self, id: StreamId) -> bool {
        self.machine.response_started(id)
    }

    /// Other exchanges go on.
    fn close_if_exclusive(&mut self) {}

    fn discard(&mut self, id: StreamId) {
        let Some(state) = self.stream(id) else {
            return;
        };
        state.trailers = None;
        wake(&mut state.exchange.receiving.reader);
        let unread = state.drain_parts();
        self.release(id, unread);
    }

    fn may_wait_for_client(&mut self, id: StreamId) -> bool {
        self.stream(id)
            .is_some_and(|state| state.sending.queued > 0)
    }

    fn poll_client_gone(&mut self, _: StreamId, _: &mut Context<'_>) -> Poll<()> {
        // The connection's task notices it.
        Poll::Pending
    }
}
