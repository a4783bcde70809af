//! Outputs: lines of one destination, with a thread of their own.

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle, ThreadId};
use std::time::{Duration, Instant};

use super::destination::Destination;
use super::journal::Journal;
use super::queue::Queue;
use super::sink::Sink;
use super::stream::Stream;
use super::syslog::Syslog;
use super::writer::{self, FLUSH_TIMEOUT};

/// Bytes that wait to be written; lines beyond them are dropped.
const WAITING_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Time between looks whether the thread has ended.
const END_PAUSE: Duration = Duration::from_millis(1);

/// Lines to one destination, such as those of an access log. Clones are handles of the same output.
///
/// A thread of its own writes the lines. A destination that is not read, a full disk or a daemon that does not run
/// holds up neither callers nor other outputs.
///
/// When the last handle is dropped, the lines that wait are written for at most a second, and the thread ends. Only
/// the thread that has opened the output waits for that, because a core must not wait. At the end of the process
/// [`LogOutput::finish`] waits, whoever has other handles.
#[derive(Debug, Clone)]
pub struct LogOutput(Arc<Handle>);

#[derive(Debug)]
struct Handle {
    queue: Arc<Queue>,
    /// `None` if the lines stay in memory.
    thread: Option<JoinHandle<()>>,
    opened_by: ThreadId,
}

impl LogOutput {
    /// Opens the destination and starts its thread.
    ///
    /// # Errors
    /// A file cannot be opened, a daemon has no socket at its path, or the thread cannot be started. The text names
    /// the destination.
    pub fn open(destination: &Destination) -> io::Result<LogOutput> {
        match destination {
            Destination::Stdout => start(destination, Stream::standard(&io::stdout())?),
            Destination::File(path) => start(destination, Stream::open(path)?),
            Destination::Syslog(address) => start(destination, Syslog::open(address)?),
            Destination::Journal(path) => start(destination, Journal::open(path)?),
        }
    }

    /// An output without a thread, for simulations and tests. Its reader takes the lines.
    #[must_use]
    pub fn in_memory() -> (LogOutput, LogReader) {
        let queue = Arc::new(Queue::new(WAITING_BYTES_MAX));
        let reader = LogReader(Arc::clone(&queue));
        (LogOutput::new(queue, None), reader)
    }

    fn new(queue: Arc<Queue>, thread: Option<JoinHandle<()>>) -> LogOutput {
        LogOutput(Arc::new(Handle {
            queue,
            thread,
            opened_by: thread::current().id(),
        }))
    }

    /// Hands over lines, of which each ends with a line break, and never waits. Lines of one thread keep their order.
    /// Gives back an empty buffer, which often has the capacity of an earlier one.
    ///
    /// If 8 MiB wait, or 4,096 batches, all lines of this batch are dropped.
    #[must_use = "the buffer is for the next lines"]
    pub fn write(&self, lines: Vec<u8>) -> Vec<u8> {
        debug_assert!(
            lines.is_empty() || lines.ends_with(b"\n"),
            "lines are whole"
        );
        self.0.queue.push(lines)
    }

    /// Lines that were dropped because they waited too long, or could not be written.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.0.queue.dropped_lines()
    }

    /// Counts lines that were lost on their way here, as if they had been dropped.
    pub fn count_dropped(&self, lines: u64) {
        self.0.queue.add_dropped(lines);
    }

    /// Ends the output: the lines that wait are written for at most a second. Other handles have none any more.
    pub fn finish(&self) {
        self.0.finish();
    }

    /// Opens the file anew, for example after logrotate has moved it. The thread of the output does so, and warns if it
    /// fails; the old file is in use until it succeeds. Lines that wait go to the new file. The name of a daemon of
    /// syslog is resolved again.
    pub fn reopen(&self) {
        self.0.queue.reopen();
    }
}

fn start(destination: &Destination, sink: impl Sink + 'static) -> io::Result<LogOutput> {
    let queue = Arc::new(Queue::new(WAITING_BYTES_MAX));
    let thread = writer::start(&queue, sink, Some(destination.to_string()))?;
    Ok(LogOutput::new(queue, Some(thread)))
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.queue.end();
        if thread::current().id() == self.opened_by {
            self.finish();
        }
    }
}

impl Handle {
    fn finish(&self) {
        self.queue.end();
        let Some(thread) = &self.thread else { return };
        let deadline = Instant::now() + FLUSH_TIMEOUT;
        while !thread.is_finished() && Instant::now() < deadline {
            thread::sleep(END_PAUSE);
        }
    }
}

/// The lines of an output in memory.
#[derive(Debug)]
pub struct LogReader(Arc<Queue>);

impl LogReader {
    /// Takes the lines that were written since the last call.
    #[must_use]
    pub fn take(&self) -> Vec<u8> {
        let mut lines = Vec::new();
        while let Some(batch) = self.0.pop() {
            lines.extend_from_slice(&batch);
            self.0.release(batch.len());
            self.0.recycle(batch);
        }
        lines
    }
}
