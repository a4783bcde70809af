//! Limits that several processes share: tokens that a store, such as Redis, has granted to this one.
//!
//! The store has the bucket of each key. A thread of the program, the **control thread**, takes tokens from it ahead of
//! need, and puts them into the slots of [`RateStore`], from which requests take them by a compare-exchange. So a request
//! never waits for the store. A core that leaves a slot with few tokens marks it in a bitmap, which the control thread
//! reads every few milliseconds.
//!
//! A key without a slot is new, or was idle. Its first requests spend an **allowance** of one lease, which the store has
//! not granted yet. The control thread charges the store for it, even if the bucket becomes more than empty: later
//! requests of the key pay it back, on whichever process they are.
//!
//! **Bound.** Let a limit have the rate `r`, the burst `b`, and `n` processes, with leases of `k` tokens: a quarter of
//! `b / n`, and at least 1. In any interval of the length `t` the requests that pass spend tokens that came into being
//! in the store, at most `b + rt`, or that a process held at the beginning, at most `nk`, or allowances that are not paid
//! back yet. Of these there are at most `nk`: a process that has charged an allowance knows from the response when the
//! bucket will have recovered from it, keeps the slot until then, and so takes no further one before. That is
//! `b + rt + 2nk`: one and a half bursts and the rate, or two tokens for each process where the burst is small. While the
//! store cannot be reached, limits have other rules; each failure, and each recovery, may add one burst.
//!
//! # Memory
//!
//! There are [`SLOTS`] slots of 64 bytes, made with the first use, in sets of [`WAYS`]. A slot is free again after its
//! key was idle for [`IDLE`], and its tokens have gone back. A key without a free slot has a share of the limit in the
//! table of the process.

use std::hash::Hasher;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use siphasher::sip::SipHasher13;

use super::{Rate, Throttled, WAYS};

/// Slots of the table, 4.5 MiB.
const SLOTS: usize = 1 << 16;

/// After this time without a request the tokens of a slot go back.
const IDLE: Duration = Duration::from_secs(1);

/// The store counts as reachable for so long after its last response.
const STALE: Duration = Duration::from_secs(2);

/// Bits of the state of a slot: it has a key that spends tokens, tokens of an allowance that the store was not charged
/// for, and tokens that are left.
const LIVE: u64 = 1 << 63;
const UNPAID_SHIFT: u32 = 24;
const COUNT_MASK: u64 = (1 << UNPAID_SHIFT) - 1;

/// The tokens that a store has granted to this process.
#[derive(Debug)]
pub struct RateStore {
    slots: OnceLock<Table>,
    start: Instant,
    /// Places keys in the table, so that nobody can aim at the slots of others.
    secret: u64,
    /// When the store has last answered, in nanoseconds since the start; 0 while it cannot be reached.
    answered: AtomicU64,
    /// Processes that share the store; 0 is unknown.
    processes: AtomicU32,
    counts: Counts,
}

#[derive(Debug)]
struct Table {
    sets: Box<[Set]>,
    /// A bit for each slot that the control thread is to look at.
    marked: Box<[AtomicU64]>,
}

#[derive(Debug, Default)]
#[repr(align(64))]
struct Set {
    /// 0 is none.
    keys: [AtomicU64; WAYS],
    slots: [Slot; WAYS],
}

/// The tokens of a key.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Slot {
    /// 0 before the first request of a key.
    state: AtomicU64,
    /// The last request.
    used: AtomicU64,
    /// The time before which the store has no token.
    until: AtomicU64,
    interval: AtomicU64,
    burst: AtomicU32,
}

#[derive(Debug, Default)]
struct Counts {
    granted: AtomicU64,
    exchanges: AtomicU64,
    failures: AtomicU64,
    microseconds: AtomicU64,
}

/// The facts for metrics about a store.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct RateStoreFacts {
    /// Whether it can be reached.
    pub is_reachable: bool,
    /// Processes that share it, as far as this one knows.
    pub processes: u32,
    /// Tokens that it has granted.
    pub granted: u64,
    /// Messages to it.
    pub exchanges: u64,
    /// Those that have failed, attempts to connect included.
    pub failures: u64,
    /// Seconds that it took to respond, altogether.
    pub seconds: f64,
}

