//! The life of one exchange: a task that drives the service and watches the client.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Instant;

use blitz_proto::h2::{Code, StreamId};
use blitz_proto::{BodyLength, Fields, Limits, Method, Status};

use super::drive::Request;
use super::stream::{Body, Message, Stream, note};
use super::wire::{State, Wire};
use crate::body::RecvBody;
use crate::counters::{count, count_refused};
use crate::error::{Refusal, content_of};
use crate::exchange::{Exchange, Responder, Service};
use crate::problem::accepts_problem;

/// How an exchange ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
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

impl Wire {
    /// Starts to work on a request.
    pub(super) fn start_exchange<S: Service>(self: &Rc<Self>, service: &Rc<S>, request: Request) {
        let Request {
            stream,
            mut head,
            length,
            has_ended,
        } = request;
        let mut state = self.state.borrow_mut();
        let mut known = state.shared.stream();
        let is_tunnel = head.method == Method::Connect;
        known.is_tunnel = is_tunnel;
        let is_done = has_ended || length == BodyLength::Empty;
        if !is_done {
            known.receiving.body = Body::Open;
            known.takes_problem = accepts_problem(&head.fields) == Some(true);
        }
        state.streams.insert(stream, known);
        state.idle_since = None;
        let Some(peer) = state.peer.clone() else {
            unreachable!("a server knows its client")
        };
        let is_charged = head.charge(state.limits());
        drop(state);
        let body = if is_done {
            RecvBody::done(length)
        } else if is_tunnel {
            // What comes belongs to the tunnel, if there will be one.
            RecvBody::done(BodyLength::Empty)
        } else {
            RecvBody::h2(Rc::clone(self), stream, length)
        };
        let exchange = Exchange {
            request: head,
            body,
            responder: Responder::h2(Rc::clone(self), stream),
            peer,
        };
        let exchange = match is_charged {
            true => Some(exchange),
            false => {
                self.refuse_head(exchange);
                None
            }
        };
        let (wire, service) = (Rc::clone(self), Rc::clone(service));
        if blitz_reactor::spawn_now(run(wire, service, stream, exchange)).is_some() {
            blitz_reactor::consume_admission();
        }
    }

    #[cold]
    fn refuse_head(&self, exchange: Exchange) {
        let options = Rc::clone(self.state.borrow().shared.serving());
        exchange.refuse_head(&options);
    }

    /// Drives the service; behind it, watches the client and the deadlines.
    fn poll_exchange<F: Future<Output = ()>>(
        &self,
        stream: StreamId,
        mut call: Pin<&mut Option<F>>,
        cx: &mut Context<'_>,
    ) -> Poll<Outcome> {
        if let Some(future) = call.as_mut().as_pin_mut()
            && future.poll(cx).is_ready()
        {
            call.set(None);
        }
        let is_done = call.is_none();
        self.state.borrow_mut().poll_outcome(stream, is_done, cx)
    }
}

/// There is no exchange if the request was answered before.
async fn run<S: Service>(
    wire: Rc<Wire>,
    service: Rc<S>,
    stream: StreamId,
    exchange: Option<Exchange>,
) {
    let mut guard = Guard {
        wire: &wire,
        stream,
        outcome: Outcome::Cut,
    };
    let call = pin!(exchange.map(|exchange| service.call(exchange)));
    let mut call = call;
    guard.outcome = poll_fn(|cx| wire.poll_exchange(stream, call.as_mut(), cx)).await;
}

/// Ends the exchange with its task, also when that is aborted or panics.
struct Guard<'a> {
    wire: &'a Wire,
    stream: StreamId,
    outcome: Outcome,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        let mut state = self.wire.state.borrow_mut();
        state.conclude(self.stream, self.outcome);
        if !self.wire.is_driven.get() {
            state.wake_task();
        }
    }
}

impl Stream {
    /// When the client will have taken nothing for too long, or a tunnel will have been silent.
    fn stall_due(&self, limits: &Limits) -> Option<Instant> {
        let sending = &self.sending;
        if self.is_tunnel && sending.message == Message::Open {
            return Some(sending.progress.max(self.receiving.last) + limits.stream_idle_timeout);
        }
        (sending.queued > 0).then(|| sending.progress + limits.send_stall_timeout)
    }

    /// When the client will have sent too little of its request's body, if nothing comes until
    /// then (rule 18). Time in which the connection is not read from does not count.
    fn body_due(&mut self, limits: &Limits, is_held_back: bool) -> (Instant, Outcome) {
        if self.is_patient {
            let moved = self.sending.progress.max(self.receiving.last);
            return (moved + limits.stream_idle_timeout, Outcome::Silent);
        }
        let pace = &mut self.receiving.pace;
        if is_held_back {
            pace.forgive();
        }
        if self.sending.message == Message::Due {
            let later = || blitz_reactor::now() + limits.body_rate_grace;
            return (
                pace.rate_due(limits).unwrap_or_else(later),
                Outcome::TooSlow,
            );
        }
        (pace.silence_due(limits.body_idle_timeout), Outcome::Silent)
    }
}

