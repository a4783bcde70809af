//! The counts of limits: they belong to the gateway and its cores, not to a configuration, so that a reload resets
//! nothing.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Instant;

use super::concurrency::{CorePermits, SharedPermits};
use crate::rate::{CoreBuckets, RateStore, SharedBuckets};

/// The counts that all cores of a gateway share.
#[derive(Debug)]
pub struct SharedLimits {
    buckets: Arc<SharedBuckets>,
    /// Those of keys that a client can choose as many of as it wants: they leave the others their room.
    chosen: Arc<SharedBuckets>,
    permits: Arc<SharedPermits>,
    store: Arc<RateStore>,
    cores: usize,
}

/// The counts as one core uses them.
#[derive(Debug)]
pub struct CoreLimits {
    pub(super) buckets: RefCell<CoreBuckets>,
    pub(super) chosen: RefCell<CoreBuckets>,
    pub(super) permits: CorePermits,
    pub(super) store: Arc<RateStore>,
}

impl SharedLimits {
    /// For this number of cores. `secret` is random; no time before `start` occurs.
    #[must_use]
    pub fn new(cores: usize, secret: u64, start: Instant) -> SharedLimits {
        SharedLimits {
            buckets: Arc::new(SharedBuckets::new(cores, secret, start)),
            chosen: Arc::new(SharedBuckets::new(cores, secret, start)),
            permits: Arc::default(),
            store: Arc::new(RateStore::new(secret, start)),
            cores,
        }
    }

    /// With the tokens of limits that several processes share.
    #[must_use]
    pub fn with_store(self, store: Arc<RateStore>) -> SharedLimits {
        SharedLimits { store, ..self }
    }
}

impl CoreLimits {
    /// For a core that has counted nothing.
    #[must_use]
    pub fn new(shared: &Arc<SharedLimits>) -> CoreLimits {
        CoreLimits {
            buckets: RefCell::new(CoreBuckets::new(Arc::clone(&shared.buckets))),
            chosen: RefCell::new(CoreBuckets::new(Arc::clone(&shared.chosen))),
            store: Arc::clone(&shared.store),
            permits: CorePermits::new(Arc::clone(&shared.permits), shared.cores),
        }
    }
}
