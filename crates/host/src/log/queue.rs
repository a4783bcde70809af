//! Lines on their way from the threads that log to the one that writes, without a lock.

use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_queue::ArrayQueue;

use crate::sleeper::Sleeper;

/// Batches that wait at most, however small they are.
const BATCHES_MAX: usize = 4096;

/// Written buffers that wait for a next use.
const EMPTY_BUFFERS_MAX: usize = 32;

/// A larger buffer is freed when it has been written.
const EMPTY_BUFFER_BYTES_MAX: usize = 128 * 1024;

/// Time between looks whether all has been written, at the end.
const FLUSH_PAUSE: Duration = Duration::from_millis(1);

/// Lines that all queues of the process have dropped, those that have ended included.
pub(super) static DROPPED: AtomicU64 = AtomicU64::new(0);

/// Batches of lines. Any thread adds some, and one thread takes them.
#[derive(Debug)]
pub(super) struct Queue {
    batches: ArrayQueue<Vec<u8>>,
    /// Bytes that wait or are being written.
    waiting_bytes: AtomicUsize,
    waiting_bytes_max: usize,
    empty_buffers: ArrayQueue<Vec<u8>>,
    dropped_lines: AtomicU64,
    writer: Sleeper,
    must_reopen: AtomicBool,
    must_end: AtomicBool,
}

impl Queue {
    pub(super) fn new(waiting_bytes_max: usize) -> Queue {
        Queue {
            batches: ArrayQueue::new(BATCHES_MAX),
            waiting_bytes: AtomicUsize::new(0),
            waiting_bytes_max,
            empty_buffers: ArrayQueue::new(EMPTY_BUFFERS_MAX),
            dropped_lines: AtomicU64::new(0),
            writer: Sleeper::default(),
            must_reopen: AtomicBool::new(false),
            must_end: AtomicBool::new(false),
        }
    }

    /// Adds whole lines, or drops and counts all of them if there is no room. Gives an empty buffer back.
    pub(super) fn push(&self, mut lines: Vec<u8>) -> Vec<u8> {
        if lines.is_empty() {
            return lines;
        }
        if !self.reserve(lines.len()) {
            self.count_dropped(&lines);
            lines.clear();
            return lines;
        }
        // A few bytes must not occupy a large buffer while they wait: the limit counts bytes.
        let is_roomy = lines.len() < lines.capacity() / 2;
        let batch = match is_roomy {
            true => lines.clone(),
            false => mem::take(&mut lines),
        };
        lines.clear();
        if let Err(batch) = self.batches.push(batch) {
            self.count_dropped(&batch);
            self.release(batch.len());
        } else {
            self.writer.wake();
        }
        match is_roomy {
            true => lines,
            false => self.empty_buffers.pop().unwrap_or_default(),
        }
    }

