//! A thread that sleeps while it has nothing to do, and those who wake it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::thread::{self, Thread};
use std::time::Duration;

/// Puts one thread to sleep and wakes it, without a lock.
#[derive(Debug, Default)]
pub struct Sleeper {
    thread: OnceLock<Thread>,
    sleeps: AtomicBool,
}

impl Sleeper {
    /// The calling thread is the one that sleeps.
    pub fn register(&self) {
        // A second one, which only a race of two starts can make, is never woken and does no harm.
        let _ = self.thread.set(thread::current());
    }

    /// Wakes the thread if it sleeps, after there is work for it: one system call, and none while it works.
    pub fn wake(&self) {
        // Either this thread sees that the other sleeps, or `sleep` sees the new work: each of them first writes its
        // own part, and looks at that of the other behind a fence.
        fence(Ordering::SeqCst);
        if self.sleeps.load(Ordering::Relaxed) && self.sleeps.swap(false, Ordering::Relaxed) {
            self.unpark();
        }
    }

    /// Ends a sleep or a pause of the thread, and the next one if it does not sleep now.
    pub fn interrupt(&self) {
        fence(Ordering::SeqCst);
        self.unpark();
    }

    fn unpark(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    /// Sleeps until it is woken, for at most this time, unless there is work. It may wake without any.
    pub fn sleep(&self, timeout: Option<Duration>, has_work: impl FnOnce() -> bool) {
        self.sleeps.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        match timeout {
            _ if has_work() => {}
            Some(timeout) => thread::park_timeout(timeout),
            None => thread::park(),
        }
        self.sleeps.store(false, Ordering::Relaxed);
    }
}
