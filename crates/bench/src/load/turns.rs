//! The order of streams that wait for a request, where the server allows fewer at a time than there are streams.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

/// The first to come is served first: without an order, a stream whose response ends would send its next request before
/// all that wait.
#[derive(Default)]
pub(super) struct Turns(RefCell<VecDeque<Rc<QueuedStream>>>);

#[derive(Default)]
struct QueuedStream {
    has_turn: Cell<bool>,
    waker: Cell<Option<Waker>>,
}

/// The turn of a stream, which keeps its position in the queue until this is dropped.
pub(super) struct Turn<'a> {
    turns: &'a Turns,
    queued: Rc<QueuedStream>,
}

impl Turns {
    /// Whether nobody waits.
    #[inline]
    pub(super) fn is_free(&self) -> bool {
        self.0.borrow().is_empty()
    }

    /// Waits behind all that came before.
    pub(super) async fn take(&self) -> Turn<'_> {
        let queued = Rc::<QueuedStream>::default();
        self.0.borrow_mut().push_back(Rc::clone(&queued));
        let turn = Turn {
            turns: self,
            queued,
        };
        self.give(1);
        poll_fn(|cx| {
            if turn.queued.has_turn.get() {
                return Poll::Ready(());
            }
            turn.queued.waker.set(Some(cx.waker().clone()));
            Poll::Pending
        })
        .await;
        turn
    }

    /// It is the turn of so many: one after the other would take a turn of the core for each.
    pub(super) fn give(&self, count: usize) {
        for queued in self.0.borrow().iter().take(count) {
            queued.has_turn.set(true);
            if let Some(waker) = queued.waker.take() {
                waker.wake();
            }
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut queue = self.turns.0.borrow_mut();
        let own = queue
            .iter()
            .position(|queued| Rc::ptr_eq(queued, &self.queued));
        own.and_then(|own| queue.remove(own));
        drop(queue);
        // The first in the queue tests whether a request is allowed.
        self.turns.give(1);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn poll_all<F: Future>(futures: &mut [Pin<Box<F>>]) -> Vec<Poll<F::Output>> {
        let mut cx = Context::from_waker(Waker::noop());
        let poll = |future: &mut Pin<Box<F>>| future.as_mut().poll(&mut cx);
        futures.iter_mut().map(poll).collect()
    }

    #[test]
    fn turns_are_given_in_the_order_of_coming_and_never_lost() {
        let turns = Turns::default();
        assert!(turns.is_free());
        let mut cx = Context::from_waker(Waker::noop());
        let mut first = pin!(turns.take());
        let Poll::Ready(first) = first.as_mut().poll(&mut cx) else {
            panic!("nobody is before it");
        };
        let mut others: Vec<_> = (0..4).map(|_| Box::pin(turns.take())).collect();
        assert!(poll_all(&mut others).iter().all(Poll::is_pending));
        turns.give(2);
        drop(first);
        let mut taken = poll_all(&mut others);
        let is_ready: Vec<_> = taken.iter().map(Poll::is_ready).collect();
        assert_eq!(is_ready, [true, false, false, false]);
        drop(others.remove(0));
        // One that gives up is passed over.
        drop(others.remove(1));
        assert!(!turns.is_free());
        taken.clear();
        let is_ready: Vec<_> = poll_all(&mut others).iter().map(Poll::is_ready).collect();
        assert_eq!(is_ready, [true, false]);
        drop(others);
        assert!(turns.is_free());
    }
}
