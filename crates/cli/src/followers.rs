//! Those who follow the requests of this process, such as `blitz tail`. Each has a filter, a form of its lines and a
//! bounded queue: one that is too slow loses lines, which it is told, and holds up nothing.

mod consumer;
mod filter;
mod queue;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use blitz_gateway::access_log::LogFormat;

use self::consumer::FollowerConsumer;
use self::queue::{Queue, Taken};
use crate::records::Consumers;

pub(crate) use self::filter::{Filter, WantedStatus};

/// Followers at a time.
pub(crate) const FOLLOWERS_MAX: usize = 8;

/// The forms of lines, by their names in the configuration.
pub(crate) const FORMATS: [(&str, LogFormat); 3] = [
    ("json", LogFormat::Json),
    ("logfmt", LogFormat::Logfmt),
    ("combined", LogFormat::Combined),
];

/// The followers of this process.
pub(crate) struct Followers {
    state: Mutex<State>,
    consumers: Consumers,
}

#[derive(Default)]
struct State {
    followers: Vec<Arc<Follower>>,
    /// The process ends.
    is_ended: bool,
}

struct Follower {
    filter: Filter,
    format: LogFormat,
    queue: Queue,
}

/// Why somebody cannot follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    TooMany,
    Ending,
}

/// A follower, until this is dropped.
pub(crate) struct Following {
    follower: Arc<Follower>,
    followers: Arc<Followers>,
}

impl Followers {
    /// Those that become consumers of records.
    pub(crate) fn new(consumers: Consumers) -> Followers {
        Followers {
            state: Mutex::default(),
            consumers,
        }
    }

    /// To become another consumer of records.
    pub(crate) fn consumers(&self) -> &Consumers {
        &self.consumers
    }

    /// Begins to follow requests.
    ///
    /// # Errors
    /// Why that is not possible.
    pub(crate) fn follow(
        self: &Arc<Self>,
        filter: Filter,
        format: LogFormat,
    ) -> Result<Following, Refused> {
        let mut state = self.lock();
        if state.is_ended {
            return Err(Refused::Ending);
        }
        if state.followers.len() >= FOLLOWERS_MAX {
            return Err(Refused::TooMany);
        }
        let follower = Arc::new(Follower {
            filter,
            format,
            queue: Queue::default(),
        });
        let consumer = FollowerConsumer::new(&follower);
        let added = self.consumers.add(Box::new(consumer));
        added.map_err(|_| Refused::TooMany)?;
        state.followers.push(Arc::clone(&follower));
        Ok(Following {
            follower,
            followers: Arc::clone(self),
        })
    }

    /// Followers get what waits, and no more.
    pub(crate) fn end(&self) {
        let mut state = self.lock();
        state.is_ended = true;
        for follower in state.followers.drain(..) {
            follower.queue.end();
        }
    }

    fn leave(&self, leaving: &Arc<Follower>) {
        let mut state = self.lock();
        state.followers.retain(|known| !Arc::ptr_eq(known, leaving));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Following {
    /// Waits for lines; `None` when the process ends.
    pub(crate) async fn next(&self) -> Option<Vec<u8>> {
        let Taken { mut lines, dropped } = self.follower.queue.next().await?;
        if dropped > 0 {
            lines.extend_from_slice(notice(self.follower.format, dropped).as_bytes());
        }
        Some(lines)
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        self.followers.leave(&self.follower);
    }
}

/// A line that is in place of dropped ones.
fn notice(format: LogFormat, dropped: u64) -> String {
    let before = before_count(format);
    match format {
        LogFormat::Json => format!("{before}{dropped}}}\n"),
        LogFormat::Logfmt | LogFormat::Combined => format!("{before}{dropped}\n"),
    }
}

/// How many lines this one is in place of; `None` if it is about a request.
pub(crate) fn dropped_lines(format: LogFormat, line: &str) -> Option<u64> {
    let count = line.strip_prefix(before_count(format))?;
    count.trim_end_matches('}').parse().ok()
}

/// No line of a request begins like this: in JSON and logfmt it begins with its time, and in the combined format with an
/// address.
fn before_count(format: LogFormat) -> &'static str {
    match format {
        LogFormat::Json => "{\"dropped\":",
        LogFormat::Logfmt => "dropped=",
        LogFormat::Combined => "# dropped=",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::Records;

    #[test]
    fn a_notice_is_read_back_and_no_line_is_one() {
        for (_, format) in FORMATS {
            let line = notice(format, 12);
            assert_eq!(dropped_lines(format, line.trim_end()), Some(12), "{line}");
        }
        for (format, line) in [
            (
                LogFormat::Json,
                r#"{"ts":"2026-11-29T18:55:00.000000Z","dropped":12}"#,
            ),
            (
                LogFormat::Logfmt,
                "ts=2026-11-29T18:55:00.000000Z dropped=12",
            ),
            (
                LogFormat::Combined,
                r#"192.0.2.1 - - [29/Nov/2026:18:55:00 +0000] "GET /# dropped=1 HTTP/1.1" 200 2 "-" "-""#,
            ),
        ] {
            assert_eq!(dropped_lines(format, line), None, "{line}");
        }
    }

    #[test]
    fn followers_are_bounded_and_end_with_the_process() {
        let records = Records::start().unwrap();
        let followers = Arc::new(Followers::new(records.consumers()));
        let follow = || followers.follow(Filter::default(), LogFormat::Json);
        let mut all: Vec<_> = (0..FOLLOWERS_MAX).map(|_| follow().ok().unwrap()).collect();
        assert_eq!(follow().err(), Some(Refused::TooMany));
        all.pop();
        assert!(follow().is_ok(), "one has left");
        followers.end();
        assert_eq!(follow().err(), Some(Refused::Ending));
    }
}
