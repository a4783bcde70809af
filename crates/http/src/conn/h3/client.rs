//! A connection of HTTP/3 to a server.

use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use blitz_proto::h3::{self, Code, Event, Received, StreamId};
use blitz_proto::{BodyLength, Error, ErrorKind, Limits, Method, RequestHead};
use blitz_quic::Connection;
use blitz_quic::quinn_proto::{self, ConnectionError, Dir};
use blitz_reactor::Chunk;

use super::driver::{Conn, Driver, RequestStream, Shared, id_of};
use super::protocol::Http3;
use super::role::Role;
use crate::conn::Protocol;
use crate::conn::streams::response::{self, Requesting};
use crate::conn::streams::room::usual_room;
use crate::conn::streams::stream::{ResetReason, Stream};
use crate::counters::count;
use crate::error::ClientError;
use crate::exchange::{
    Carrier, ClientFraming, ClientSide, ExchangeId, Link, MessageState, OpenCarrier, ReceivedHead,
    note, wake,
};
use crate::options::ClientOptions;
use crate::tls::{TlsInfo, failure_with_server, log_upstream_failure, server_name};
use crate::waiters::Waiters;

/// Streams that are opened ahead of their requests.
const OPENED_AHEAD_MAX: usize = 128;

/// The state of a connection to a server that connections of clients do not have.
pub(crate) struct ClientRole {
    tls: Option<Rc<TlsInfo>>,
    /// Tasks that wait to begin a request.
    waiters: Rc<Waiters>,
    /// Streams for the next requests. The server learns of a stream when something is sent on it. Opening streams is
    /// the only way to learn from the library how many streams the server allows.
    opened: VecDeque<quinn_proto::StreamId>,
    /// Requests that are about to begin.
    reserved: usize,
    /// It has carried a request.
    is_used: bool,
    /// No more requests begin.
    is_retired: bool,
    /// Waits for the server's SETTINGS.
    settling: Option<Waker>,
}

impl Conn<ClientRole> {
    /// Tasks that wait to begin a request.
    pub(crate) fn waiters(&self) -> Rc<Waiters> {
        Rc::clone(&self.driver.borrow().role.waiters)
    }

    /// The result of the TLS handshake.
    pub(crate) fn info(&self) -> Option<Rc<TlsInfo>> {
        self.driver.borrow().role.tls.clone()
    }
}

impl Driver<ClientRole> {
    /// Opens streams ahead, as far as the server allows.
    fn open_ahead(&mut self) {
        let opened = &mut self.role.opened;
        if let Some(quic) = &self.quic
            && opened.len() < OPENED_AHEAD_MAX
        {
            quic.look(|quic| {
                while opened.len() < OPENED_AHEAD_MAX
                    && let Some(stream) = quic.streams().open(Dir::Bi)
                {
                    opened.push_back(stream);
                }
            });
        }
    }

    fn requests_available(&mut self) -> usize {
        if self.quic.is_none() || !self.machine.may_request() || self.role.is_retired {
            return 0;
        }
        if self.role.opened.len() <= self.role.reserved {
            self.open_ahead();
        }
        self.role.opened.len().saturating_sub(self.role.reserved)
    }

    /// Sends the head of a request whose stream was reserved. Returns whether content follows.
    fn start_request(
        &mut self,
        head: &RequestHead,
        length: BodyLength,
    ) -> Result<(ExchangeId, bool), ClientError> {
        self.role.reserved -= 1;
        if self.quic.is_none() || !self.machine.may_request() {
            return Err(ClientError::Unprocessed);
        }
        if !self.machine.accepts_size(head) {
            return Err(ClientError::HeadTooLarge);
        }
        let Some(stream) = self.role.opened.pop_front() else {
            return Err(ClientError::Unprocessed);
        };
        let id = id_of(stream);
        let ends = self.machine.send_request(id, head, length, &mut self.out);
        let mut state = self.shared.spare.take();
        let is_reused = std::mem::replace(&mut self.role.is_used, true);
        state.begin_request(head, !ends, is_reused);
        self.streams.insert(id, RequestStream::new(state));
        self.idle_since = None;
        if ends {
            self.end_after(id);
        }
        // The endpoint sends it together with what follows in this turn.
        self.write(id, Chunk::from(""));
        let has_sender = !ends && head.method != Method::Connect;
        Ok((id.into(), has_sender))
    }
}

impl Role for ClientRole {
    type Options = ClientOptions;
    type Shared = ();
    type Side = ClientSide;
    const SHRINKS_WHEN_IDLE: bool = false;

    fn limits(options: &ClientOptions) -> &Limits {
        &options.limits
    }

