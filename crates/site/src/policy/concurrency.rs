//! `concurrency`: the most requests at a time.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::{Notes, PolicyRequest, set};
use crate::rejection::Rejection;

/// Most limits whose requests are counted, on each core. Those without requests are forgotten first.
const POOLS_MAX: usize = 4_096;

/// Most permits that a core keeps for its next requests.
const SPARE_MAX: u32 = 64;

/// Seconds after which a client may try again.
const RETRY_AFTER: &[u8] = b"1";

/// The policy: at most so many requests of the place where it is written at a time, in the whole process.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Concurrency {
    /// Of the place.
    id: u64,
    max: u32,
}

/// The permits of all limits of a process.
///
/// A request beyond the permits that its core has kept changes a number that all cores share. A core that gives back a
/// permit keeps some for its next requests, at most a quarter of the limit on all cores together, so that under load the
/// number changes rarely. So never more requests than the limit are under way, and at least three quarters of the limit
/// are for any one core.
#[derive(Debug, Default)]
pub(super) struct SharedPermits(Mutex<HashMap<u64, Arc<AtomicU32>>>);

/// The permits of a core.
#[derive(Debug)]
pub(super) struct CorePermits {
    shared: Arc<SharedPermits>,
    cores: u32,
    pools: RefCell<HashMap<u64, Rc<Pool>>>,
}

/// The permits of a limit on a core.
#[derive(Debug)]
struct Pool {
    /// Permits of all cores that are in use or kept.
    used: Arc<AtomicU32>,
    /// Those that this core keeps.
    spare: Cell<u32>,
    /// How many it may keep.
    spare_max: Cell<u32>,
}

/// A request that counts until this is dropped.
#[derive(Debug)]
pub struct Permit(Rc<Pool>);

impl Concurrency {
    /// The policy of this place, for at least one request.
    #[must_use]
    pub fn new(place: &str, max: u32) -> Concurrency {
        let mut id = DefaultHasher::new();
        place.hash(&mut id);
        Concurrency {
            id: id.finish(),
            max: max.max(1),
        }
    }

    pub(super) fn decide(
        &self,
        request: &PolicyRequest<'_>,
        notes: &mut Notes<'_>,
    ) -> Result<(), Rejection> {
        let Some(limits) = request.limits else {
            return Ok(());
        };
        match limits.permits.take(self.id, self.max) {
            Some(permit) => {
                notes.permit = Some(permit);
                Ok(())
            }
            None => {
                notes.edit_response(vec![set("retry-after", Some(RETRY_AFTER))]);
                Err(Rejection::Concurrency)
            }
        }
    }
}

impl SharedPermits {
    fn used(&self, id: u64) -> Arc<AtomicU32> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= POOLS_MAX {
            all.retain(|_, used| Arc::strong_count(used) > 1);
        }
        Arc::clone(all.entry(id).or_default())
    }
}

impl CorePermits {
    pub(super) fn new(shared: Arc<SharedPermits>, cores: usize) -> CorePermits {
        CorePermits {
            shared,
            cores: u32::try_from(cores).unwrap_or(u32::MAX).max(1),
            pools: RefCell::default(),
        }
    }

    /// `None` if so many requests are under way.
    pub(super) fn take(&self, id: u64, max: u32) -> Option<Permit> {
        let mut pools = self.pools.borrow_mut();
        if pools.len() >= POOLS_MAX && !pools.contains_key(&id) {
            pools.retain(|_, pool| Rc::strong_count(pool) > 1);
        }
        let new = || {
            Rc::new(Pool {
                used: self.shared.used(id),
                spare: Cell::new(0),
                spare_max: Cell::new(0),
            })
        };
        let pool = pools.entry(id).or_insert_with(new);
        let spare_max = match self.cores {
            1 => 0,
            cores => max / cores.saturating_mul(4),
        };
        pool.keep_at_most(spare_max.min(SPARE_MAX));
        pool.take(max).then(|| Permit(Rc::clone(pool)))
    }
}

impl Pool {
    fn take(&self, max: u32) -> bool {
        let spare = self.spare.get();
        if spare > 0 && self.used.load(Ordering::Acquire) <= max {
            self.spare.set(spare - 1);
            return true;
        }
        let more = |used: u32| (used < max).then_some(used + 1);
        let used = &self.used;
        let changed = used.fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
        changed.is_ok()
    }

    /// A reload may have lowered the limit.
    fn keep_at_most(&self, spare_max: u32) {
        self.spare_max.set(spare_max);
        let surplus = self.spare.get().saturating_sub(spare_max);
        if surplus > 0 {
            self.spare.set(spare_max);
            self.used.fetch_sub(surplus, Ordering::AcqRel);
        }
    }

    fn give_back(&self) {
        match self.spare.get() {
            spare if spare < self.spare_max.get() => self.spare.set(spare + 1),
            _ => {
                self.used.fetch_sub(1, Ordering::AcqRel);
            }
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.give_back();
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.used.fetch_sub(self.spare.get(), Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cores(count: usize) -> Vec<CorePermits> {
        let shared = Arc::new(SharedPermits::default());
        let core = |_| CorePermits::new(Arc::clone(&shared), count);
        (0..count).map(core).collect()
    }

    fn take_all(core: &CorePermits, max: u32) -> Vec<Permit> {
        std::iter::from_fn(|| core.take(1, max)).collect()
    }

    #[test]
    fn one_core_has_all_permits() {
        let cores = cores(2);
        for max in [1, 2, 7, 100] {
            for core in &cores {
                assert_eq!(take_all(core, max).len() as u32, max);
                // The permits that a core keeps are given back with the pool.
                core.pools.borrow_mut().clear();
            }
        }
    }

    #[test]
    fn several_cores_never_have_more() {
        for max in [1, 3, 8, 100, 1000] {
            let cores = cores(4);
            let mut held = Vec::new();
            for _ in 0..3 {
                for core in &cores {
                    held.extend(take_all(core, max));
                    assert_eq!(held.len() as u32, max);
                    held.clear();
                    // Those that the other cores keep are at most a quarter.
                    assert!(take_all(core, max).len() as u32 >= max - max / 4);
                    core.pools.borrow_mut().clear();
                }
            }
        }
    }

    #[test]
    fn a_lower_limit_applies_at_once() {
        let cores = cores(2);
        drop(take_all(&cores[0], 100));
        assert_eq!(cores[0].shared.used(1).load(Ordering::Acquire), 12);
        let held = take_all(&cores[0], 10);
        assert_eq!(held.len(), 10);
        drop(held);
        assert_eq!(take_all(&cores[0], 10).len(), 10);
    }

    #[test]
    fn limits_without_requests_are_forgotten() {
        let cores = cores(1);
        let held = cores[0].take(u64::MAX, 1);
        for id in 0..POOLS_MAX as u64 * 3 {
            drop(cores[0].take(id, 10));
        }
        assert!(cores[0].pools.borrow().len() <= POOLS_MAX);
        assert!(cores[0].shared.0.lock().unwrap().len() <= POOLS_MAX);
        assert!(cores[0].take(u64::MAX, 1).is_none());
        drop(held);
        assert!(cores[0].take(u64::MAX, 1).is_some());
    }
}
