//! The part of a turn in which the ready tasks run.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::{PoolFuture, TaskId};
use crate::core::Core;

/// The time budget that busy tasks share in each turn, unless the other tasks took longer.
const BUSY_TIME: Duration = Duration::from_micros(200);

/// A waker for the main future.
pub(crate) fn main_waker(core: &Core) -> Waker {
    TaskId::new(core.slot, 0, 0).waker()
}

/// Runs the tasks that are ready now. Tasks that become ready meanwhile run in the next turn, after the
/// sockets were served, so that a task that always wakes itself starves no other.
///
/// Light tasks run before busy ones, which woke themselves and share a time budget: as long as the light
/// tasks took, or [`BUSY_TIME`] if that is longer. Then the tasks that were held back run, as far as the
/// admission budget allows.
pub(crate) fn run_ready(core: &Core) {
    let (ready, busy) = {
        let mut tasks = core.tasks.borrow_mut();
        tasks.admission.renew();
        (tasks.ready.len(), tasks.busy.len())
    };
    let start = (busy > 1).then(|| core.time());
    for _ in 0..ready {
        let next = core.tasks.borrow_mut().take_next(false);
        let Some((id, future)) = next else { break };
        run(core, id, future);
    }
    let busy_budget = start.map(|start| {
        let now = core.time();
        ((now - start).max(BUSY_TIME), now)
    });
    for _ in 0..busy {
        let next = core.tasks.borrow_mut().take_next(true);
        let Some((id, future)) = next else { break };
        run(core, id, future);
        if busy_budget.is_some_and(|(budget, since)| core.time() - since >= budget) {
            break;
        }
    }
    let held_back = core.tasks.borrow().admission.held_back();
    for _ in 0..held_back {
        let next = core.tasks.borrow_mut().take_held_back();
        let Some((id, future)) = next else { break };
        run(core, id, future);
    }
    core.tasks.borrow_mut().admission.admitted = None;
}

/// Polls a task that is marked as running; false if it is done.
#[inline]
pub(super) fn run(core: &Core, id: TaskId, future: PoolFuture<()>) -> bool {
    let waker = id.waker();
    let mut future = Some(future);
    let turn = AssertUnwindSafe(|| {
        let mut cx = Context::from_waker(&waker);
        let polled = future.as_mut().map(|future| Pin::new(future).poll(&mut cx));
        if polled == Some(Poll::Ready(())) {
            future = None;
        }
    });
    let panicked = catch_unwind(turn).is_err();
    if panicked {
        core.resources.counters.task_panics.add(1);
        // Dropping the future may panic again.
        let _ = catch_unwind(AssertUnwindSafe(|| future = None));
    }
    let mut tasks = core.tasks.borrow_mut();
    let is_pending = future.is_some();
    match future {
        Some(future) => tasks.park(id, future),
        None => drop(tasks.vacate(id)),
    }
    is_pending
}
