//! What is begun is finished before much more begins: a bound for what tasks begin in a turn.
//!
//! A server that begins whatever has come has hundreds of requests half done, each of which keeps a
//! connection to an upstream and memory that has left the cache when its answer comes.

use std::collections::VecDeque;
use std::task::{Context, Poll};

use super::TaskId;
use crate::core;

/// How much may be begun in a turn before tasks are held back. Measured with 1,024 requests at once
/// from HTTP/2 to HTTP/1.1: 40 and 128 took an eighth more CPU, no bound a quarter.
const ADMISSIONS_PER_TURN: usize = 64;

/// Whether the running task may begin one more thing for which it will have to wait, such as a request
/// that it passes on. If not, it is held back: it will be run again when it may, in the order in which
/// tasks were held back, and may be woken and run before.
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

/// Counts what was begun after [`poll_admission`] allowed it.
///
/// # Panics
/// If the thread runs no reactor.
#[inline]
pub fn consume_admission() {
    core::with(|core| core.tasks.borrow_mut().admission.consume());
}

/// What may still be begun, and who waits for that.
pub(super) struct AdmissionBudget {
    left: usize,
    held_back: VecDeque<TaskId>,
    /// Was held back, and has its turn now.
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

    /// A turn of the tasks begins.
    pub(super) fn renew(&mut self) {
        self.left = ADMISSIONS_PER_TURN;
    }

    pub(super) fn held_back(&self) -> usize {
        self.held_back.len()
    }

    /// Whether a task that was not held back, or has its turn, may begin something.
    pub(super) fn allow(&self, id: TaskId) -> bool {
        self.left > 0 && (self.held_back.is_empty() || self.admitted == Some(id))
    }

    /// Who has its turn, and finds that nothing is left to begin, goes on first in the next.
    pub(super) fn hold_back(&mut self, id: TaskId) {
        if self.admitted == Some(id) {
            self.held_back.push_front(id);
        } else {
            self.held_back.push_back(id);
        }
    }

    /// The next one that was held back, if anything may be begun.
    pub(super) fn admit(&mut self) -> Option<TaskId> {
        self.admitted = None;
        if self.left > 0 {
            self.admitted = self.held_back.pop_front();
        }
        self.admitted
    }

    pub(super) fn forget(&mut self) {
        self.held_back.clear();
    }

    fn consume(&mut self) {
        self.left = self.left.saturating_sub(1);
    }
}
