//! Spans and log records on their way to the collector: those of each that wait have at most [`WAITING_BYTES_MAX`], and
//! further ones are dropped.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// Memory of the items that wait, at most: more than a second of 10,000 requests per second with two spans each.
const WAITING_BYTES_MAX: usize = 32 << 20;

/// So many items wait for no others.
const ENOUGH_ITEMS: usize = 512;

/// Bytes of an export at most, unless one item has more: less than a megabyte, which some services have as their limit.
const EXPORT_BYTES_MAX: usize = 900_000;

/// How long items wait for others.
const EXPORT_AFTER: Duration = Duration::from_secs(1);

/// Items that were exported or dropped since the start of the process.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    exported: AtomicU64,
    dropped: AtomicU64,
}

impl Counts {
    pub(super) fn add_exported(&self, count: u64) {
        self.exported.fetch_add(count, Ordering::Relaxed);
    }

    pub(super) fn add_dropped(&self, count: u64) {
        self.dropped.fetch_add(count, Ordering::Relaxed);
    }

    /// Those that the collector has taken, and those that were dropped.
    pub(crate) fn read(&self) -> [u64; 2] {
        [&self.exported, &self.dropped].map(|count| count.load(Ordering::Relaxed))
    }
}

/// Items that wait for their export. Threads add them, a task takes them.
#[derive(Debug)]
pub(super) struct Queue {
    state: Mutex<State>,
    pub(super) counts: Arc<Counts>,
    /// Items that came faster than they were exported, since the last [`Queue::take_overflow`].
    overflow: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    items: VecDeque<Vec<u8>>,
    /// Their memory.
    waiting_bytes: usize,
    /// The task, while it waits.
    task: Option<Waker>,
    end: Option<End>,
    /// Whether further items are dropped.
    is_closed: bool,
}

/// The end of a queue.
#[derive(Debug, Clone, Copy)]
struct End {
    /// Until when items are added.
    closes: Instant,
    /// Until when the rest may be exported.
    ends: Instant,
}

impl Queue {
    pub(super) fn new(counts: &Arc<Counts>) -> Queue {
        Queue {
            state: Mutex::default(),
            counts: Arc::clone(counts),
            overflow: AtomicU64::new(0),
        }
    }

    /// Adds an item, or drops it.
    pub(super) fn add(&self, item: Vec<u8>) {
        self.add_to(self.lock(), item);
    }

    fn add_to(&self, mut state: MutexGuard<'_, State>, item: Vec<u8>) {
        if state.is_closed {
            drop(state);
            return self.counts.add_dropped(1);
        }
        let waiting_bytes = state.waiting_bytes + memory_of(&item);
        if waiting_bytes > WAITING_BYTES_MAX {
            drop(state);
            return self.add_overflow(1);
        }
        let was_enough = state.is_enough();
        state.waiting_bytes = waiting_bytes;
        state.items.push_back(item);
        if state.items.len() == 1 || (state.is_enough() && !was_enough) {
            wake(state);
        }
    }

    /// The same without waiting for the other thread: then the item is dropped.
    pub(super) fn try_add(&self, item: Vec<u8>) {
        match self.state.try_lock() {
            Ok(state) => self.add_to(state, item),
            Err(_) => self.counts.add_dropped(1),
        }
    }

    /// Drops so many items that came faster than they were exported.
    pub(super) fn add_overflow(&self, count: u64) {
        self.counts.add_dropped(count);
        self.overflow.fetch_add(count, Ordering::Relaxed);
    }

    /// How many items came faster than they were exported, since the last call.
    pub(super) fn take_overflow(&self) -> u64 {
        self.overflow.swap(0, Ordering::Relaxed)
    }

    /// No item follows. Those that wait may be exported until then.
    pub(super) fn close(&self, ends: Instant) {
        let mut state = self.lock();
        state.is_closed = true;
        let ends = state.end.map_or(ends, |end| end.ends.min(ends));
        let closes = Instant::now();
        state.end = Some(End { closes, ends });
        wake(state);
    }

    /// Closes it later, unless it is closed before.
    pub(super) fn close_at(&self, closes: Instant, ends: Instant) {
        let mut state = self.lock();
        state.end.get_or_insert(End { closes, ends });
        wake(state);
    }

    /// Until when items may be exported; `None` without an end.
    pub(super) fn end(&self) -> Option<Instant> {
        self.lock().end.map(|end| end.ends)
    }

    /// The next items, once there are enough of them or they have waited long enough. `None` at the end.
    pub(super) async fn next(&self) -> Option<Vec<Vec<u8>>> {
        self.closed_or(|state| !state.items.is_empty()).await;
        let enough = self.closed_or(State::is_enough);
        // It is the same whether they are enough or the time is over.
        let _ = blitz_http::timeout(EXPORT_AFTER, enough).await;
        let items = self.lock().take_items();
        (!items.is_empty()).then_some(items)
    }

    /// Ready when it was closed, and closes it when that is due.
    pub(super) async fn closed(&self) {
        self.has(|state| state.end.is_some()).await;
        let end = self.lock().end.map(|end| end.closes);
        let left = end.map(|closes| closes.saturating_duration_since(blitz_http::read_clock()));
        let closed = self.has(|state| state.is_closed);
        // It is the same whether it was closed before.
        let _ = blitz_http::timeout(left.unwrap_or_default(), closed).await;
        self.lock().is_closed = true;
    }

