//! The exchanges of a connection.

use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll};

use blitz_proto::h3::{Code, Received, StreamId};
use blitz_proto::{BodyLength, Error, Method, RequestHead, ResponseHead, Version};
use blitz_reactor::Chunk;

use super::driver::{Conn, Driver};
use crate::conn::streams::exchange_task::WithTasks;
use crate::conn::streams::response_head::{adapt_tunnel_head, add_default_headers};
use crate::counters::count_request;
use crate::exchange::{
    Body, Conclusion, Exchange, ExchangeId, Outcome, RecvBody, Responder, ServerFraming, conclude,
    refusal_of, refuse, wake,
};
use crate::options::ServeOptions;
use crate::problem::accepts_problem;
use crate::recycle::Pooled;

/// A request that has just come.
pub(super) struct Request {
    pub(super) stream: StreamId,
    pub(super) head: Pooled<RequestHead>,
    pub(super) length: BodyLength,
    pub(super) has_ended: bool,
}

impl Request {
    /// Takes the head that the machine has decoded.
    pub(super) fn take_head(received: &mut Received) -> Pooled<RequestHead> {
        count_request(Driver::VERSION);
        let mut head = Pooled::<RequestHead>::take();
        std::mem::swap(&mut *head, &mut received.request);
        head
    }
}

impl Conn {
    /// `None` if the request was refused because its head is too large for what the core holds.
    pub(super) fn exchange(self: &Rc<Self>, request: Request) -> Option<Exchange> {
        let Request {
            stream,
            mut head,
            length,
            has_ended,
        } = request;
        let mut driver = self.driver.borrow_mut();
        let peer = Rc::clone(&driver.peer);
        let is_connect = head.method == Method::Connect;
        let is_done = has_ended || length == BodyLength::Empty;
        // It may have been lost since: then the handles say so.
        if let Some(state) = driver.stream(stream) {
            state.is_connect = is_connect;
            if !is_done {
                state.exchange.begin_body(length);
                state.exchange.accepts_problem = accepts_problem(&head.fields) == Some(true);
            }
        }
        driver.note_priority(stream);
        driver.partial_charge.clear();
        let is_charged = head.charge(driver.limits());
        drop(driver);
        let id = ExchangeId::from(stream);
        // What comes behind CONNECT belongs to the tunnel, if there will be one.
        let body = match is_done {
            true => RecvBody::complete(length),
            false if is_connect => RecvBody::empty(),
            false => RecvBody::new(Rc::<Conn>::clone(self), id, length),
        };
        let exchange = Exchange {
            request: head,
            body,
            responder: Responder::new(Rc::<Conn>::clone(self), id),
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

impl WithTasks for Driver {
    fn conclude(&mut self, id: StreamId, outcome: Outcome) {
        let is_tunnel = self
            .stream(id)
            .is_some_and(|state| state.exchange.is_tunnel);
        match conclude(self, id, outcome) {
            Conclusion::Complete | Conclusion::Refused => self.end_or_linger(id),
            Conclusion::Gone => self.close_stream(id, None),
            // RFC 9114, section 4.4: so ends a tunnel whose other end has failed.
            Conclusion::Cancelled | Conclusion::Failed if is_tunnel => {
                self.close_stream(id, Some(Code::CONNECT_ERROR));
            }
            Conclusion::Cancelled => self.close_stream(id, Some(Code::REQUEST_CANCELLED)),
            Conclusion::Failed => self.close_stream(id, Some(Code::INTERNAL_ERROR)),
        }
        self.settle_soon();
    }
}

impl Driver {
    /// The response is complete. A request that is not is discarded for a moment, and then stopped with NO_ERROR
    /// (RFC 9114, section 4.1). What QUIC has not taken of the response is awaited.
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
            receiving.body = Body::Unwanted;
        }
        // From now on it counts what is discarded.
        receiving.pace.bytes = 0;
        stream.state.is_lingering = true;
        let now = blitz_reactor::now();
        let limits = &self.shared.options.limits;
        match stream.is_finished {
            true => self.lingering.push(id, now + limits.discard_timeout),
            false => self.unsent_rests.push(id, now + limits.send_stall_timeout),
        }
        if !is_received && let Err(error) = self.discard_arrived(id) {
            self.fail(error);
        }
        self.make_room();
    }

    /// What was queued of a response was sent, if that is so: what is left of the request has a moment more.
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
        let due = blitz_reactor::now() + self.limits().discard_timeout;
        self.lingering.push(id, due);
        self.make_room();
    }

    /// Removes a stream whose exchange is over. What is incomplete is reset or stopped, with `code` if given.
    pub(super) fn close_stream(&mut self, id: StreamId, code: Option<Code>) {
        self.machine.forget(id);
        let Some(mut stream) = self.streams.remove(&id) else {
            return;
        };
        let state = &mut stream.state;
        wake(&mut state.exchange.receiving.reader);
        wake(&mut state.sending.writer);
        let unsent = state.sending.queued;
        self.shared.spare.keep(stream.state);
        self.schedule.remove(id);
        self.unread.forget(id);
        self.note_unsent(unsent);
        if !stream.is_finished {
            self.reset(id, code.unwrap_or(Code::REQUEST_CANCELLED));
        } else if !stream.has_fin || code.is_some() {
            // Only what the client sends is left, or nothing but the end: QUIC has to know that nobody waits for it.
            self.stop(id, code.unwrap_or(Code::NO_ERROR));
        }
    }

    /// Answers a request that exceeds a limit.
    pub(super) fn refuse_request(&mut self, id: StreamId, error: Error, received: &Received) {
        let fields = &received.request.fields;
        let as_problem = accepts_problem(fields) == Some(true);
        refuse(self, id, refusal_of(error), fields, as_problem);
    }
}

impl ServerFraming for Driver {
    const VERSION: Version = Version::Http3;

    fn options(&self) -> &Rc<ServeOptions> {
        &self.shared.options
    }

    fn remote(&self) -> Option<SocketAddr> {
        self.peer.remote
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
        // What is whole leaves with its content, or at once with its end.
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
        if matches!(state.exchange.receiving.body, Body::Unwanted)
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
