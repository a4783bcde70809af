//! The responses of a server on a core, by which it is found out whether it fails more than the others of its set.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// Failures in a window after which a server is judged by its share of failures.
const FAILURES_MIN: u32 = 5;
/// Requests in a window from which their mean time is known.
const REQUESTS_MIN: u32 = 10;
/// A server is judged by its share of failures if it has at least this one.
const FAILURE_SHARE: f64 = 0.5;
/// A server is an outlier only if it fails so many times as often as the others.
const TIMES_OTHERS: f64 = 2.0;
/// Responses are counted for one to two periods.
const PERIOD: Duration = Duration::from_secs(5);

/// The outcomes of the requests that a server got on one core within the last five to ten seconds.
#[derive(Debug, Default)]
pub(super) struct Outcomes {
    now: Cell<Counts>,
    before: Cell<Counts>,
    until: Cell<Option<Instant>>,
    consecutive: Cell<u32>,
    failed_at: Cell<Option<Instant>>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Counts {
    requests: u32,
    failures: u32,
    /// The sum of the times of responses, in seconds.
    time: f64,
}

impl Outcomes {
    /// Counts a request, which took `time`. Returns whether the server is to be judged after so many consecutive failures.
    pub(super) fn note(&self, time: Duration, is_failure: bool, limit: u32, now: Instant) -> bool {
        self.roll(now);
        let mut counts = self.now.get();
        counts.requests = counts.requests.saturating_add(1);
        counts.time += time.as_secs_f64();
        if !is_failure {
            self.consecutive.set(0);
            self.now.set(counts);
            return false;
        }
        counts.failures = counts.failures.saturating_add(1);
        self.now.set(counts);
        self.failed_at.set(Some(now));
        self.consecutive
            .set(self.consecutive.get().saturating_add(1));
        self.is_suspect(limit)
    }

    /// Whether enough of its requests failed that it is compared with the others. `limit`: consecutive failures.
    fn is_suspect(&self, limit: u32) -> bool {
        let all = self.counts();
        self.consecutive.get() >= limit
            || all.failures >= FAILURES_MIN && share(all) >= FAILURE_SHARE
    }

    /// Whether it fails much more than others: an error of the application itself, which all servers of a set have alike,
    /// ejects none of them. Others that got no requests say nothing.
    pub(super) fn is_worse_than<'o>(
        &self,
        others: impl Iterator<Item = &'o Outcomes>,
        now: Instant,
    ) -> bool {
        self.roll(now);
        let mut all = Counts::default();
        for other in others {
            other.roll(now);
            let counts = other.counts();
            all.requests = all.requests.saturating_add(counts.requests);
            all.failures = all.failures.saturating_add(counts.failures);
        }
        let own = match self.consecutive.get() {
            0 => share(self.counts()),
            // The last ones count: it may have failed only now.
            _ => share(self.counts()).max(FAILURE_SHARE),
        };
        own > share(all) * TIMES_OTHERS
    }

    /// The mean time of its requests in seconds, if there were enough of them.
    pub(super) fn mean_time(&self, now: Instant) -> Option<f64> {
        self.roll(now);
        let all = self.counts();
        (all.requests >= REQUESTS_MIN).then(|| all.time / f64::from(all.requests))
    }

    /// How long ago the last request failed.
    pub(super) fn failed_for(&self, now: Instant) -> Option<Duration> {
        Some(now.saturating_duration_since(self.failed_at.get()?))
    }

    /// Forgets all: the server returns.
    pub(super) fn forget(&self) {
        self.now.take();
        self.before.take();
        self.consecutive.take();
        self.failed_at.take();
    }

    fn counts(&self) -> Counts {
        let (now, before) = (self.now.get(), self.before.get());
        Counts {
            requests: now.requests.saturating_add(before.requests),
            failures: now.failures.saturating_add(before.failures),
            time: now.time + before.time,
        }
    }

    fn roll(&self, now: Instant) {
        let Some(until) = self.until.get() else {
            return self.until.set(Some(now + PERIOD));
        };
        if now < until {
            return;
        }
        let counts = self.now.take();
        let is_recent = now < until + PERIOD;
        self.before
            .set(if is_recent { counts } else { Counts::default() });
        self.until.set(Some(now + PERIOD));
    }
}

fn share(counts: Counts) -> f64 {
    match counts.requests {
        0 => 0.0,
        requests => f64::from(counts.failures) / f64::from(requests),
    }
}

/// The longest ejection, and that of servers which are ejected one time after the other.
const EJECTION_MAX: Duration = Duration::from_secs(60);

/// How long a server gets no requests after so many ejections in a row. `first`: after one.
pub(super) fn ejection_time(first: Duration, ejections: u32) -> Duration {
    let doubled = first.saturating_mul(1 << ejections.saturating_sub(1).min(8));
    doubled.min(EJECTION_MAX.max(first))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAILURES: u32 = 5;

    fn outcomes(results: &[bool], now: Instant) -> (Outcomes, bool) {
        let outcomes = Outcomes::default();
        let mut is_suspect = false;
        for is_failure in results {
            is_suspect = outcomes.note(Duration::ZERO, *is_failure, FAILURES, now);
        }
        (outcomes, is_suspect)
    }

    #[test]
    fn a_server_is_judged_after_consecutive_failures_or_by_their_share() {
        let now = Instant::now();
        assert!(!outcomes(&[true; 4], now).1);
        assert!(outcomes(&[true; 5], now).1);
        assert!(!outcomes(&[true, true, false, true, true, false, false], now).1);
        assert!(outcomes(&[true, true, false, true, false, true, false, true], now).1);
        let mut mostly_good = vec![false; 100];
        mostly_good.extend([true; 4]);
        assert!(!outcomes(&mostly_good, now).1);
        mostly_good.push(true);
        assert!(outcomes(&mostly_good, now).1);
    }

    #[test]
    fn a_server_is_an_outlier_if_the_others_do_not_fail_as_often() {
        let now = Instant::now();
        let (bad, _) = outcomes(&[true; 10], now);
        let (good, _) = outcomes(&[false; 10], now);
        let (half, _) = outcomes(&[true, false, true, false], now);
        let (idle, _) = outcomes(&[], now);
        assert!(bad.is_worse_than([&good, &good].into_iter(), now));
        assert!(bad.is_worse_than([&idle].into_iter(), now));
        assert!(!bad.is_worse_than([&bad, &bad].into_iter(), now));
        assert!(!bad.is_worse_than([&half].into_iter(), now));
        let mut late = vec![false; 1_000];
        late.extend([true; 5]);
        assert!(
            outcomes(&late, now)
                .0
                .is_worse_than([&good].into_iter(), now)
        );
    }

    #[test]
    fn ejections_last_longer_each_time() {
        let seconds = |count| ejection_time(Duration::from_secs(5), count).as_secs();
        assert_eq!([1, 2, 3, 4, 5, 100].map(seconds), [5, 10, 20, 40, 60, 60]);
    }
}
