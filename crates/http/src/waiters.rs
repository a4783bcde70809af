//! Tasks that wait until a connection takes another request.

use std::cell::RefCell;
use std::future::poll_fn;
use std::task::{Context, Poll, Waker};

use crate::queue::{Queue, QueueKey};

/// The tasks that wait for one connection, in the order in which they came.
#[derive(Debug, Default)]
pub(crate) struct Waiters(RefCell<Queue<Waker>>);

impl Waiters {
    /// One more request may begin: wakes the task that has waited longest. A task that is served, or
    /// cancelled, wakes the next one.
    #[inline]
    pub(crate) fn wake_one(&self) {
        let next = self.0.borrow_mut().pop_front();
        if let Some(next) = next {
            next.wake();
        }
    }

    /// No more requests begin.
    pub(crate) fn wake_all(&self) {
        let mut queue = self.0.borrow_mut();
        while let Some(next) = queue.pop_front() {
            next.wake();
        }
    }

    /// Waits until `look` finds something. It looks at once, and each time that the task is woken.
    pub(crate) async fn until<T>(&self, mut look: impl FnMut() -> Option<T>) -> T {
        let mut waiting = QueuedTask {
            waiters: self,
            key: None,
        };
        poll_fn(|cx| match look() {
            Some(found) => Poll::Ready(found),
            None => {
                waiting.join(cx);
                Poll::Pending
            }
        })
        .await
    }
}

/// A task's membership in the queue, which ends when this is dropped.
struct QueuedTask<'a> {
    waiters: &'a Waiters,
    /// The key of its entry. Waking the task removes the entry.
    key: Option<QueueKey>,
}

impl QueuedTask<'_> {
    /// Joins the queue, unless the task is in it. A task that was woken in vain joins at the front.
    fn join(&mut self, cx: &Context<'_>) {
        let mut queue = self.waiters.0.borrow_mut();
        if let Some(entry) = self.key.and_then(|key| queue.get_mut(key)) {
            entry.clone_from(cx.waker());
            return;
        }
        let entry = cx.waker().clone();
        self.key = Some(match self.key {
            Some(_) => queue.push_front(entry),
            None => queue.push_back(entry),
        });
    }
}

impl Drop for QueuedTask<'_> {
    fn drop(&mut self) {
        let Some(key) = self.key else { return };
        let was_woken = self.waiters.0.borrow_mut().remove(key).is_none();
        if was_woken {
            self.waiters.wake_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_woken_task_that_is_cancelled_wakes_the_next() {
        let waiters = Waiters::default();
        let counts: [Arc<Count>; 2] = Default::default();
        let wakers = counts.clone().map(Waker::from);
        let woken = || {
            counts
                .each_ref()
                .map(|count| count.0.load(Ordering::Relaxed))
        };
        let free = std::cell::Cell::new(0_u32);
        let look = || free.get().checked_sub(1).map(|left| free.set(left));
        let mut second = pin!(waiters.until(look));
        {
            let mut first = pin!(waiters.until(look));
            let mut cx = Context::from_waker(&wakers[0]);
            assert!(first.as_mut().poll(&mut cx).is_pending());
            let mut cx = Context::from_waker(&wakers[1]);
            assert!(second.as_mut().poll(&mut cx).is_pending());
            free.set(1);
            waiters.wake_one();
            assert_eq!(woken(), [1, 0]);
        }
        assert_eq!(woken(), [1, 1]);
        let mut cx = Context::from_waker(&wakers[1]);
        assert!(second.as_mut().poll(&mut cx).is_ready());
        assert_eq!(free.get(), 0);
    }
}
