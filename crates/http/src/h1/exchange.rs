//! The life of a server's connection from its first byte until it is idle again.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Instant;

use blitz_proto::h1::Event;
use blitz_proto::{BodyLength, Error, RequestHead, Status};
use blitz_reactor::Slice;

use super::inbound::Body;
use super::outbound::Message;
use super::switch::Switch;
use super::wire::{Got, State, Wire};
use crate::body::RecvBody;
use crate::counters::{count, count_refused};
use crate::error::{BodyError, Refusal};
use crate::exchange::{Exchange, Responder, Service};
use crate::recycle::Pooled;
use crate::transport::Transport;

/// Requests run before the connection lets others have a turn.
const BURST_REQUESTS_MAX: u32 = 16;

/// What becomes of the connection.
pub(crate) enum After {
    /// It is idle and can be parked.
    Park(Transport),
    /// Only empty lines came, so many since the last request: it waits on, for no longer than
    /// before.
    Wait(Transport, usize),
    /// It goes on with HTTP/2.
    Switch(Box<Switch>),
    /// It is over; nothing is left to do.
    Closed,
}

/// Runs exchanges while there are requests, beginning with `first`.
pub(crate) async fn run_exchanges<S: Service>(
    wire: &Rc<Wire>,
    service: &Rc<S>,
    first: Slice,
) -> After {
    wire.state.borrow_mut().inbound.push(first);
    let mut served: u32 = 0;
    loop {
        let mut since = None;
        let arrived = poll_fn(|cx| wire.state.borrow_mut().poll_request(&mut since, cx)).await;
        let (request, length) = match arrived {
            Arrived::Request(request, length) => (request, length),
            Arrived::Switch(switch) => return After::Switch(switch),
            Arrived::Nothing => return wire.wait_on(),
            Arrived::Closed => return After::Closed,
            Arrived::Refused(refusal) => return wire.refuse_head(refusal),
        };
        served = served.wrapping_add(1);
        let outcome = {
            let call = pin!(Some(service.call(wire.exchange(request, length))));
            let mut call = call;
            poll_fn(|cx| wire.poll_exchange(call.as_mut(), cx)).await
        };
        let next = match outcome {
            Outcome::Answered => wire.state.borrow_mut().try_next_exchange(),
            _ => None,
        };
        let next = match next {
            Some(next) => next,
            None => wire.conclude(outcome).await,
        };
        match next {
            Next::Request => {}
            Next::Idle(socket) => return After::Park(socket),
            Next::Closed => return After::Closed,
        }
        if served.is_multiple_of(BURST_REQUESTS_MAX) {
            blitz_reactor::yield_now().await;
        }
        if poll_fn(|cx| wire.state.borrow_mut().poll_pipeline_room(cx))
            .await
            .is_err()
        {
            return wire.abort_connection();
        }
    }
}

/// What came instead of, or as, the next request.
pub(super) enum Arrived {
    Request(Pooled<RequestHead>, BodyLength),
    /// A request that goes on with HTTP/2.
    Switch(Box<Switch>),
    /// Only empty lines, or nothing at all.
    Nothing,
    Closed,
    Refused(Refusal),
}

/// How an exchange ended.
pub(super) enum Outcome {
    /// The answer is complete.
    Answered,
    /// Nobody answered.
    Missing,
    /// The answer was cut off.
    Cut,
    /// The client went away.
    Gone,
    /// The request body came too slowly and nothing was answered yet.
    TooSlow,
    /// The request body was silent for too long after the answer had begun.
    Silent,
    /// The client takes nothing, or a tunnel is silent.
    Stalled,
}

enum Next {
    Request,
    Idle(Transport),
    Closed,
}

impl Wire {
    #[inline]
    fn exchange(self: &Rc<Wire>, request: Pooled<RequestHead>, length: BodyLength) -> Exchange {
        let mut state = self.state.borrow_mut();
        let number = state.exchange;
        let body = match state.inbound.body {
            Body::Done => RecvBody::done(length),
            _ => RecvBody::h1(Rc::clone(self), number, length),
        };
        let peer = Rc::clone(&state.side.server().peer);
        let responder = Responder::h1(Rc::clone(self), number);
        Exchange {
            request,
            body,
            responder,
            peer,
        }
    }

    /// Drives the service; behind it, watches the client and the deadlines.
    fn poll_exchange<F: Future<Output = ()>>(
        &self,
        mut call: Pin<&mut Option<F>>,
        cx: &mut Context<'_>,
    ) -> Poll<Outcome> {
        if let Some(future) = call.as_mut().as_pin_mut() {
            self.held.set(true);
            let polled = future.poll(cx);
            if polled.is_ready() {
                call.set(None);
            }
            self.held.set(false);
        }
        let mut state = self.state.borrow_mut();
        state.flush();
        state.poll_outcome(call.is_none(), cx)
    }

