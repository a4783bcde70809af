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
//! Each response of the store tells when it has its next token, or since when it has one, and so how many. A slot whose
//! tokens went back, or that waited for the next one, has an allowance of as many as the store has by then, at most a
//! lease; none if the store has none, if a demand of the slot is under way, or if requests and responses come all the
//! time. While it refuses requests, it asks again every [`ASK_AGAIN`]: other processes may have given tokens back.
//!
//! **Bound.** Let a limit have the rate `r`, the burst `b`, and `n` processes, with leases of `k` tokens: a quarter of
//! `b / n`, and at least 1. In any interval of the length `t` the requests that pass spend tokens that came into being
//! in the store, at most `b + rt`, or that a process held at the beginning, at most `nk`, or allowances that are not paid
//! back yet. Of these there are at most `nk`: a process that has charged an allowance knows from the response when the
//! bucket will have recovered from it, keeps the slot until it has a lease again, and takes no further one for which the
//! bucket would lack tokens if no other process took any. That is `b + rt + 2nk`: one and a half bursts and the rate, or
//! two tokens for each process where the burst is small. A process that is alone knows the bucket exactly once it has a
//! slot, and passes `b + rt`. While the store cannot be reached, limits have other rules; each failure, and each
//! recovery, may add one burst.
//!
//! # Memory
//!
//! There are two tables, one for the values that clients choose without a proof, such as those of header fields: who
//! invents many of them fills that one alone. Each has [`SLOTS`] slots of 64 bytes, made with the first use, in sets of
//! [`WAYS`]. A slot is free again after its key was idle for [`IDLE`], its tokens have gone back, and the store has a
//! lease for it. A key without a free slot has a share of the limit in the table of the process.

use std::hash::Hasher;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use siphasher::sip::SipHasher13;

use super::{Rate, Throttled, WAYS};

/// Slots of a table, 4.5 MiB.
const SLOTS: usize = 1 << 16;

/// After this time without a request the tokens of a slot go back.
const IDLE: Duration = Duration::from_secs(1);

/// A slot that refuses requests asks the store again after this time.
const ASK_AGAIN: Duration = Duration::from_secs(5);

/// The store counts as reachable for so long after its last response.
const STALE: Duration = Duration::from_secs(2);

/// Bits of the state of a slot: it has a key that spends tokens, a demand for tokens is under way, tokens of an allowance
/// that the store was not charged for, and tokens that are left.
const LIVE: u64 = 1 << 63;
const ASKED: u64 = 1 << 62;
const UNPAID_SHIFT: u32 = 24;
const COUNT_MASK: u64 = (1 << UNPAID_SHIFT) - 1;

/// The tokens that a store has granted to this process.
#[derive(Debug)]
pub struct RateStore {
    /// By [`StoreTable`].
    tables: [OnceLock<Table>; 2],
    slots: usize,
    start: Instant,
    /// Places keys in the tables, so that nobody can aim at the slots of others.
    secret: u64,
    /// When the store has last answered, in nanoseconds since the start; 0 while it cannot be reached.
    answered: AtomicU64,
    /// Processes that share the store; 0 is unknown.
    processes: AtomicU32,
    counts: Counts,
}

