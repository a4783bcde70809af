//! Threads beside the cores for work that blocks.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

/// Most threads; further jobs wait in line.
const THREADS_MAX: usize = 16;

/// A thread without work ends after this long.
const IDLE: Duration = Duration::from_secs(10);

/// Something that blocks.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

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

/// Has a thread of the pool do `job`.
pub(crate) fn submit(job: Job) {
    POOL.submit(job);
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
        let _ = PROCESSORS.get().map(|processors| super::run_on(processors));
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