    /// Brings the connection to the start of the next exchange, or to its end, in whatever state
    /// it is.
    async fn conclude(&self, outcome: Outcome) -> Next {
        match outcome {
            Outcome::Answered => {}
            Outcome::Missing => {
                let refusal = self.state.borrow().missing_answer();
                self.refuse(refusal);
                return Next::Closed;
            }
            Outcome::TooSlow => {
                count(|counters| counters.body_timeouts += 1);
                let rule = "request-body-too-slow";
                self.refuse(Refusal {
                    status: Status::REQUEST_TIMEOUT,
                    rule,
                });
                return Next::Closed;
            }
            Outcome::Cut | Outcome::Gone | Outcome::Silent | Outcome::Stalled => {
                self.cut(&outcome);
                return Next::Closed;
            }
        }
        let is_body_complete = self.state.borrow().inbound.is_body_complete();
        if is_body_complete || self.discard_body().await {
            self.state.borrow_mut().next_exchange()
        } else {
            self.close_politely();
            Next::Closed
        }
    }

    /// Reads what is left of a body that nobody wants, within bounds.
    async fn discard_body(&self) -> bool {
        let (bytes, limit) = {
            let mut state = self.state.borrow_mut();
            let side = state.side.server();
            let limits = &side.options.limits;
            if !side.machine.keep_alive() {
                return false;
            }
            (limits.discard_unannounced_bytes_max, limits.discard_timeout)
        };
        let due = blitz_reactor::now() + limit;
        let mut left = bytes;
        poll_fn(|cx| self.state.borrow_mut().poll_discard(&mut left, due, cx)).await
    }

    /// Answers in the service's stead if an answer is still possible, and closes.
    pub(super) fn refuse(&self, refusal: Refusal) -> After {
        count_refused(refusal.rule);
        let mut state = self.state.borrow_mut();
        let peer = state.side.server().peer.remote;
        tracing::debug!(
            rule = refusal.rule,
            status = refusal.status.code(),
            ?peer,
            "refused"
        );
        state.cut_handles();
        if !state.side.server().machine.response_started() {
            state.send_refusal(refusal);
            state.flush();
        }
        drop(state);
        self.close_politely()
    }

    /// Ends a connection whose answer is incomplete, so that the client can see it.
    fn cut(&self, outcome: &Outcome) {
        match outcome {
            Outcome::Stalled if self.state.borrow().is_tunnel => {
                count(|counters| counters.tunnel_timeouts += 1);
            }
            Outcome::Stalled => count(|counters| counters.send_stalls += 1),
            Outcome::Silent => count(|counters| counters.body_timeouts += 1),
            _ => count(|counters| counters.cancelled += 1),
        }
        self.abort_connection();
    }

    /// Lets the client read what was sent, although it may still be sending (rule 16).
    fn close_politely(&self) -> After {
        let mut state = self.state.borrow_mut();
        state.cut_handles();
        if let Some(socket) = state.socket.take() {
            socket.finish();
        }
        After::Closed
    }

    fn abort_connection(&self) -> After {
        let mut state = self.state.borrow_mut();
        state.cut_handles();
        if let Some(socket) = state.socket.take() {
            socket.abort();
        }
        After::Closed
    }

    fn wait_on(&self) -> After {
        let mut state = self.state.borrow_mut();
        state.restore_window();
        let empty_lines = state.side.server().machine.empty_lines();
        match state.socket.take() {
            Some(socket) => After::Wait(socket, empty_lines),
            None => After::Closed,
        }
    }
}

impl State {
    /// Waits for a request head, whose first byte came when this is first called: `since`, which
    /// is noted only if there is something to wait for.
    fn poll_request(&mut self, since: &mut Option<Instant>, cx: &mut Context<'_>) -> Poll<Arrived> {
        loop {
            match self.step() {
                Ok(Got::Head(length)) => return Poll::Ready(self.begin_exchange(length)),
                Ok(Got::NeedMore | Got::Paused) => {}
                // A head comes first; were it otherwise, nobody would know what this belongs to.
                Ok(Got::Data(_) | Got::Trailers | Got::End) => return Poll::Ready(self.vanish()),
                Err(error) => return Poll::Ready(Arrived::Refused(refusal(error))),
            }
            if self.side.server().machine.is_idle() && self.nothing_received() {
                return Poll::Ready(Arrived::Nothing);
            }
            match self.poll_receive(cx) {
                Poll::Ready(Ok(true)) => {}
                Poll::Ready(Ok(false) | Err(_)) => return Poll::Ready(self.vanish()),
                Poll::Pending => {
                    let since = *since.get_or_insert_with(blitz_reactor::now);
                    return self.poll_head_deadline(since, cx);
                }
            }
        }
    }

    fn poll_head_deadline(&mut self, since: Instant, cx: &mut Context<'_>) -> Poll<Arrived> {
        let due = since + self.side.server().options.limits.head_timeout;
        self.timer.poll_due(due, cx).map(|()| {
            count(|counters| counters.header_timeouts += 1);
            let status = Status::REQUEST_TIMEOUT;
            Arrived::Refused(Refusal {
                status,
                rule: "request-head-too-slow",
            })
        })
    }

