//! The thread of an output.

use std::io;
use std::mem;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::queue::Queue;
use super::report::Reports;
use super::sink::{Problem, Sink, first_line};

/// How long the end of an output waits for its last lines.
pub(super) const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// Batches that wait are written together, up to about this size.
const GATHERED_BYTES: usize = 64 * 1024;

/// How long to wait before writing to a full pipe that does not block.
const BUSY_PAUSE: Duration = Duration::from_millis(10);

/// How long to wait before looking for a daemon that does not run.
const ABSENT_PAUSE: Duration = Duration::from_millis(100);

/// Starts the thread, which ends when the queue must end. `name` is for warnings; without it there are none.
///
/// # Errors
/// The thread cannot be started.
pub(super) fn start(
    queue: &Arc<Queue>,
    sink: impl Sink + 'static,
    name: Option<String>,
) -> io::Result<JoinHandle<()>> {
    let writer = Writer {
        queue: Arc::clone(queue),
        sink: Box::new(sink),
        reports: Reports::new(name),
        gathered: Vec::new(),
        torn: Vec::new(),
        ends_at: None,
    };
    thread::Builder::new()
        .name("blitz-log".into())
        .spawn(move || writer.run())
}

struct Writer {
    queue: Arc<Queue>,
    sink: Box<dyn Sink>,
    reports: Reports,
    /// Empty between writes.
    gathered: Vec<u8>,
    /// The rest of a line whose beginning is written. It comes before all others, so that no line is torn.
    torn: Vec<u8>,
    /// All that waits then is lost.
    ends_at: Option<Instant>,
}

impl Writer {
    fn run(mut self) {
        self.queue.register_writer();
        loop {
            if self.queue.takes_reopen() {
                self.reopen();
            }
            // Before the queue is looked at: lines may be added until then.
            let must_end = self.queue.must_end();
            match self.queue.pop() {
                Some(batch) => self.write_gathered(batch),
                None if must_end => break,
                None => {
                    let next_report = self.reports.next_in(self.queue.dropped_lines());
                    self.queue.sleep(next_report);
                }
            }
            self.reports.report(self.queue.dropped_lines());
        }
        self.finish_torn();
        self.abandon_torn();
        self.reports.end(self.queue.dropped_lines());
    }

    fn reopen(&mut self) {
        self.finish_torn();
        if self.reopen_sink() {
            self.abandon_torn();
        }
    }

    /// Gives whether it succeeded.
    fn reopen_sink(&mut self) -> bool {
        let reopened = self.sink.reopen();
        if let Err(error) = &reopened {
            tracing::warn!("a log cannot be opened anew, and the old one stays in use: {error}");
        }
        reopened.is_ok()
    }

    /// Writes this batch together with some that wait.
    fn write_gathered(&mut self, batch: Vec<u8>) {
        let mut gathered = mem::take(&mut self.gathered);
        let mut next = Some(batch);
        while let Some(batch) = next {
            gathered.extend_from_slice(&batch);
            self.queue.recycle(batch);
            let has_room = gathered.len() < GATHERED_BYTES;
            next = has_room.then(|| self.queue.pop()).flatten();
        }
        self.write_whole(&gathered);
        self.queue.release(gathered.len());
        gathered.clear();
        gathered.shrink_to(2 * GATHERED_BYTES);
        self.gathered = gathered;
    }

    /// Writes all lines, or counts those that are lost.
    fn write_whole(&mut self, lines: &[u8]) {
        if !self.finish_torn() {
            self.queue.count_dropped(lines);
            return;
        }
        let written = self.write(lines);
        let mut rest = &lines[written..];
        if lines[..written].last().is_some_and(|&byte| byte != b'\n') {
            let (_, end) = first_line(rest);
            self.torn = rest[..end].to_vec();
            rest = &rest[end..];
        }
        self.queue.count_dropped(rest);
    }

    /// Writes the rest of a torn line. Gives whether there is none any more.
    fn finish_torn(&mut self) -> bool {
        let mut torn = mem::take(&mut self.torn);
        let written = self.write(&torn);
        torn.drain(..written);
        self.torn = torn;
        self.torn.is_empty()
    }

    fn abandon_torn(&mut self) {
        self.queue.count_dropped(&self.torn);
        self.torn.clear();
    }

