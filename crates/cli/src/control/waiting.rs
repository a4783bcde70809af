//! Requests that wait for the next reload.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};

use blitz_http::Signal;

/// The changes of a reload, or the reason for which it changed nothing.
pub(crate) type Outcome = Result<String, String>;

/// The requests that wait for the next reload.
pub(crate) struct Waiting(Mutex<Queue>);

enum Queue {
    Open(Vec<Sender<Outcome>>),
    /// The process ends and reads nothing any more.
    Closed,
}

impl Default for Waiting {
    fn default() -> Waiting {
        Waiting(Mutex::new(Queue::Open(Vec::new())))
    }
}

impl Waiting {
    /// Asks for a reload and waits for its outcome. One reload is for all that have asked before it began.
    pub(super) fn ask(&self) -> Outcome {
        let ended = || Err("this process is ending, and reads no configuration\n".to_owned());
        let (sender, outcome) = channel();
        match &mut *self.lock() {
            Queue::Open(waiting) => waiting.push(sender),
            Queue::Closed => return ended(),
        }
        Signal::Hangup.raise();
        outcome.recv().unwrap_or_else(|_| ended())
    }

    /// Those whom the reload that begins now is for.
    pub(crate) fn take(&self) -> Vec<Sender<Outcome>> {
        match &mut *self.lock() {
            Queue::Open(waiting) => std::mem::take(waiting),
            Queue::Closed => Vec::new(),
        }
    }

    /// No reload follows.
    pub(super) fn close(&self) {
        *self.lock() = Queue::Closed;
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_waits_for_a_reload_that_does_not_follow() {
        let waiting = Waiting::default();
        waiting.close();
        assert!(waiting.ask().is_err());
        assert!(waiting.take().is_empty());
    }
}
