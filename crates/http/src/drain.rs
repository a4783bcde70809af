//! Graceful stop of a core: what is running is finished, what is idle is closed.

use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use blitz_reactor::core_local;

/// Tells everything that serves on a core to stop. Cloning gives another handle to the same.
///
/// Once triggered, [`serve`](crate::serve) accepts no more, closes idle connections at once, sends
/// `Connection: close` with the answers still to come and, at the deadline, drops what is left.
#[derive(Clone, Default)]
pub struct Drain(Rc<RefCell<DrainState>>);

#[derive(Default)]
struct DrainState {
    deadline: Option<Instant>,
    waiting: Vec<Waker>,
}

core_local! {
    static CORE: RefCell<Option<Drain>> = const { RefCell::new(None) };
}

impl Drain {
    /// A handle of its own, not yet triggered.
    #[must_use]
    pub fn new() -> Drain {
        Drain::default()
    }

    /// The handle of the calling core, for `cores.post_all(|_| Drain::of_core().trigger(limit))`.
    #[must_use]
    pub fn of_core() -> Drain {
        CORE.with_borrow_mut(|drain| drain.get_or_insert_default().clone())
    }

    /// Starts draining; what runs longer than `limit` from now is dropped. A second call can only
    /// bring the end nearer.
    pub fn trigger(&self, limit: Duration) {
        let deadline = blitz_reactor::now() + limit;
        let mut state = self.0.borrow_mut();
        let sooner = state.deadline.map_or(deadline, |known| known.min(deadline));
        state.deadline = Some(sooner);
        state.waiting.drain(..).for_each(Waker::wake);
    }

    /// Whether draining has begun.
    #[must_use]
    pub fn is_triggered(&self) -> bool {
        self.0.borrow().deadline.is_some()
    }

    /// When what still runs is dropped.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.0.borrow().deadline
    }

    /// Waits until draining begins.
    pub async fn triggered(&self) {
        poll_fn(|cx| self.poll_changed(cx, None)).await;
    }

    /// Ready when the deadline differs from `known`, which is what the caller has seen of it.
    pub(crate) fn poll_changed(&self, cx: &mut Context<'_>, known: Option<Instant>) -> Poll<()> {
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
