//! Wakers that hold an identifier instead of a pointer (rule 6).

use std::task::{RawWaker, RawWakerVTable, Waker};

use super::TaskId;
use crate::{core, messages};

impl TaskId {
    /// The task of a waker.
    pub(super) fn of(waker: &Waker) -> TaskId {
        assert!(
            std::ptr::eq(waker.vtable(), &raw const TABLE),
            "the task's own waker is one of this reactor"
        );
        TaskId(waker.data().addr() as u64)
    }

    /// A waker for this task. Cloning it copies a word.
    pub(super) fn waker(self) -> Waker {
        // SAFETY: the functions of TABLE use the data only as a number.
        unsafe { Waker::from_raw(raw(self)) }
    }
}

/// The data pointer contains the word; it is never dereferenced.
fn raw(id: TaskId) -> RawWaker {
    RawWaker::new(std::ptr::without_provenance(id.0 as usize), &TABLE)
}

static TABLE: RawWakerVTable = RawWakerVTable::new(
    |data| raw(TaskId(data.addr() as u64)),
    |data| wake(TaskId(data.addr() as u64)),
    |data| wake(TaskId(data.addr() as u64)),
    |_| {},
);

fn wake(id: TaskId) {
    let here = core::try_with(|core| {
        let ours = core.slot == id.core();
        if ours {
            core.tasks.borrow_mut().wake(id);
        }
        ours
    });
    if here != Some(true) {
        messages::post_wake(id.core(), id);
    }
}
