//! Retries of requests that an upstream may have processed, as all cores count them together.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::retry_budget::{PARTS, RETRIES_MIN, part_since};

/// One part more than a period has: the first and the last of them may be incomplete, and together they are never less
/// than a period.
const SLOTS: usize = PARTS + 1;
/// The bits of a slot for its count; the number of its part is above them.
const COUNT_BITS: u32 = 24;
const COUNT_MAX: u64 = (1 << COUNT_BITS) - 1;

/// The retries within the last period, on all cores. It is read and written for retries only, and for those of a share
/// that is not used up it is only written.
#[derive(Debug, Default)]
pub(crate) struct SharedRetries {
    /// When the first part began.
    epoch: OnceLock<Instant>,
    slots: [AtomicU64; SLOTS],
}

impl SharedRetries {
    /// Counts a retry of a core's own share.
    pub(super) fn note(&self, now: Instant) {
        self.add(self.number(now));
    }

    /// Counts a retry, if there are fewer than are always possible.
    ///
    /// Cores that count at the same time see each other's retries, as each is counted before it is compared. At most one
    /// of them is given too few, and none too many.
    pub(super) fn try_take(&self, now: Instant) -> bool {
        let number = self.number(now);
        let max = u64::from(RETRIES_MIN);
        if self.count(number) >= max {
            return false;
        }
        self.add(number);
        let is_taken = self.count(number) <= max;
        if !is_taken {
            self.remove(number);
        }
        is_taken
    }

    /// The number of the part at this time, from 1: 0 is a slot that was never used.
    fn number(&self, now: Instant) -> u64 {
        1 + part_since(*self.epoch.get_or_init(|| now), now)
    }

    /// The retries of this part, of those before it that the period may have begun in, and of later ones: the clocks of
    /// cores differ by a turn.
    fn count(&self, number: u64) -> u64 {
        let slots = self.slots.iter().map(|slot| slot.load(Ordering::SeqCst));
        let recent = slots.filter(|slot| (slot >> COUNT_BITS) + PARTS as u64 >= number);
        recent.map(|slot| slot & COUNT_MAX).sum()
    }

    fn add(&self, number: u64) {
        self.update(number, |slot| match slot >> COUNT_BITS < number {
            true => (number << COUNT_BITS) | 1,
            false if slot & COUNT_MAX == COUNT_MAX => slot,
            false => slot + 1,
        });
    }

    fn remove(&self, number: u64) {
        self.update(number, |slot| match slot & COUNT_MAX {
            0 => slot,
            _ => slot - 1,
        });
    }

    fn update(&self, number: u64, change: impl Fn(u64) -> u64) {
        let slot = &self.slots[number as usize % SLOTS];
        let change = |slot| Some(change(slot));
        let _ = slot.fetch_update(Ordering::SeqCst, Ordering::SeqCst, change);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;
    use std::thread;

    use super::*;
    use crate::upstream::retry_budget::PERIOD;

    fn left(shared: &SharedRetries, now: Instant) -> u32 {
        (0..).take_while(|_| shared.try_take(now)).count() as u32
    }

    #[test]
    fn retries_of_shares_leave_fewer_for_others() {
        let (shared, now) = (SharedRetries::default(), Instant::now());
        (0..RETRIES_MIN - 10).for_each(|_| shared.note(now));
        assert_eq!(left(&shared, now + PERIOD / 2), 10);
        assert_eq!(left(&shared, now + PERIOD), 0);
        assert_eq!(left(&shared, now + PERIOD + PERIOD / 10), RETRIES_MIN - 10);
        assert_eq!(left(&shared, now + PERIOD * 100), RETRIES_MIN);
    }

    #[test]
    fn threads_get_no_more_together_than_one_alone() {
        for _ in 0..20 {
            let (shared, now) = (SharedRetries::default(), Instant::now());
            let taken = AtomicU32::new(0);
            thread::scope(|scope| {
                for _ in 0..8 {
                    scope.spawn(|| {
                        for _ in 0..RETRIES_MIN {
                            taken.fetch_add(shared.try_take(now).into(), Ordering::Relaxed);
                        }
                    });
                }
            });
            let taken = taken.into_inner();
            assert!((1..=RETRIES_MIN).contains(&taken), "{taken}");
            assert_eq!(left(&shared, now), RETRIES_MIN - taken);
        }
    }
}
