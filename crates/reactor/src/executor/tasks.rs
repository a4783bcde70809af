//! The table of tasks.

use std::collections::VecDeque;
use std::task::Poll;

use super::admission::AdmissionBudget;
use super::{PoolFuture, TaskId};

/// Tasks of one core. Slot 0 represents the main future, which is not in the table.
pub(crate) struct Tasks {
    slots: Vec<TaskSlot>,
    vacant: Vec<u32>,
    pub(super) ready: VecDeque<TaskId>,
    /// Tasks that ran and woke themselves.
    pub(super) busy: VecDeque<TaskId>,
    pub(super) admission: AdmissionBudget,
    main_woken: bool,
}

#[derive(Default)]
struct TaskSlot {
    generation: u32,
    /// In `ready` or `busy`.
    queued: bool,
    /// Waits for the admission budget.
    held_back: bool,
    state: TaskState,
}

#[derive(Default)]
enum TaskState {
    #[default]
    Vacant,
    Main,
    Waiting(PoolFuture<()>),
    /// The future is on the stack of [`run`](super::run::run).
    Running,
}

impl Tasks {
    pub(crate) fn new() -> Tasks {
        let main = TaskSlot {
            state: TaskState::Main,
            ..TaskSlot::default()
        };
        Tasks {
            slots: vec![main],
            vacant: Vec::new(),
            ready: VecDeque::new(),
            busy: VecDeque::new(),
            admission: AdmissionBudget::new(),
            main_woken: true,
        }
    }

    /// Whether the main future was woken since the last call.
    pub(crate) fn take_main_woken(&mut self) -> bool {
        std::mem::take(&mut self.main_woken)
    }

    /// Adds a task, ready to run.
    pub(super) fn insert(&mut self, core: u16, future: PoolFuture<()>) -> TaskId {
        let id = self.insert_running(core);
        let slot = &mut self.slots[id.slot()];
        slot.state = TaskState::Waiting(future);
        slot.queued = true;
        self.ready.push_back(id);
        id
    }

    /// Adds a task whose future the caller passes to [`run`](super::run::run).
    pub(super) fn insert_running(&mut self, core: u16) -> TaskId {
        let slot = self.vacant.pop().unwrap_or_else(|| {
            assert!(
                self.slots.len() < TaskId::SLOTS_MAX,
                "a core has no room for more tasks"
            );
            self.slots.push(TaskSlot::default());
            (self.slots.len() - 1) as u32
        });
        let entry = &mut self.slots[slot as usize];
        entry.state = TaskState::Running;
        entry.queued = false;
        entry.held_back = false;
        TaskId::new(core, slot, entry.generation)
    }

    /// Makes a task ready; a stale identifier is ignored.
    pub(crate) fn wake(&mut self, id: TaskId) {
        let Some(slot) = self.slots.get_mut(id.slot()) else {
            return;
        };
        if !id.is_generation(slot.generation) || slot.queued {
            return;
        }
        match slot.state {
            TaskState::Vacant => {}
            TaskState::Main => self.main_woken = true,
            TaskState::Waiting(_) => {
                slot.queued = true;
                self.ready.push_back(id);
            }
            TaskState::Running => {
                slot.queued = true;
                self.busy.push_back(id);
            }
        }
    }

    /// See [`super::poll_admission`].
    #[inline]
    pub(super) fn poll_admission(&mut self, id: TaskId) -> Poll<()> {
        let slot = &mut self.slots[id.slot()];
        assert!(
            matches!(slot.state, TaskState::Running) && id.is_generation(slot.generation),
            "only a running task asks for admission"
        );
        if !slot.held_back && self.admission.allow(id) {
            return Poll::Ready(());
        }
        if !std::mem::replace(&mut slot.held_back, true) {
            self.admission.hold_back(id);
        }
        Poll::Pending
    }

    /// The number of tasks.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.vacant.len()
    }

    /// Whether a task waits for the admission budget.
    pub(crate) fn is_any_held_back(&self) -> bool {
        self.admission.held_back() > 0
    }

    /// Wakes all tasks, after the mailbox has overflowed.
    pub(crate) fn wake_all(&mut self, core: u16) {
        for slot in 0..self.slots.len() {
            let id = TaskId::new(core, slot as u32, self.slots[slot].generation);
            self.wake(id);
        }
    }

    /// Removes a task that is not running.
    pub(super) fn remove(&mut self, id: TaskId) -> Option<PoolFuture<()>> {
        let slot = self.slots.get_mut(id.slot())?;
        if !id.is_generation(slot.generation) || !matches!(slot.state, TaskState::Waiting(_)) {
            return None;
        }
        self.vacate(id)
    }

    /// Removes any task, when the core ends.
    pub(crate) fn remove_any(&mut self) -> Option<PoolFuture<()>> {
        let slot = self
            .slots
            .iter()
            .position(|slot| matches!(slot.state, TaskState::Waiting(_)))?;
        self.vacate(TaskId::new(0, slot as u32, 0))
    }

    /// Clears the queues, when no task is left.
    pub(crate) fn clear_ready(&mut self) {
        self.ready.clear();
        self.busy.clear();
        self.admission.clear();
        self.main_woken = false;
    }

    /// Whether a task is ready to run.
    pub(crate) fn any_ready(&self) -> bool {
        self.main_woken
            || !self.ready.is_empty()
            || !self.busy.is_empty()
            || self.is_any_held_back()
    }

    #[inline]
    pub(super) fn vacate(&mut self, id: TaskId) -> Option<PoolFuture<()>> {
        let slot = &mut self.slots[id.slot()];
        slot.generation = slot.generation.wrapping_add(1);
        slot.queued = false;
        self.vacant.push(id.slot() as u32);
        match std::mem::take(&mut slot.state) {
            TaskState::Waiting(future) => Some(future),
            TaskState::Main | TaskState::Running | TaskState::Vacant => None,
        }
    }

    /// Takes the next ready or busy task and marks it as running.
    #[inline]
    pub(super) fn take_next(&mut self, busy: bool) -> Option<(TaskId, PoolFuture<()>)> {
        let queue = match busy {
            true => &mut self.busy,
            false => &mut self.ready,
        };
        while let Some(id) = queue.pop_front() {
            let slot = &mut self.slots[id.slot()];
            if !id.is_generation(slot.generation) {
                continue;
            }
            slot.queued = false;
            if let TaskState::Waiting(future) =
                std::mem::replace(&mut slot.state, TaskState::Running)
            {
                return Some((id, future));
            }
        }
        None
    }

    /// Takes the next task that was held back and may start a request, and marks it as running. If it
    /// was woken as well, it also stays in that queue.
    pub(super) fn take_held_back(&mut self) -> Option<(TaskId, PoolFuture<()>)> {
        while let Some(id) = self.admission.admit() {
            let slot = &mut self.slots[id.slot()];
            if !id.is_generation(slot.generation) {
                continue;
            }
            slot.held_back = false;
            if let TaskState::Waiting(future) =
                std::mem::replace(&mut slot.state, TaskState::Running)
            {
                return Some((id, future));
            }
        }
        None
    }

    #[inline]
    pub(super) fn park(&mut self, id: TaskId, future: PoolFuture<()>) {
        self.slots[id.slot()].state = TaskState::Waiting(future);
    }
}
