//! Blocking jobs, which run on other threads than the cores'.

use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use crate::core::{self, Core};
use crate::driver::Share;

/// So many jobs of a [`Share`] wait for a thread that another one is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooManyWait;

/// The result of a job, and the task that waits for it.
type Outcome<T> = Mutex<(Option<Result<T, Box<dyn Any + Send>>>, Option<Waker>)>;

/// Runs `job` on the pool of blocking threads and resumes the task, on its own core, with the result.
///
/// Dropping the future does not stop the job. A panic of the job continues in the caller.
pub async fn blocking<T: Send + 'static>(job: impl FnOnce() -> T + Send + 'static) -> T {
    let outcome = Arc::new(Outcome::default());
    let of_job = Arc::clone(&outcome);
    let workers = core::try_with(Core::workers).unwrap_or_default();
    workers.submit(Box::new(move || run(&of_job, job)));
    wait(&outcome).await
}

/// As [`blocking`], on one of the threads that `share` may have. If the future is dropped before the job has started,
/// it does not start.
///
/// # Errors
/// Too many jobs of the share wait already.
pub async fn blocking_in<T: Send + 'static>(
    share: &Arc<Share>,
    job: impl FnOnce() -> T + Send + 'static,
) -> Result<T, TooManyWait> {
    let outcome = Arc::new(Outcome::default());
    submit_shared(share, &outcome, job, true)?;
    Ok(wait(&outcome).await)
}

/// As [`blocking_in`], but is never refused: for jobs whose number is bounded otherwise.
pub(crate) async fn blocking_in_order<T: Send + 'static>(
    share: &Arc<Share>,
    job: impl FnOnce() -> T + Send + 'static,
) -> T {
    let outcome = Arc::new(Outcome::default());
    let submitted = submit_shared(share, &outcome, job, false);
    assert!(submitted.is_ok(), "a job that is not refused was refused");
    wait(&outcome).await
}

fn submit_shared<T: Send + 'static>(
    share: &Arc<Share>,
    outcome: &Arc<Outcome<T>>,
    job: impl FnOnce() -> T + Send + 'static,
    may_refuse: bool,
) -> Result<(), TooManyWait> {
    let of_job = Arc::clone(outcome);
    let workers = core::try_with(Core::workers).unwrap_or_default();
    let job = Box::new(move || {
        // Nobody waits for it if the task has dropped its reference.
        if Arc::strong_count(&of_job) > 1 {
            run(&of_job, job);
        }
    });
    let submitted = workers.submit_shared(share, job, may_refuse);
    submitted.map_err(|_| TooManyWait)
}

fn run<T>(outcome: &Outcome<T>, job: impl FnOnce() -> T) {
    let value = catch_unwind(AssertUnwindSafe(job));
    let mut outcome = lock(outcome);
    outcome.0 = Some(value);
    if let Some(waker) = outcome.1.take() {
        waker.wake();
    }
}

async fn wait<T>(outcome: &Outcome<T>) -> T {
    let value = poll_fn(|cx| {
        let mut outcome = lock(outcome);
        match outcome.0.take() {
            Some(value) => Poll::Ready(value),
            None => {
                outcome.1 = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    })
    .await;
    value.unwrap_or_else(|panic| resume_unwind(panic))
}

/// The job's panic is caught before the lock is taken, so the contents are always consistent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
