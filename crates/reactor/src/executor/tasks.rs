//! The table of tasks and the loop that runs those which are ready.

use std::collections::VecDeque;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::admission::AdmissionBudget;
use super::{PoolFuture, TaskId};
use crate::core::Core;

/// How long tasks that have more to do may take in each turn.
const BUSY_TIME: Duration = Duration::from_micros(200);

/// Tasks of one core. Slot 0 stands for the main future, which is not in the table.
pub(crate) struct Tasks {
    slots: Vec<Slot>,
    vacant: Vec<u32>,
    ready: VecDeque<TaskId>,
    /// Those that had a turn and have more to do.
    busy: VecDeque<TaskId>,
    pub(super) admission: AdmissionBudget,
    main_woken: bool,
}

#[derive(Default)]
struct Slot {
    generation: u32,
    /// Waits in `ready` or `busy`.
    queued: bool,
    /// Waits to begin more.
    held_back: bool,
    state: State,
}

#[derive(Default)]
enum State {
    #[default]
    Vacant,
    Main,
    Waiting(PoolFuture<()>),
    /// The future is on the stack of `run_ready`.
    Running,
}

impl Tasks {
    pub(crate) fn new() -> Tasks {
        let main = Slot {
            state: State::Main,
            ..Slot::default()
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

    /// Whether the main future was woken since the last question.
    pub(crate) fn take_main_woken(&mut self) -> bool {
        std::mem::take(&mut self.main_woken)
    }

    /// Adds a task, ready to run.
    pub(super) fn insert(&mut self, core: u16, future: PoolFuture<()>) -> TaskId {
        let id = self.insert_running(core);
        let slot = &mut self.slots[id.slot()];
        slot.state = State::Waiting(future);
        slot.queued = true;
        self.ready.push_back(id);
        id
    }

    /// Adds a task whose future the caller has, to be given to [`run`].
    pub(super) fn insert_running(&mut self, core: u16) -> TaskId {
        let slot = self.vacant.pop().unwrap_or_else(|| {
            assert!(
                self.slots.len() < TaskId::SLOTS_MAX,
                "a core holds no more tasks"
            );
            self.slots.push(Slot::default());
            (self.slots.len() - 1) as u32
        });
        let entry = &mut self.slots[slot as usize];
        entry.state = State::Running;
        entry.queued = false;
        entry.held_back = false;
        TaskId::new(core, slot, entry.generation)
    }

    /// Makes a task ready; a name that has gone stale is ignored.
    pub(super) fn wake(&mut self, id: TaskId) {
        let Some(slot) = self.slots.get_mut(id.slot()) else {
            return;
        };
        if !id.is_generation(slot.generation) || slot.queued {
            return;
        }
        match slot.state {
            State::Vacant => {}
            State::Main => self.main_woken = true,
            State::Waiting(_) => {
                slot.queued = true;
                self.ready.push_back(id);
            }
            State::Running => {
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
            matches!(slot.state, State::Running) && id.is_generation(slot.generation),
            "only a running task begins something"
        );
        if !slot.held_back && self.admission.allow(id) {
            return Poll::Ready(());
        }
        if !std::mem::replace(&mut slot.held_back, true) {
            self.admission.hold_back(id);
        }
        Poll::Pending
    }

    /// Whether a task is held back until others have finished some of what they began.
    /// Tasks that are not done.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.vacant.len()
    }

    pub(crate) fn is_any_held_back(&self) -> bool {
        self.admission.held_back() > 0
    }

    /// Wakes everything: the outcome of a mailbox that overflowed.
    pub(crate) fn wake_all(&mut self, core: u16) {
        for slot in 0..self.slots.len() {
            let id = TaskId::new(core, slot as u32, self.slots[slot].generation);
            self.wake(id);
        }
    }

    /// Takes a waiting task out.
    pub(super) fn remove(&mut self, id: TaskId) -> Option<PoolFuture<()>> {
        let slot = self.slots.get_mut(id.slot())?;
        if !id.is_generation(slot.generation) || !matches!(slot.state, State::Waiting(_)) {
            return None;
        }
        self.vacate(id)
    }

    /// Takes any task out, for the end of the core.
    pub(crate) fn remove_any(&mut self) -> Option<PoolFuture<()>> {
        let slot = self
            .slots
            .iter()
            .position(|slot| matches!(slot.state, State::Waiting(_)))?;
        self.vacate(TaskId::new(0, slot as u32, 0))
    }

    /// Forgets who is ready, when nobody is left.
    pub(crate) fn forget_ready(&mut self) {
        self.ready.clear();
        self.busy.clear();
        self.admission.forget();
        self.main_woken = false;
    }

    /// Whether a task is ready to run.
    pub(crate) fn any_ready(&self) -> bool {
        self.main_woken
            || !self.ready.is_empty()
            || !self.busy.is_empty()
            || self.is_any_held_back()
    }

    fn vacate(&mut self, id: TaskId) -> Option<PoolFuture<()>> {
        let slot = &mut self.slots[id.slot()];
        slot.generation = slot.generation.wrapping_add(1);
        slot.queued = false;
        self.vacant.push(id.slot() as u32);
        match std::mem::take(&mut slot.state) {
            State::Waiting(future) => Some(future),
            State::Main | State::Running | State::Vacant => None,
        }
    }

    /// The next task that is ready or, if so asked, busy, marked as running.
    fn begin(&mut self, busy: bool) -> Option<(TaskId, PoolFuture<()>)> {
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
            if let State::Waiting(future) = std::mem::replace(&mut slot.state, State::Running) {
                return Some((id, future));
            }
        }
        None
    }

    /// The next task that was held back and may begin something, marked as running. One that was
    /// woken besides keeps its place among those.
    fn begin_held_back(&mut self) -> Option<(TaskId, PoolFuture<()>)> {
        while let Some(id) = self.admission.admit() {
            let slot = &mut self.slots[id.slot()];
            if !id.is_generation(slot.generation) {
                continue;
            }
            slot.held_back = false;
            if let State::Waiting(future) = std::mem::replace(&mut slot.state, State::Running) {
                return Some((id, future));
            }
        }
        None
    }

    fn park(&mut self, id: TaskId, future: PoolFuture<()>) {
        self.slots[id.slot()].state = State::Waiting(future);
    }
}

/// A waker for the main future.
pub(crate) fn main_waker(core: &Core) -> Waker {
    TaskId::new(core.slot, 0, 0).waker()
}

/// Runs the tasks that are ready now. Those that become ready meanwhile have their turn after the
/// sockets have had theirs, so that a task that always wakes itself starves nobody.
///
/// Tasks that had more to do than a turn allows come last, one after the other for as long as the
/// others took, or for [`BUSY_TIME`] if that is longer: however many there are, who has little to
/// do waits for a part of them only. Behind them come those that were held back, as far as more may
/// be begun.
pub(crate) fn run_ready(core: &Core) {
    let (ready, busy) = {
        let mut tasks = core.tasks.borrow_mut();
        tasks.admission.renew();
        (tasks.ready.len(), tasks.busy.len())
    };
    let began = (busy > 1).then(|| core.time());
    for _ in 0..ready {
        let next = core.tasks.borrow_mut().begin(false);
        let Some((id, future)) = next else { break };
        run(core, id, future);
    }
    let others_done = began.map(|began| {
        let now = core.time();
        ((now - began).max(BUSY_TIME), now)
    });
    for _ in 0..busy {
        let next = core.tasks.borrow_mut().begin(true);
        let Some((id, future)) = next else { break };
        run(core, id, future);
        if others_done.is_some_and(|(share, since)| core.time() - since >= share) {
            break;
        }
    }
    let held_back = core.tasks.borrow().admission.held_back();
    for _ in 0..held_back {
        let next = core.tasks.borrow_mut().begin_held_back();
        let Some((id, future)) = next else { break };
        run(core, id, future);
    }
    core.tasks.borrow_mut().admission.admitted = None;
}

/// Gives a task that is marked as running one turn; whether there is more to do.
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
        core.counters.task_panics.add(1);
        // What is left of it may panic once more.
        let _ = catch_unwind(AssertUnwindSafe(|| future = None));
    }
    let mut tasks = core.tasks.borrow_mut();
    let goes_on = future.is_some();
    match future {
        Some(future) => tasks.park(id, future),
        None => drop(tasks.vacate(id)),
    }
    goes_on
}