    fn connected(
        shared: &Rc<Shared<ClientRole>>,
        quic: &Rc<Connection<Http3<ClientRole>>>,
    ) -> Rc<Conn<ClientRole>> {
        let tls = quic
            .look(|quic| quic.crypto_session().handshake_data())
            .flatten()
            .and_then(|data| data.downcast::<Rc<TlsInfo>>().ok())
            .map(|tls| *tls);
        count(|counters| {
            counters.tls.upstream_handshakes += 1;
            let is_resumed = tls.as_ref().is_some_and(|tls| tls.is_resumed);
            counters.tls.upstream_resumed += u64::from(is_resumed);
        });
        let role = ClientRole {
            tls,
            waiters: Rc::default(),
            opened: VecDeque::new(),
            reserved: 0,
            is_used: false,
            is_retired: false,
            settling: None,
        };
        let machine = h3::Connection::client(shared.limits());
        Conn::new(machine, role, quic, shared)
    }

    fn handshake_failed(
        _: &Shared<ClientRole>,
        quic: &Rc<Connection<Http3<ClientRole>>>,
        reason: &ConnectionError,
    ) {
        let session = quic.look(|quic| {
            let session = quic.crypto_session();
            (failure_with_server(session, reason), server_name(session))
        });
        let Some((error, name)) = session else { return };
        count(|counters| counters.tls.count_failure(false, error.rule()));
        log_upstream_failure(Some(quic.remote()), name.as_deref(), error, reason);
    }

    /// RFC 9114, section 6.1: "Clients MUST treat receipt of a server-initiated bidirectional stream as a connection
    /// error of type H3_STREAM_CREATION_ERROR". The machine finds that at its first byte.
    fn opened(driver: &mut Driver<ClientRole>, id: StreamId) -> Result<(), Error> {
        let now = driver.shared.now();
        let shared = Rc::clone(&driver.shared);
        let received = &mut *shared.received.borrow_mut();
        let read = driver.machine.handle_input(id, &[], false, now, received);
        read.map(drop)
    }

    fn streams_available(driver: &mut Driver<ClientRole>) {
        if driver.requests_available() > 0 {
            driver.role.waiters.wake_one();
        }
    }

    fn head_arrived(
        driver: &mut Driver<ClientRole>,
        id: StreamId,
        received: &mut Received,
        length: BodyLength,
        has_ended: bool,
    ) {
        let Some(stream) = driver.streams.get_mut(&id) else {
            return;
        };
        stream.awaits_head = received.response.status.is_informational();
        stream
            .state
            .push_head(&mut received.response, length, has_ended);
    }

    fn beside_read(driver: &mut Driver<ClientRole>) {
        if driver.machine.settings_received() {
            wake(&mut driver.role.settling);
        }
    }

    /// The requests from this stream on may be sent again, on another connection (RFC 9114, section 5.2).
    fn go_away(driver: &mut Driver<ClientRole>, from: StreamId) {
        let streams = driver.streams.keys().copied();
        let refused: Vec<StreamId> = streams.filter(|id| *id >= from).collect();
        for id in refused {
            driver.lose(id, &ResetReason::Refused, Code::REQUEST_CANCELLED);
        }
        driver.role.waiters.wake_all();
        wake(&mut driver.role.settling);
        driver.settle_soon();
    }

    /// The server sends its response without the rest of the request (RFC 9114, section 4.1). RFC 9000, section 3.5: a
    /// reset with the same code follows, unless all was sent.
    fn stopped(driver: &mut Driver<ClientRole>, id: StreamId, code: Code, _: Option<Event>) {
        let Some(stream) = driver.streams.get_mut(&id) else {
            return driver.reset_sending(id, code);
        };
        let state = &mut stream.state;
        let unsent = std::mem::take(&mut state.sending.queued);
        state.sending.queue.clear();
        if state.exchange.message == MessageState::Open {
            state.exchange.message = MessageState::Cut;
        }
        wake(&mut state.sending.writer);
        stream.is_finished = true;
        driver.schedule.remove(id);
        driver.note_unsent(unsent);
        driver.reset_sending(id, code);
        response::settle(driver, id);
    }

    fn has_handles(_: &RequestStream) -> bool {
        true
    }

    fn loss(_: &Driver<ClientRole>, _: StreamId, error: Error, code: Code) -> (ResetReason, Code) {
        match error.kind() {
            // The server does not need the rest of the request.
            ErrorKind::PeerReset => (ResetReason::Reset, Code::REQUEST_CANCELLED),
            ErrorKind::PeerRefused => (ResetReason::Refused, Code::REQUEST_CANCELLED),
            _ => (ResetReason::Malformed(error), code),
        }
    }

    /// Only the stream counts, since requests must not wait for those whose content the server does not read.
    fn room(driver: &Driver<ClientRole>) -> Option<usize> {
        Some(usual_room(blitz_reactor::fair_share(), driver.limits()))
    }

