//! Graceful shutdown of a core or of one listener: running exchanges finish, idle connections close.

use std::cell::RefCell;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use blitz_reactor::core_local;

/// Stops all listeners of a core, or one of them. Clones are handles to the same state.
///
/// When triggered, [`serve`](crate::serve) stops accepting, closes idle connections at once but for those that have a
/// second for their first request, sends `Connection: close` with the remaining responses and, at the deadline, aborts
/// the remaining exchanges.
#[derive(Clone, Default)]
pub struct Drain(Rc<RefCell<DrainState>>);

#[derive(Default)]
struct DrainState {
    deadline: Option<Instant>,
    waiting: Vec<Waker>,
    /// Triggered with this one.
    below: Vec<Weak<RefCell<DrainState>>>,
}

core_local! {
    static CORE: RefCell<Option<Drain>> = const { RefCell::new(None) };
}

impl Drain {
    /// A new, untriggered handle, independent of the core's own.
    #[must_use]
    pub fn new() -> Drain {
        Drain::default()
    }

    /// The handle of the calling core, for `cores.post_all(|_| Drain::of_core().trigger(limit))`.
    #[must_use]
    pub fn of_core() -> Drain {
        CORE.with_borrow_mut(|drain| drain.get_or_insert_default().clone())
    }

    /// A new handle that is triggered with this one, and alone for one of its listeners.
    #[must_use]
    pub fn below(&self) -> Drain {
        let mut state = self.0.borrow_mut();
        let below = Drain(Rc::new(RefCell::new(DrainState {
            deadline: state.deadline,
            ..DrainState::default()
        })));
        state.below.retain(|known| known.strong_count() > 0);
        state.below.push(Rc::downgrade(&below.0));
        below
    }

    /// Starts draining. Exchanges that run longer than `limit` from now are aborted. A second call
    /// can only shorten the deadline.
    pub fn trigger(&self, limit: Duration) {
        self.trigger_until(blitz_reactor::now() + limit);
    }

    fn trigger_until(&self, deadline: Instant) {
        let mut state = self.0.borrow_mut();
        let sooner = state.deadline.map_or(deadline, |known| known.min(deadline));
        state.deadline = Some(sooner);
        state.waiting.drain(..).for_each(Waker::wake);
        let below = state.below.iter().filter_map(Weak::upgrade);
        below.for_each(|below| Drain(below).trigger_until(deadline));
    }

    /// Whether draining has begun.
    #[must_use]
    pub fn is_triggered(&self) -> bool {
        self.0.borrow().deadline.is_some()
    }

    /// The time at which running exchanges are aborted.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.0.borrow().deadline
    }

    /// Whether the time of this handle, or of one below it, is over: what runs is aborted.
    #[must_use]
    pub fn is_over(&self) -> bool {
        let (now, state) = (blitz_reactor::now(), self.0.borrow());
        let is_over = |deadline: Option<Instant>| deadline.is_some_and(|deadline| now >= deadline);
        let mut below = state.below.iter().filter_map(Weak::upgrade);
        is_over(state.deadline) || below.any(|below| Drain(below).is_over())
    }

    /// Ready when the deadline differs from `known`, the last value that the caller has seen.
    pub fn poll_changed(&self, cx: &mut Context<'_>, known: Option<Instant>) -> Poll<()> {
        let mut state = self.0.borrow_mut();
        if state.deadline != known {
            return Poll::Ready(());
        }
        if !state
            .waiting
            .iter()
            .any(|waker| waker.will_wake(cx.waker()))
        {
            state.waiting.push(cx.waker().clone());
        }
        Poll::Pending
    }
}
