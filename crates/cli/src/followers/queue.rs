//! Lines on their way to a follower.

use std::future::poll_fn;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

/// Bytes that wait; further lines are dropped.
const WAITING_BYTES_MAX: usize = 256 * 1024;

/// The thread of the records adds lines and never waits; the follower's task takes them.
#[derive(Debug, Default)]
pub(super) struct Queue(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    lines: Vec<u8>,
    /// Lines that were dropped behind those that wait.
    dropped: u64,
    is_ended: bool,
    follower: Option<Waker>,
}

/// Lines, and how many are missing behind them.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Taken {
    pub(super) lines: Vec<u8>,
    pub(super) dropped: u64,
}

impl Queue {
    /// Adds so many lines, or drops and counts them if there is no room. Once some are dropped, all are until the
    /// follower has taken what waits: so it is told where they are missing.
    pub(super) fn push(&self, lines: &[u8], count: u64) {
        let mut waiting = self.lock();
        let has_room = waiting.lines.len() + lines.len() <= WAITING_BYTES_MAX;
        match has_room && waiting.dropped == 0 {
            true => waiting.lines.extend_from_slice(lines),
            false => waiting.dropped += count,
        }
        wake(waiting);
    }

    /// So many lines are missing from here on.
    pub(super) fn lose(&self, count: u64) {
        let mut waiting = self.lock();
        waiting.dropped += count;
        wake(waiting);
    }

    /// No line follows.
    pub(super) fn end(&self) {
        let mut waiting = self.lock();
        waiting.is_ended = true;
        wake(waiting);
    }

    /// Waits for lines; `None` at the end.
    pub(super) async fn next(&self) -> Option<Taken> {
        poll_fn(|cx| {
            let mut waiting = self.lock();
            if !waiting.lines.is_empty() || waiting.dropped > 0 {
                return Poll::Ready(Some(Taken {
                    lines: std::mem::take(&mut waiting.lines),
                    dropped: std::mem::take(&mut waiting.dropped),
                }));
            }
            if waiting.is_ended {
                return Poll::Ready(None);
            }
            waiting.follower = Some(cx.waker().clone());
            Poll::Pending
        })
        .await
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wakes the follower once the lock is free.
fn wake(mut waiting: MutexGuard<'_, Waiting>) {
    let follower = waiting.follower.take();
    drop(waiting);
    if let Some(follower) = follower {
        follower.wake();
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::Context;

    use super::*;

    /// What is taken at once.
    fn next(queue: &Queue) -> Poll<Option<Taken>> {
        let mut context = Context::from_waker(Waker::noop());
        pin!(queue.next()).poll(&mut context)
    }

    fn taken(lines: &[u8], dropped: u64) -> Poll<Option<Taken>> {
        let lines = lines.to_vec();
        Poll::Ready(Some(Taken { lines, dropped }))
    }

    #[test]
    fn lines_wait_for_their_follower() {
        let queue = Queue::default();
        assert_eq!(next(&queue), Poll::Pending);
        queue.push(b"a\nb\n", 2);
        queue.push(b"c\n", 1);
        assert_eq!(next(&queue), taken(b"a\nb\nc\n", 0));
        assert_eq!(next(&queue), Poll::Pending);
        queue.push(b"d\n", 1);
        queue.end();
        assert_eq!(next(&queue), taken(b"d\n", 0));
        assert_eq!(next(&queue), Poll::Ready(None));
    }

    #[test]
    fn a_slow_follower_loses_lines_and_is_told_where() {
        let queue = Queue::default();
        let long = vec![b'x'; WAITING_BYTES_MAX];
        queue.push(&long, 1);
        for _ in 0..100 {
            queue.push(b"a\nb\n", 2);
        }
        assert_eq!(next(&queue), taken(&long, 200));
        queue.push(b"c\n", 1);
        assert_eq!(next(&queue), taken(b"c\n", 0));
        queue.lose(3);
        assert_eq!(next(&queue), taken(b"", 3));
    }
}
