//! Tasks of one core: futures that stay on their thread and run in the order in which they are woken.

mod admission;
mod blocking;
mod pool_future;
mod task_id;
mod tasks;
mod waker;

use std::future::{Future, poll_fn};
use std::task::Poll;

use crate::core;
use tasks::run;

pub use admission::{consume_admission, consume_resume, poll_admission};
pub use blocking::blocking;
pub(crate) use pool_future::free_unused;
pub use pool_future::{PoolFuture, PooledFuture};
pub(crate) use task_id::TaskId;
pub(crate) use tasks::{Tasks, main_waker, run_ready};

/// Starts a task on the calling core.
///
/// The memory of its future comes from the core's pool and returns to it. A task that panics is dropped
/// and counted; other tasks continue.
///
/// # Panics
/// If the thread runs no reactor.
pub fn spawn(future: impl Future<Output = ()> + 'static) -> TaskKey {
    let future = PoolFuture::new(future);
    core::with(|core| TaskKey(core.tasks.borrow_mut().insert(core.slot, future)))
}

/// As [`spawn`], with the future that `make` returns, and polls the task once before it returns, while the
/// handler's input is still in the processor's cache. `None` if that completes the task.
///
/// # Panics
/// If the thread runs no reactor.
#[inline]
pub fn spawn_now<F: Future<Output = ()> + 'static>(make: impl FnOnce() -> F) -> Option<TaskKey> {
    let future = PoolFuture::with(make);
    core::with(|core| {
        let id = core.tasks.borrow_mut().insert_running(core.slot);
        run(core, id, future).then_some(TaskKey(id))
    })
}

/// The key of a task of this core. Dropping the key does not affect the task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TaskKey(TaskId);

impl TaskKey {
    /// Drops the task, unless it has ended or is running.
    pub fn abort(self) {
        // The future may own sockets and other tasks, so it is dropped outside the borrow.
        let future = core::with(|core| core.tasks.borrow_mut().remove(self.0));
        drop(future);
    }
}

/// Lets every other ready task run, and the sockets be served, before the caller continues.
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
