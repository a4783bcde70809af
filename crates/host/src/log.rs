//! The log on standard error, and [outputs](LogOutput) of other logs.
//!
//! Each output has a thread of its own. If nobody reads it, that thread waits and lines are dropped and counted, while
//! the cores, the thread that handles signals and other outputs go on.

mod destination;
mod journal;
mod output;
mod queue;
mod report;
mod sink;
mod stream;
mod syslog;
mod writer;

use std::env;
use std::fs;
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, LazyLock};

use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

use self::queue::{DROPPED, Queue};
use self::stream::Stream;
use self::writer::FLUSH_TIMEOUT;

pub use self::destination::{Destination, DestinationError, SyslogAddress};
pub use self::output::{LogOutput, LogReader};

/// Bytes that wait to be written to standard error; lines beyond them are dropped.
const WAITING_BYTES_MAX: usize = 1024 * 1024;

static STDERR: LazyLock<Arc<Queue>> = LazyLock::new(|| Arc::new(Queue::new(WAITING_BYTES_MAX)));

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
        // With this thread it would delay the start of the cores.
        blitz_http::prepare_descriptors();
        writer::start(&STDERR, Stream::standard(&io::stderr())?, None)?;
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
    STDERR.dropped_lines()
}

/// Lines that all [outputs](LogOutput) of the process have dropped so far.
#[must_use]
pub fn dropped_output_lines() -> u64 {
    // In this order: a line is added to the sum first.
    let of_stderr = dropped_lines();
    DROPPED.load(Ordering::Relaxed).saturating_sub(of_stderr)
}

impl Drop for LogGuard {
    fn drop(&mut self) {
        STDERR.flush(FLUSH_TIMEOUT);
    }
}

/// Each event arrives in one call.
impl Write for LineWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.queue.push([self.priority.as_bytes(), line].concat());
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
    use super::*;

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
}
