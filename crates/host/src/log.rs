//! The log on standard error.
//!
//! A thread of its own writes it. If nobody reads standard error, that thread waits and lines are
//! dropped and counted, while the cores and the thread that handles signals go on.

use std::env;
use std::fs;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::mem;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

/// Bytes that wait to be written; lines beyond them are dropped.
const WAITING_BYTES_MAX: usize = 1024 * 1024;

/// How long the end of the program waits for the last lines.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// How long to wait before writing to a full pipe that does not block.
const FULL_PAUSE: Duration = Duration::from_millis(10);

static STDERR: LazyLock<Arc<Queue>> = LazyLock::new(Arc::default);

/// Writes the waiting lines when it is dropped, for at most a second.
#[derive(Debug)]
#[must_use = "the last lines are written when it is dropped"]
pub struct LogGuard(());

/// Writes events that pass the filter to standard error, unless the program has set a subscriber.
///
/// # Errors
/// The thread cannot be started.
pub fn to_stderr<F>(filter: F) -> io::Result<LogGuard>
where
    F: Layer<tracing_subscriber::Registry> + Send + Sync,
{
    if !tracing::dispatcher::has_been_set() {
        let queue = Arc::clone(&STDERR);
        // With this thread it would delay the start of the cores.
        blitz_http::prepare_descriptors();
        thread::Builder::new()
            .name("blitz-log".into())
            .spawn(move || queue.write_to(io::stderr()))?;
        let lines = tracing_subscriber::fmt::layer()
            .with_writer(Lines {
                queue: &STDERR,
                has_priorities: leads_to_journal(),
            })
            .with_ansi(io::stderr().is_terminal() && env::var_os("NO_COLOR").is_none());
        // Another thread may have set a subscriber meanwhile.
        let _ = tracing_subscriber::registry()
            .with(filter)
            .with(lines)
            .try_init();
    }
    Ok(LogGuard(()))
}

/// Lines that were dropped because standard error was not read.
#[must_use]
pub fn dropped_lines() -> u64 {
    STDERR.dropped.load(Ordering::Relaxed)
}

impl Drop for LogGuard {
    fn drop(&mut self) {
        STDERR.flush(FLUSH_TIMEOUT);
    }
}

/// Lines between the threads that log and the one that writes.
#[derive(Debug, Default)]
struct Queue {
    waiting: Mutex<Waiting>,
    changed: Condvar,
    dropped: AtomicU64,
}

#[derive(Debug, Default)]
struct Waiting {
    lines: Vec<u8>,
    is_writing: bool,
}

impl Queue {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, priority: &str, line: &[u8]) {
        let mut waiting = self.waiting();
        if waiting.lines.len() + priority.len() + line.len() > WAITING_BYTES_MAX {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let was_empty = waiting.lines.is_empty();
        waiting.lines.extend_from_slice(priority.as_bytes());
        waiting.lines.extend_from_slice(line);
        drop(waiting);
        if was_empty {
            self.changed.notify_all();
        }
    }

    /// Writes lines for as long as the process lives.
    fn write_to(&self, mut output: impl Write) {
        let mut lines = Vec::new();
        loop {
            let mut waiting = self.waiting();
            waiting.is_writing = false;
            self.changed.notify_all();
            while waiting.lines.is_empty() {
                waiting = match self.changed.wait(waiting) {
                    Ok(waiting) => waiting,
                    Err(error) => error.into_inner(),
                };
            }
            waiting.is_writing = true;
            mem::swap(&mut lines, &mut waiting.lines);
            drop(waiting);
            let written = write_all(&mut output, &lines);
            let lost = lines[written..].iter().filter(|&&byte| byte == b'\n');
            self.dropped
                .fetch_add(lost.count() as u64, Ordering::Relaxed);
            lines.clear();
        }
    }

    fn flush(&self, timeout: Duration) {
        let deadline = Instant::now() + timeout;
        let mut waiting = self.waiting();
        while waiting.is_writing || !waiting.lines.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            waiting = match self.changed.wait_timeout(waiting, left) {
                Ok((waiting, _)) => waiting,
                Err(error) => error.into_inner().0,
            };
        }
    }
}