    /// The client left within a head, or after empty lines. What was sent before still leaves.
    fn vanish(&mut self) -> Arrived {
        if let Some(socket) = self.socket.take() {
            socket.finish();
        }
        Arrived::Closed
    }

    /// Takes the head from the machine and sets the body up.
    #[inline]
    pub(super) fn begin_exchange(&mut self, length: BodyLength) -> Arrived {
        count(|counters| counters.requests += 1);
        self.outbound.message = Message::Due;
        let side = self.side.server();
        let Some(mut request) = side.head.take() else {
            unreachable!("the machine has just filled it")
        };
        if !request.charge(&side.options.limits) {
            side.head = Some(request);
            return Arrived::Refused(Refusal::heads_memory());
        }
        if matches!(length, BodyLength::Empty | BodyLength::Known(0)) {
            let trailers = &mut self.inbound.trailers;
            let end = side.machine.handle_input(&[], &mut request, trailers);
            assert!(
                end.is_ok_and(|step| step.event == Event::End),
                "a message without content ends with its head"
            );
            self.inbound.body = Body::Done;
            side.takes_problem = false;
            if side.machine.h2c_requested() {
                return self.try_switch(request, length);
            }
        } else {
            side.remember_accept(&request.fields);
            self.inbound.begin_body(length);
        }
        Arrived::Request(request, length)
    }

    /// Whether the exchange is over; if not, the task will be woken when that may have changed.
    #[inline]
    fn poll_outcome(&mut self, service_done: bool, cx: &mut Context<'_>) -> Poll<Outcome> {
        if let Some(outcome) = self.outcome(service_done) {
            return Poll::Ready(outcome);
        }
        let side = self.side.server();
        if !side
            .task
            .as_ref()
            .is_some_and(|task| task.will_wake(cx.waker()))
        {
            side.task = Some(cx.waker().clone());
        }
        self.watch_client(cx);
        if self.side.server().gone {
            return Poll::Ready(Outcome::Gone);
        }
        self.poll_deadlines(cx)
    }

    fn outcome(&mut self, service_done: bool) -> Option<Outcome> {
        if self.side.server().gone {
            return Some(Outcome::Gone);
        }
        match self.outbound.message {
            Message::Cut => Some(Outcome::Cut),
            Message::Missing if service_done => Some(Outcome::Missing),
            Message::Done if service_done && !self.is_tunnel_receiving() => Some(Outcome::Answered),
            Message::Due | Message::Open | Message::Missing | Message::Done => None,
        }
    }

    fn is_tunnel_receiving(&self) -> bool {
        self.is_tunnel && matches!(self.inbound.body, Body::Open)
    }

    /// [`State::next_exchange`], if nothing of the request is left to be read.
    #[inline]
    fn try_next_exchange(&mut self) -> Option<Next> {
        self.inbound
            .is_body_complete()
            .then(|| self.next_exchange())
    }

    /// After a complete exchange: what is next on this connection.
    fn next_exchange(&mut self) -> Next {
        let is_drained = !self.holds_input();
        let side = self.side.server();
        let draining = side.options.drain.is_triggered();
        let goes_on = side.machine.keep_alive();
        self.cut_handles();
        let nothing_more = self.inbound.has_fin() && is_drained;
        if !goes_on || nothing_more || (draining && is_drained) {
            if let Some(socket) = self.socket.take() {
                socket.finish();
            }
            return Next::Closed;
        }
        // What waits in the socket itself brings it back from being parked at once.
        if !is_drained {
            return Next::Request;
        }
        self.restore_window();
        self.socket.take().map_or(Next::Closed, Next::Idle)
    }

    /// Whether bytes wait that the socket knows nothing of, so that it must not be parked.
    fn holds_input(&self) -> bool {
        let is_decrypted = self.socket.as_ref().is_some_and(Transport::holds_content);
        is_decrypted || !self.inbound.input.is_empty()
    }

    pub(super) fn nothing_received(&mut self) -> bool {
        let unread = self.socket.as_mut().map_or(0, Transport::unread_bytes);
        self.inbound.input.is_empty() && !self.inbound.has_fin() && unread == 0
    }

    /// What to say when the service said nothing: what was wrong with the body, if that was it.
    fn missing_answer(&self) -> Refusal {
        match &self.inbound.body {
            Body::Failed(BodyError::Malformed(error)) => refusal(*error),
            Body::Failed(error @ BodyError::Truncated) => Refusal {
                status: error.status(),
                rule: "truncated-body",
            },
            _ => Refusal {
                status: Status::INTERNAL_SERVER_ERROR,
                rule: "no-answer",
            },
        }
    }
}

fn refusal(error: Error) -> Refusal {
    Refusal {
        status: error.status(),
        rule: error.rule(),
    }
}
