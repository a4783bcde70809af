//! Lines on their way to a follower.

use std::future::poll_fn;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

/// Bytes that wait; further lines are dropped. It is more than the lines of a batch, also if clients send long fields that
/// have to be escaped: they could hide requests of others from a fast reader.
const WAITING_BYTES_MAX: usize = 1024 * 1024;

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
    /// Adds lines, or drops and counts those for which there is no room. Once some are dropped, all are until the
    /// follower has taken what waits: so it is told where they are missing.
    pub(super) fn push(&self, lines: &[u8]) {
        let mut waiting = self.lock();
        let room = match waiting.dropped {
            0 => WAITING_BYTES_MAX - waiting.lines.len(),
            _ => 0,
        };
        let (fitting, rest) = lines.split_at(length_within(lines, room));
        waiting.lines.extend_from_slice(fitting);
        waiting.dropped += rest.iter().filter(|&&byte| byte == b'\n').count() as u64;
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

/// The length of the first lines that fit in so many bytes.
fn length_within(lines: &[u8], bytes_max: usize) -> usize {
    if lines.len() <= bytes_max {
        return lines.len();
    }
    let last_end = lines[..bytes_max].iter().rposition(|&byte| byte == b'\n');
    last_end.map_or(0, |end| end + 1)
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

    /// The lines that are taken at once.
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
        queue.push(b"a\nb\n");
        queue.push(b"c\n");
        assert_eq!(next(&queue), taken(b"a\nb\nc\n", 0));
        assert_eq!(next(&queue), Poll::Pending);
        queue.push(b"d\n");
        queue.end();
        assert_eq!(next(&queue), taken(b"d\n", 0));
        assert_eq!(next(&queue), Poll::Ready(None));
    }

    #[test]
    fn a_slow_follower_loses_lines_and_is_told_where() {
        let queue = Queue::default();
        let mut long = vec![b'x'; WAITING_BYTES_MAX];
        long[WAITING_BYTES_MAX - 1] = b'\n';
        queue.push(&long);
        for _ in 0..100 {
            queue.push(b"a\nb\n");
        }
        assert_eq!(next(&queue), taken(&long, 200));
        queue.push(b"c\n");
        assert_eq!(next(&queue), taken(b"c\n", 0));
        queue.lose(3);
        assert_eq!(next(&queue), taken(b"", 3));
    }

    #[test]
    fn of_many_long_lines_those_arrive_for_which_there_is_room() {
        const LINE_BYTES: usize = 100 * 1024;
        let line = [&[b'x'; LINE_BYTES - 1][..], b"\n"].concat();
        let queue = Queue::default();
        queue.push(&line.repeat(64));
        queue.push(b"a\n");
        assert_eq!(next(&queue), taken(&line.repeat(10), 55));
        queue.push(b"b\n");
        assert_eq!(next(&queue), taken(b"b\n", 0));
    }
}
