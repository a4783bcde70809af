//! The exchanges of a connection.

use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use blitz_proto::h3::{self, Code, Event, Received, StreamId};
use blitz_proto::{
    BodyLength, Error, ErrorKind, Limits, Method, RequestHead, ResponseHead, Version,
};
use blitz_quic::Connection;
use blitz_quic::quinn_proto::{ConnectionError, Dir, VarInt};
use blitz_reactor::Chunk;

use super::driver::{Conn, Driver, RequestStream, Shared};
use super::listener::ListenerState;
use super::protocol::Http3;
use super::role::Role;
use crate::conn::streams::due::{Discarded, DueStreams};
use crate::conn::streams::exchange_task::WithTasks;
use crate::conn::streams::response_head::{adapt_tunnel_head, add_default_headers};
use crate::conn::streams::room::room_of_server;
use crate::conn::streams::stream::ResetReason;
use crate::counters::{count, count_refused, count_request};
use crate::exchange::{
    BodyState, Conclusion, Exchange, ExchangeId, ExchangeOutcome, Peer, RecvBody, Responder,
    Scheme, ServerFraming, ServerSide, conclude, refusal_of, refuse_request, refuse_stream,
    tell_reset_head, wake,
};
use crate::options::ServeOptions;
use crate::problem::accepts_problem;
use crate::quic_limits::STREAMS_FIRST;
use crate::recycle::{HeadCharge, Pooled};
use crate::refused::{FailedHandshake, Refused, tell};
use crate::tls::{TlsInfo, facts, failure_of, log_client_failure};

/// The state of a client's connection that connections to servers do not have.
pub(crate) struct ServerRole {
    /// Its key in the list of connections, while it is open.
    key: usize,
    pub(super) peer: Rc<Peer>,
    /// Requests at a time that the client may have.
    pub(super) streams_max: u32,
    /// Requests that have arrived and are to be started.
    arrived: VecDeque<IncomingRequest>,
    /// When the client last acknowledged a whole message.
    pub(super) last_response: Option<Instant>,
    /// Streams whose heads have not come completely.
    pub(super) heads: DueStreams<StreamId>,
    /// Streams whose response is sent and whose request is not yet received to its end.
    pub(super) lingering: DueStreams<Discarded<StreamId>>,
    /// Streams whose response is complete, with the rest of it queued.
    pub(super) unsent_rests: DueStreams<StreamId>,
    /// The memory of incomplete heads, if it is much.
    pub(super) partial_charge: HeadCharge,
    /// When the second GOAWAY is due.
    pub(super) final_goaway: Option<Instant>,
    /// The earliest time after that at which a connection without requests may be closed: not before GOAWAY was sent.
    pub(super) closes_from: Option<Instant>,
}

/// A request that has just come.
pub(super) struct IncomingRequest {
    pub(super) stream: StreamId,
    pub(super) head: Pooled<RequestHead>,
    pub(super) length: BodyLength,
    pub(super) has_ended: bool,
}

impl IncomingRequest {
    /// Takes the head that the machine has decoded.
    pub(super) fn take_head(received: &mut Received) -> Pooled<RequestHead> {
        count_request(Driver::<ServerRole>::VERSION);
        let mut head = Pooled::<RequestHead>::take();
        std::mem::swap(&mut *head, &mut received.request);
        head
    }
}

