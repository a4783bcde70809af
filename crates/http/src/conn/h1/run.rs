//! A server's connection from its first byte until it is idle again.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Instant;

use blitz_proto::h1::Event;
use blitz_proto::{BodyLength, RequestHead, Status};
use blitz_reactor::Slice;

use super::driver::{Driver, InputStep};
use super::server::{ServerConn, ServerRole};
use super::switch::Switch;
use crate::counters::{count, count_request};
use crate::error::Refusal;
use crate::exchange::{
    BodyState, Conclusion, Exchange, ExchangeId, ExchangeOutcome, MessageState, RecvBody,
    Responder, ServerFraming, Service, conclude, poll_outcome, refusal_of,
};
use crate::problem::accepts_problem;
use crate::recycle::Pooled;
use crate::refused::{IncompleteHead, Refused, tell};
use crate::transport::Transport;

/// Requests run before the connection yields to other tasks.
const BURST_REQUESTS_MAX: u32 = 16;

/// Causes of heads that stay incomplete.
const CLIENT_GONE: &str = "client-gone";
const EVICTED: &str = "evicted";

/// The next state of the connection.
pub(crate) enum Disposition {
    /// It is idle and can be parked.
    Park(Transport),
    /// Only empty lines came, so many since the last request: it waits on, for no longer than
    /// before.
    ParkAgain(Transport, usize),
    /// It continues with HTTP/2.
    Switch(Box<Switch>),
    /// It is over; nothing is left to do.
    Closed,
}

/// Runs exchanges while there are requests, beginning with `first`.
pub(crate) async fn run_exchanges<S: Service>(
    conn: &Rc<ServerConn>,
    service: &Rc<S>,
    first: Slice,
) -> Disposition {
    conn.driver.borrow_mut().push(first);
    let mut served: u32 = 0;
    loop {
        let arrived = {
            let mut wait = None;
            poll_fn(|cx| {
                conn.driver
                    .borrow_mut()
                    .poll_request(&mut wait, served != 0, cx)
            })
            .await
        };
        let (request, length) = match arrived {
            Arrived::Request(request, length) => (request, length),
            Arrived::Switch(switch) => return Disposition::Switch(switch),
            Arrived::Nothing => return conn.wait_again(),
            Arrived::Closed => return Disposition::Closed,
            Arrived::Refused(refusal) => return conn.refuse_head(refusal),
        };
        served = served.wrapping_add(1);
        let outcome = {
            let call = pin!(Some(service.call(conn.exchange(request, length))));
            let mut call = call;
            poll_fn(|cx| conn.poll_exchange(call.as_mut(), cx)).await
        };
        let next = match outcome {
            ExchangeOutcome::Complete => conn.driver.borrow_mut().try_next_exchange(),
            _ => None,
        };
        let next = match next {
            Some(next) => next,
            None => conn.conclude(outcome, served != 1).await,
        };
        match next {
            AfterExchange::Request => {}
            AfterExchange::Idle(socket) => return Disposition::Park(socket),
            AfterExchange::Closed => return Disposition::Closed,
        }
        if served.is_multiple_of(BURST_REQUESTS_MAX) {
            blitz_reactor::yield_now().await;
        }
        if poll_fn(|cx| conn.driver.borrow_mut().poll_pipeline_room(cx))
            .await
            .is_err()
        {
            conn.driver.borrow_mut().abort();
            return Disposition::Closed;
        }
    }
}

/// The event that came instead of, or as, the next request.
pub(super) enum Arrived {
    Request(Pooled<RequestHead>, BodyLength),
    /// A request that continues with HTTP/2.
    Switch(Box<Switch>),
    /// Only empty lines, or nothing at all.
    Nothing,
    Closed,
    Refused(Refusal),
}

/// The time while the rest of a head is awaited, during which its connection is counted.
struct HeadWait {
    since: Instant,
}

impl HeadWait {
    #[cold]
    fn begin() -> HeadWait {
        count(|counters| counters.reading_head += 1);
        HeadWait {
            since: blitz_reactor::now(),
        }
    }
}

impl Drop for HeadWait {
    fn drop(&mut self) {
        count(|counters| counters.reading_head -= 1);
    }
}

/// The next step of a connection after an exchange.
enum AfterExchange {
    Request,
    Idle(Transport),
    Closed,
}

impl ServerConn {
    #[inline]
    fn exchange(self: &Rc<Self>, request: Pooled<RequestHead>, length: BodyLength) -> Exchange {
        let driver = self.driver.borrow();
        let id = ExchangeId(driver.number);
        let body = match driver.exchange.receiving.body {
            BodyState::Done => RecvBody::complete(length),
            _ => RecvBody::new(Rc::<ServerConn>::clone(self), id, length),
        };
        Exchange {
            request,
            body,
            responder: Responder::new(Rc::<ServerConn>::clone(self), id),
            peer: Rc::clone(&driver.role.peer),
        }
    }

