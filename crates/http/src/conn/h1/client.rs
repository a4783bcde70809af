//! A connection of HTTP/1.1 to a server, and its return to the pool or its owner (rule 11).

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use blitz_proto::h1;
use blitz_proto::{
    BodyLength, Error, ErrorKind, Fields, Limits, RequestHead, ResponseHead, Status,
};

use super::driver::{Driver, InputStep, Role};
use crate::conn::Protocol;
use crate::counters::count;
use crate::error::ClientError;
use crate::exchange::{
    Carrier, ClientFraming, ClientSide, ExchangeId, Framing, Link, MessageState, OpenCarrier,
    ReceivedHead, ReceivedKind, complete_message, wake,
};
use crate::free_list::FreeList;
use crate::lifetime::IdleLimit;
use crate::options::ClientOptions;
use crate::pool::Lease;
use crate::recycle::Pooled;
use crate::tls::TlsInfo;
use crate::transport::Transport;
use crate::waiters::Waiters;

/// One connection that carries a request, or is about to.
pub(crate) struct ClientConn {
    driver: RefCell<Driver<ClientRole>>,
    /// Where the connection returns to, until it does or is lost.
    owner: Cell<ConnectionOwner>,
    /// Where this state waits for another connection.
    home: Weak<FreeList<ClientConn>>,
}

pub(crate) struct ClientRole {
    pub(super) machine: h1::Client,
    /// Filled by the machine until the head is complete.
    pub(super) head: Option<Pooled<ResponseHead>>,
    options: Rc<ClientOptions>,
    /// It has carried a request before this one.
    is_reused: bool,
    /// Some of the response was received.
    is_heard: bool,
    /// When the wait for the final head began: with the request or the last 102.
    wait_start: Option<Instant>,
    /// The start of the machine's time.
    clock_start: Option<Instant>,
    /// How the connection ended, until that is passed to its lease.
    end: Option<KeepAlive>,
}

/// The owner, which takes a connection back after its exchange.
#[derive(Default)]
enum ConnectionOwner {
    /// Nothing: it closes.
    #[default]
    None,
    Pool(Lease),
    /// Its own handles: it stays as it is. These tasks wait for it.
    Handles(Rc<Waiters>),
}

/// Whether a connection is kept after its exchange.
enum KeepAlive {
    /// Another request may use it, within the time that the server keeps it open.
    Reusable(Transport, IdleLimit),
    Closed,
}

impl ClientConn {
    /// The state for a connection that is about to carry a request.
    #[inline]
    pub(crate) fn new(
        socket: Transport,
        options: &Rc<ClientOptions>,
        lease: Option<Lease>,
        is_reused: bool,
        free: Option<&Rc<FreeList<ClientConn>>>,
    ) -> Rc<ClientConn> {
        let conn = match free.and_then(|free| free.take()) {
            Some(conn) => conn,
            None => ClientConn::allocate(options, free),
        };
        conn.owner
            .set(lease.map_or(ConnectionOwner::None, ConnectionOwner::Pool));
        let mut driver = conn.driver.borrow_mut();
        driver.socket = Some(socket);
        driver.role.is_reused = is_reused;
        drop(driver);
        conn
    }

    /// The state of a connection that its handles keep between requests.
    pub(crate) fn kept(
        socket: Transport,
        options: &Rc<ClientOptions>,
        waiters: &Rc<Waiters>,
    ) -> Rc<ClientConn> {
        let conn = ClientConn::new(socket, options, None, false, None);
        conn.owner.set(ConnectionOwner::Handles(Rc::clone(waiters)));
        conn
    }

    #[cold]
    fn allocate(
        options: &Rc<ClientOptions>,
        free: Option<&Rc<FreeList<ClientConn>>>,
    ) -> Rc<ClientConn> {
        let role = ClientRole::new(Rc::clone(options));
        Rc::new(ClientConn {
            driver: RefCell::new(Driver::new(None, role)),
            owner: Cell::default(),
            home: free.map_or_else(Weak::new, Rc::downgrade),
        })
    }

