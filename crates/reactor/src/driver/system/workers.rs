//! A pool of threads for blocking jobs.
//!
//! Jobs of a [`Share`] run on a part of the threads only, so that a disk that does not answer leaves threads for other
//! jobs.

mod share;

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use super::node::prefer_memory_of;
use super::process::run_on;
use share::SharedJobs;

pub use share::Share;

/// Most threads; further jobs are queued.
const THREADS_MAX: usize = 16;

/// A thread without a job ends after this time.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);

/// A blocking job.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

static POOL: WorkerPool = WorkerPool {
    state: Mutex::new(JobQueue {
        jobs: VecDeque::new(),
        shared: SharedJobs::new(),
        threads: 0,
        idle: 0,
    }),
    work: Condvar::new(),
};

/// The placement of threads of the pool: cores start them, which would inherit that of the core.
static PLACEMENT: OnceLock<Placement> = OnceLock::new();

struct Placement {
    /// Those of the process, read before a core is pinned.
    processors: Vec<usize>,
    /// Whether cores prefer the memory of a node.
    cores_have_nodes: bool,
}

/// Sets the processors that threads of the pool may run on.
pub(crate) fn set_processors(processors: &[usize], cores_have_nodes: bool) {
    PLACEMENT.get_or_init(|| Placement {
        processors: processors.to_vec(),
        cores_have_nodes,
    });
}

/// Queues `job` for a thread of the pool.
pub(crate) fn submit(job: Job) {
    let mut state = lock(&POOL.state);
    state.jobs.push_back(job);
    POOL.provide_thread(state);
}

/// Queues `job` for one of the threads that `share` may have. Returns it if `may_refuse` and too many wait already.
pub(crate) fn submit_shared(share: &Arc<Share>, job: Job, may_refuse: bool) -> Result<(), Job> {
    let mut state = lock(&POOL.state);
    state.shared.push(share, job, may_refuse)?;
    POOL.provide_thread(state);
    Ok(())
}

struct WorkerPool {
    state: Mutex<JobQueue>,
    work: Condvar,
}

struct JobQueue {
    jobs: VecDeque<Job>,
    /// Those of shares, which run when there are no others.
    shared: SharedJobs,
    threads: usize,
    idle: usize,
}

impl JobQueue {
    /// Jobs that a thread could run now.
    fn runnable(&self) -> usize {
        self.jobs.len() + self.shared.runnable()
    }

    fn pop(&mut self) -> Option<(Job, Option<Arc<Share>>)> {
        if let Some(job) = self.jobs.pop_front() {
            return Some((job, None));
        }
        self.shared.pop().map(|(job, share)| (job, Some(share)))
    }
}

impl WorkerPool {
    /// Has a thread take the job that was just queued.
    fn provide_thread(&'static self, mut state: MutexGuard<'static, JobQueue>) {
        if state.idle >= state.runnable() || state.threads == THREADS_MAX {
            self.work.notify_one();
            return;
        }
        let started = thread::Builder::new()
            .name("blitz-blocking".into())
            .spawn(|| self.work());
        match started {
            Ok(_) => state.threads += 1,
            // Without any thread the caller runs the job: slow, but better than never.
            Err(_) if state.threads == 0 => {
                while let Some((job, share)) = state.pop() {
                    drop(state);
                    job();
                    state = lock(&self.state);
                    state.shared.done(share);
                }
            }
            Err(_) => self.work.notify_one(),
        }
    }

    fn work(&self) {
        // A container may forbid it; the jobs run nevertheless.
        if let Some(placement) = PLACEMENT.get() {
            let _ = run_on(&placement.processors);
            if placement.cores_have_nodes {
                let _ = prefer_memory_of(None);
            }
        }
        let mut state = lock(&self.state);
        loop {
            if let Some((job, share)) = state.pop() {
                drop(state);
                job();
                state = lock(&self.state);
                state.shared.done(share);
                continue;
            }
            state.idle += 1;
            let (guard, waited) = self
                .work
                .wait_timeout(state, IDLE_TIMEOUT)
                .unwrap_or_else(PoisonError::into_inner);
            state = guard;
            state.idle -= 1;
            if waited.timed_out() && state.runnable() == 0 {
                state.threads -= 1;
                return;
            }
        }
    }
}

/// Jobs run without the lock, so a job that panics leaves the queue consistent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