    /// Drives the service; behind it, watches the client and the deadlines.
    fn poll_exchange<F: Future<Output = ()>>(
        &self,
        mut call: Pin<&mut Option<F>>,
        cx: &mut Context<'_>,
    ) -> Poll<ExchangeOutcome> {
        if let Some(future) = call.as_mut().as_pin_mut() {
            self.is_held.set(true);
            let polled = future.poll(cx);
            if polled.is_ready() {
                call.set(None);
            }
            self.is_held.set(false);
        }
        let mut driver = self.driver.borrow_mut();
        driver.flush();
        let id = driver.number;
        poll_outcome(&mut *driver, id, call.is_none(), cx)
    }

    /// Brings the connection to the start of the next exchange, or to its end, in whatever state
    /// it is.
    async fn conclude(&self, outcome: ExchangeOutcome, is_pipelined: bool) -> AfterExchange {
        let is_body_complete = {
            let mut driver = self.driver.borrow_mut();
            let id = driver.number;
            match conclude(&mut *driver, id, outcome) {
                Conclusion::Complete => driver.exchange.receiving.is_complete(),
                Conclusion::Refused => return driver.finish(),
                // RST would discard responses before this one that are still on their way.
                Conclusion::Failed if is_pipelined && driver.role.machine.delimits_response() => {
                    return driver.finish();
                }
                // RST shows that the response is incomplete also to clients that ignore its length.
                Conclusion::Gone | Conclusion::Cancelled | Conclusion::Failed => {
                    return driver.abort();
                }
            }
        };
        match is_body_complete || self.discard_body().await {
            true => self.driver.borrow_mut().next_exchange(),
            false => self.driver.borrow_mut().finish(),
        }
    }

    /// Discards the rest of a body without a reader, within bounds.
    async fn discard_body(&self) -> bool {
        let (bytes, limit) = {
            let driver = self.driver.borrow();
            if !driver.role.machine.keep_alive() {
                return false;
            }
            let limits = &driver.role.options.limits;
            (limits.discard_unannounced_bytes_max, limits.lingering_time)
        };
        let due = blitz_reactor::now() + limit;
        let mut left = bytes;
        poll_fn(|cx| self.driver.borrow_mut().poll_discard(&mut left, due, cx)).await
    }

    #[cold]
    fn refuse_head(&self, refusal: Refusal) -> Disposition {
        let mut driver = self.driver.borrow_mut();
        driver.refuse_head(refusal);
        driver.finish();
        Disposition::Closed
    }

    fn wait_again(&self) -> Disposition {
        let mut driver = self.driver.borrow_mut();
        driver.restore_window();
        let empty_lines = driver.role.machine.empty_lines();
        match driver.socket.take() {
            Some(socket) => Disposition::ParkAgain(socket, empty_lines),
            None => Disposition::Closed,
        }
    }
}

impl Driver<ServerRole> {
    /// Waits for a request head, whose first byte came when this is first called: `wait`, which is noted only if there is
    /// something to wait for. `is_next` if a request came before it since the connection was parked.
    fn poll_request(
        &mut self,
        wait: &mut Option<HeadWait>,
        is_next: bool,
        cx: &mut Context<'_>,
    ) -> Poll<Arrived> {
        loop {
            match self.step() {
                Ok(InputStep::Head(length)) => return Poll::Ready(self.begin_exchange(length)),
                Ok(InputStep::NeedMore | InputStep::Paused) => {}
                // Content without a head belongs to no request.
                Ok(InputStep::Data(_) | InputStep::Trailers | InputStep::End) => {
                    return Poll::Ready(self.end_within_head(wait.as_ref(), CLIENT_GONE));
                }
                Err(error) => return Poll::Ready(Arrived::Refused(refusal_of(error))),
            }
            if self.role.machine.is_idle() && self.is_nothing_received() {
                return Poll::Ready(Arrived::Nothing);
            }
            match self.poll_receive(cx) {
                Poll::Ready(Ok(true)) => {}
                Poll::Ready(Ok(false)) => {
                    return Poll::Ready(self.end_within_head(wait.as_ref(), CLIENT_GONE));
                }
                Poll::Ready(Err(error)) => {
                    let cause = match error.kind() {
                        io::ErrorKind::ConnectionAborted => EVICTED,
                        _ => CLIENT_GONE,
                    };
                    return Poll::Ready(self.end_within_head(wait.as_ref(), cause));
                }
                Poll::Pending if !self.charge_partial_head() => {
                    return Poll::Ready(Arrived::Refused(Refusal::heads_memory()));
                }
                Poll::Pending => {
                    if let Some(socket) = &self.socket {
                        socket.await_request(is_next && wait.is_none());
                    }
                    let wait = wait.get_or_insert_with(HeadWait::begin);
                    return self.poll_head_deadline(wait.since, cx);
                }
            }
        }
    }