    fn clear(&self) {
        let mut driver = self.driver.borrow_mut();
        driver.clear();
        driver.role.clear();
    }

    /// Whether the owner of the connection decides which requests it carries.
    fn has_handles(&self) -> bool {
        let owner = self.owner.take();
        let has_handles = matches!(owner, ConnectionOwner::Handles(_));
        self.owner.set(owner);
        has_handles
    }

    /// Tells the owner what became of the connection.
    fn end_exchange(&self, end: KeepAlive) {
        match (self.owner.take(), end) {
            (ConnectionOwner::Pool(lease), KeepAlive::Reusable(transport, idle_limit)) => {
                lease.put_back(transport, idle_limit);
            }
            (ConnectionOwner::Pool(lease), KeepAlive::Closed) => {
                lease.end();
                count(|counters| counters.upstream_not_reused += 1);
            }
            (ConnectionOwner::Handles(waiters), KeepAlive::Reusable(transport, _)) => {
                self.driver.borrow_mut().begin_again(transport);
                waiters.wake_one();
                self.owner.set(ConnectionOwner::Handles(waiters));
            }
            (ConnectionOwner::Handles(waiters), KeepAlive::Closed) => waiters.wake_all(),
            (ConnectionOwner::None, _) => {}
        }
    }
}

impl Link for ClientConn {
    type Framing = Driver<ClientRole>;

    #[inline]
    fn with<T>(&self, act: impl FnOnce(&mut Driver<ClientRole>) -> T) -> T {
        let mut driver = self.driver.borrow_mut();
        let done = act(&mut driver);
        driver.flush();
        let end = driver.role.end.take();
        drop(driver);
        if let Some(end) = end {
            self.end_exchange(end);
        }
        done
    }

    #[inline]
    fn look<T>(&self, act: impl FnOnce(&mut Driver<ClientRole>) -> T) -> T {
        act(&mut self.driver.borrow_mut())
    }

    fn recycle(self: Rc<Self>) {
        if let Some(home) = self.home.upgrade() {
            home.put(self, ClientConn::clear);
        }
    }
}

impl Carrier for ClientConn {
    fn start_request(
        &self,
        head: &RequestHead,
        length: BodyLength,
    ) -> Result<(ExchangeId, bool), ClientError> {
        let has_content = matches!(length, BodyLength::Known(1..) | BodyLength::Unknown);
        if has_content && !head.defines_content() && !self.has_handles() {
            // The server may leave the content unread and take it for a request: it is asked to close the
            // connection, and no other request uses it (rule 11).
            self.look(|driver| driver.role.machine.drain());
        }
        Ok(self.with(|driver| driver.start_request(head, length)))
    }

    fn return_unused(self: Rc<Self>) {
        let socket = self.driver.borrow_mut().socket.take();
        if let Some(socket) = socket {
            self.end_exchange(KeepAlive::Reusable(socket, IdleLimit::Unchanged));
        }
        Link::recycle(self);
    }

    fn protocol(&self) -> Protocol {
        Protocol::Http1
    }

    fn tls(&self) -> Option<Rc<TlsInfo>> {
        let driver = self.driver.borrow();
        driver.socket.as_ref().and_then(Transport::info).cloned()
    }

    fn poll_takes_websocket(&self, _: &mut Context<'_>) -> Poll<Result<bool, ClientError>> {
        Poll::Ready(Ok(true))
    }
}

impl OpenCarrier for ClientConn {
    fn requests_available(&self) -> usize {
        usize::from(self.with(Driver::is_ready))
    }

    fn reserve(&self) -> bool {
        self.with(Driver::is_ready)
    }

    fn is_open(&self) -> bool {
        self.with(|driver| driver.is_ready() || driver.socket.is_some())
    }

    fn close(&self) {
        self.with(|driver| {
            driver.finish_idle();
            driver.close();
        });
    }