    /// Writes from the beginning, for as long as it takes. Gives the number of bytes that are written, or counted as
    /// dropped one by one; the others are lost.
    fn write(&mut self, lines: &[u8]) -> usize {
        let mut written = 0;
        while written < lines.len() {
            match self.sink.write(&lines[written..]) {
                Ok(0) => break,
                Ok(more) => {
                    written += more;
                    self.reports.succeed();
                    continue;
                }
                Err(Problem::Busy) => thread::park_timeout(BUSY_PAUSE),
                Err(Problem::Absent { error, lost }) => {
                    self.reports.fail(&error);
                    self.queue.add_dropped(lost);
                    thread::park_timeout(ABSENT_PAUSE);
                    // The daemon may have another address now.
                    if self.queue.takes_reopen() {
                        self.reopen_sink();
                    }
                }
                Err(Problem::Line(error)) => {
                    self.reports.lose_line(&error);
                    self.queue.add_dropped(1);
                    written += first_line(&lines[written..]).1;
                }
                Err(Problem::Failed(error)) => {
                    self.reports.fail(&error);
                    break;
                }
            }
            if self.is_over() {
                break;
            }
        }
        written
    }

    /// Whether the time for the last lines is over.
    fn is_over(&mut self) -> bool {
        if !self.queue.must_end() {
            return false;
        }
        let ends_at = *self
            .ends_at
            .get_or_insert_with(|| Instant::now() + FLUSH_TIMEOUT);
        Instant::now() >= ends_at
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::io::ErrorKind;
    use std::sync::Mutex;
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

    use super::*;

    const WAIT: Duration = Duration::from_secs(10);

    /// Accepts a write only when the test receives it.
    #[derive(Debug)]
    struct Slow(SyncSender<Vec<u8>>);

    impl Sink for Slow {
        fn write(&mut self, lines: &[u8]) -> Result<usize, Problem> {
            let part = &lines[..lines.len().min(100_000)];
            let sent = self.0.send(part.to_vec());
            sent.map_err(|_| Problem::Failed(ErrorKind::BrokenPipe.into()))?;
            Ok(part.len())
        }
    }

    fn start_slow() -> (Arc<Queue>, Receiver<Vec<u8>>) {
        let queue = Arc::new(Queue::new(1024 * 1024));
        let (sender, receiver) = sync_channel(0);
        start(&queue, Slow(sender), None).unwrap();
        (queue, receiver)
    }

    #[test]
    fn lines_are_written_whole_and_in_order_or_dropped_and_counted() {
        let (queue, output) = start_slow();
        let lines = 3000;
        for number in 0..lines {
            queue.push(format!("{number:0>999}\n").into_bytes());
        }
        let dropped = queue.dropped_lines() as usize;
        assert!((1..lines).contains(&dropped), "{dropped}");
        let mut written = Vec::new();
        while written.len() < (lines - dropped) * 1000 {
            written.extend(output.recv_timeout(WAIT).unwrap());
        }
        let written = String::from_utf8(written).unwrap();
        let numbers: Vec<usize> = written.lines().map(|line| line.parse().unwrap()).collect();
        assert_eq!(numbers.len(), lines - dropped);
        assert!(numbers.is_sorted());
        let before = Instant::now();
        queue.flush(WAIT);
        assert!(before.elapsed() < WAIT / 2, "nothing waits any more");
    }

    #[test]
    fn an_output_that_nobody_reads_holds_nothing_up() {
        let (queue, _output) = start_slow();
        let before = Instant::now();
        queue.push(b"a line\n".to_vec());
        queue.flush(Duration::from_millis(50));
        let waited = before.elapsed();
        assert!((50..5000).contains(&waited.as_millis()), "{waited:?}");
    }

    /// Results of writes in turn, and what they have written; later writes fail.
    #[derive(Debug, Clone, Default)]
    struct Script {
        results: Arc<Mutex<VecDeque<Result<usize, Problem>>>>,
        written: Arc<Mutex<Vec<u8>>>,
    }

    impl Sink for Script {
        fn write(&mut self, lines: &[u8]) -> Result<usize, Problem> {
            let result = self.results.lock().unwrap().pop_front();
            let bytes = result.unwrap_or_else(|| Err(full()))?.min(lines.len());
            self.written.lock().unwrap().extend(&lines[..bytes]);
            Ok(bytes)
        }
    }

    fn full() -> Problem {
        Problem::Failed(ErrorKind::StorageFull.into())
    }

    /// Writes the batches one after the other. Gives the written lines and the number of dropped ones.
    fn play(
        results: impl IntoIterator<Item = Result<usize, Problem>>,
        batches: &[&str],
    ) -> (String, u64) {
        let script = Script::default();
        script.results.lock().unwrap().extend(results);
        let queue = Arc::new(Queue::new(1024));
        let thread = start(&queue, script.clone(), None).unwrap();
        for batch in batches {
            queue.push(batch.as_bytes().to_vec());
            queue.flush(WAIT);
        }
        queue.end();
        thread.join().unwrap();
        let written = script.written.lock().unwrap().clone();
        (String::from_utf8(written).unwrap(), queue.dropped_lines())
    }

    const ALL: Result<usize, Problem> = Ok(usize::MAX);

    #[test]
    fn lines_that_cannot_be_written_are_counted_and_later_ones_are_written() {
        let (written, dropped) = play([Err(full()), ALL], &["one\ntwo\n", "three\n"]);
        assert_eq!((written.as_str(), dropped), ("three\n", 2));
    }

    #[test]
    fn a_torn_line_is_completed_before_the_next_one() {
        let results = [Ok(6), Err(full()), Err(full()), ALL, ALL];
        let batches = ["one\ntwo\nthree\n", "four\n", "five\n"];
        let (written, dropped) = play(results, &batches);
        assert_eq!((written.as_str(), dropped), ("one\ntwo\nfive\n", 2));
    }

    #[test]
    fn a_torn_line_that_is_never_completed_is_lost() {
        let (written, dropped) = play([Ok(6)], &["one\ntwo\nthree\n"]);
        assert_eq!((written.as_str(), dropped), ("one\ntw", 2));
    }

    #[test]
    fn a_line_that_is_too_long_is_lost_alone() {
        let too_long = Problem::Line(ErrorKind::InvalidInput.into());
        let results = [Ok(4), Err(too_long), Ok(6)];
        let (written, dropped) = play(results, &["one\ntwo\nthree\n"]);
        assert_eq!((written.as_str(), dropped), ("one\nthree\n", 1));
    }

    #[test]
    fn a_busy_or_absent_reader_is_tried_again() {
        let absent = Problem::Absent {
            error: ErrorKind::NotFound.into(),
            lost: 5,
        };
        let (written, dropped) = play([Err(Problem::Busy), Err(absent), ALL], &["one\n"]);
        assert_eq!((written.as_str(), dropped), ("one\n", 5));
    }

    /// A daemon that is absent until it is looked for anew.
    #[derive(Debug, Default)]
    struct Moved {
        is_found: bool,
    }

    impl Sink for Moved {
        fn write(&mut self, lines: &[u8]) -> Result<usize, Problem> {
            let error = ErrorKind::ConnectionRefused.into();
            let absent = Problem::Absent { error, lost: 0 };
            self.is_found.then_some(lines.len()).ok_or(absent)
        }

        fn reopen(&mut self) -> io::Result<()> {
            self.is_found = true;
            Ok(())
        }
    }

    #[test]
    fn an_absent_daemon_is_looked_for_anew_while_lines_wait() {
        let queue = Arc::new(Queue::new(1024));
        let thread = start(&queue, Moved::default(), None).unwrap();
        queue.push(b"one\n".to_vec());
        queue.flush(Duration::from_millis(300));
        queue.reopen();
        let before = Instant::now();
        queue.flush(WAIT);
        assert!(before.elapsed() < WAIT / 2, "the line is written");
        queue.end();
        thread.join().unwrap();
        assert_eq!(queue.dropped_lines(), 0);
    }

    #[test]
    fn small_batches_are_written_together() {
        let (queue, output) = start_slow();
        let mut sent = 0;
        while queue.dropped_lines() == 0 {
            queue.push(b"0123456\n".to_vec());
            sent += 8;
        }
        // One line was dropped.
        let mut left: usize = sent - 8;
        let mut writes = 0;
        while left > 0 {
            left -= output.recv_timeout(WAIT).unwrap().len();
            writes += 1;
        }
        assert!(sent > 10_000 && writes <= 3, "{sent} {writes}");
    }
}
