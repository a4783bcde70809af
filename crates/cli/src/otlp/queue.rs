//! Spans and log records on their way to the collector: at most [`ITEMS_MAX`] of each wait, and further ones are dropped.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// Items that wait at most.
const ITEMS_MAX: usize = 2048;

/// Items of an export at most.
const BATCH_ITEMS: usize = 512;

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

    /// Those that the collector has taken, and those that it has not.
    pub(crate) fn read(&self) -> [u64; 2] {
        [&self.exported, &self.dropped].map(|count| count.load(Ordering::Relaxed))
    }
}

/// Items that wait for their export. Threads add them, a task takes them.
#[derive(Debug)]
pub(super) struct Queue {
    state: Mutex<State>,
    pub(super) counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct State {
    items: VecDeque<Vec<u8>>,
    /// The task, while it waits.
    task: Option<Waker>,
    /// Set when no item follows: until when the rest may be exported.
    end: Option<Instant>,
}

impl Queue {
    pub(super) fn new(counts: &Arc<Counts>) -> Queue {
        Queue {
            state: Mutex::default(),
            counts: Arc::clone(counts),
        }
    }

    /// Adds an item, or drops it.
    pub(super) fn add(&self, item: Vec<u8>) {
        self.add_to(self.lock(), item);
    }

    fn add_to(&self, mut state: MutexGuard<'_, State>, item: Vec<u8>) {
        if state.end.is_some() || state.items.len() >= ITEMS_MAX {
            drop(state);
            return self.counts.add_dropped(1);
        }
        state.items.push_back(item);
        if state.items.len() == 1 || state.items.len() == BATCH_ITEMS {
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

    /// No item follows. Those that wait may be exported until then.
    pub(super) fn close(&self, end: Instant) {
        let mut state = self.lock();
        state.end.get_or_insert(end);
        wake(state);
    }

    /// Until when items may be exported; `None` if it was not closed.
    pub(super) fn end(&self) -> Option<Instant> {
        self.lock().end
    }

    /// The next items, once there are enough of them or they have waited long enough. `None` at the end.
    pub(super) async fn next(&self) -> Option<Vec<Vec<u8>>> {
        poll_fn(|cx| self.poll_items(1, cx)).await;
        let enough = poll_fn(|cx| self.poll_items(BATCH_ITEMS, cx));
        // It is the same whether they are enough or the time is over.
        let _ = blitz_http::timeout(EXPORT_AFTER, enough).await;
        let mut state = self.lock();
        let count = state.items.len().min(BATCH_ITEMS);
        let items: Vec<_> = state.items.drain(..count).collect();
        (!items.is_empty()).then_some(items)
    }

    /// Ready when it was closed.
    pub(super) async fn closed(&self) {
        poll_fn(|cx| self.poll_items(usize::MAX, cx)).await;
    }

    /// Ready with so many items, or at the end.
    fn poll_items(&self, count: usize, cx: &Context<'_>) -> Poll<()> {
        let mut state = self.lock();
        if state.items.len() >= count || state.end.is_some() {
            return Poll::Ready(());
        }
        state.task = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Drops the items that wait.
    pub(super) fn clear(&self) {
        let items = std::mem::take(&mut self.lock().items);
        self.counts.add_dropped(items.len() as u64);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
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

    fn queue(items: usize) -> Queue {
        let queue = Queue::new(&Arc::default());
        (0..items).for_each(|_| queue.add(vec![0]));
        queue
    }

    #[test]
    fn items_beyond_the_bound_are_dropped_and_counted() {
        let queue = queue(ITEMS_MAX + 3);
        assert_eq!(queue.counts.read(), [0, 3]);
        queue.clear();
        assert_eq!(queue.counts.read(), [0, ITEMS_MAX as u64 + 3]);
    }

    #[test]
    fn a_batch_is_full_or_has_waited() {
        let queue = queue(BATCH_ITEMS + 1);
        let next = async || {
            let started = Instant::now();
            let count = queue.next().await.map_or(0, |items| items.len());
            (count, started.elapsed() >= EXPORT_AFTER)
        };
        block_on(&Config::default(), async {
            assert_eq!(next().await, (BATCH_ITEMS, false));
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
    }
}