impl Conn<ServerRole> {
    /// `None` if the request was refused because the core has no memory for its head.
    pub(super) fn exchange(self: &Rc<Self>, request: IncomingRequest) -> Option<Exchange> {
        let IncomingRequest {
            stream,
            mut head,
            length,
            has_ended,
        } = request;
        let mut driver = self.driver.borrow_mut();
        let peer = Rc::clone(&driver.role.peer);
        let is_connect = head.method == Method::Connect;
        let is_done = has_ended || length == BodyLength::Empty;
        // A connection that was lost meanwhile is reported by the handles.
        if let Some(state) = driver.stream(stream) {
            state.is_connect = is_connect;
            if !is_done {
                state.exchange.begin_body(length);
                state.exchange.accepts_problem = accepts_problem(&head.fields) == Some(true);
            }
        }
        driver.note_priority(stream);
        driver.role.partial_charge.clear();
        let is_charged = head.charge(driver.limits());
        drop(driver);
        let id = ExchangeId::from(stream);
        // Bytes behind CONNECT belong to the tunnel, if there will be one.
        let body = match is_done {
            true => RecvBody::complete(length),
            false if is_connect => RecvBody::empty(),
            false => RecvBody::new(Rc::<Conn<ServerRole>>::clone(self), id, length),
        };
        let exchange = Exchange {
            request: head,
            body,
            responder: Responder::new(Rc::<Conn<ServerRole>>::clone(self), id),
            peer,
        };
        if !is_charged {
            let options = Rc::clone(&self.driver.borrow().shared.options);
            exchange.refuse_head(&options);
            return None;
        }
        Some(exchange)
    }
}

impl Role for ServerRole {
    type Options = ServeOptions;
    type Shared = ListenerState;
    type Side = ServerSide;
    const SHRINKS_WHEN_IDLE: bool = true;

    fn limits(options: &ServeOptions) -> &Limits {
        &options.limits
    }

    fn connected(
        shared: &Rc<Shared<ServerRole>>,
        quic: &Rc<Connection<Http3<ServerRole>>>,
    ) -> Rc<Conn<ServerRole>> {
        let tls = quic
            .look(|quic| quic.crypto_session().handshake_data())
            .flatten()
            .and_then(|data| data.downcast::<Rc<TlsInfo>>().ok());
        count(|counters| {
            counters.accepted += 1;
            counters.connections += 1;
            counters.tls.handshakes += 1;
            counters.tls.version_1_3 += 1;
            counters.tls.resumed += u64::from(tls.as_ref().is_some_and(|tls| tls.is_resumed));
        });
        let peer = Peer {
            remote: Some(quic.remote()),
            listener: Some(shared.role.address),
            scheme: Scheme::Https,
            tls: tls.map(|tls| *tls),
        };
        let mut connections = shared.role.connections.borrow_mut();
        let entry = connections.vacant_entry();
        let role = ServerRole {
            key: entry.key(),
            peer: Rc::new(peer),
            streams_max: shared.limits().concurrent_streams_max.min(STREAMS_FIRST),
            arrived: VecDeque::new(),
            last_response: None,
            heads: DueStreams::new(),
            lingering: DueStreams::new(),
            unsent_rests: DueStreams::new(),
            partial_charge: HeadCharge::default(),
            final_goaway: None,
            closes_from: None,
        };
        let machine = h3::Connection::server(shared.limits());
        let conn = Conn::new(machine, role, quic, shared);
        entry.insert(Rc::downgrade(&conn));
        drop(connections);
        if shared.role.is_draining.get() {
            conn.drain();
        }
        conn
    }

    fn handshake_failed(
        shared: &Shared<ServerRole>,
        quic: &Rc<Connection<Http3<ServerRole>>>,
        reason: &ConnectionError,
    ) {
        let error = failure_of(reason);
        count(|counters| counters.tls.count_failure(true, error.rule()));
        let tls = quic.look(|quic| facts(quic.crypto_session())).flatten();
        let name = tls.as_ref().and_then(|tls| tls.server_name.as_deref());
        log_client_failure(Some(quic.remote()), name, error, reason);
        let now = blitz_reactor::now();
        let timeout = shared.limits().tls_handshake_timeout;
        let started = quic
            .handshake_due()
            .and_then(|due| due.checked_sub(timeout));
        let peer = Rc::new(Peer {
            remote: Some(quic.remote()),
            listener: Some(shared.role.address),
            scheme: Scheme::Https,
            tls,
        });
        tell(&shared.options, || {
            Refused::Handshake(FailedHandshake {
                cause: error.cause(),
                started: started.unwrap_or(now),
                version: Some(Version::Http3),
                peer: &peer,
            })
        });
    }