    /// Charges what has arrived of a head whose rest is awaited; `false` if the core has no memory
    /// for it.
    fn charge_partial_head(&mut self) -> bool {
        let role = &mut self.role;
        let head = role.head.as_mut();
        head.is_none_or(|head| head.charge(&role.options.limits))
    }

    fn poll_head_deadline(&mut self, since: Instant, cx: &mut Context<'_>) -> Poll<Arrived> {
        let due = since + self.role.options.limits.head_timeout;
        self.exchange.timer.poll_due(due, cx).map(|()| {
            count(|counters| counters.header_timeouts += 1);
            let status = Status::REQUEST_TIMEOUT;
            Arrived::Refused(Refusal {
                status,
                rule: "request-head-too-slow",
            })
        })
    }

    /// The connection ended within a head, or after empty lines. Earlier responses are still sent.
    #[cold]
    fn end_within_head(&mut self, wait: Option<&HeadWait>, cause: &'static str) -> Arrived {
        if !self.role.machine.is_idle() {
            self.note_incomplete_head(wait, cause);
        }
        if let Some(socket) = self.socket.take() {
            socket.finish();
        }
        Arrived::Closed
    }

    /// Counts a head that stays incomplete, and tells the observer of it.
    fn note_incomplete_head(&mut self, wait: Option<&HeadWait>, cause: &'static str) {
        count(|counters| match cause {
            EVICTED => counters.heads_evicted += 1,
            _ => counters.heads_abandoned += 1,
        });
        let mut head = self.role.head.take();
        if let Some(head) = &mut head {
            head.keep_incomplete();
        }
        tell(&self.role.options, || {
            Refused::IncompleteHead(IncompleteHead {
                head: head.as_deref().filter(|head| head.known_path().is_some()),
                cause,
                started: wait.map_or_else(blitz_reactor::now, |wait| wait.since),
                peer: &self.role.peer,
            })
        });
    }

    /// Takes the head from the machine and sets the body up.
    #[inline]
    pub(super) fn begin_exchange(&mut self, length: BodyLength) -> Arrived {
        count_request(Self::VERSION);
        self.exchange.message = MessageState::Due;
        let role = &mut self.role;
        let Some(mut request) = role.head.take() else {
            unreachable!("the machine has just filled it")
        };
        if !request.charge(&role.options.limits) {
            role.head = Some(request);
            return Arrived::Refused(Refusal::heads_memory());
        }
        if matches!(length, BodyLength::Empty | BodyLength::Known(0)) {
            let trailers = &mut self.trailers;
            let end = role.machine.handle_input(&[], &mut request, trailers);
            assert!(
                end.is_ok_and(|step| step.event == Event::End),
                "a message without content ends with its head"
            );
            self.exchange.receiving.body = BodyState::Done;
            self.exchange.accepts_problem = false;
            if role.machine.h2c_requested() {
                return self.try_switch(request, length);
            }
        } else {
            // The head is the service's when a refusal of the content depends on it.
            self.exchange.accepts_problem = accepts_problem(&request.fields) == Some(true);
            self.exchange.begin_body(length);
        }
        Arrived::Request(request, length)
    }

    /// [`Driver::next_exchange`], if nothing of the request is left to be read.
    #[inline]
    fn try_next_exchange(&mut self) -> Option<AfterExchange> {
        self.exchange
            .receiving
            .is_complete()
            .then(|| self.next_exchange())
    }

    /// After a complete exchange: what is next on this connection.
    fn next_exchange(&mut self) -> AfterExchange {
        let is_drained = !self.holds_input();
        let is_draining = self.role.options.drain.is_triggered();
        let is_kept_alive = self.role.machine.keep_alive();
        let is_over = self.has_fin() && is_drained;
        if !is_kept_alive || is_over || (is_draining && is_drained) {
            return self.finish();
        }
        self.detach_handles();
        // Bytes that wait in the socket itself wake the parked connection at once.
        if !is_drained {
            return AfterExchange::Request;
        }
        self.restore_window();
        self.socket
            .take()
            .map_or(AfterExchange::Closed, AfterExchange::Idle)
    }

    /// Whether bytes wait that the socket knows nothing of, so that it must not be parked.
    fn holds_input(&self) -> bool {
        let is_decrypted = self.socket.as_ref().is_some_and(Transport::holds_content);
        is_decrypted || !self.input.is_empty()
    }

    /// Lets the client read what was sent, although it may still be sending (rule 16).
    fn finish(&mut self) -> AfterExchange {
        self.flush();
        self.detach_handles();
        if let Some(socket) = self.socket.take() {
            socket.finish();
        }
        AfterExchange::Closed
    }

    fn abort(&mut self) -> AfterExchange {
        self.detach_handles();
        if let Some(socket) = self.socket.take() {
            socket.abort();
        }
        AfterExchange::Closed
    }
}
