//! The client's side of a connection: asking, and giving the connection back (rule 11).

use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Instant;

use blitz_proto::h1;
use blitz_proto::{BodyLength, ErrorKind, RequestHead, ResponseHead};

use super::outbound::Message;
use super::wire::{Got, Side, State, Wire};
use crate::body::{RecvBody, SendBody};
use crate::client::{ClientOptions, Response, ResponseEvent};
use crate::counters::count;
use crate::error::ClientError;
use crate::pool::{Lease, Upstream};
use crate::recycle::Pooled;
use crate::transport::Transport;

pub(super) struct ClientSide {
    pub(super) machine: h1::Client,
    /// Filled by the machine until the head is complete.
    pub(super) head: Option<Pooled<ResponseHead>>,
    pub(super) options: Rc<ClientOptions>,
    /// Where the connection returns to, until it does or is lost.
    lease: Option<Lease>,
    /// Whose shelf this state belongs on; kept only while in use.
    pub(super) home: Option<Upstream>,
    /// It has carried a request before this one.
    reused: bool,
    /// Some of the response was received.
    heard: bool,
    /// When the request was begun.
    since: Option<Instant>,
}

impl ClientSide {
    pub(super) fn new(
        options: Rc<ClientOptions>,
        lease: Option<Lease>,
        reused: bool,
    ) -> ClientSide {
        ClientSide {
            machine: h1::Client::new(&options.limits),
            head: None,
            options,
            home: lease.as_ref().map(|lease| lease.upstream().clone()),
            lease,
            reused,
            heard: false,
            since: None,
        }
    }

    /// Ready for another connection with the same options.
    pub(super) fn clear(&mut self) {
        if !self.machine.reusable() {
            self.machine = h1::Client::new(&self.options.limits);
        }
        self.lease = None;
        self.home = None;
        self.heard = false;
    }
}

impl Wire {
    /// The state for a connection that is about to carry a request.
    pub(crate) fn client(
        socket: Transport,
        options: Rc<ClientOptions>,
        lease: Option<Lease>,
        reused: bool,
    ) -> Rc<Wire> {
        if let Some(wire) = lease
            .as_ref()
            .and_then(|lease| lease.upstream().shelf().take())
        {
            let mut state = wire.state.borrow_mut();
            state.socket = Some(socket);
            let side = state.side.client();
            side.home = lease.as_ref().map(|lease| lease.upstream().clone());
            side.lease = lease;
            side.reused = reused;
            drop(state);
            return wire;
        }
        Wire::new_client(socket, options, lease, reused)
    }

    #[cold]
    fn new_client(
        socket: Transport,
        options: Rc<ClientOptions>,
        lease: Option<Lease>,
        reused: bool,
    ) -> Rc<Wire> {
        let side = ClientSide::new(options, lease, reused);
        Wire::new(socket, Side::Client(side))
    }

    /// Sends the head of a request.
    pub(crate) fn start_request(
        wire: &Rc<Wire>,
        head: &RequestHead,
        length: BodyLength,
    ) -> (SendBody, u32) {
        let mut state = wire.state.borrow_mut();
        let exchange = state.exchange;
        let State { side, outbound, .. } = &mut *state;
        let side = side.client();
        side.since = Some(blitz_reactor::now());
        side.machine.send_request(head, length, outbound.buffer());
        outbound.message = Message::Open;
        if let Some(socket) = &mut state.socket {
            socket.expect_to_send_first();
        }
        state.inbound.begin_body(BodyLength::Unknown);
        // Trailers have no place behind a length.
        let has_content = match length {
            BodyLength::Empty | BodyLength::Known(0) | BodyLength::NothingButTrailers => false,
            BodyLength::Known(_) | BodyLength::Unknown => true,
        };
        if !has_content {
            state.finish_empty_request();
            return (SendBody::done(), exchange);
        }
        state.flush();
        drop(state);
        (SendBody::h1(Rc::clone(wire), exchange), exchange)
    }

    /// The next response head.
    pub(crate) fn poll_response(
        wire: &Rc<Wire>,
        exchange: u32,
        cx: &mut Context<'_>,
    ) -> Poll<Result<ResponseEvent, ClientError>> {
        let polled = wire.in_exchange(exchange, |state| state.poll_response_head(cx));
        let (head, length) = match polled {
            None => return Poll::Ready(Err(ClientError::Cancelled)),
            Some(Poll::Pending) => return Poll::Pending,
            Some(Poll::Ready(Err(error))) => return Poll::Ready(Err(error)),
            Some(Poll::Ready(Ok(arrived))) => arrived,
        };
        let state = wire.state.borrow();
        if !state.is_tunnel && head.status.is_informational() {
            return Poll::Ready(Ok(ResponseEvent::Informational(head)));
        }
        let body = if state.inbound.is_body_complete() {
            RecvBody::done(length)
        } else {
            RecvBody::h1(Rc::clone(wire), exchange, length)
        };
        let upgraded = state
            .is_tunnel
            .then(|| SendBody::h1(Rc::clone(wire), exchange));
        Poll::Ready(Ok(ResponseEvent::Final(Response {
            head,
            body,
            upgraded,
        })))
    }

    /// Nobody wants the response.
    pub(crate) fn drop_response_stream(&self, exchange: u32) {
        self.in_exchange(exchange, State::close_client);
    }
}

impl State {
    fn finish_empty_request(&mut self) {
        let State { side, outbound, .. } = self;
        let machine = side.client_machine();
        if !machine.request_done() {
            let ended = machine.send_end(None, outbound.buffer());
            debug_assert!(ended.is_ok(), "no content was due");
        }
        self.end_message();
    }

