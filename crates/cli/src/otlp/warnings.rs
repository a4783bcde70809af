//! The warnings about an export of one kind of items: each at most once a minute, with all that no earlier one has told.

use std::cell::Cell;
use std::time::{Duration, Instant};

use super::signal::Signal;

/// The time between two warnings of a kind.
const WARN_AFTER: Duration = Duration::from_secs(60);

/// Tells whether the collector takes the items of a kind.
pub(super) struct Warnings {
    signal: Signal,
    collector: String,
    gone: Gone,
    overflow: Told,
    rejected: Told,
    advice: Told,
}

impl Warnings {
    /// Those about this collector, a URL.
    pub(super) fn new(signal: Signal, collector: String) -> Warnings {
        Warnings {
            signal,
            collector,
            gone: Gone::default(),
            overflow: Told::default(),
            rejected: Told::default(),
            advice: Told::default(),
        }
    }

    /// The collector takes nothing for this reason.
    pub(super) fn tell_gone(&self, problem: &str) {
        if self.gone.is_news(blitz_http::now()) {
            let (signal, collector) = (self.signal.name(), &self.collector);
            tracing::warn!("the collector {collector} does not take {signal}: {problem}");
        }
    }

    /// The collector takes items; so many were dropped since the start of the process.
    pub(super) fn tell_back(&self, dropped: u64) {
        if self.gone.is_over() {
            // The number has those that did not find room meanwhile.
            self.overflow.forget();
            let (signal, collector) = (self.signal.name(), &self.collector);
            tracing::warn!(
                "the collector {collector} takes {signal} again; {dropped} were dropped"
            );
        }
    }

    /// So many more items came faster than they were exported.
    pub(super) fn tell_overflow(&self, count: u64) {
        // Another warning has told the reason.
        if self.gone.is_told.get() {
            return;
        }
        if let Some(count) = self.overflow.add(count, blitz_http::now()) {
            self.warn_of_overflow(count);
        }
    }

    /// The collector has rejected so many of the items that it was sent, and gives this reason; it may be empty.
    pub(super) fn tell_rejected(&self, count: u64, reason: &str) {
        let (signal, collector) = (self.signal.name(), &self.collector);
        if let Some(count) = self.rejected.add(count, blitz_http::now()) {
            let separator = if reason.is_empty() { "" } else { ": " };
            tracing::warn!(
                "the collector {collector} rejects {signal}{separator}{reason}; {count} were dropped"
            );
        }
    }

    /// The collector takes all items, but has this to say about them.
    pub(super) fn tell_advice(&self, advice: &str) {
        let (signal, collector) = (self.signal.name(), &self.collector);
        if self.advice.add(1, blitz_http::now()).is_some() {
            tracing::warn!("the collector {collector} takes {signal}, but warns: {advice}");
        }
    }

    /// The export ends: tells what it would tell later.
    pub(super) fn end(&self) {
        if let Some(count) = self.overflow.rest() {
            self.warn_of_overflow(count);
        }
        if let Some(count) = self.rejected.rest() {
            let (signal, collector) = (self.signal.name(), &self.collector);
            tracing::warn!("the collector {collector} has rejected {signal}; {count} were dropped");
        }
    }

    fn warn_of_overflow(&self, count: u64) {
        let (signal, collector) = (self.signal.name(), &self.collector);
        let remedy = match self.signal {
            Signal::Spans => "a smaller `tracing.sample`",
            Signal::Logs => "`when` or `sample` of `log.access`",
        };
        tracing::warn!(
            "{count} {signal} were dropped: they came faster than they were exported to {collector}; export fewer with \
             {remedy}"
        );
    }
}

/// Whether nothing is taken.
#[derive(Default)]
struct Gone {
    /// Whether a warning has told it.
    is_told: Cell<bool>,
    told_at: Cell<Option<Instant>>,
}

impl Gone {
    /// Whether a warning has to tell that nothing is taken.
    fn is_news(&self, now: Instant) -> bool {
        if self.is_told.get() || is_recent(self.told_at.get(), now) {
            return false;
        }
        self.is_told.set(true);
        self.told_at.set(Some(now));
        true
    }

    /// Whether a warning has to tell that items are taken again.
    fn is_over(&self) -> bool {
        self.is_told.replace(false)
    }
}

/// Items of which warnings tell how many they are.
#[derive(Default)]
struct Told {
    untold: Cell<u64>,
    told_at: Cell<Option<Instant>>,
}

impl Told {
    /// Adds some. Gives how many a warning has to tell of now, if any.
    fn add(&self, count: u64, now: Instant) -> Option<u64> {
        self.untold.set(self.untold.get().saturating_add(count));
        if is_recent(self.told_at.get(), now) {
            return None;
        }
        let untold = self.rest();
        self.told_at.set(untold.map(|_| now));
        untold
    }

    /// Those of which no warning has told, if there are some.
    fn rest(&self) -> Option<u64> {
        Some(self.untold.take()).filter(|untold| *untold > 0)
    }

    fn forget(&self) {
        self.untold.set(0);
    }
}

fn is_recent(told: Option<Instant>, now: Instant) -> bool {
    told.is_some_and(|told| now.saturating_duration_since(told) < WARN_AFTER)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_collector_that_comes_and_goes_is_told_rarely() {
        let (gone, start) = (Gone::default(), Instant::now());
        assert!(gone.is_news(start) && !gone.is_news(start + SECOND));
        assert!(gone.is_over() && !gone.is_over());
        assert!(!gone.is_news(start + 2 * SECOND) && !gone.is_over());
        assert!(gone.is_news(start + WARN_AFTER) && gone.is_over());
    }

    #[test]
    fn dropped_items_are_told_rarely_and_all_of_them() {
        let (told, start) = (Told::default(), Instant::now());
        assert_eq!(told.add(0, start), None);
        assert_eq!(told.add(3, start), Some(3));
        assert_eq!(told.add(4, start + SECOND), None);
        assert_eq!(told.add(0, start + WARN_AFTER), Some(4));
        assert_eq!(told.add(5, start + WARN_AFTER), None);
        assert_eq!((told.rest(), told.rest()), (Some(5), None));
    }
}
