//! Work that blocks, on a few threads beside the cores.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Poll, Waker};
use std::thread;
use std::time::Duration;

use crate::sys;

/// Most threads; further jobs wait in line.
const THREADS_MAX: usize = 16;

/// A thread without work ends after this long.
const IDLE: Duration = Duration::from_secs(10);

type Job = Box<dyn FnOnce() + Send>;

static POOL: Pool = Pool {
    state: Mutex::new(State {
        jobs: VecDeque::new(),
        threads: 0,
        idle: 0,
    }),
    work: Condvar::new(),
};

/// The processors of the process, noted before a core was pinned: threads of the pool are started
/// by cores and would inherit the pin.
static PROCESSORS: OnceLock<Vec<usize>> = OnceLock::new();

/// Notes where threads of the pool may run.
pub(crate) fn note_processors(processors: &[usize]) {
    PROCESSORS.get_or_init(|| processors.to_vec());
}

/// Runs `job` on the blocking pool and resumes the task, on its own core, with the value.
///
/// Dropping the future does not stop the job. A panic of the job continues in the caller.
pub async fn blocking<T: Send + 'static>(job: impl FnOnce() -> T + Send + 'static) -> T {
    let shared = Arc::new(Mutex::new((None, None::<Waker>)));
    let theirs = Arc::clone(&shared);
    POOL.submit(Box::new(move || {
        let value = catch_unwind(AssertUnwindSafe(job));
        let mut shared = lock(&theirs);
        shared.0 = Some(value);
        if let Some(waker) = shared.1.take() {
            waker.wake();
        }
    }));
    let value = poll_fn(|cx| {
        let mut shared = lock(&shared);
        match shared.0.take() {
            Some(value) => Poll::Ready(value),
            None => {
                shared.1 = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    })
    .await;
    value.unwrap_or_else(|panic| resume_unwind(panic))
}

struct Pool {
    state: Mutex<State>,
    work: Condvar,
}

struct State {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
}

impl Pool {
    fn submit(&'static self, job: Job) {
        let mut state = lock(&self.state);
        state.jobs.push_back(job);
        if state.idle >= state.jobs.len() || state.threads == THREADS_MAX {
            self.work.notify_one();
            return;
        }
        let started = thread::Builder::new()
            .name("blitz-blocking".into())
            .spawn(|| self.work());
        match started {
            Ok(_) => state.threads += 1,
            // With no thread at all the job is done here: slow, but done.
            Err(_) if state.threads == 0 => {
                let job = state.jobs.pop_back();
                drop(state);
                if let Some(job) = job {
                    job();
                }
            }
            Err(_) => self.work.notify_one(),
        }
    }

    fn work(&self) {
        // A container may forbid it; the jobs are done all the same.
        let _ = PROCESSORS.get().map(|processors| sys::run_on(processors));
        let mut state = lock(&self.state);
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                job();
                state = lock(&self.state);
                continue;
            }
            state.idle += 1;
            let (guard, waited) = self
                .work
                .wait_timeout(state, IDLE)
                .unwrap_or_else(PoisonError::into_inner);
            state = guard;
            state.idle -= 1;
            if waited.timed_out() && state.jobs.is_empty() {
                state.threads -= 1;
                return;
            }
        }
    }
}

/// A job that panicked is caught before it can leave anything half done.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
