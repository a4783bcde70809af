//! Blocking jobs, which run on other threads than the cores'.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use crate::core::{self, Core};

/// Runs `job` on the pool of blocking threads and resumes the task, on its own core, with the result.
///
/// Dropping the future does not stop the job. A panic of the job continues in the caller.
pub async fn blocking<T: Send + 'static>(job: impl FnOnce() -> T + Send + 'static) -> T {
    let shared = Arc::new(Mutex::new((None, None::<Waker>)));
    let of_job = Arc::clone(&shared);
    let workers = core::try_with(Core::workers).unwrap_or_default();
    workers.submit(Box::new(move || {
        let value = catch_unwind(AssertUnwindSafe(job));
        let mut shared = lock(&of_job);
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

/// The job's panic is caught before the lock is taken, so the contents are always consistent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
