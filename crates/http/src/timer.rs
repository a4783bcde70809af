//! The timer of a connection. A later deadline does not move the armed timer, which is re-armed
//! when it fires. The timer stays in the pooled state after the exchange. Therefore a deadline per
//! request does not change the timer wheel.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use blitz_reactor::Timer;

#[derive(Default)]
pub(crate) struct LazyTimer {
    timer: Option<Timer>,
}

impl LazyTimer {
    /// Whether the armed timer wakes the task by `due` and has not fired yet.
    #[inline]
    pub(crate) fn is_set(&self, now: Instant, due: Instant) -> bool {
        let deadline = self.timer.as_ref().map(Timer::deadline);
        deadline.is_some_and(|deadline| now < deadline && deadline <= due)
    }

    /// Ready after `due`; otherwise the task is woken by then, possibly earlier.
    pub(crate) fn poll_due(&mut self, due: Instant, cx: &mut Context<'_>) -> Poll<()> {
        if due <= blitz_reactor::now() {
            return Poll::Ready(());
        }
        let timer = self
            .timer
            .get_or_insert_with(|| blitz_reactor::sleep_until(due));
        if due < timer.deadline() {
            timer.reset(due);
        }
        if Pin::new(&mut *timer).poll(cx).is_ready() {
            // The timer was armed for an earlier deadline, which has been extended since.
            timer.reset(due);
            let again = Pin::new(timer).poll(cx);
            debug_assert!(again.is_pending(), "the deadline lies in the future");
        }
        Poll::Pending
    }
}
