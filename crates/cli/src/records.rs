//! The thread that takes the records of the cores: it writes the lines of the access log, and gives the records to
//! others that want them.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use blitz_gateway::access_log::LineWriter;
use blitz_gateway::{OwnedRecord, RecordBatch, RecordSink, TraceContext};
use blitz_host::Sleeper;
use crossbeam_queue::ArrayQueue;

/// Batches that wait at most; the lines of others are dropped and counted.
const BATCHES_MAX: usize = 256;

/// Batches whose memory waits for a next use.
const USED_MAX: usize = 32;

/// Consumers that wait to be added.
const NEW_CONSUMERS_MAX: usize = 16;

/// How long the end of the process waits for the last lines.
const END_TIMEOUT: Duration = Duration::from_secs(1);

/// Time between looks whether the thread has ended.
const END_PAUSE: Duration = Duration::from_millis(1);

/// Takes records on their thread.
pub(crate) trait RecordConsumer: Send {
    /// Takes a batch, and gives whether it wants more of them.
    fn take(&mut self, batch: &RecordBatch) -> bool;

    /// Whether it wants the record of each request.
    fn wants_all(&self) -> bool;

    /// These records were lost before they came here.
    fn lose(&mut self, _lost: Lost) {}

    /// Whether it wants nothing more, although no batch has told it.
    fn is_over(&self) -> bool {
        false
    }
}

/// Numbers of records that were lost.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lost {
    pub(crate) all: u64,
    /// Those of recorded traces.
    pub(crate) traced: u64,
    /// Those that are log records as well.
    pub(crate) exported: u64,
}

/// The thread. Clones of its [sink](Records::sink) are for the cores.
pub(crate) struct Records {
    queue: Arc<Queue>,
    thread: JoinHandle<()>,
}

/// Batches on their way.
struct Queue {
    batches: ArrayQueue<RecordBatch>,
    used: ArrayQueue<RecordBatch>,
    new_consumers: ArrayQueue<Box<dyn RecordConsumer>>,
    /// Consumers that want each record.
    want_all: AtomicUsize,
    /// Those of which the consumers have not been told that they are lost.
    lost: LostCounts,
    thread: Sleeper,
    must_end: AtomicBool,
}

impl Records {
    /// Starts the thread.
    ///
    /// # Errors
    /// It cannot be started.
    pub(crate) fn start() -> io::Result<Records> {
        let queue = Arc::new(Queue {
            batches: ArrayQueue::new(BATCHES_MAX),
            used: ArrayQueue::new(USED_MAX),
            new_consumers: ArrayQueue::new(NEW_CONSUMERS_MAX),
            want_all: AtomicUsize::new(0),
            lost: LostCounts::default(),
            thread: Sleeper::default(),
            must_end: AtomicBool::new(false),
        });
        let taken = Arc::clone(&queue);
        let thread = thread::Builder::new()
            .name("blitz-records".into())
            .spawn(move || taken.run())?;
        Ok(Records { queue, thread })
    }

    /// For the cores.
    pub(crate) fn sink(&self) -> Arc<dyn RecordSink> {
        Arc::clone(&self.queue) as Arc<dyn RecordSink>
    }

    /// To add consumers from any thread.
    pub(crate) fn consumers(&self) -> Consumers {
        Consumers(Arc::clone(&self.queue))
    }

    /// Gives what waits to its consumers, for at most a second. The cores have ended.
    pub(crate) fn finish(self) {
        self.queue.must_end.store(true, Ordering::Release);
        self.queue.thread.interrupt();
        let deadline = Instant::now() + END_TIMEOUT;
        while !self.thread.is_finished() && Instant::now() < deadline {
            thread::sleep(END_PAUSE);
        }
    }
}

/// Adds consumers.
#[derive(Debug, Clone)]
pub(crate) struct Consumers(Arc<Queue>);

