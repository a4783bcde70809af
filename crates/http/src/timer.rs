//! The one timer of a connection. It is moved by storing, and outlives the exchange in the pooled
//! state, so that a deadline per request costs the timer wheel nothing.

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
    /// Whether the task will be woken by `due` and has not been yet, without being asked again.
    #[inline]
    pub(crate) fn is_set(&self, now: Instant, due: Instant) -> bool {
        let deadline = self.timer.as_ref().map(Timer::deadline);
        deadline.is_some_and(|deadline| now < deadline && deadline <= due)
    }

    /// Ready once `due` has passed; otherwise the task will be woken by then, perhaps earlier.
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
            // It was set for an earlier deadline, which has moved since.
            timer.reset(due);
            let again = Pin::new(timer).poll(cx);
            debug_assert!(again.is_pending(), "the deadline lies in the future");
        }
        Poll::Pending
    }
}