    fn retire(&self) {
        self.owner.set(ConnectionOwner::None);
        self.driver.borrow_mut().finish_idle();
    }
}

impl ClientRole {
    pub(super) fn new(options: Rc<ClientOptions>) -> ClientRole {
        ClientRole {
            machine: h1::Client::new(&options.limits),
            head: None,
            options,
            is_reused: false,
            is_heard: false,
            wait_start: None,
            clock_start: None,
            end: None,
        }
    }

    /// Ready for another connection with the same options.
    fn clear(&mut self) {
        if !self.machine.reusable() {
            self.machine = h1::Client::new(&self.options.limits);
        }
        self.is_heard = false;
        self.end = None;
    }
}

impl Role for ClientRole {
    type Side = ClientSide;

    #[inline]
    fn limits(&self) -> &Limits {
        &self.options.limits
    }

    #[inline]
    fn usual_window(&self) -> usize {
        self.options.limits.stream_buffer_bytes_max
    }

    #[inline]
    fn handle_input(&mut self, bytes: &[u8], trailers: &mut Fields) -> Result<h1::Step, Error> {
        let head = self.head.get_or_insert_with(Pooled::<ResponseHead>::take);
        self.machine.handle_input(bytes, head, trailers)
    }

    fn ends_with_fin(&mut self) -> bool {
        matches!(self.machine.handle_eof(), Ok(h1::Event::End))
    }

    fn send_data_prefix(&mut self, len: usize, out: &mut Vec<u8>) -> Result<(), Error> {
        self.machine.send_data_prefix(len, out)
    }

    fn send_data_suffix(&mut self, out: &mut Vec<u8>) {
        self.machine.send_data_suffix(out);
    }

    fn send_end(&mut self, trailers: Option<&Fields>, out: &mut Vec<u8>) -> Result<(), Error> {
        self.machine.send_end(trailers, out)
    }

    fn has_content_to_send(&self) -> bool {
        !self.machine.request_done()
    }

    fn content_left(&self) -> Option<u64> {
        self.machine.content_left()
    }

    fn is_message_sent(&self) -> bool {
        self.machine.request_done()
    }

    fn body_failed(driver: &mut Driver<ClientRole>) {
        driver.close();
    }

    /// The server may have sent a response before it closed, so the reader decides.
    fn send_failed(driver: &mut Driver<ClientRole>) {
        driver.exchange.message = MessageState::Cut;
    }
}

impl ClientFraming for Driver<ClientRole> {
    fn options(&self) -> &ClientOptions {
        &self.role.options
    }

    fn wait_start(&mut self, _: u64) -> Option<Instant> {
        self.role.wait_start
    }

