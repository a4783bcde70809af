//! Wakers that hold an identifier instead of a pointer (rule 6).

use std::task::{RawWaker, RawWakerVTable, Waker};

use crate::{core, mailbox};

const SLOT_BITS: u32 = 28;
const GENERATION_BITS: u32 = 24;

/// Identifies a task of the process: core, slot in its table, and generation of the slot, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct TaskId(u64);

impl TaskId {
    /// Most tasks of one core.
    pub(super) const SLOTS_MAX: usize = 1 << SLOT_BITS;

    pub(super) fn new(core: u16, slot: u32, generation: u32) -> TaskId {
        let generation = u64::from(generation) & ((1 << GENERATION_BITS) - 1);
        TaskId(
            u64::from(core) << (SLOT_BITS + GENERATION_BITS)
                | generation << SLOT_BITS
                | u64::from(slot),
        )
    }

    /// The task of a waker.
    pub(super) fn of(waker: &Waker) -> TaskId {
        assert!(
            std::ptr::eq(waker.vtable(), &raw const TABLE),
            "the task's own waker is one of this reactor"
        );
        TaskId(waker.data().addr() as u64)
    }

    fn core(self) -> u16 {
        (self.0 >> (SLOT_BITS + GENERATION_BITS)) as u16
    }

    pub(super) fn slot(self) -> usize {
        (self.0 & ((1 << SLOT_BITS) - 1)) as usize
    }

    /// Whether the slot's current generation is that of the task.
    pub(super) fn is_generation(self, generation: u32) -> bool {
        let mask = (1 << GENERATION_BITS) - 1;
        (self.0 >> SLOT_BITS) & mask == u64::from(generation) & mask
    }

    /// A waker for this task. Cloning it copies a word.
    pub(super) fn waker(self) -> Waker {
        // SAFETY: the functions of TABLE use the data only as a number.
        unsafe { Waker::from_raw(raw(self)) }
    }
}

/// Wakes a task of the calling core.
pub(crate) fn wake_local(core: &core::Core, id: TaskId) {
    core.tasks.borrow_mut().wake(id);
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
            wake_local(core, id);
        }
        ours
    });
    if here != Some(true) {
        mailbox::post_wake(id.core(), id);
    }
}
