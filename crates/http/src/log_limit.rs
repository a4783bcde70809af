//! A limit of log lines, so that a failing upstream or an attacker does not fill the log.

use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Lines of one cause within a second.
const LINES_MAX: u32 = 10;

const WINDOW: Duration = Duration::from_secs(1);

/// Allows ten log lines per second and cause, and counts the rest.
#[derive(Debug, Default)]
pub struct LogLimit {
    causes: Mutex<Vec<Cause>>,
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
            causes: Mutex::new(Vec::new()),
        }
    }

    /// Whether a line of this cause may be written now; if so, how many were omitted since the last
    /// one. The set of causes must be closed.
    pub fn allow(&self, name: &'static str, now: Instant) -> Option<u64> {
        let mut causes = self.causes.lock().ok()?;
        let known = causes.iter().position(|cause| cause.name == name);
        let index = known.unwrap_or_else(|| {
            causes.push(Cause {
                name,
                window_start: now,
                lines: 0,
                omitted: 0,
            });
            causes.len() - 1
        });
        let cause = &mut causes[index];
        if now.saturating_duration_since(cause.window_start) >= WINDOW {
            (cause.window_start, cause.lines) = (now, 0);
        }
        if cause.lines == LINES_MAX {
            cause.omitted += 1;
            return None;
        }
        cause.lines += 1;
        Some(std::mem::take(&mut cause.omitted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_lines_a_second_are_allowed_for_each_cause() {
        let limit = LogLimit::new();
        let start = Instant::now();
        let allowed = (0..100).filter(|_| limit.allow("refused", start).is_some());
        assert_eq!(allowed.count(), 10);
        assert_eq!(limit.allow("timed out", start), Some(0));
        assert_eq!(limit.allow("refused", start + WINDOW / 2), None);
        assert_eq!(limit.allow("refused", start + WINDOW), Some(91));
        assert_eq!(limit.allow("refused", start + WINDOW), Some(0));
    }
}
