//! The peers of a simulation: tasks that are polled when they were woken.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

type Task = Pin<Box<dyn Future<Output = ()>>>;

/// A peer, and its waker, which is the same at every turn.
type Peer = (Task, Waker);

/// All peers. Cloning gives another handle to the same.
#[derive(Clone, Default)]
pub(super) struct Peers {
    tasks: Rc<RefCell<Vec<Option<Peer>>>>,
    ready: Arc<WokenTasks>,
}

/// The tasks that were woken, in order, each once.
#[derive(Default)]
struct WokenTasks(Mutex<VecDeque<usize>>);

impl WokenTasks {
    /// No code of others runs while it is locked.
    fn lock(&self) -> MutexGuard<'_, VecDeque<usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Named {
    task: usize,
    ready: Arc<WokenTasks>,
}

impl Wake for Named {
    fn wake(self: Arc<Named>) {
        let mut ready = self.ready.lock();
        if !ready.contains(&self.task) {
            ready.push_back(self.task);
        }
    }
}

impl Peers {
    pub(super) fn spawn(&self, task: Task) {
        let mut tasks = self.tasks.borrow_mut();
        let named = Named {
            task: tasks.len(),
            ready: Arc::clone(&self.ready),
        };
        self.ready.lock().push_back(named.task);
        tasks.push(Some((task, Waker::from(Arc::new(named)))));
    }

    pub(super) fn are_ready(&self) -> bool {
        !self.ready.lock().is_empty()
    }

    /// Gives everybody who is ready now one turn.
    pub(super) fn run_ready(&self) {
        let ready = std::mem::take(&mut *self.ready.lock());
        for index in ready {
            // Taken out, because a task may start others.
            let task = self
                .tasks
                .borrow_mut()
                .get_mut(index)
                .and_then(Option::take);
            let Some((mut task, waker)) = task else {
                continue;
            };
            if task.as_mut().poll(&mut Context::from_waker(&waker)) == Poll::Pending {
                self.tasks.borrow_mut()[index] = Some((task, waker));
            }
        }
    }

    pub(super) fn clear(&self) {
        let tasks = std::mem::take(&mut *self.tasks.borrow_mut());
        drop(tasks);
        self.ready.lock().clear();
    }
}