/// The question to the store for a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreDemand {
    slot: usize,
    /// The key.
    pub key: u64,
    /// Nanoseconds between two tokens.
    pub interval: u64,
    /// The most tokens of the bucket.
    pub burst: u32,
    /// The most tokens by which the allowances of all processes may empty it further.
    pub overdraft: u64,
    /// Tokens that are taken in any case; those below zero are given back.
    pub charged: i64,
    /// Tokens that are taken as far as there are any.
    pub wanted: u32,
}

impl RateStore {
    /// A store that cannot be reached yet. No time before `start` occurs; `secret` is random.
    #[must_use]
    pub fn new(secret: u64, start: Instant) -> RateStore {
        RateStore {
            slots: OnceLock::new(),
            // So that no time is 0.
            start: start.checked_sub(Duration::from_secs(1)).unwrap_or(start),
            secret,
            answered: AtomicU64::new(0),
            processes: AtomicU32::new(0),
            counts: Counts::default(),
        }
    }

    /// Takes a token of a key; `None` if the key has no slot.
    pub(crate) fn take(
        &self,
        key: u64,
        rate: &Rate,
        now: Instant,
    ) -> Option<Result<(), Throttled>> {
        let now = self.since_start(now);
        let table = self.slots.get_or_init(Table::new);
        let index = table.find(key, self.place(key), now)?;
        let slot = table.slot(index);
        let lease = rate.store_lease(self.processes());
        slot.used.store(now, Ordering::Relaxed);
        let mut state = slot.state.load(Ordering::Acquire);
        loop {
            let after = match state & COUNT_MASK {
                _ if state == 0 => {
                    slot.interval.store(rate.interval, Ordering::Relaxed);
                    slot.burst.store(rate.burst, Ordering::Relaxed);
                    slot.until.store(0, Ordering::Relaxed);
                    LIVE | u64::from(lease) << UNPAID_SHIFT | u64::from(lease - 1)
                }
                0 => {
                    let until = slot.until.load(Ordering::Relaxed);
                    if until <= now {
                        table.mark(index);
                    }
                    let wait = until.saturating_sub(now).max(1);
                    return Some(Err(Throttled {
                        wait: Duration::from_nanos(wait),
                    }));
                }
                _ => state - 1,
            };
            let changed = (slot.state).compare_exchange_weak(
                state,
                after,
                Ordering::AcqRel,
                Ordering::Acquire,
            );
            match changed {
                Ok(_) => {
                    let is_low = after & COUNT_MASK <= u64::from(lease / 2);
                    if state == 0 || is_low && slot.until.load(Ordering::Relaxed) <= now {
                        table.mark(index);
                    }
                    return Some(Ok(()));
                }
                Err(other) => state = other,
            }
        }
    }

    /// Whether the store has answered lately.
    #[must_use]
    pub fn is_reachable(&self, now: Instant) -> bool {
        let answered = self.answered.load(Ordering::Relaxed);
        answered > 0 && self.since_start(now).saturating_sub(answered) < STALE.as_nanos() as u64
    }

    /// The processes that were last known to share it, at least this one.
    #[must_use]
    pub fn processes(&self) -> u32 {
        self.processes.load(Ordering::Relaxed).max(1)
    }

    /// The store knows so many processes.
    pub fn set_processes(&self, count: u32) {
        self.processes.store(count, Ordering::Relaxed);
    }

    /// The store has answered a message that was sent at this time.
    pub fn note_answer(&self, sent: Instant, now: Instant) {
        self.answered
            .store(self.since_start(now), Ordering::Relaxed);
        self.counts.exchanges.fetch_add(1, Ordering::Relaxed);
        let took = now.saturating_duration_since(sent).as_micros() as u64;
        self.counts.microseconds.fetch_add(took, Ordering::Relaxed);
    }

    /// The store cannot be reached.
    pub fn note_failure(&self) {
        self.answered.store(0, Ordering::Relaxed);
        self.counts.failures.fetch_add(1, Ordering::Relaxed);
    }

    /// No store is in use any more.
    pub fn close(&self) {
        self.answered.store(0, Ordering::Relaxed);
    }

    /// For metrics.
    #[must_use]
    pub fn facts(&self, now: Instant) -> RateStoreFacts {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        RateStoreFacts {
            is_reachable: self.is_reachable(now),
            processes: self.processes.load(Ordering::Relaxed),
            granted: count(&self.counts.granted),
            exchanges: count(&self.counts.exchanges),
            failures: count(&self.counts.failures),
            seconds: count(&self.counts.microseconds) as f64 / 1e6,
        }
    }