    fn migrated(conn: &Conn<ServerRole>, quic: &Connection<Http3<ServerRole>>) {
        // Requests that have begun keep the address.
        let peer = &mut conn.driver.borrow_mut().role.peer;
        *peer = Rc::new(Peer {
            remote: Some(quic.remote()),
            ..Peer::clone(peer)
        });
    }

    fn evict(shared: &Shared<ServerRole>) -> bool {
        loop {
            let next = shared.role.idle.borrow_mut().pop();
            match next.map(|conn| conn.upgrade()) {
                Some(Some(conn)) if conn.evict() => return true,
                Some(_) => {}
                None if shared.note_idle() => {}
                None => return false,
            }
        }
    }

    fn start_arrived(conn: &Rc<Conn<ServerRole>>) {
        loop {
            let mut driver = conn.driver.borrow_mut();
            let Some(request) = driver.role.arrived.pop_front() else {
                break;
            };
            let shared = Rc::clone(&driver.shared);
            drop(driver);
            let stream = request.stream;
            let exchange = conn.exchange(request);
            (shared.role.start)(conn, stream, exchange);
        }
    }

    fn opened(driver: &mut Driver<ServerRole>, id: StreamId) -> Result<(), Error> {
        let state = driver.shared.spare.take();
        driver.streams.insert(id, RequestStream::new(state));
        driver.idle_since = None;
        let due = blitz_reactor::now() + driver.limits().head_timeout;
        driver.role.heads.push(id, due);
        driver.prune_heads();
        driver.read_head(id)
    }

    fn all_opened(driver: &mut Driver<ServerRole>) {
        driver.allow_streams();
        driver.make_room();
    }

    fn before_sending(driver: &mut Driver<ServerRole>) {
        driver.return_credit();
    }

    fn head_arrived(
        driver: &mut Driver<ServerRole>,
        id: StreamId,
        received: &mut Received,
        length: BodyLength,
        has_ended: bool,
    ) {
        if let Some(stream) = driver.streams.get_mut(&id) {
            stream.awaits_head = false;
        }
        let head = IncomingRequest::take_head(received);
        driver.role.arrived.push_back(IncomingRequest {
            stream: id,
            head,
            length,
            has_ended,
        });
    }

    fn refused(driver: &mut Driver<ServerRole>, id: StreamId, error: Error, received: &Received) {
        driver.refuse_request(id, error, received);
    }

    fn discard_refused(driver: &mut Driver<ServerRole>, id: StreamId) {
        driver.end_or_linger(id);
    }

    fn head_incomplete(driver: &mut Driver<ServerRole>) {
        driver.charge_partial_heads();
    }

    fn stopped(driver: &mut Driver<ServerRole>, id: StreamId, code: Code, event: Option<Event>) {
        let is_sending = |stream: &RequestStream| !stream.is_finished;
        match event {
            Some(Event::Reset { error, code }) => driver.lose_stream(id, error, code),
            // The machine has the whole message, and some of it waits here.
            _ if driver.streams.get(&id).is_some_and(is_sending) => {
                driver.lose(id, &ResetReason::Reset, code);
            }
            // RFC 9000, section 3.5: a reset follows, unless all was acknowledged.
            _ => driver.reset_sending(id, Code::NO_ERROR),
        }
    }

    fn has_handles(stream: &RequestStream) -> bool {
        !stream.awaits_head && !stream.state.is_lingering
    }

    fn loss(
        driver: &Driver<ServerRole>,
        id: StreamId,
        error: Error,
        code: Code,
    ) -> (ResetReason, Code) {
        let is_lingering = |stream: &RequestStream| stream.state.is_lingering;
        let reason = match error.kind() {
            ErrorKind::PeerReset => ResetReason::Reset,
            _ => ResetReason::Malformed(error),
        };
        let stream = driver.streams.get(&id);
        if let ResetReason::Malformed(error) = &reason
            && !stream.is_some_and(is_lingering)
        {
            refuse_stream(*error, driver.role.peer.remote);
            if stream.is_some_and(|stream| stream.awaits_head) {
                let options = &driver.shared.options;
                tell_reset_head(*error, options, Version::Http3, &driver.role.peer);
            }
        }
        (reason, code)
    }

