//! When the next request is sent: at once in a closed loop, at its planned time in an open loop.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use blitz_http::{precise_sleep_until, sleep, yield_now};

use super::control::RunControl;
use super::rate::Arrivals;

/// Planned requests that wait for a connection. A server that is so far behind its rate will not catch up.
const WAITING_MAX: usize = 4_000_000;

/// How often the end of the run is looked for while no request is due.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Arrivals that are late are planned so many at a time, so that the requests have their turn.
const AT_ONCE_MAX: u32 = 256;

/// Gives out the requests of a core.
pub(super) enum Pacer {
    /// Each stream sends its next request when it has the response to the last one.
    Closed(Closed),
    /// Requests have planned times, whatever the server does.
    Open(Rc<RequestQueue>),
}

pub(super) struct Closed {
    /// Requests that are left, if their number is limited.
    left: Cell<Option<u64>>,
}

/// Planned requests that no stream has taken yet, and streams that have nothing to do.
pub(super) struct RequestQueue {
    planned: RefCell<VecDeque<Instant>>,
    /// The stream that has waited longest is the next one, so that all connections are used alike.
    idle: RefCell<VecDeque<Waker>>,
    is_closed: Cell<bool>,
    has_overflowed: Cell<bool>,
}

impl Pacer {
    pub(super) fn closed(requests: Option<u64>) -> Pacer {
        Pacer::Closed(Closed {
            left: Cell::new(requests),
        })
    }

    pub(super) fn open(queue: &Rc<RequestQueue>) -> Pacer {
        Pacer::Open(Rc::clone(queue))
    }

    /// The planned time of the next request, once it has come; `None` if there are no more. In a closed loop it is
    /// `previous`, the end of the stream's previous request.
    pub(super) async fn next(
        &self,
        control: &RunControl,
        previous: Option<Instant>,
    ) -> Option<Instant> {
        match self {
            Pacer::Closed(closed) => closed.next(control, previous),
            Pacer::Open(queue) => poll_fn(|cx| queue.poll_next(control, cx)).await,
        }
    }
}

impl Closed {
    fn next(&self, control: &RunControl, previous: Option<Instant>) -> Option<Instant> {
        if let Some(left) = self.left.get() {
            self.left.set(Some(left.checked_sub(1)?));
        }
        let now = previous.unwrap_or_else(Instant::now);
        (!control.is_over(control.since_start(now))).then_some(now)
    }
}

impl RequestQueue {
    pub(super) fn new() -> Rc<RequestQueue> {
        Rc::new(RequestQueue {
            planned: RefCell::default(),
            idle: RefCell::default(),
            is_closed: Cell::new(false),
            has_overflowed: Cell::new(false),
        })
    }

    fn poll_next(&self, control: &RunControl, cx: &mut Context<'_>) -> Poll<Option<Instant>> {
        if control.is_stopped() {
            return Poll::Ready(None);
        }
        if let Some(planned) = self.planned.borrow_mut().pop_front() {
            return Poll::Ready(Some(planned));
        }
        if self.is_closed.get() {
            return Poll::Ready(None);
        }
        self.idle.borrow_mut().push_back(cx.waker().clone());
        Poll::Pending
    }

    /// Plans the arrivals, each at its time. `lag` gets the time by which each was noticed too late.
    pub(super) async fn plan(
        &self,
        arrivals: Arrivals,
        start: Instant,
        control: &RunControl,
        mut lag: impl FnMut(Instant, Duration),
    ) {
        let mut at_once = 0;
        for after in arrivals {
            let at = start + after;
            while !control.is_stopped() {
                let left = at.saturating_duration_since(Instant::now());
                match left {
                    Duration::ZERO => break,
                    left if left < LOOK_EVERY * 2 => precise_sleep_until(at).await,
                    // The run may be stopped long before the next arrival.
                    _ => sleep(LOOK_EVERY).await,
                }
                at_once = 0;
            }
            at_once += 1;
            if at_once == AT_ONCE_MAX {
                at_once = 0;
                yield_now().await;
            }
            if control.is_stopped() || self.has_overflowed.get() {
                return;
            }
            self.push(at);
            lag(at, at.elapsed());
        }
    }

    fn push(&self, at: Instant) {
        let mut planned = self.planned.borrow_mut();
        if planned.len() >= WAITING_MAX {
            self.has_overflowed.set(true);
            return;
        }
        planned.push_back(at);
        if let Some(idle) = self.idle.borrow_mut().pop_front() {
            idle.wake();
        }
    }

    /// There will be no more arrivals.
    pub(super) fn close(&self) {
        self.is_closed.set(true);
        for idle in self.idle.take() {
            idle.wake();
        }
    }

    /// Takes the planned requests that no stream has taken.
    pub(super) fn take_waiting(&self) -> VecDeque<Instant> {
        self.planned.take()
    }

    pub(super) fn has_overflowed(&self) -> bool {
        self.has_overflowed.get()
    }
}