    async fn closed_or(&self, is_ready: fn(&State) -> bool) {
        let (mut ready, mut closed) = (pin!(self.has(is_ready)), pin!(self.closed()));
        poll_fn(|cx| match ready.as_mut().poll(cx) {
            Poll::Pending => closed.as_mut().poll(cx),
            ready => ready,
        })
        .await;
    }

    async fn has(&self, is_ready: fn(&State) -> bool) {
        poll_fn(|cx| self.poll(is_ready, cx)).await;
    }

    fn poll(&self, is_ready: fn(&State) -> bool, cx: &Context<'_>) -> Poll<()> {
        let mut state = self.lock();
        if is_ready(&state) {
            return Poll::Ready(());
        }
        state.task = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Drops the items that wait.
    pub(super) fn clear(&self) {
        let mut state = self.lock();
        state.waiting_bytes = 0;
        let items = std::mem::take(&mut state.items);
        drop(state);
        self.counts.add_dropped(items.len() as u64);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Whether the items wait for no others. Shortly before the end there is no time for it.
    fn is_enough(&self) -> bool {
        let is_full = self.items.len() >= ENOUGH_ITEMS || self.waiting_bytes >= EXPORT_BYTES_MAX;
        is_full || self.end.is_some()
    }

    /// The first items, up to the bytes of an export.
    fn take_items(&mut self) -> Vec<Vec<u8>> {
        let mut bytes = 0;
        let fitting = self.items.iter().take_while(|item| {
            bytes += item.len();
            bytes <= EXPORT_BYTES_MAX
        });
        let count = fitting.count().max(1).min(self.items.len());
        let items: Vec<_> = self.items.drain(..count).collect();
        self.waiting_bytes -= items.iter().map(memory_of).sum::<usize>();
        items
    }
}

fn memory_of(item: &Vec<u8>) -> usize {
    item.capacity() + size_of::<Vec<u8>>()
}

/// Wakes the task without the lock, which it needs at once.
fn wake(mut state: MutexGuard<'_, State>) {
    let task = state.task.take();
    drop(state);
    if let Some(task) = task {
        task.wake();
    }
}

#[cfg(test)]
mod tests {
    use blitz_http::{Config, block_on};

    use super::*;

    fn queue(items: usize, bytes: usize) -> Queue {
        let queue = Queue::new(&Arc::default());
        (0..items).for_each(|_| queue.add(vec![0; bytes]));
        queue
    }

    #[test]
    fn items_beyond_the_bound_are_dropped_and_counted() {
        let bytes = 100_000;
        let fitting = WAITING_BYTES_MAX / (bytes + size_of::<Vec<u8>>());
        let queue = queue(fitting + 3, bytes);
        assert_eq!(queue.counts.read(), [0, 3]);
        assert_eq!((queue.take_overflow(), queue.take_overflow()), (3, 0));
        queue.clear();
        assert_eq!(queue.counts.read(), [0, fitting as u64 + 3]);
        queue.add(vec![0]);
        assert_eq!(queue.take_overflow(), 0);
    }

    #[test]
    fn a_batch_is_full_or_has_waited() {
        let queue = queue(ENOUGH_ITEMS, 1);
        let next = async || {
            let started = Instant::now();
            let count = queue.next().await.map_or(0, |items| items.len());
            (count, started.elapsed() >= EXPORT_AFTER)
        };
        block_on(&Config::default(), async {
            assert_eq!(next().await, (ENOUGH_ITEMS, false));
            queue.add(vec![0]);
            assert_eq!(next().await, (1, true));
            queue.add(vec![0]);
            queue.close(Instant::now());
            // Nothing follows, so that nothing is waited for.
            assert_eq!(next().await, (1, false));
            assert_eq!(next().await, (0, false));
        })
        .unwrap();
        queue.add(vec![0]);
        assert_eq!(queue.counts.read(), [0, 1]);
        assert_eq!(queue.take_overflow(), 0);
    }

    #[test]
    fn a_batch_has_a_bound_of_bytes() {
        let queue = queue(5, EXPORT_BYTES_MAX / 2);
        queue.add(vec![0; 2 * EXPORT_BYTES_MAX]);
        let next = async || queue.next().await.map_or(0, |items| items.len());
        block_on(&Config::default(), async {
            assert_eq!([next().await, next().await], [2, 2]);
            assert_eq!([next().await, next().await], [1, 1]);
        })
        .unwrap();
        assert_eq!(queue.lock().waiting_bytes, 0);
    }

    #[test]
    fn items_follow_until_a_later_end() {
        let queue = queue(1, 1);
        let closes = Instant::now() + Duration::from_millis(700);
        queue.close_at(closes, closes + Duration::from_secs(1));
        let next = async || queue.next().await.map_or(0, |items| items.len());
        block_on(&Config::default(), async {
            assert_eq!(next().await, 1);
            queue.add(vec![0]);
            assert_eq!(next().await, 1);
            assert!(Instant::now() < closes);
            assert_eq!(next().await, 0);
            assert!(Instant::now() >= closes);
            queue.add(vec![0]);
            assert_eq!(next().await, 0);
        })
        .unwrap();
        assert_eq!(queue.counts.read(), [0, 1]);
    }
}
