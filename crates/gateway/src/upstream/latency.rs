//! An estimate of how long a server takes to respond, which follows a slower response at once and a faster one slowly.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// The time in which an estimate that is too high loses two thirds of the difference.
const DECAY: Duration = Duration::from_secs(3);

/// The peak-sensitive moving average of response times on a core ("peak EWMA", as in Finagle).
#[derive(Debug, Default)]
pub(super) struct Latency(Cell<Option<Estimate>>);

#[derive(Debug, Clone, Copy)]
struct Estimate {
    seconds: f64,
    at: Instant,
}

impl Latency {
    /// Notes a response time, or how long a server has not responded.
    pub(super) fn note(&self, time: Duration, now: Instant) {
        let seconds = time.as_secs_f64();
        let seconds = match self.0.get() {
            Some(last) if seconds < last.seconds => {
                let share = share_left(now.saturating_duration_since(last.at));
                last.seconds * share + seconds * (1.0 - share)
            }
            _ => seconds,
        };
        self.0.set(Some(Estimate { seconds, at: now }));
    }

    /// The estimate in seconds; `None` before the first response. It declines while there are none, so that a server that
    /// was slow is tried again.
    pub(super) fn seconds(&self, now: Instant) -> Option<f64> {
        let last = self.0.get()?;
        Some(last.seconds * share_left(now.saturating_duration_since(last.at)))
    }

    /// The estimate after the last response, in seconds; 0 before the first one.
    #[inline]
    pub(super) fn seconds_max(&self) -> f64 {
        self.0.get().map_or(0.0, |last| last.seconds)
    }

    /// Forgets the estimate: the server was away.
    pub(super) fn forget(&self) {
        self.0.set(None);
    }
}

/// How much of a difference is left after a time: near `exp(-t)`, by a rational function that costs a few instructions.
fn share_left(elapsed: Duration) -> f64 {
    let periods = elapsed.as_secs_f64() / DECAY.as_secs_f64();
    1.0 / (1.0 + periods + periods * periods / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slower_response_counts_at_once_and_a_faster_one_slowly() {
        let (latency, start) = (Latency::default(), Instant::now());
        let (fast, slow) = (Duration::from_millis(1), Duration::from_millis(200));
        assert_eq!(latency.seconds(start), None);
        latency.note(fast, start);
        latency.note(slow, start);
        assert_eq!(latency.seconds(start), Some(0.2));
        latency.note(fast, start + DECAY / 100);
        let after = latency.seconds(start + DECAY / 100).unwrap();
        assert!((0.19..0.2).contains(&after), "{after}");
        let after = latency.seconds(start + DECAY).unwrap();
        assert!((0.07..0.09).contains(&after), "{after}");
        for number in 0..1_000 {
            latency.note(fast, start + DECAY + DECAY / 100 * number);
        }
        let after = latency.seconds(start + DECAY * 11).unwrap();
        assert!((0.0009..0.0015).contains(&after), "{after}");
    }
}