impl State {
    /// Whether the exchange is over; if not, the task will be woken when that may have changed.
    fn poll_outcome(
        &mut self,
        stream: StreamId,
        is_done: bool,
        cx: &mut Context<'_>,
    ) -> Poll<Outcome> {
        let shared = Rc::clone(&self.shared);
        let limits = shared.limits();
        let is_held_back = self.holds_too_much();
        let Some(known) = self.stream(stream) else {
            return Poll::Ready(Outcome::Gone);
        };
        if known.is_gone {
            return Poll::Ready(Outcome::Gone);
        }
        let is_open = matches!(known.receiving.body, Body::Open);
        let is_receiving = known.is_tunnel && is_open;
        match known.sending.message {
            Message::Cut => return Poll::Ready(Outcome::Cut),
            Message::Missing if is_done => return Poll::Ready(Outcome::Missing),
            Message::Done if is_done && !is_receiving => return Poll::Ready(Outcome::Answered),
            Message::Due | Message::Open | Message::Missing | Message::Done => {}
        }
        note(&mut known.task, cx);
        if let Some(due) = known.stall_due(limits)
            && known.timer.poll_due(due, cx).is_ready()
        {
            return Poll::Ready(Outcome::Stalled);
        }
        if !is_open || known.is_tunnel {
            return Poll::Pending;
        }
        let (due, outcome) = known.body_due(limits, is_held_back);
        known.timer.poll_due(due, cx).map(|()| outcome)
    }

    fn conclude(&mut self, stream: StreamId, outcome: Outcome) {
        match outcome {
            Outcome::Answered => {}
            Outcome::Missing => {
                let refusal = self.missing_answer(stream);
                self.refuse_content(stream, refusal);
            }
            Outcome::TooSlow => {
                count(|counters| counters.body_timeouts += 1);
                let rule = "request-body-too-slow";
                let status = Status::REQUEST_TIMEOUT;
                self.refuse_content(stream, Refusal { status, rule });
            }
            Outcome::Gone => {
                count(|counters| counters.cancelled += 1);
                return self.close_stream(stream, None);
            }
            Outcome::Cut => {
                count(|counters| counters.cancelled += 1);
                return self.close_stream(stream, Some(Code::INTERNAL_ERROR));
            }
            Outcome::Silent => {
                count(|counters| counters.body_timeouts += 1);
                return self.close_stream(stream, Some(Code::CANCEL));
            }
            Outcome::Stalled => {
                let is_tunnel = self.stream(stream).is_some_and(|known| known.is_tunnel);
                count(|counters| match is_tunnel {
                    true => counters.tunnel_timeouts += 1,
                    false => counters.send_stalls += 1,
                });
                return self.close_stream(stream, Some(Code::CANCEL));
            }
        }
        if self.is_received(stream) {
            self.close_stream(stream, None);
        } else {
            self.linger(stream);
        }
    }

    /// The answer is complete, the request is not: what still comes is dropped for a moment, and
    /// then the client is asked for no more (RFC 9113, section 8.1).
    fn linger(&mut self, stream: StreamId) {
        let until = blitz_reactor::now() + self.limits().discard_timeout;
        self.drop_recv(stream);
        if let Some(known) = self.stream(stream) {
            known.lingers = true;
            self.lingering.push_back((stream, until));
        }
    }

    /// Something came of a request that is answered already, or the last of it.
    pub(super) fn pass_over(&mut self, stream: StreamId, bytes: usize, has_ended: bool) {
        let bytes_max = self.limits().discard_bytes_max;
        let Some(known) = self.stream(stream) else {
            return;
        };
        known.receiving.pace.bytes += bytes as u64;
        if has_ended {
            self.close_stream(stream, None);
        } else if known.receiving.pace.bytes > bytes_max as u64 {
            self.close_stream(stream, Some(Code::NO_ERROR));
        }
    }

    /// Asks for no more where the moment has passed; when the next one will have.
    pub(super) fn end_lingering(&mut self) -> Option<Instant> {
        let now = blitz_reactor::now();
        while let Some((stream, until)) = self.lingering.front().copied() {
            let is_over = !self.streams.contains_key(&stream);
            if !is_over && until > now {
                return Some(until);
            }
            self.lingering.pop_front();
            if !is_over {
                self.close_stream(stream, Some(Code::NO_ERROR));
            }
        }
        None
    }

    /// What to say when the service said nothing: what was wrong with the body, if that was it.
    fn missing_answer(&mut self, stream: StreamId) -> Refusal {
        match self.stream(stream).map(|known| &known.receiving.body) {
            Some(Body::Failed(error)) => Refusal {
                status: error.status(),
                rule: "malformed-body",
            },
            _ => Refusal {
                status: Status::INTERNAL_SERVER_ERROR,
                rule: "no-answer",
            },
        }
    }

    /// Refuses a request for its content, or because nobody has answered it. Its head is the
    /// service's.
    fn refuse_content(&mut self, stream: StreamId, refusal: Refusal) {
        let as_problem = self.stream(stream).is_some_and(|known| known.takes_problem);
        self.answer_refusal(stream, refusal, &Fields::new(), as_problem);
    }

    /// Refuses a request for its head, of which these fields are known.
    pub(super) fn refuse(&mut self, stream: StreamId, refusal: Refusal, asked: &Fields) {
        let as_problem = accepts_problem(asked) == Some(true);
        self.answer_refusal(stream, refusal, asked, as_problem);
    }

    /// Answers in the service's stead, if an answer is still possible.
    fn answer_refusal(
        &mut self,
        stream: StreamId,
        refusal: Refusal,
        asked: &Fields,
        as_problem: bool,
    ) {
        count_refused(refusal.rule);
        let (status, peer) = (refusal.status.code(), self.remote());
        tracing::debug!(rule = refusal.rule, status, ?peer, "refused");
        if !self.machine.response_started(stream) {
            let options = Rc::clone(self.shared.serving());
            let (mut head, content) = content_of(refusal, asked, as_problem, &options);
            self.send_whole(stream, &mut head, content);
        }
    }
}