    /// Adds demands of slots that are marked, up to `max` altogether; those beyond stay marked.
    pub fn demands(&self, max: usize, demands: &mut Vec<StoreDemand>) {
        let Some(table) = self.slots.get() else {
            return;
        };
        for (at, word) in table.marked.iter().enumerate() {
            let mut bits = match word.load(Ordering::Relaxed) {
                0 => continue,
                _ if demands.len() >= max => return,
                _ => word.swap(0, Ordering::AcqRel),
            };
            while bits != 0 {
                let index = at * 64 + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                match demands.len() < max {
                    true => demands.extend(self.demand(table, index)),
                    false => table.mark(index),
                }
            }
        }
    }

    fn demand(&self, table: &Table, index: usize) -> Option<StoreDemand> {
        let slot = table.slot(index);
        let key = table.key(index).load(Ordering::Acquire);
        if key == 0 {
            // A late request of a key that has gone: its token is lost.
            slot.state.store(0, Ordering::Release);
            return None;
        }
        let state = slot.state.load(Ordering::Acquire);
        let (unpaid, tokens) = parts(state);
        let demand = self.blank(slot, index, key)?;
        let lease = lease(demand.burst, self.processes());
        let wanted = match tokens <= lease / 2 {
            true => lease - tokens,
            false => 0,
        };
        (unpaid > 0 || wanted > 0).then_some(StoreDemand {
            charged: i64::from(unpaid),
            wanted,
            ..demand
        })
    }

    /// A demand of nothing; `None` before the first request of its key.
    fn blank(&self, slot: &Slot, index: usize, key: u64) -> Option<StoreDemand> {
        if slot.state.load(Ordering::Acquire) == 0 {
            return None;
        }
        let burst = slot.burst.load(Ordering::Relaxed).max(1);
        let processes = self.processes();
        Some(StoreDemand {
            slot: index,
            key,
            interval: slot.interval.load(Ordering::Relaxed).max(1),
            burst,
            overdraft: u64::from(lease(burst, processes)) * u64::from(processes),
            charged: 0,
            wanted: 0,
        })
    }

    /// The store has granted tokens, and has another one after `wait`, or has one now.
    pub fn grant(&self, demand: &StoreDemand, granted: u32, wait: Duration, now: Instant) {
        let Some(table) = self.slots.get() else {
            return;
        };
        self.counts
            .granted
            .fetch_add(granted.into(), Ordering::Relaxed);
        if table.key(demand.slot).load(Ordering::Acquire) != demand.key || demand.charged < 0 {
            return;
        }
        let slot = table.slot(demand.slot);
        let until = match wait.is_zero() {
            true => 0,
            false => self.since_start(now).saturating_add(wait.as_nanos() as u64),
        };
        slot.until.store(until, Ordering::Relaxed);
        let charged = demand.charged.unsigned_abs();
        let added = |state: u64| {
            let (unpaid, tokens) = parts(state);
            let unpaid = u64::from(unpaid).saturating_sub(charged);
            let tokens = (u64::from(tokens) + u64::from(granted)).min(COUNT_MASK);
            (state != 0).then_some(LIVE | unpaid << UNPAID_SHIFT | tokens)
        };
        let _ = (slot.state).fetch_update(Ordering::AcqRel, Ordering::Acquire, added);
    }

    /// The demand was not carried out, or nobody knows whether it was.
    pub fn put_back(&self, demand: &StoreDemand) {
        if let Some(table) = self.slots.get()
            && demand.charged >= 0
        {
            table.mark(demand.slot);
        }
    }

    /// Looks at the next slots from `position` on: tokens of idle keys become demands to give them back, and their slots
    /// become free. `share` is that of the table, such as a tenth.
    pub fn sweep(
        &self,
        position: &mut usize,
        share: usize,
        now: Instant,
        demands: &mut Vec<StoreDemand>,
    ) {
        let Some(table) = self.slots.get() else {
            return;
        };
        let now = self.since_start(now);
        for _ in 0..table.sets.len().div_ceil(share.max(1)) {
            *position = (*position + 1) % table.sets.len();
            for way in 0..WAYS {
                let index = *position * WAYS + way;
                let key = table.key(index).load(Ordering::Acquire);
                if key != 0 {
                    demands.extend(self.give_back(table, index, key, now));
                }
            }
        }
    }

