//! Tasks of one core: futures that stay on their thread and run in the order in which they are woken.

mod admission;
mod blocking;
mod pool_future;
mod run;
mod task_id;
mod tasks;
mod waker;

use std::future::{Future, poll_fn};
use std::task::{Context, Poll};

use crate::core;

pub(crate) use blocking::blocking_in_order;
pub use blocking::{TooManyWait, blocking, blocking_in};
pub(crate) use pool_future::free_unused_blocks;
pub use pool_future::{PoolFuture, PooledFuture};
pub(crate) use run::{main_waker, run_ready};
pub(crate) use task_id::TaskId;
pub(crate) use tasks::Tasks;

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
        run::run(core, id, future).then_some(TaskKey(id))
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

/// Ready if the running task may start one more request that it will have to wait for. If not, the task
/// is held back: it runs again when the budget allows it, in the order in which tasks were held back. It
/// may also be woken and run earlier.
///
/// # Panics
/// If the thread runs no reactor, or if `cx` is not that of the task itself.
#[inline]
pub fn poll_admission(cx: &Context<'_>) -> Poll<()> {
    core::with(|core| {
        let begin = core
            .tasks
            .borrow_mut()
            .poll_admission(TaskId::of(cx.waker()));
        if begin.is_pending() {
            core.resources.counters.held_back.add(1);
        }
        begin
    })
}

/// Takes one request from the budget, after [`poll_admission`] was ready.
///
/// # Panics
/// If the thread runs no reactor.
#[inline]
pub fn consume_admission() {
    core::with(|core| core.tasks.borrow_mut().admission.consume());
}

/// Counts a resumed socket whose request has to wait. After 16 of them in a turn, parked sockets that
/// receive are held back until the next turn, in order.
///
/// # Panics
/// If the thread runs no reactor.
#[inline]
pub fn consume_resume() {
    core::with(|core| core.sockets().table.consume_resume());
}
