//! A limit of log lines, so that a failing upstream or an attacker does not fill the log.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Lines of one cause and source within a second.
const LINES_MAX: u32 = 10;

const WINDOW: Duration = Duration::from_secs(1);

/// Allows ten log lines per second, cause and source, and counts the rest. The sets of causes and of
/// sources must be closed.
#[derive(Debug, Default)]
pub struct LogLimit {
    sources: Mutex<BTreeMap<Box<str>, Vec<Cause>>>,
}

#[derive(Debug)]
struct Cause {
    name: &'static str,
    window_start: Instant,
    lines: u32,
    omitted: u64,
}

impl LogLimit {
    /// A limit that has seen no line.
    #[must_use]
    pub const fn new() -> LogLimit {
        LogLimit {
            sources: Mutex::new(BTreeMap::new()),
        }
    }

    /// Whether a line of this cause and source may be written now; if so, how many were omitted since
    /// the last one.
    pub fn allow(&self, cause: &'static str, source: &str, now: Instant) -> Option<u64> {
        self.with(cause, source, now, Cause::allow)?
    }

    /// These lines were allowed or omitted, and the log has neither them nor their number: the next
    /// line counts them.
    pub fn add_omitted(&self, cause: &'static str, source: &str, now: Instant, lines: u64) {
        self.with(cause, source, now, |cause, _| cause.omitted += lines);
    }

    fn with<T>(
        &self,
        cause: &'static str,
        source: &str,
        now: Instant,
        act: impl FnOnce(&mut Cause, Instant) -> T,
    ) -> Option<T> {
        let mut sources = self.sources.lock().ok()?;
        if !sources.contains_key(source) {
            sources.insert(Box::from(source), Vec::new());
        }
        let causes = sources.get_mut(source)?;
        let known = causes.iter().position(|known| known.name == cause);
        let index = known.unwrap_or_else(|| {
            causes.push(Cause {
                name: cause,
                window_start: now,
                lines: 0,
                omitted: 0,
            });
            causes.len() - 1
        });
        Some(act(&mut causes[index], now))
    }
}

impl Cause {
    fn allow(&mut self, now: Instant) -> Option<u64> {
        if now.saturating_duration_since(self.window_start) >= WINDOW {
            (self.window_start, self.lines) = (now, 0);
        }
        if self.lines == LINES_MAX {
            self.omitted += 1;
            return None;
        }
        self.lines += 1;
        Some(std::mem::take(&mut self.omitted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_lines_a_second_are_allowed_for_each_cause_and_source() {
        let limit = LogLimit::new();
        let start = Instant::now();
        let allowed = (0..100).filter(|_| limit.allow("refused", "/a", start).is_some());
        assert_eq!(allowed.count(), 10);
        assert_eq!(limit.allow("timed out", "/a", start), Some(0));
        assert_eq!(limit.allow("refused", "/b", start), Some(0));
        assert_eq!(limit.allow("refused", "/a", start + WINDOW / 2), None);
        assert_eq!(limit.allow("refused", "/a", start + WINDOW), Some(91));
        assert_eq!(limit.allow("refused", "/a", start + WINDOW), Some(0));
    }

    #[test]
    fn lines_that_were_not_written_are_omitted() {
        let limit = LogLimit::new();
        let now = Instant::now();
        assert_eq!(limit.allow("refused", "/a", now), Some(0));
        limit.add_omitted("refused", "/a", now, 5);
        assert_eq!(limit.allow("refused", "/b", now), Some(0));
        assert_eq!(limit.allow("refused", "/a", now), Some(5));
    }
}
