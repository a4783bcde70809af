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
use crate::pool::Upstream;
use crate::recycle::Pooled;
use crate::transport::Transport;

pub(super) struct ClientSide {
    pub(super) machine: h1::Client,
    /// Filled by the machine until the head is complete.
    pub(super) head: Option<Pooled<ResponseHead>>,
    pub(super) options: Rc<ClientOptions>,
    /// Where the connection returns to, until it does or is lost.
    upstream: Option<Upstream>,
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
    /// Ready for another connection with the same options.
    pub(super) fn clear(&mut self) {
        if !self.machine.reusable() {
            self.machine = h1::Client::new(&self.options.limits);
        }
        self.upstream = None;
        self.home = None;
        self.heard = false;
    }
}

impl Wire {
    /// The state for a connection that is about to carry a request.
    pub(crate) fn client(
        socket: Transport,
        options: Rc<ClientOptions>,
        upstream: Option<Upstream>,
        reused: bool,
    ) -> Rc<Wire> {
        if let Some(wire) = upstream
            .as_ref()
            .and_then(|upstream| upstream.shelf().take())
        {
            let mut state = wire.state.borrow_mut();
            state.socket = Some(socket);
            let side = state.side.client();
            side.home.clone_from(&upstream);
            side.upstream = upstream;
            side.reused = reused;
            drop(state);
            return wire;
        }
        Wire::new_client(socket, options, upstream, reused)
    }

    #[cold]
    fn new_client(
        socket: Transport,
        options: Rc<ClientOptions>,
        upstream: Option<Upstream>,
        reused: bool,
    ) -> Rc<Wire> {
        let machine = h1::Client::new(&options.limits);
        let side = ClientSide {
            machine,
            head: None,
            options,
            home: upstream.clone(),
            upstream,
            reused,
            heard: false,
            since: None,
        };
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
        state.inbound.begin_body(BodyLength::Unknown);
        if matches!(length, BodyLength::Empty | BodyLength::Known(0)) {
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
                Ok(Got::NeedMore) => {}
                Ok(Got::Data(_) | Got::Trailers | Got::End) => unreachable!("a head comes first"),
                Err(error) => {
                    self.close_client();
                    return Poll::Ready(Err(ClientError::Malformed(error)));
                }
            }
            match self.poll_receive(cx) {
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

    /// Takes the head from the machine and sets the body up.
    fn begin_response(
        &mut self,
        length: BodyLength,
    ) -> Result<(Pooled<ResponseHead>, BodyLength), ClientError> {
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
        if side.machine.response_done()
            || matches!(length, BodyLength::Empty | BodyLength::Known(0))
        {
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
        let side = self.side.client();
        let since = side.since.into_iter().chain(progress).max();
        since.unwrap_or_else(blitz_reactor::now) + side.options.response_timeout
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
    /// Rule 11: the response was complete and delimited itself, the request was sent to its last
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
            && !self.inbound.fin;
        let Some(socket) = self.socket.take_if(|socket| clean && socket.is_untouched()) else {
            return self.close_client();
        };
        match self.side.client().upstream.take() {
            Some(upstream) => upstream.put_back(socket),
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
        if let Some(upstream) = self.side.client().upstream.take() {
            upstream.lost();
            count(|counters| counters.upstream_not_reused += 1);
        }
    }
}