    /// Takes the room for these bytes, if there is as much.
    fn reserve(&self, bytes: usize) -> bool {
        let add = |waiting: usize| {
            let sum = waiting.checked_add(bytes)?;
            (sum <= self.waiting_bytes_max).then_some(sum)
        };
        self.waiting_bytes
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add)
            .is_ok()
    }

    /// These bytes of batches that were taken are written or lost.
    pub(super) fn release(&self, bytes: usize) {
        self.waiting_bytes.fetch_sub(bytes, Ordering::Release);
    }

    pub(super) fn pop(&self) -> Option<Vec<u8>> {
        self.batches.pop()
    }

    /// Keeps the buffer for a caller of [`Queue::push`].
    pub(super) fn recycle(&self, mut buffer: Vec<u8>) {
        if buffer.capacity() <= EMPTY_BUFFER_BYTES_MAX {
            buffer.clear();
            // It is freed if there are enough of them.
            let _ = self.empty_buffers.push(buffer);
        }
    }

    /// Counts the lines of which these bytes have the end.
    pub(super) fn count_dropped(&self, lines: &[u8]) {
        let lines = lines.iter().filter(|&&byte| byte == b'\n').count();
        self.add_dropped(lines as u64);
    }

    pub(super) fn add_dropped(&self, lines: u64) {
        DROPPED.fetch_add(lines, Ordering::Relaxed);
        self.dropped_lines.fetch_add(lines, Ordering::Relaxed);
    }

    pub(super) fn dropped_lines(&self) -> u64 {
        self.dropped_lines.load(Ordering::Relaxed)
    }

    /// Waits until all lines so far are written or lost, but no longer than this.
    pub(super) fn flush(&self, timeout: Duration) {
        let deadline = Instant::now() + timeout;
        while self.waiting_bytes.load(Ordering::Acquire) > 0 && Instant::now() < deadline {
            thread::sleep(FLUSH_PAUSE);
        }
    }

    /// Has the writer open its file anew.
    pub(super) fn reopen(&self) {
        self.must_reopen.store(true, Ordering::Relaxed);
        self.writer.interrupt();
    }

    /// Whether the file must be opened anew, since the last call.
    pub(super) fn takes_reopen(&self) -> bool {
        self.must_reopen.swap(false, Ordering::Acquire)
    }

    /// Has the writer end once nothing waits. No lines may be added later.
    pub(super) fn end(&self) {
        self.must_end.store(true, Ordering::Release);
        self.writer.interrupt();
    }

    pub(super) fn must_end(&self) -> bool {
        self.must_end.load(Ordering::Acquire)
    }

    /// The calling thread is the writer.
    pub(super) fn register_writer(&self) {
        self.writer.register();
    }

    /// Puts the writer to sleep until there is work for it, for at most this time. It may wake without any.
    pub(super) fn sleep(&self, timeout: Option<Duration>) {
        let has_work = || {
            !self.batches.is_empty()
                || self.must_reopen.load(Ordering::Relaxed)
                || self.must_end.load(Ordering::Relaxed)
        };
        self.writer.sleep(timeout, has_work);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(bytes: usize) -> Vec<u8> {
        let mut line = vec![b'x'; bytes - 1];
        line.push(b'\n');
        line
    }

    #[test]
    fn lines_beyond_the_limit_of_bytes_are_dropped_whole_and_counted() {
        let queue = Queue::new(100);
        queue.push(line(60));
        queue.push([line(20), line(21)].concat());
        assert_eq!(queue.dropped_lines(), 2);
        queue.push(line(40));
        assert_eq!(queue.dropped_lines(), 2);
        assert_eq!(queue.pop().unwrap(), line(60));
        // They need their room until they are written.
        queue.push(line(1));
        assert_eq!(queue.dropped_lines(), 3);
        queue.release(60);
        queue.push(line(60));
        assert_eq!(queue.dropped_lines(), 3);
        queue.push(line(1_000_000));
        assert_eq!(queue.dropped_lines(), 4);
    }

    #[test]
    fn batches_beyond_their_limit_are_dropped_and_need_no_room() {
        let queue = Queue::new(1_000_000);
        for _ in 0..BATCHES_MAX + 10 {
            queue.push(line(2));
        }
        assert_eq!(queue.dropped_lines(), 10);
        assert_eq!(queue.waiting_bytes.load(Ordering::Relaxed), 2 * BATCHES_MAX);
    }

    #[test]
    fn a_buffer_with_few_bytes_stays_with_its_owner() {
        let queue = Queue::new(100_000);
        let mut buffer = Vec::with_capacity(10_000);
        buffer.extend_from_slice(b"short\n");
        let back = queue.push(buffer);
        assert!(back.is_empty() && back.capacity() >= 10_000);
        let waiting = queue.pop().unwrap();
        assert_eq!(waiting, b"short\n");
        assert!(waiting.capacity() < 100, "{}", waiting.capacity());
    }

    #[test]
    fn written_buffers_are_used_again_unless_they_are_large() {
        let queue = Queue::new(10_000_000);
        assert_eq!(queue.push(line(1000)).capacity(), 0);
        let written = queue.pop().unwrap();
        queue.recycle(written);
        let back = queue.push(line(10));
        assert!(back.is_empty() && back.capacity() >= 1000);
        queue.recycle(Vec::with_capacity(EMPTY_BUFFER_BYTES_MAX + 1));
        assert_eq!(queue.push(line(10)).capacity(), 0);
        for _ in 0..EMPTY_BUFFERS_MAX + 10 {
            queue.recycle(line(10));
        }
        assert_eq!(queue.empty_buffers.len(), EMPTY_BUFFERS_MAX);
    }
}
