//! Tasks of one core: futures that never leave their thread, run in the order they were woken.

mod admission;
mod blocking;
mod pool_future;
mod tasks;
mod waker;

use std::future::{Future, poll_fn};
use std::task::Poll;

pub use admission::{consume_admission, poll_admission};
pub use blocking::blocking;
pub use pool_future::PoolFuture;
pub(crate) use pool_future::forget_kept;
use tasks::run;
pub(crate) use tasks::{Tasks, main_waker, run_ready};
pub(crate) use waker::{TaskId, wake_local};

use crate::core;

/// Starts a task on the calling core.
///
/// Its future comes from the core's pool and returns there. A task that panics is dropped and
/// counted; its neighbours go on.
///
/// # Panics
/// If the thread runs no reactor.
pub fn spawn(future: impl Future<Output = ()> + 'static) -> TaskKey {
    let future = PoolFuture::new(future);
    core::with(|core| TaskKey(core.tasks.borrow_mut().insert(core.slot, future)))
}

/// As [`spawn`], and gives the task its first turn before it returns: for handlers that are called
/// with something to work on, whose memory is still in the cache. `None` if it was done with that.
///
/// # Panics
/// If the thread runs no reactor.
#[inline]
pub fn spawn_now(future: impl Future<Output = ()> + 'static) -> Option<TaskKey> {
    let future = PoolFuture::new(future);
    core::with(|core| {
        let id = core.tasks.borrow_mut().insert_running(core.slot);
        run(core, id, future).then_some(TaskKey(id))
    })
}

/// Names a task of this core; dropping it does nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TaskKey(TaskId);

impl TaskKey {
    /// Drops the task if it still exists and is not the one that is running.
    pub fn abort(self) {
        // The future may own sockets and more tasks, so it is dropped outside the borrow.
        let future = core::with(|core| core.tasks.borrow_mut().remove(self.0));
        drop(future);
    }
}

/// Lets every other ready task, and the sockets, have a turn.
pub async fn yield_now() {
    let mut yielded = false;
    poll_fn(|cx| {
        if yielded {
            return Poll::Ready(());
        }
        yielded = true;
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