    fn poll_head(
        &mut self,
        _: u64,
        cx: &mut Context<'_>,
    ) -> Poll<Result<ReceivedHead, ClientError>> {
        if self.socket.is_none() {
            return Poll::Ready(Err(ClientError::Cancelled));
        }
        loop {
            match self.step() {
                Ok(InputStep::Head(length)) => return Poll::Ready(self.begin_response(length)),
                Ok(InputStep::NeedMore | InputStep::Paused) => {}
                Ok(InputStep::Data(_) | InputStep::Trailers | InputStep::End) => {
                    self.close();
                    return Poll::Ready(Err(ClientError::Truncated));
                }
                Err(error) => {
                    self.close();
                    return Poll::Ready(Err(ClientError::Malformed(error)));
                }
            }
            match self.poll_receive(cx) {
                Poll::Ready(Ok(true)) if self.responds_too_early() => {
                    let reused = self.role.is_reused;
                    self.close();
                    return Poll::Ready(Err(ClientError::Reset { reused }));
                }
                Poll::Ready(Ok(true)) => self.role.is_heard = true,
                Poll::Ready(ended) => {
                    let error = self.response_ended(ended.is_err());
                    self.close();
                    return Poll::Ready(Err(error));
                }
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    fn is_heard(&mut self, _: u64) -> bool {
        self.role.is_heard
    }

    fn awaits_content(&mut self, _: u64) -> bool {
        !self.role.machine.request_done()
    }

    fn has_response(&mut self, _: u64) -> bool {
        self.role.machine.response_started()
    }

    /// Both messages may be complete: then another request may use the connection, or it closes.
    ///
    /// This is rule 11: the response was complete and delimited itself, the request was sent to its last
    /// byte, nothing more has arrived, and both sides keep the connection alive.
    #[inline]
    fn settle(&mut self, _: u64) {
        if !self.exchange.receiving.is_complete() {
            return;
        }
        self.flush();
        if self.exchange.is_tunnel {
            return self.settle_tunnel();
        }
        let is_clean = self.exchange.message == MessageState::Done
            && self.role.machine.reusable()
            && self.input.is_empty()
            && !self.has_fin();
        if !is_clean && self.has_surplus() {
            count(|counters| counters.upstream_unexpected_bytes += 1);
        }
        match self
            .socket
            .take_if(|socket| is_clean && socket.is_untouched())
        {
            Some(socket) => {
                let announced_s = self.role.machine.keep_alive_timeout_s();
                let limit = announced_s.map_or(IdleLimit::Unknown, IdleLimit::Seconds);
                self.role.end = Some(KeepAlive::Reusable(socket, limit));
            }
            None => self.close(),
        }
    }

    fn response_taken(&mut self, id: u64) {
        self.settle(id);
    }

    fn cancel(&mut self, _: u64) {
        self.close();
    }

    fn abandon(&mut self, _: u64) {
        self.close();
    }
}

impl Driver<ClientRole> {
    /// Sends the head of a request; whether content follows.
    fn start_request(&mut self, head: &RequestHead, length: BodyLength) -> (ExchangeId, bool) {
        self.role.wait_start = Some(blitz_reactor::now());
        let (role, out) = self.parts();
        role.machine.send_request(head, length, out);
        self.exchange.message = MessageState::Open;
        if let Some(socket) = &mut self.socket {
            socket.expect_to_send_first();
        }
        self.exchange.begin_body(BodyLength::Unknown);
        // No trailers can follow content with a length.
        let has_content = match length {
            BodyLength::Empty | BodyLength::Known(0) | BodyLength::NothingButTrailers => false,
            BodyLength::Known(_) | BodyLength::Unknown => true,
        };
        let id = self.number;
        if !has_content {
            let ended = self.send_end(id, None);
            debug_assert!(ended.is_ok(), "no content was due");
            complete_message(self, id);
        }
        (ExchangeId(id), has_content)
    }

    /// Whether another request may begin. An idle connection that has ended, or has received something, is closed:
    /// whatever that is, it would not be the response to the next request (rule 11).
    fn is_ready(&mut self) -> bool {
        if self.exchange.message != MessageState::Due {
            return false;
        }
        let Some(socket) = &mut self.socket else {
            return false;
        };
        let mut cx = Context::from_waker(Waker::noop());
        let is_quiet = socket.poll_recv(&mut cx).is_pending();
        if !is_quiet {
            self.close();
        }
        is_quiet
    }

    /// Whether more has come than the response.
    fn has_surplus(&mut self) -> bool {
        let machine = &self.role.machine;
        let is_over = machine.request_done() && machine.response_done();
        let has_unread = |socket: &mut Transport| socket.unread_bytes() > 0;
        is_over
            && self
                .socket
                .as_mut()
                .is_some_and(|socket| !self.input.is_empty() || has_unread(socket))
    }

    /// Closes an idle connection gracefully.
    fn finish_idle(&mut self) {
        if self.exchange.message == MessageState::Due
            && let Some(socket) = self.socket.take()
        {
            socket.finish();
        }
    }

    /// Ready for the next exchange. Handles of the last one have no effect any more.
    fn begin_again(&mut self, socket: Transport) {
        self.socket = Some(socket);
        self.detach_handles();
        self.exchange.clear();
        self.trailers.clear();
        self.role.is_heard = false;
        self.role.is_reused = true;
    }

    /// Whether bytes came before the request had begun to leave: whatever they are, they are not
    /// its response, and may be the response to another request (rule 11).
    fn responds_too_early(&self) -> bool {
        let is_first = !self.role.is_heard;
        let too_early = |socket: &Transport| is_first && socket.has_received_first();
        self.socket.as_ref().is_some_and(too_early)
    }

    /// Takes the head from the machine and sets the body up.
    fn begin_response(&mut self, length: BodyLength) -> Result<ReceivedHead, ClientError> {
        self.exchange.receiving.pace.declare(length);
        let Some(head) = self.role.head.take() else {
            unreachable!("the machine has just filled it")
        };
        let machine = &self.role.machine;
        let kind = if machine.is_tunnel() {
            self.exchange.is_tunnel = true;
            self.exchange.message = MessageState::Open;
            ReceivedKind::Tunnel
        } else if !machine.response_started() {
            self.informational_arrived()?;
            if head.status == Status::PROCESSING {
                // The wait begins again (RFC 2518, section 10.1). The rate of interim responses is limited.
                self.role.wait_start = Some(blitz_reactor::now());
            }
            ReceivedKind::Informational
        } else if machine.response_ends_with_head() {
            self.end_empty_response()?
        } else {
            ReceivedKind::Content
        };
        Ok(ReceivedHead { head, length, kind })
    }

    /// Informational responses have a rate (see [`Limits::informational_max`]).
    fn informational_arrived(&mut self) -> Result<(), ClientError> {
        let now = blitz_reactor::now();
        let since = *self.role.clock_start.get_or_insert(now);
        let now = now.saturating_duration_since(since);
        self.role
            .machine
            .informational_arrived(now)
            .map_err(|error| {
                self.close();
                ClientError::Malformed(error)
            })
    }

    /// Takes the end of a response without content at once, so that the connection is free.
    fn end_empty_response(&mut self) -> Result<ReceivedKind, ClientError> {
        match self.step() {
            Ok(InputStep::End) => {
                self.end_body();
                self.settle(self.number);
                Ok(ReceivedKind::Complete)
            }
            Ok(_) => Ok(ReceivedKind::Content),
            Err(error) => {
                self.close();
                Err(ClientError::Malformed(error))
            }
        }
    }

    /// The error when the connection ended instead of a response head.
    fn response_ended(&mut self, is_reset: bool) -> ClientError {
        if let Some(error) = self.socket.as_ref().and_then(Transport::failure) {
            return ClientError::Tls(error);
        }
        if self.role.machine.has_only_interim() {
            return ClientError::OnlyInterim;
        }
        if !self.role.is_heard
            && self
                .socket
                .as_ref()
                .is_some_and(Transport::has_sent_nothing)
        {
            return ClientError::Unprocessed;
        }
        let reused = self.role.is_reused;
        if is_reset {
            return match self.role.is_heard {
                true => ClientError::Truncated,
                false => ClientError::Reset { reused },
            };
        }
        match self.role.machine.handle_eof() {
            Err(error) if error.kind() == ErrorKind::ClosedBeforeResponse => {
                ClientError::Reset { reused }
            }
            _ => ClientError::Truncated,
        }
    }

    /// A tunnel is over after FIN in both directions.
    fn settle_tunnel(&mut self) {
        if self.exchange.message == MessageState::Open {
            return;
        }
        if let Some(socket) = self.socket.take() {
            socket.finish();
        }
        self.close();
    }

    /// Closes the connection; handles that are left find it gone.
    fn close(&mut self) {
        self.flush();
        self.socket = None;
        if self.exchange.message == MessageState::Open {
            self.exchange.message = MessageState::Cut;
        }
        wake(&mut self.exchange.receiving.reader);
        self.role.end.get_or_insert(KeepAlive::Closed);
    }
}
