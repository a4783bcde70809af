//! Warnings about an output that cannot be written.

use std::io;
use std::time::{Duration, Instant};

/// Between two warnings of one kind about one output.
const INTERVAL: Duration = Duration::from_secs(10);

/// Warns when an output fails, and of its dropped lines when it is written again.
#[derive(Debug)]
pub(super) struct Reports {
    /// The destination. `None` is standard error, whose dropped lines are in the summary.
    name: Option<String>,
    is_failing: bool,
    /// Why lines were dropped, unless they came too fast.
    cause: Option<String>,
    failure_reported_at: Option<Instant>,
    reported_lines: u64,
    lines_reported_at: Option<Instant>,
}

impl Reports {
    pub(super) fn new(name: Option<String>) -> Reports {
        Reports {
            name,
            is_failing: false,
            cause: None,
            failure_reported_at: None,
            reported_lines: 0,
            lines_reported_at: None,
        }
    }

    /// Nothing can be written at the moment.
    pub(super) fn fail(&mut self, error: &io::Error) {
        self.cause = Some(error.to_string());
        let Some(name) = self.name.as_ref().filter(|_| !self.is_failing) else {
            return;
        };
        self.is_failing = true;
        if due_in(self.failure_reported_at).is_zero() {
            self.failure_reported_at = Some(Instant::now());
            tracing::warn!("the log to {name} cannot be written: {error}");
        }
    }

    /// A line is lost, and others can be written.
    pub(super) fn lose_line(&mut self, error: &io::Error) {
        self.cause = Some(error.to_string());
    }

    /// Lines have been written.
    pub(super) fn succeed(&mut self) {
        self.is_failing = false;
    }

    /// Time until [`Reports::report`] has something to say, if nothing changes.
    pub(super) fn next_in(&self, dropped_lines: u64) -> Option<Duration> {
        let has_news = self.name.is_some() && dropped_lines > self.reported_lines;
        (has_news && !self.is_failing).then(|| due_in(self.lines_reported_at))
    }

    /// Warns of dropped lines if the output is written again and the last warning is old enough.
    pub(super) fn report(&mut self, dropped_lines: u64) {
        if self.next_in(dropped_lines) == Some(Duration::ZERO) {
            self.report_lines(dropped_lines);
        }
    }

    /// Warns of all dropped lines without a warning, when the output ends.
    pub(super) fn end(&mut self, dropped_lines: u64) {
        if dropped_lines > self.reported_lines {
            self.report_lines(dropped_lines);
        }
    }

    fn report_lines(&mut self, dropped_lines: u64) {
        let lines = dropped_lines - self.reported_lines;
        self.reported_lines = dropped_lines;
        self.lines_reported_at = Some(Instant::now());
        let cause = self.cause.take();
        let cause = cause
            .as_deref()
            .unwrap_or("they came faster than they were written");
        if let Some(name) = &self.name {
            tracing::warn!(lines, "lines of the log to {name} were dropped: {cause}");
        }
    }
}

fn due_in(last: Option<Instant>) -> Duration {
    last.map_or(Duration::ZERO, |last| {
        INTERVAL.saturating_sub(last.elapsed())
    })
}