    fn room(driver: &Driver<ServerRole>) -> Option<usize> {
        room_of_server(driver.unsent, driver.limits())
    }

    fn message_acknowledged(driver: &mut Driver<ServerRole>) {
        driver.role.last_response = Some(driver.acknowledged_at);
    }

    fn queued_sent(driver: &mut Driver<ServerRole>, id: StreamId) {
        driver.end_rest(id);
    }

    fn shrink_to(&mut self, streams: usize) {
        self.heads.shrink_to(streams);
        self.lingering.shrink_to(streams);
        self.unsent_rests.shrink_to(streams);
    }

    fn is_over(driver: &mut Driver<ServerRole>) -> bool {
        driver.is_drained()
    }

    fn next_deadline(driver: &mut Driver<ServerRole>) -> Option<Instant> {
        driver.next_server_deadline()
    }

    fn deadline(driver: &mut Driver<ServerRole>, now: Instant) {
        driver.server_deadline(now);
    }

    fn retire_idle(driver: &mut Driver<ServerRole>) {
        if driver.drain_idle() {
            Self::note_end(driver, "idle-memory");
        }
    }

    fn note_end(driver: &Driver<ServerRole>, rule: &'static str) {
        let client = driver.role.peer.remote.map(tracing::field::display);
        tracing::debug!(cause = rule, client, "connection ended");
        count_refused(rule);
    }

    fn reason_of(_: Error) -> ResetReason {
        ResetReason::Reset
    }

    /// Removes the connection from the list of open ones.
    fn left(driver: &mut Driver<ServerRole>) {
        count(|counters| counters.connections -= 1);
        let listener = &driver.shared.role;
        let mut connections = listener.connections.borrow_mut();
        connections.remove(driver.role.key);
        if connections.is_empty() {
            listener.empty.take().into_iter().for_each(Waker::wake);
        }
    }
}

impl WithTasks for Driver<ServerRole> {
    fn conclude(&mut self, id: StreamId, outcome: ExchangeOutcome) {
        let is_tunnel = self
            .stream(id)
            .is_some_and(|state| state.exchange.is_tunnel);
        match conclude(self, id, outcome) {
            Conclusion::Complete | Conclusion::Refused => self.end_or_linger(id),
            Conclusion::Gone => self.close_stream(id, None),
            // RFC 9114, section 4.4: a tunnel whose other end has failed ends in this way.
            Conclusion::Cancelled | Conclusion::Failed if is_tunnel => {
                self.close_stream(id, Some(Code::CONNECT_ERROR));
            }
            Conclusion::Cancelled => self.close_stream(id, Some(Code::REQUEST_CANCELLED)),
            Conclusion::Failed => self.close_stream(id, Some(Code::INTERNAL_ERROR)),
        }
        self.settle_soon();
    }
}

impl Driver<ServerRole> {
    /// The response is complete. An incomplete request is discarded for a moment, and then stopped with NO_ERROR (RFC
    /// 9114, section 4.1). The rest of the response that QUIC has not taken is awaited.
    pub(super) fn end_or_linger(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        // Behind trailers, the end of the stream may still be on its way.
        let is_received = stream.has_fin;
        if is_received && stream.is_finished {
            return self.close_stream(id, None);
        }
        let receiving = &mut stream.state.exchange.receiving;
        if !is_received {
            receiving.body = BodyState::Unwanted;
        }
        stream.discards_from = stream.read_to;
        stream.state.is_lingering = true;
        let now = blitz_reactor::now();
        let limits = &self.shared.options.limits;
        match stream.is_finished {
            true => self.push_lingering(id),
            false => self
                .role
                .unsent_rests
                .push(id, now + limits.send_stall_timeout),
        }
        if !is_received && let Err(error) = self.discard_arrived(id) {
            self.fail(error);
        }
        self.make_room();
    }

    /// Notes that all queued bytes of a response were sent, if they were: the rest of the request has a moment more.
    pub(super) fn end_rest(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get(&id) else {
            return;
        };
        if !stream.is_finished || !stream.state.is_lingering {
            return;
        }
        if stream.has_fin {
            return self.close_stream(id, None);
        }
        self.push_lingering(id);
        if let Err(error) = self.discard_arrived(id) {
            self.fail(error);
        }
        self.make_room();
    }