/// A table of slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoreTable {
    /// For addresses, and for what clients have proved.
    Proved,
    /// For values that clients choose freely.
    Chosen,
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
    /// The time before which the store has no token, as far as this process knows. It has one more for each interval
    /// since then.
    until: AtomicI64,
    /// The last response.
    answered: AtomicU64,
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
    table: StoreTable,
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
        RateStore::with_slots(secret, start, SLOTS)
    }

    fn with_slots(secret: u64, start: Instant, slots: usize) -> RateStore {
        RateStore {
            tables: Default::default(),
            slots,
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
        table: StoreTable,
        key: u64,
        rate: &Rate,
        now: Instant,
    ) -> Option<Result<(), Throttled>> {
        let now = self.since_start(now);
        let table = self.tables[table as usize].get_or_init(|| Table::new(self.slots));
        let index = table.find(key, self.place(key), now)?;
        let slot = table.slot(index);
        let lease = rate.store_lease(self.processes());
        let used = slot.used.load(Ordering::Relaxed);
        slot.used.store(now, Ordering::Relaxed);
        let mut state = slot.state.load(Ordering::Acquire);
        loop {
            let (_, tokens) = parts(state);
            let after = match tokens {
                _ if state == 0 => {
                    slot.interval.store(rate.interval, Ordering::Relaxed);
                    slot.burst.store(rate.burst, Ordering::Relaxed);
                    with_allowance(lease)
                }
                0 => {
                    let allowance = slot.allowance(state, lease, now);
                    match allowance.filter(|_| slot.is_at_rest(used, now)) {
                        Some(allowance) => with_allowance(allowance),
                        None => return Some(Err(refuse(table, index, now))),
                    }
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
                    if tokens == 0 || is_low && !slot.is_store_empty(now) {
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

    /// Adds demands of slots that are marked, up to `max` altogether; those beyond stay marked. Keys of values that
    /// clients choose come last, so that a flood of them does not hold up the others.
    pub fn demands(&self, max: usize, demands: &mut Vec<StoreDemand>) {
        for which in [StoreTable::Proved, StoreTable::Chosen] {
            let Some(table) = self.tables[which as usize].get() else {
                continue;
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
                        true => demands.extend(self.demand(which, table, index)),
                        false => table.mark(index),
                    }
                }
            }
        }
    }

    fn demand(&self, which: StoreTable, table: &Table, index: usize) -> Option<StoreDemand> {
        let slot = table.slot(index);
        let key = table.key(index).load(Ordering::Acquire);
        if key == 0 {
            // A late request of a key that has gone: its token is lost.
            slot.state.store(0, Ordering::Release);
            return None;
        }
        // From now on the slot has no allowance, so that it holds no more than a lease when tokens arrive.
        let asked = |state| (state != 0).then_some(state | ASKED);
        let state = (slot.state).fetch_update(Ordering::AcqRel, Ordering::Acquire, asked);
        let (unpaid, tokens) = parts(state.ok()?);
        let demand = self.blank(which, slot, index, key);
        let lease = lease(demand.burst, self.processes());
        let wanted = match tokens <= lease / 2 {
            true => lease - tokens,
            false => 0,
        };
        if unpaid == 0 && wanted == 0 {
            slot.state.fetch_and(!ASKED, Ordering::AcqRel);
            return None;
        }
        Some(StoreDemand {
            charged: i64::from(unpaid),
            wanted,
            ..demand
        })
    }

    /// A demand of nothing.
    fn blank(&self, table: StoreTable, slot: &Slot, index: usize, key: u64) -> StoreDemand {
        let burst = slot.burst.load(Ordering::Relaxed).max(1);
        let processes = self.processes();
        StoreDemand {
            table,
            slot: index,
            key,
            interval: slot.interval.load(Ordering::Relaxed).max(1),
            burst,
            overdraft: u64::from(lease(burst, processes)) * u64::from(processes),
            charged: 0,
            wanted: 0,
        }
    }

    /// The store has granted tokens, and has another one after `wait` nanoseconds. Below zero it has had one for so long,
    /// and one more for each interval of that time.
    pub fn grant(&self, demand: &StoreDemand, granted: u32, wait: i64, now: Instant) {
        let Some((slot, key)) = self.slot_of(demand) else {
            return;
        };
        (self.counts.granted).fetch_add(granted.into(), Ordering::Relaxed);
        if key != demand.key {
            return;
        }
        let now = self.since_start(now);
        // Before the state: allowances that it permits are of this response.
        let until = signed(now).saturating_add(wait);
        slot.until.store(until, Ordering::Relaxed);
        slot.answered.store(now, Ordering::Relaxed);
        let Ok(charged) = u64::try_from(demand.charged) else {
            return;
        };
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
        if let Some(table) = self.tables[demand.table as usize].get()
            && demand.charged >= 0
        {
            (table.slot(demand.slot).state).fetch_and(!ASKED, Ordering::AcqRel);
            table.mark(demand.slot);
        }
    }

    /// The slot of a demand, and its key now.
    fn slot_of(&self, demand: &StoreDemand) -> Option<(&Slot, u64)> {
        let table = self.tables[demand.table as usize].get()?;
        let key = table.key(demand.slot).load(Ordering::Acquire);
        Some((table.slot(demand.slot), key))
    }

    /// Looks at the next slots from `position` on: tokens of idle keys become demands to give them back, and their slots
    /// become free. `share` is that of the tables, such as a tenth.
    pub fn sweep(
        &self,
        position: &mut usize,
        share: usize,
        now: Instant,
        demands: &mut Vec<StoreDemand>,
    ) {
        let now = self.since_start(now);
        let sets = self.slots / WAYS;
        for _ in 0..sets.div_ceil(share.max(1)) {
            *position = (*position + 1) % sets;
            for which in [StoreTable::Proved, StoreTable::Chosen] {
                let Some(table) = self.tables[which as usize].get() else {
                    continue;
                };
                for index in *position * WAYS..(*position + 1) * WAYS {
                    demands.extend(self.give_back(which, table, index, now));
                }
            }
        }
    }

    fn give_back(
        &self,
        which: StoreTable,
        table: &Table,
        index: usize,
        now: u64,
    ) -> Option<StoreDemand> {
        let key = table.key(index).load(Ordering::Acquire);
        let slot = table.slot(index);
        let used = slot.used.load(Ordering::Relaxed);
        if key == 0 || now.saturating_sub(used) < IDLE.as_nanos() as u64 {
            return None;
        }
        let state = slot.state.load(Ordering::Acquire);
        let (unpaid, tokens) = parts(state);
        if state & ASKED != 0 {
            return None;
        }
        if unpaid > 0 {
            table.mark(index);
            return None;
        }
        let change = |after| {
            let changed =
                (slot.state).compare_exchange(state, after, Ordering::AcqRel, Ordering::Acquire);
            changed.is_ok()
        };
        let demand = self.blank(which, slot, index, key);
        if tokens > 0 {
            // The store has them at once for the next request: if that comes before the response, it is charged after
            // they have come back.
            return change(LIVE).then(|| {
                let sooner = signed(demand.interval).saturating_mul(tokens.into());
                slot.until.fetch_sub(sooner, Ordering::Relaxed);
                StoreDemand {
                    charged: -i64::from(tokens),
                    ..demand
                }
            });
        }
        // Without its slot the key would have an allowance of a lease, for which the store may lack tokens.
        let lease = lease(demand.burst, self.processes());
        if slot.has_allowance_of(lease, now) && change(0) {
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

/// The answer to a request for which a slot has no token.
#[cold]
fn refuse(table: &Table, index: usize, now: u64) -> Throttled {
    let slot = table.slot(index);
    let answered = slot.answered.load(Ordering::Relaxed);
    let is_old = now.saturating_sub(answered) >= ASK_AGAIN.as_nanos() as u64;
    if is_old || !slot.is_store_empty(now) {
        table.mark(index);
    }
    let until = slot.until.load(Ordering::Relaxed);
    let wait = until.saturating_sub(signed(now)).max(1);
    Throttled {
        wait: Duration::from_nanos(wait.unsigned_abs()),
    }
}

/// The state of a slot whose first request spends an allowance.
fn with_allowance(tokens: u32) -> u64 {
    LIVE | u64::from(tokens) << UNPAID_SHIFT | u64::from(tokens - 1)
}

fn signed(nanoseconds: u64) -> i64 {
    i64::try_from(nanoseconds).unwrap_or(i64::MAX)
}

/// Tokens of an allowance that are not paid, and tokens that are left.
fn parts(state: u64) -> (u32, u32) {
    let unpaid = state >> UNPAID_SHIFT & COUNT_MASK;
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

impl Slot {
    /// Tokens that requests may spend before the store is charged for them, from 1 to `lease`.
    fn allowance(&self, state: u64, lease: u32, now: u64) -> Option<u32> {
        let (unpaid, _) = parts(state);
        if state & ASKED != 0 || unpaid > 0 || self.is_store_empty(now) {
            return None;
        }
        let since = signed(now).saturating_sub(self.until.load(Ordering::Relaxed));
        let further = since.unsigned_abs() / self.interval.load(Ordering::Relaxed).max(1);
        Some(further.saturating_add(1).min(lease.into()) as u32)
    }

    /// Whether no request was there for some time, or no response. Otherwise the control thread asks for tokens in a
    /// moment, and other processes are likely to spend those that the store has.
    fn is_at_rest(&self, used: u64, now: u64) -> bool {
        let before = used.min(self.answered.load(Ordering::Relaxed));
        now.saturating_sub(before) >= IDLE.as_nanos() as u64
    }

    fn has_allowance_of(&self, lease: u32, now: u64) -> bool {
        self.allowance(LIVE, lease, now) == Some(lease)
    }

    /// Whether the store has no token, as far as this process knows.
    fn is_store_empty(&self, now: u64) -> bool {
        self.until.load(Ordering::Relaxed) > signed(now)
    }
}

impl Table {
    /// `slots` is a multiple of 64.
    fn new(slots: usize) -> Table {
        Table {
            sets: (0..slots / WAYS).map(|_| Set::default()).collect(),
            marked: (0..slots / 64).map(|_| AtomicU64::new(0)).collect(),
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
