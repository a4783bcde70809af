//! The state of eviction.

use std::collections::VecDeque;
use std::task::Waker;

use crate::socket::SocketKey;

/// The state of a core at its limit of sockets.
#[derive(Default)]
pub(crate) struct Eviction {
    /// Whether the core is, or was recently, at the limit, so that sockets that become idle are listed.
    pub(crate) is_tracking: bool,
    pub(super) demand: Demand,
    /// Idle sockets and the tick since which they are, in this order. Entries may be outdated.
    pub(super) idle: VecDeque<(SocketKey, u64)>,
    /// The number of open sockets at which tracking began.
    pub(super) began_at: usize,
    /// Evicted sockets that are not closed yet.
    pub(super) closing: usize,
    pub(super) turn: TurnEvictions,
    /// The number of sockets closed while tracking.
    pub(super) closed: u64,
    pub(super) wakers: Vec<Waker>,
}

/// Whether new sockets need room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Demand {
    #[default]
    None,
    /// The next turn evicts this many.
    New(usize),
    /// No socket was idle: the next one that becomes idle is evicted.
    Unmet,
}

/// The evictions of one turn.
#[derive(Default)]
pub(super) struct TurnEvictions {
    /// How many sockets are still to be evicted to meet the demand.
    pub(super) missing: usize,
    /// How many of these this turn may evict.
    pub(super) evictions_left: usize,
    pub(super) skips_left: usize,
}

impl Eviction {
    /// A connection was accepted, or opened, although no socket was evicted: it must not be evicted itself
    /// as the next one that is idle.
    #[inline]
    pub(crate) fn end_unmet_demand(&mut self) {
        if self.demand == Demand::Unmet {
            self.demand = Demand::None;
        }
    }

    /// Whether the next turn evicts.
    pub(crate) fn is_due(&self) -> bool {
        matches!(self.demand, Demand::New(_))
    }
}