    /// Doubles the allowed requests of a client that uses half of them.
    fn allow_streams(&mut self) {
        let limit = self.limits().concurrent_streams_max;
        let open = self.streams.len() as u32;
        let streams_max = &mut self.role.streams_max;
        if open < *streams_max / 2 || *streams_max >= limit {
            return;
        }
        while open >= *streams_max / 2 && *streams_max < limit {
            *streams_max = (*streams_max * 2).min(limit);
        }
        let allowed = VarInt::from_u32(*streams_max);
        self.quic(|quic| quic.set_max_concurrent_streams(Dir::Bi, allowed));
    }

    /// Returns the credit of a request when it has ended. QUIC counts a stream until its response is acknowledged, so a
    /// client that waits for credit would wait a round trip too long. The limit counts requests that have not ended.
    /// QUIC may then hold twice as many streams.
    fn return_credit(&self) {
        let streams_max = self.role.streams_max;
        let open = self.streams.len() as u64;
        let Some(quic) = &self.quic else {
            return;
        };
        quic.look(|quic| {
            let held = quic.streams().remote_open_streams(Dir::Bi);
            if held < u64::from(streams_max / 2) {
                return;
            }
            let ended = u32::try_from(held.saturating_sub(open)).unwrap_or(u32::MAX);
            let allowed = streams_max.saturating_add(ended.min(streams_max));
            if quic.max_concurrent_streams(Dir::Bi) < u64::from(allowed) {
                quic.set_max_concurrent_streams(Dir::Bi, VarInt::from_u32(allowed));
                // The acknowledgement of the response is no second credit.
                quic.set_max_concurrent_streams(Dir::Bi, VarInt::from_u32(streams_max));
            }
        });
    }

    /// Responds to a request that exceeds a limit.
    pub(super) fn refuse_request(&mut self, id: StreamId, error: Error, received: &Received) {
        refuse_request(self, id, refusal_of(error), &received.request);
    }
}

impl ServerFraming for Driver<ServerRole> {
    const VERSION: Version = Version::Http3;

    fn options(&self) -> &Rc<ServeOptions> {
        &self.shared.options
    }

    fn peer(&self) -> &Rc<Peer> {
        &self.role.peer
    }

    fn expects_continue(&self, id: StreamId) -> bool {
        self.machine.expects_continue(id)
    }

    /// Whether the request is an extended CONNECT (RFC 9220), or a plain one.
    fn is_upgrade_requested(&mut self, id: StreamId) -> bool {
        self.stream(id).is_some_and(|state| state.is_connect)
    }

    fn send_informational(&mut self, id: StreamId, head: &ResponseHead) {
        self.machine.send_informational(id, head, &mut self.out);
        self.write(id, Chunk::from(""));
    }

    fn send_head(
        &mut self,
        id: StreamId,
        head: &mut ResponseHead,
        length: BodyLength,
        is_whole: bool,
    ) {
        add_default_headers(head, &self.shared.options, None);
        if self.machine.send_head(id, head, length, &mut self.out) {
            self.end_after(id);
        }
        if head.fields.contains(blitz_proto::Name::Priority) {
            self.note_priority(id);
        }
        // A complete message leaves with its content, or at once with its end.
        let is_tunnel = length == BodyLength::Empty && self.machine.sends_body(id);
        if !is_whole || is_tunnel {
            self.write(id, Chunk::from(""));
        }
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
        if matches!(state.exchange.receiving.body, BodyState::Unwanted)
            && let Err(error) = self.discard_arrived(id)
        {
            self.fail(error);
        }
    }

    fn may_wait_for_client(&mut self, id: StreamId) -> bool {
        self.stream(id)
            .is_some_and(|state| state.sending.queued > 0)
    }

    fn poll_client_gone(&mut self, _: StreamId, _: &mut Context<'_>) -> Poll<()> {
        // The endpoint's task notices it.
        Poll::Pending
    }
}