    fn poll_response_head(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(Pooled<ResponseHead>, BodyLength), ClientError>> {
        if self.socket.is_none() {
            return Poll::Ready(Err(ClientError::Cancelled));
        }
        loop {
            match self.step() {
                Ok(Got::Head(length)) => return Poll::Ready(self.begin_response(length)),
                Ok(Got::NeedMore | Got::Paused) => {}
                Ok(Got::Data(_) | Got::Trailers | Got::End) => {
                    self.close_client();
                    return Poll::Ready(Err(ClientError::Truncated));
                }
                Err(error) => {
                    self.close_client();
                    return Poll::Ready(Err(ClientError::Malformed(error)));
                }
            }
            match self.poll_receive(cx) {
                Poll::Ready(Ok(true)) if self.answers_too_early() => {
                    let reused = self.side.client().reused;
                    self.close_client();
                    return Poll::Ready(Err(ClientError::Reset { reused }));
                }
                Poll::Ready(Ok(true)) => self.side.client().heard = true,
                Poll::Ready(ended) => {
                    let error = self.response_ended(ended.is_err());
                    self.close_client();
                    return Poll::Ready(Err(error));
                }
                Poll::Pending => {
                    let due = self.response_due();
                    return self.timer.poll_due(due, cx).map(|()| {
                        self.close_client();
                        Err(ClientError::TimedOut)
                    });
                }
            }
        }
    }

    /// Whether bytes came before the request had begun to leave: whatever they are, they are not
    /// its answer, and may have been meant for somebody else (rule 11).
    fn answers_too_early(&mut self) -> bool {
        let is_first = !self.side.client().heard;
        let too_early = |socket: &Transport| is_first && socket.has_received_first();
        self.socket.as_ref().is_some_and(too_early)
    }

    /// Takes the head from the machine and sets the body up.
    fn begin_response(
        &mut self,
        length: BodyLength,
    ) -> Result<(Pooled<ResponseHead>, BodyLength), ClientError> {
        self.inbound.pace.declare(length);
        let side = self.side.client();
        let Some(head) = side.head.take() else {
            unreachable!("the machine has just filled it")
        };
        if side.machine.is_tunnel() {
            self.is_tunnel = true;
            self.outbound.message = Message::Open;
            return Ok((head, length));
        }
        if !side.machine.response_started() {
            return Ok((head, length));
        }
        if side.machine.response_ends_with_head() {
            self.end_empty_response()?;
        }
        Ok((head, length))
    }

    /// Takes the `End` of a response without content at once, so that the connection is free.
    fn end_empty_response(&mut self) -> Result<(), ClientError> {
        match self.step() {
            Ok(Got::End) => self.end_body(),
            Ok(_) => {}
            Err(error) => {
                self.close_client();
                return Err(ClientError::Malformed(error));
            }
        }
        Ok(())
    }

    /// When the server will have been silent for too long.
    fn response_due(&mut self) -> Instant {
        let progress = self.socket.as_ref().map(Transport::send_progress);
        let is_patient = self.inbound.is_patient;
        let side = self.side.client();
        let since = side.since.into_iter().chain(progress).max();
        let limit = match is_patient {
            true => side.options.limits.stream_idle_timeout,
            false => side.options.response_timeout,
        };
        since.unwrap_or_else(blitz_reactor::now) + limit
    }

    /// What it means that the connection ended instead of a response head.
    fn response_ended(&mut self, reset: bool) -> ClientError {
        if let Some(error) = self.socket.as_ref().and_then(Transport::failure) {
            return ClientError::Tls(error);
        }
        let side = self.side.client();
        let reused = side.reused;
        if reset {
            return if side.heard {
                ClientError::Truncated
            } else {
                ClientError::Reset { reused }
            };
        }
        match side.machine.handle_eof() {
            Err(error) if error.kind() == ErrorKind::ClosedBeforeResponse => {
                ClientError::Reset { reused }
            }
            _ => ClientError::Truncated,
        }
    }

    /// Both messages may be complete: then the connection goes back to its pool, or closes.
    ///
    /// This is rule 11: the response was complete and delimited itself, the request was sent to its last
    /// byte, nothing more has arrived, and both sides keep the connection alive.
    pub(super) fn release_client(&mut self) {
        if !self.inbound.is_body_complete() {
            return;
        }
        if self.is_tunnel {
            return self.release_tunnel();
        }
        let clean = self.outbound.message == Message::Done
            && self.side.client_machine().reusable()
            && self.inbound.input.is_empty()
            && !self.inbound.has_fin();
        let Some(socket) = self.socket.take_if(|socket| clean && socket.is_untouched()) else {
            return self.close_client();
        };
        match self.side.client().lease.take() {
            Some(lease) => lease.put_back(socket),
            None => drop(socket),
        }
    }

    /// A tunnel is over when FIN went both ways.
    fn release_tunnel(&mut self) {
        if self.outbound.message == Message::Open {
            return;
        }
        if let Some(socket) = self.socket.take() {
            socket.finish();
        }
        self.close_client();
    }

    /// Closes the connection; what handles remain find it gone.
    pub(super) fn close_client(&mut self) {
        self.flush();
        self.socket = None;
        if self.outbound.message == Message::Open {
            self.outbound.message = Message::Cut;
        }
        self.inbound.wake_reader();
        if let Some(lease) = self.side.client().lease.take() {
            lease.lost();
            count(|counters| counters.upstream_not_reused += 1);
        }
    }
}