    fn is_over(driver: &mut Driver<ClientRole>) -> bool {
        driver.role.is_retired || driver.machine.is_drained()
    }

    fn retire_idle(driver: &mut Driver<ClientRole>) {
        Self::note_end(driver, "idle-memory");
        driver.role.is_retired = true;
        driver.settle_soon();
    }

    fn note_end(driver: &Driver<ClientRole>, rule: &'static str) {
        let server = driver.quic.as_ref().map(|quic| quic.remote());
        let server = server.map(tracing::field::display);
        tracing::debug!(cause = rule, server, "upstream connection ended");
    }

    fn reason_of(error: Error) -> ResetReason {
        ResetReason::Malformed(error)
    }

    fn left(driver: &mut Driver<ClientRole>) {
        driver.role.waiters.wake_all();
        wake(&mut driver.role.settling);
    }
}

impl Carrier for Conn<ClientRole> {
    fn start_request(
        &self,
        head: &RequestHead,
        length: BodyLength,
    ) -> Result<(ExchangeId, bool), ClientError> {
        self.with(|driver| driver.start_request(head, length))
    }

    fn return_unused(self: Rc<Self>) {
        self.with(|driver| {
            driver.role.reserved -= 1;
            driver.role.waiters.wake_one();
        });
    }

    fn protocol(&self) -> Protocol {
        Protocol::Http3
    }

    fn tls(&self) -> Option<Rc<TlsInfo>> {
        self.info()
    }

    /// Whether the server supports extended CONNECT (RFC 9220), once its SETTINGS were received. For one caller at a
    /// time.
    fn poll_takes_websocket(&self, cx: &mut Context<'_>) -> Poll<Result<bool, ClientError>> {
        let mut driver = self.driver.borrow_mut();
        if driver.machine.settings_received() {
            return Poll::Ready(Ok(driver.machine.accepts_connect_protocol()));
        }
        if driver.quic.is_none() || !driver.machine.may_request() {
            return Poll::Ready(Err(ClientError::Unprocessed));
        }
        note(&mut driver.role.settling, cx);
        Poll::Pending
    }
}

impl OpenCarrier for Conn<ClientRole> {
    fn requests_available(&self) -> usize {
        self.with(Driver::requests_available)
    }

    fn reserve(&self) -> bool {
        self.with(|driver| {
            let is_available = driver.requests_available() > 0;
            driver.role.reserved += usize::from(is_available);
            is_available
        })
    }

    fn is_open(&self) -> bool {
        let driver = self.driver.borrow();
        driver.quic.is_some() && driver.machine.may_request() && !driver.role.is_retired
    }

    fn close(&self) {
        self.with(|driver| driver.close(Code::NO_ERROR));
    }

    fn retire(&self) {
        self.with(|driver| {
            driver.role.is_retired = true;
            driver.settle_soon();
        });
    }
}

impl ClientFraming for Driver<ClientRole> {
    fn options(&self) -> &ClientOptions {
        &self.shared.options
    }

    fn wait_start(&mut self, id: StreamId) -> Option<Instant> {
        self.stream(id)?.response.wait_start
    }

    fn poll_head(
        &mut self,
        id: StreamId,
        cx: &mut Context<'_>,
    ) -> Poll<Result<ReceivedHead, ClientError>> {
        response::poll_head(self, id, cx)
    }

    fn awaits_content(&mut self, id: StreamId) -> bool {
        response::awaits_content(self, id)
    }

    fn has_response(&mut self, id: StreamId) -> bool {
        response::has_response(self, id)
    }

    fn settle(&mut self, id: StreamId) {
        response::settle(self, id);
    }

    fn response_taken(&mut self, id: StreamId) {
        response::response_taken(self, id);
    }

    fn cancel(&mut self, id: StreamId) {
        self.reset(id, Code::REQUEST_CANCELLED);
    }

    /// RFC 9114, section 4.1.1: "Clients SHOULD use the error code H3_REQUEST_CANCELLED to cancel requests."
    fn abandon(&mut self, id: StreamId) {
        self.close_stream(id, Some(Code::REQUEST_CANCELLED));
        self.settle_soon();
    }
}

impl Requesting for Driver<ClientRole> {
    fn request(&mut self, id: StreamId) -> Option<&mut Stream> {
        self.stream(id)
    }

    fn close_request(&mut self, id: StreamId) {
        let is_read = self.stream(id).is_some_and(|state| state.response.is_read);
        let code = (!is_read).then_some(Code::REQUEST_CANCELLED);
        self.close_stream(id, code);
        // A connection that is retired, or drained, ends with its last stream.
        if self.streams.is_empty() && (self.role.is_retired || !self.machine.may_request()) {
            self.settle_soon();
        }
    }
}
