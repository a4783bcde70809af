//! The time of a response without load: what all cores know of it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How often it is measured anew while the limit is reached. Cores do so at the same time: while one of them sends less,
/// the others must not fill the upstream.
pub(super) const RENEWAL_PERIOD: Duration = Duration::from_secs(10);

/// Bits of the time in microseconds; the number of the measurement has the others.
const TIME_BITS: u32 = 40;
const TIME_MAX: u64 = (1 << TIME_BITS) - 1;
const NUMBER_MAX: u64 = u64::MAX >> TIME_BITS;

/// How long an upstream takes for a response if nothing waits there. It outlives configurations.
#[derive(Debug, Default)]
pub(crate) struct Unloaded {
    /// When a limit was reached for the first time.
    began: OnceLock<Instant>,
    /// The number of the last measurement, and the time; 0 is unknown.
    state: AtomicU64,
}

impl Unloaded {
    /// The time; `None` if there was no response yet.
    pub(super) fn get(&self) -> Option<Duration> {
        let micros = self.state.load(Ordering::Relaxed) & TIME_MAX;
        (micros > 0).then(|| Duration::from_micros(micros))
    }

    /// The number of the current measurement. That of the first call is 1.
    pub(super) fn measurement(&self, now: Instant) -> u64 {
        let began = *self.began.get_or_init(|| now);
        let count = now.saturating_duration_since(began).as_secs() / RENEWAL_PERIOD.as_secs();
        count.min(NUMBER_MAX - 1) + 1
    }

    /// Notes a time that was seen while no limit was reached. It counts for an eighth: medians of a few responses vary.
    pub(super) fn follow(&self, time: Duration) {
        let time = micros(time);
        self.change(|number, known| match known {
            None => Some((number, time)),
            Some(known) => Some((number, (known * 7 + time) / 8)),
        });
    }

    /// Notes the result of a measurement. A lower one replaces what was seen before it, which may have been under load.
    /// A higher one is averaged with it, but not that of the first measurement, which cores do not begin at the same time.
    /// Of several cores the lowest result counts.
    pub(super) fn renew(&self, number: u64, time: Duration) {
        let time = micros(time);
        self.change(|last, known| match known {
            Some(known) if time >= known && last >= number => None,
            Some(known) if time > known && number == 1 => Some((number, known)),
            Some(known) if time > known => Some((number, time.midpoint(known))),
            _ => Some((number, time)),
        });
    }

    fn change(&self, change: impl Fn(u64, Option<u64>) -> Option<(u64, u64)>) {
        let change = |state: u64| {
            let known = Some(state & TIME_MAX).filter(|&micros| micros > 0);
            let (number, time) = change(state >> TIME_BITS, known)?;
            Some((number << TIME_BITS) | time.clamp(1, TIME_MAX))
        };
        // Nothing to change is no failure.
        let _ = self
            .state
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, change);
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(TIME_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lower_measurement_replaces_and_a_higher_one_is_averaged() {
        let unloaded = Unloaded::default();
        let millis = |number| Duration::from_millis(number);
        assert_eq!(unloaded.get(), None);
        unloaded.follow(millis(80));
        unloaded.follow(millis(96));
        assert_eq!(unloaded.get(), Some(millis(82)));
        unloaded.renew(1, millis(20));
        assert_eq!(unloaded.get(), Some(millis(20)));
        unloaded.renew(1, millis(30));
        assert_eq!(unloaded.get(), Some(millis(20)), "of another core");
        unloaded.renew(2, millis(40));
        assert_eq!(unloaded.get(), Some(millis(30)));
        unloaded.renew(2, millis(10));
        assert_eq!(unloaded.get(), Some(millis(10)), "of another core");
    }

    #[test]
    fn all_cores_measure_at_the_same_time() {
        let (unloaded, now) = (Unloaded::default(), Instant::now());
        assert_eq!(unloaded.measurement(now), 1);
        let later = now + RENEWAL_PERIOD;
        assert_eq!(unloaded.measurement(later - Duration::from_millis(1)), 1);
        assert_eq!(unloaded.measurement(later), 2);
    }
}