    fn give_back(&self, table: &Table, index: usize, key: u64, now: u64) -> Option<StoreDemand> {
        let slot = table.slot(index);
        let used = slot.used.load(Ordering::Relaxed);
        if now.saturating_sub(used) < IDLE.as_nanos() as u64 {
            return None;
        }
        let state = slot.state.load(Ordering::Acquire);
        let (unpaid, tokens) = parts(state);
        if unpaid > 0 {
            table.mark(index);
            return None;
        }
        let change = |after| {
            let changed =
                (slot.state).compare_exchange(state, after, Ordering::AcqRel, Ordering::Acquire);
            changed.is_ok()
        };
        if tokens > 0 {
            let demand = self.blank(slot, index, key)?;
            // The next request of the key begins anew, unless the store has no token for it.
            let has_none = slot.until.load(Ordering::Relaxed) > now;
            return change(if has_none { LIVE } else { 0 }).then_some(StoreDemand {
                charged: -i64::from(tokens),
                ..demand
            });
        }
        // Without its slot the key would have another allowance.
        if slot.until.load(Ordering::Relaxed) <= now && change(0) {
            let key_of = table.key(index);
            let _ = key_of.compare_exchange(key, 0, Ordering::AcqRel, Ordering::Acquire);
        }
        None
    }

    fn place(&self, key: u64) -> usize {
        let mut hasher = SipHasher13::new_with_keys(self.secret, 0);
        hasher.write_u64(key);
        hasher.finish() as usize
    }

    fn since_start(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.start).as_nanos() as u64
    }
}

/// Tokens of an allowance that are not paid, and tokens that are left.
fn parts(state: u64) -> (u32, u32) {
    let unpaid = (state & !LIVE) >> UNPAID_SHIFT;
    (unpaid as u32, (state & COUNT_MASK) as u32)
}

/// Tokens that a process has of a key at once.
fn lease(burst: u32, processes: u32) -> u32 {
    (burst / processes.saturating_mul(4).max(1)).max(1)
}

impl Rate {
    fn store_lease(&self, processes: u32) -> u32 {
        lease(self.burst, processes)
    }

    /// The share of one of so many processes if they know nothing of each other.
    pub(crate) fn share(&self, processes: u32) -> Rate {
        let processes = processes.max(1);
        Rate {
            interval: self.interval.saturating_mul(processes.into()),
            burst: (self.burst / processes).max(1),
        }
    }
}

impl Table {
    fn new() -> Table {
        Table {
            sets: (0..SLOTS / WAYS).map(|_| Set::default()).collect(),
            marked: (0..SLOTS / 64).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// The slot of a key, which may be a new one; `None` if none of its set is free.
    fn find(&self, key: u64, place: usize, now: u64) -> Option<usize> {
        let key = key.max(1);
        let set_index = place % self.sets.len();
        let set = &self.sets[set_index];
        let known = || {
            let mut keys = set.keys.iter();
            keys.position(|one| one.load(Ordering::Acquire) == key)
        };
        if let Some(way) = known() {
            return Some(set_index * WAYS + way);
        }
        for (way, free) in set.keys.iter().enumerate() {
            if free.load(Ordering::Acquire) == 0 {
                set.slots[way].used.store(now, Ordering::Relaxed);
                let _ = free.compare_exchange(0, key, Ordering::AcqRel, Ordering::Acquire);
                // Cores that take one for the same key at the same time all use the first of them.
                if let Some(way) = known() {
                    return Some(set_index * WAYS + way);
                }
            }
        }
        None
    }

    fn slot(&self, index: usize) -> &Slot {
        &self.sets[index / WAYS].slots[index % WAYS]
    }

    fn key(&self, index: usize) -> &AtomicU64 {
        &self.sets[index / WAYS].keys[index % WAYS]
    }

    fn mark(&self, index: usize) {
        let (word, bit) = (&self.marked[index / 64], 1 << (index % 64));
        if word.load(Ordering::Relaxed) & bit == 0 {
            word.fetch_or(bit, Ordering::AcqRel);
        }
    }
}

#[cfg(test)]
mod tests;