impl Consumers {
    /// The consumer gets the records of requests that begin from now on. Gives it back if too many are being added.
    pub(crate) fn add(
        &self,
        consumer: Box<dyn RecordConsumer>,
    ) -> Result<(), Box<dyn RecordConsumer>> {
        let wants_all = consumer.wants_all();
        self.0.new_consumers.push(consumer)?;
        if wants_all {
            self.0.want_all.fetch_add(1, Ordering::Relaxed);
        }
        self.0.thread.wake();
        Ok(())
    }
}

impl Queue {
    fn run(&self) {
        self.thread.register();
        let mut lines = LineWriter::default();
        let mut consumers = Vec::<Box<dyn RecordConsumer>>::new();
        loop {
            if let Some(new) = self.new_consumers.pop() {
                // Without requests they would become more and more.
                self.keep(&mut consumers, |known| !known.is_over());
                consumers.push(new);
            }
            // Before the queue is looked at: batches may be added until then.
            let must_end = self.must_end.load(Ordering::Acquire);
            let Some(mut batch) = self.batches.pop() else {
                if must_end {
                    return;
                }
                self.thread.sleep(None, || self.has_work());
                continue;
            };
            lines.write(&batch);
            self.keep(&mut consumers, |consumer| consumer.take(&batch));
            let lost = self.lost.take();
            if lost.all > 0 {
                consumers
                    .iter_mut()
                    .for_each(|consumer| consumer.lose(lost));
            }
            // It waits for its next use, and a log that a reload has replaced is closed.
            batch.log = None;
            // It is freed if there are enough of them.
            let _ = self.used.push(batch);
        }
    }

    fn keep(
        &self,
        consumers: &mut Vec<Box<dyn RecordConsumer>>,
        mut wants_more: impl FnMut(&mut dyn RecordConsumer) -> bool,
    ) {
        consumers.retain_mut(|consumer| {
            let wants_more = wants_more(&mut **consumer);
            if !wants_more && consumer.wants_all() {
                self.want_all.fetch_sub(1, Ordering::Relaxed);
            }
            wants_more
        });
    }

    fn has_work(&self) -> bool {
        !self.batches.is_empty()
            || !self.new_consumers.is_empty()
            || self.must_end.load(Ordering::Relaxed)
    }
}

/// The numbers of [`Lost`], which cores count.
#[derive(Debug, Default)]
struct LostCounts {
    all: AtomicU64,
    traced: AtomicU64,
    exported: AtomicU64,
}

impl LostCounts {
    fn add(&self, batch: &RecordBatch) {
        let count = |is_meant: fn(&OwnedRecord) -> bool| {
            let records = batch.records.iter();
            records.filter(|record| is_meant(record)).count() as u64
        };
        let is_traced = |record: &OwnedRecord| {
            let trace = record.trace.as_ref();
            trace.is_some_and(TraceContext::is_sampled)
        };
        self.traced.fetch_add(count(is_traced), Ordering::Relaxed);
        let exported = count(|record| record.is_exported);
        self.exported.fetch_add(exported, Ordering::Relaxed);
        self.all.fetch_add(count(|_| true), Ordering::Relaxed);
    }

    fn take(&self) -> Lost {
        let take = |count: &AtomicU64| count.swap(0, Ordering::Relaxed);
        Lost {
            all: take(&self.all),
            traced: take(&self.traced),
            exported: take(&self.exported),
        }
    }
}

impl RecordSink for Queue {
    fn take(&self, batch: RecordBatch) -> Option<RecordBatch> {
        match self.batches.push(batch) {
            Ok(()) => {
                self.thread.wake();
                self.used.pop()
            }
            Err(batch) => {
                batch.lose_lines();
                self.lost.add(&batch);
                Some(batch)
            }
        }
    }

    fn wants_all(&self) -> bool {
        self.want_all.load(Ordering::Relaxed) > 0
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue")
            .field("batches", &self.batches.len())
            .finish_non_exhaustive()
    }
}
