//! The admission budget: a bound on the requests that tasks start in one turn.
//!
//! A server that starts every request at once has hundreds of them in progress. Each occupies an upstream
//! connection, and its memory has left the cache by the time its response arrives.

use std::collections::VecDeque;
use std::task::{Context, Poll};

use super::TaskId;
use crate::core;

/// The budget of one turn; beyond it tasks are held back. Measured with 1,024 concurrent requests from
/// HTTP/2 to HTTP/1.1: 40 and 128 took an eighth more CPU, no bound took a quarter more.
const ADMISSIONS_PER_TURN: usize = 64;

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
            core.counters.held_back.add(1);
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

/// The rest of the turn's budget, and the tasks that wait for more.
pub(super) struct AdmissionBudget {
    left: usize,
    held_back: VecDeque<TaskId>,
    /// The task that was held back and runs now.
    pub(super) admitted: Option<TaskId>,
}

impl AdmissionBudget {
    pub(super) fn new() -> AdmissionBudget {
        AdmissionBudget {
            left: ADMISSIONS_PER_TURN,
            held_back: VecDeque::new(),
            admitted: None,
        }
    }

    /// Resets the budget at the start of a turn.
    pub(super) fn renew(&mut self) {
        self.left = ADMISSIONS_PER_TURN;
    }

    pub(super) fn held_back(&self) -> usize {
        self.held_back.len()
    }

    /// Whether a task may start a request: the admitted one, or any if no task is held back.
    pub(super) fn allow(&self, id: TaskId) -> bool {
        self.left > 0 && (self.held_back.is_empty() || self.admitted == Some(id))
    }

    /// Queues a task. The admitted task, which has found the budget spent, comes first in the next turn.
    pub(super) fn hold_back(&mut self, id: TaskId) {
        if self.admitted == Some(id) {
            self.held_back.push_front(id);
        } else {
            self.held_back.push_back(id);
        }
    }

    /// The next task that was held back, if the budget is not spent.
    pub(super) fn admit(&mut self) -> Option<TaskId> {
        self.admitted = None;
        if self.left > 0 {
            self.admitted = self.held_back.pop_front();
        }
        self.admitted
    }

    pub(super) fn clear(&mut self) {
        self.held_back.clear();
    }

    fn consume(&mut self) {
        self.left = self.left.saturating_sub(1);
    }
}
