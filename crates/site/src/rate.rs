//! Limits of requests per time: the generic cell rate algorithm (GCRA) over a table that all cores share.
//!
//! A bucket is one number, the theoretical arrival time (TAT): the time at which the bucket is full again. A token moves
//! it by the interval of the rate, and is refused if the TAT would then be further ahead than the whole capacity. So a
//! bucket needs no refill, and one whose TAT is past equals one that was never used.
//!
//! # Several cores
//!
//! A core takes tokens by one compare-exchange of the TAT. Where a limit is so fast that cores would often meet there, a
//! core takes a **lease**: the tokens of [`LEASE_TIME`] at once, which it spends without touching shared memory. A flood
//! beyond the limit only reads the TAT. So cores write the TAT of a key at most a few thousand times a second for a rate
//! with a burst of some size, whatever the number of requests, and no request contends for it in the steady state. A
//! request never waits, and the first request of a client on another core needs no answer of anybody.
//!
//! **Bound.** Let a limit have the rate `r`, the burst `b` and leases of `k` tokens on `c` cores. Tokens come into being
//! in the shared bucket alone, at the rate `r`, and it holds at most `b - c(k - 1)` of them. In any interval of the
//! length `t` the requests that pass spend tokens that were in the bucket at its beginning, at most `b - c(k - 1)`, that
//! were in leases then, at most `ck`, or that came into being since, at most `rt`. That is `b + c + rt`: the limit and
//! one token for each core. With one core, and wherever `k` is 1, no lease exists and the bound is `b + rt`. The clock of
//! a core may be behind that of another one by the turn of its loop; the TAT never decreases for that, so a late clock
//! passes fewer requests, not more.
//!
//! **Use.** Leases do not expire, and give back what is left when another key takes their place. A limit loses at most
//! the tokens in leases, `c(k - 1)`, once: `k - 1` is at most `b / 4c`, so a burst has at least three quarters of
//! its size at once, and over time the whole rate passes, however the requests are distributed over the cores.
//!
//! # Many keys
//!
//! The table has [`KEYS_PER_CORE`] buckets for each core, at most [`KEYS_MAX`], of 16 bytes each, in sets of
//! [`WAYS`]. The set of a key follows from a keyed hash (SipHash) with a secret, so nobody can aim at the set of
//! another client. A key may take a bucket of its set only if that bucket is full again, when forgetting it changes
//! nothing: no number of new keys gives a throttled client a fresh bucket. A key without a free bucket shares one with
//! all such keys of its limit, which has the capacity and the rate of a single key.

mod lease;
mod store;
mod table;

use std::hash::Hasher;
use std::sync::Arc;
use std::time::{Duration, Instant};

use siphasher::sip::SipHasher13;

use crate::counters::count;
use lease::Leases;
use table::Table;

pub(crate) use store::StoreTable;
pub use store::{RateStore, RateStoreFacts, StoreDemand};

/// The tokens that a core takes at once are those of this time.
const LEASE_TIME: Duration = Duration::from_millis(1);

/// Buckets of the table for each core.
pub(crate) const KEYS_PER_CORE: usize = 65_536;

/// Most buckets of the table, 16 MiB.
pub(crate) const KEYS_MAX: usize = 1 << 20;

/// Buckets of a set.
pub(crate) const WAYS: usize = 8;

/// A rate with its burst, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rate {
    /// Between two tokens; rounded up, so that never more pass.
    interval: u64,
    burst: u32,
}

/// The buckets of a process.
#[derive(Debug)]
pub struct SharedBuckets {
    table: Table,
    secret: u64,
    start: Instant,
    cores: usize,
}

/// The buckets as one core uses them.
#[derive(Debug)]
pub struct CoreBuckets {
    shared: Arc<SharedBuckets>,
    leases: Leases,
}

/// A token was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Throttled {
    /// The time until there is one.
    pub wait: Duration,
}

impl Rate {
    /// So many in a period, and at most `burst` at once. Neither is zero.
    #[must_use]
    pub fn new(count: u32, period: Duration, burst: u32) -> Rate {
        let period = u64::try_from(period.as_nanos()).unwrap_or(u64::MAX);
        Rate {
            interval: period.div_ceil(u64::from(count.max(1))).max(1),
            burst: burst.max(1),
        }
    }

    /// The most at once.
    pub(crate) fn burst(&self) -> u32 {
        self.burst
    }

    /// The time in which an empty bucket becomes full.
    pub(crate) fn refill_time(&self) -> Duration {
        Duration::from_nanos(self.interval.saturating_mul(self.burst.into()))
    }

    /// Tokens that a core takes at once.
    fn lease(&self, cores: usize) -> u32 {
        if cores <= 1 {
            return 1;
        }
        let of_time = LEASE_TIME.as_nanos() as u64 / self.interval;
        let of_burst = u64::from(self.burst) / (4 * cores as u64);
        of_time.min(of_burst).max(1) as u32
    }

    /// The size of the shared bucket in nanoseconds, beside leases of this size.
    fn capacity(&self, lease: u32, cores: usize) -> u64 {
        let leased = u64::from(lease - 1) * cores as u64;
        (u64::from(self.burst) - leased).saturating_mul(self.interval)
    }
}

impl SharedBuckets {
    /// Buckets for this number of cores. Their memory is taken with the first use.
    #[must_use]
    pub fn new(cores: usize, secret: u64, start: Instant) -> SharedBuckets {
        let cores = cores.max(1);
        SharedBuckets {
            table: Table::new((KEYS_PER_CORE * cores).min(KEYS_MAX)),
            secret,
            start,
            cores,
        }
    }

    /// A hash with the secret, for the key of a bucket of this limit.
    #[inline]
    #[must_use]
    pub fn hasher(&self, limit: u64) -> impl Hasher + use<> {
        SipHasher13::new_with_keys(self.secret, limit)
    }
}

impl CoreBuckets {
    /// Those of a core that has taken no tokens.
    #[must_use]
    pub fn new(shared: Arc<SharedBuckets>) -> CoreBuckets {
        CoreBuckets {
            shared,
            leases: Leases::default(),
        }
    }

    /// The buckets of all cores.
    #[must_use]
    pub fn shared(&self) -> &SharedBuckets {
        &self.shared
    }

    /// Takes a token from the bucket of a key. `limit` is the limit that the key belongs to.
    ///
    /// # Errors
    /// There is none.
    pub fn take(
        &mut self,
        limit: u64,
        key: u64,
        rate: &Rate,
        now: Instant,
    ) -> Result<(), Throttled> {
        let shared = &*self.shared;
        let now = now.saturating_duration_since(shared.start).as_nanos() as u64;
        let lease = rate.lease(shared.cores);
        if lease > 1 && self.leases.spend(key) {
            return Ok(());
        }
        let capacity = rate.capacity(lease, shared.cores);
        let Some(bucket) = shared.table.bucket(key, now) else {
            count(|counters| counters.rate_limits_overflowed += 1);
            let bucket = shared.table.overflow(limit);
            return bucket.take(rate.interval, capacity, now, 1).map(drop);
        };
        let tokens = bucket.take(rate.interval, capacity, now, lease)?;
        if tokens > 1
            && let Some(rest) = self.leases.put(key, tokens - 1, rate.interval)
        {
            shared.table.give_back(&rest);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
