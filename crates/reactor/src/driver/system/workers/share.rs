//! Jobs that may hold a part of the threads.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Job;

/// Threads that the jobs of one share hold at most.
const THREADS_PER_SHARE: usize = 4;

/// Threads that the jobs of all shares hold at most.
const SHARED_THREADS_MAX: usize = 12;

/// Jobs of one share that wait for a thread, unless they may not be refused.
const WAITING_MAX: usize = 256;

/// A part of the threads for blocking jobs, for jobs that may all be slow at the same time: those of one folder. At
/// most 4 of the 16 threads run them, and those of all shares hold at most 12.
#[derive(Default)]
pub struct Share(Mutex<ShareState>);

#[derive(Default)]
struct ShareState {
    waiting: VecDeque<Job>,
    running: usize,
}

impl std::fmt::Debug for Share {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.lock();
        f.debug_struct("Share")
            .field("waiting", &state.waiting.len())
            .field("running", &state.running)
            .finish()
    }
}

impl Share {
    fn lock(&self) -> MutexGuard<'_, ShareState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ShareState {
    /// Jobs that may start now.
    fn runnable(&self) -> usize {
        self.waiting.len().min(THREADS_PER_SHARE - self.running)
    }
}

/// The jobs of all shares. The lock of the pool guards them; it is taken before that of a share.
pub(super) struct SharedJobs {
    /// Shares with waiting jobs, each once. They take turns.
    shares: VecDeque<Arc<Share>>,
    running: usize,
}

impl SharedJobs {
    pub(super) const fn new() -> SharedJobs {
        SharedJobs {
            shares: VecDeque::new(),
            running: 0,
        }
    }

    pub(super) fn push(
        &mut self,
        share: &Arc<Share>,
        job: Job,
        may_refuse: bool,
    ) -> Result<(), Job> {
        let mut state = share.lock();
        if may_refuse && state.waiting.len() >= WAITING_MAX {
            return Err(job);
        }
        state.waiting.push_back(job);
        if state.waiting.len() == 1 {
            self.shares.push_back(Arc::clone(share));
        }
        Ok(())
    }

    /// Jobs that may start now.
    pub(super) fn runnable(&self) -> usize {
        let all: usize = self
            .shares
            .iter()
            .map(|share| share.lock().runnable())
            .sum();
        all.min(SHARED_THREADS_MAX - self.running)
    }

    /// The next job that may start. [`SharedJobs::done`] has to follow it.
    pub(super) fn pop(&mut self) -> Option<(Job, Arc<Share>)> {
        if self.running == SHARED_THREADS_MAX {
            return None;
        }
        for _ in 0..self.shares.len() {
            let share = self.shares.pop_front()?;
            let mut state = share.lock();
            let job = match state.runnable() {
                0 => None,
                _ => state.waiting.pop_front(),
            };
            state.running += usize::from(job.is_some());
            let is_waiting = !state.waiting.is_empty();
            drop(state);
            if is_waiting {
                self.shares.push_back(Arc::clone(&share));
            }
            if let Some(job) = job {
                self.running += 1;
                return Some((job, share));
            }
        }
        None
    }

    /// A job has ended.
    pub(super) fn done(&mut self, share: Option<Arc<Share>>) {
        if let Some(share) = share {
            share.lock().running -= 1;
            self.running -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jobs(jobs: &mut SharedJobs, share: &Arc<Share>, number: usize) -> usize {
        let pushed = (0..number).map(|_| jobs.push(share, Box::new(|| ()), true));
        pushed.filter(Result::is_ok).count()
    }

    fn start_all(jobs: &mut SharedJobs) -> Vec<Arc<Share>> {
        std::iter::from_fn(|| jobs.pop().map(|(_, share)| share)).collect()
    }

    #[test]
    fn a_share_holds_a_part_of_the_threads_and_refuses_more_than_may_wait() {
        let (mut all, slow) = (SharedJobs::new(), Arc::new(Share::default()));
        assert_eq!(jobs(&mut all, &slow, WAITING_MAX + 5), WAITING_MAX);
        assert_eq!(all.runnable(), THREADS_PER_SHARE);
        let running = start_all(&mut all);
        assert_eq!(running.len(), THREADS_PER_SHARE);
        assert_eq!((all.runnable(), jobs(&mut all, &slow, 9)), (0, 4));
        assert!(all.push(&slow, Box::new(|| ()), false).is_ok(), "a read");
        let other = Arc::new(Share::default());
        assert_eq!(jobs(&mut all, &other, 1), 1);
        assert!(Arc::ptr_eq(&start_all(&mut all)[0], &other));
        all.done(Some(Arc::clone(&running[0])));
        assert!(Arc::ptr_eq(&start_all(&mut all)[0], &slow));
    }

    #[test]
    fn all_shares_together_leave_threads_for_other_jobs() {
        let mut all = SharedJobs::new();
        let shares: Vec<_> = (0..5).map(|_| Arc::new(Share::default())).collect();
        for share in &shares {
            jobs(&mut all, share, 10);
        }
        let running = start_all(&mut all);
        assert_eq!(running.len(), SHARED_THREADS_MAX);
        assert_eq!((all.runnable(), all.shares.len()), (0, 5));
        for share in running {
            all.done(Some(share));
        }
        assert_eq!(all.runnable(), SHARED_THREADS_MAX);
    }

    #[test]
    fn shares_take_turns() {
        let (mut all, one, other) = (SharedJobs::new(), Arc::default(), Arc::default());
        assert_eq!(jobs(&mut all, &one, 3) + jobs(&mut all, &other, 3), 6);
        let order = start_all(&mut all);
        let is_one: Vec<bool> = order.iter().map(|share| Arc::ptr_eq(share, &one)).collect();
        assert_eq!(is_one, [true, false, true, false, true, false]);
        assert!(all.shares.is_empty(), "nothing waits");
    }
}