/// Writes everything, to a pipe that another process has made non-blocking as well. Gives the number of
/// bytes that were written, which is smaller after another error, for example on a full disk.
fn write_all(output: &mut impl Write, bytes: &[u8]) -> usize {
    let mut written = 0;
    while written < bytes.len() {
        match output.write(&bytes[written..]) {
            Ok(0) => break,
            Ok(more) => written += more,
            Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(FULL_PAUSE),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    written
}

/// Each event arrives in one call.
impl Write for LineWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.queue.push(self.priority, line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Makes the writer of each line.
struct Lines {
    queue: &'static Queue,
    /// Lines begin with their priority, as in `<4>`: sd-daemon(3).
    has_priorities: bool,
}

/// Writes one line.
struct LineWriter {
    queue: &'static Queue,
    priority: &'static str,
}

impl MakeWriter<'_> for Lines {
    type Writer = LineWriter;

    fn make_writer(&self) -> LineWriter {
        LineWriter {
            queue: self.queue,
            priority: "",
        }
    }

    fn make_writer_for(&self, event: &Metadata<'_>) -> LineWriter {
        let priority = match *event.level() {
            _ if !self.has_priorities => "",
            Level::ERROR => "<3>",
            Level::WARN => "<4>",
            Level::INFO => "<6>",
            _ => "<7>",
        };
        LineWriter {
            priority,
            ..self.make_writer()
        }
    }
}

/// Whether standard error leads to systemd's journal, which then names its file in `JOURNAL_STREAM`:
/// systemd.exec(5).
fn leads_to_journal() -> bool {
    let Ok(expected) = env::var("JOURNAL_STREAM") else {
        return false;
    };
    let stderr = fs::metadata("/proc/self/fd/2");
    stderr.is_ok_and(|file| expected == format!("{}:{}", file.dev(), file.ino()))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

    use super::*;

    /// An output that accepts a write only when the test receives it.
    struct Slow(SyncSender<Vec<u8>>);

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let part = &bytes[..bytes.len().min(100_000)];
            self.0
                .send(part.to_vec())
                .map_err(|_| io::Error::from(ErrorKind::BrokenPipe))?;
            Ok(part.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// The kernel enlarges that of a process with several threads slowly.
    #[test]
    fn the_table_of_descriptors_is_enlarged_with_the_log() {
        if !blitz_testing::is_alone() {
            return;
        }
        let _guard = to_stderr(tracing::level_filters::LevelFilter::OFF).unwrap();
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let size = status.lines().find_map(|line| line.strip_prefix("FDSize:"));
        let size: u64 = size.unwrap().trim().parse().unwrap();
        assert!(size >= 1_024, "{size}");
    }

    fn start() -> (Arc<Queue>, Receiver<Vec<u8>>) {
        let queue = Arc::new(Queue::default());
        let (sender, receiver) = sync_channel(0);
        let writes = Arc::clone(&queue);
        thread::spawn(move || writes.write_to(Slow(sender)));
        (queue, receiver)
    }

    #[test]
    fn lines_are_written_whole_and_in_order_or_dropped_and_counted() {
        let (queue, output) = start();
        let line = |number: usize| format!("{number:0>999}\n");
        let lines = 3000;
        (0..lines).for_each(|number| queue.push("", line(number).as_bytes()));
        let dropped = queue.dropped.load(Ordering::Relaxed) as usize;
        assert!((1..lines).contains(&dropped), "{dropped}");
        let mut written = Vec::new();
        while written.len() < (lines - dropped) * 1000 {
            written.extend(output.recv_timeout(Duration::from_secs(10)).unwrap());
        }
        let written = String::from_utf8(written).unwrap();
        let numbers: Vec<usize> = written.lines().map(|line| line.parse().unwrap()).collect();
        assert_eq!(numbers.len(), lines - dropped);
        assert!(numbers.is_sorted());
        queue.flush(Duration::from_secs(10));
        assert!(queue.waiting().lines.is_empty());
    }

    /// Like a file on a disk that is full.
    struct Full;

    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(ErrorKind::StorageFull.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_that_cannot_be_written_are_counted() {
        let queue = Arc::new(Queue::default());
        queue.push("<4>", b"one\n");
        queue.push("", b"two\n");
        let writes = Arc::clone(&queue);
        thread::spawn(move || writes.write_to(Full));
        queue.flush(Duration::from_secs(10));
        assert_eq!(queue.dropped.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn an_output_that_nobody_reads_holds_nothing_up() {
        let (queue, _output) = start();
        let before = Instant::now();
        queue.push("", b"a line\n");
        queue.flush(Duration::from_millis(50));
        let waited = before.elapsed();
        assert!((50..5000).contains(&waited.as_millis()), "{waited:?}");
    }
}
