//! The buckets of all keys.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::lease::Lease;
use super::{Throttled, WAYS};

/// Buckets of limits for keys without a bucket of their own. Limits that share one share its tokens.
const OVERFLOW_BUCKETS: usize = 64;

/// Sets of buckets, made with the first use.
#[derive(Debug)]
pub(super) struct Table {
    sets: OnceLock<Box<[Set]>>,
    sets_max: usize,
    overflow: [Bucket; OVERFLOW_BUCKETS],
}

/// The keys are in one line of the cache, which is written rarely, and the buckets in another one.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Set {
    /// 0 is none.
    keys: [AtomicU64; WAYS],
    buckets: [Bucket; WAYS],
}

/// Bytes of a set.
#[cfg(test)]
pub(super) const SET_BYTES: usize = size_of::<Set>();

/// The time at which it is full again, in nanoseconds.
#[derive(Debug, Default)]
pub(super) struct Bucket(AtomicU64);

impl Table {
    pub(super) fn new(keys: usize) -> Table {
        Table {
            sets: OnceLock::new(),
            sets_max: (keys / WAYS).next_power_of_two(),
            overflow: std::array::from_fn(|_| Bucket::default()),
        }
    }

    /// The bucket of a key, which may be a new one; `None` if none of its set is free.
    pub(super) fn bucket(&self, key: u64, now: u64) -> Option<&Bucket> {
        let (set, key) = self.set(key);
        if let Some(at) = set.find(key) {
            return Some(&set.buckets[at]);
        }
        for (at, bucket) in set.buckets.iter().enumerate() {
            let before = set.keys[at].load(Ordering::SeqCst);
            if before != 0 && !bucket.is_full(now) {
                continue;
            }
            let claimed =
                set.keys[at].compare_exchange(before, key, Ordering::SeqCst, Ordering::SeqCst);
            if claimed.is_err() {
                // Another core took it, perhaps for this key.
                match set.find(key) {
                    Some(at) => return Some(&set.buckets[at]),
                    None => continue,
                }
            }
            // If another core has taken one for this key at the same time, all use the first of both.
            let first = set.find(key).unwrap_or(at);
            return Some(&set.buckets[first]);
        }
        None
    }

    /// The bucket that keys of a limit share if they have none of their own.
    pub(super) fn overflow(&self, limit: u64) -> &Bucket {
        &self.overflow[limit as usize % OVERFLOW_BUCKETS]
    }

    /// Returns the tokens of a lease, unless the bucket of its key was full and has gone to another one.
    pub(super) fn give_back(&self, lease: &Lease) {
        let (set, key) = self.set(lease.key);
        if let Some(at) = set.find(key) {
            let time = lease.interval.saturating_mul(lease.tokens.into());
            let less = |tat: u64| Some(tat.saturating_sub(time));
            let _ = (set.buckets[at].0).fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
        }
    }

    /// The set of a key, and the key as it has it.
    fn set(&self, key: u64) -> (&Set, u64) {
        let new = || (0..self.sets_max).map(|_| Set::default()).collect();
        let sets = self.sets.get_or_init(new);
        (&sets[key as usize & (self.sets_max - 1)], key.max(1))
    }
}

impl Set {
    #[inline]
    fn find(&self, key: u64) -> Option<usize> {
        let mut keys = self.keys.iter();
        keys.position(|one| one.load(Ordering::SeqCst) == key)
    }
}

impl Bucket {
    fn is_full(&self, now: u64) -> bool {
        self.0.load(Ordering::Acquire) <= now
    }

    /// Takes one token, and up to `wanted` if there are more.
    #[inline]
    pub(super) fn take(
        &self,
        interval: u64,
        capacity: u64,
        now: u64,
        wanted: u32,
    ) -> Result<u32, Throttled> {
        let latest = now.saturating_add(capacity);
        let mut tat = self.0.load(Ordering::Acquire);
        loop {
            let start = tat.max(now);
            let room = latest.saturating_sub(start);
            if room < interval {
                return Err(Throttled {
                    wait: Duration::from_nanos(start.saturating_add(interval) - latest),
                });
            }
            let tokens = match wanted {
                1 => 1,
                _ => (room / interval).min(wanted.into()),
            };
            let after = start.saturating_add(tokens * interval);
            let changed =
                (self.0).compare_exchange_weak(tat, after, Ordering::AcqRel, Ordering::Acquire);
            match changed {
                Ok(_) => return Ok(tokens as u32),
                Err(other) => tat = other,
            }
        }
    }
}
