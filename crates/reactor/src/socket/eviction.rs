//! Eviction of idle sockets at the limit of sockets (rule 20): those that have been idle longest are
//! closed in favour of new ones.
//!
//! While the core has room nothing is recorded. At the limit all idle sockets are listed once, sorted by
//! the time since which they are idle; from then on each socket that becomes idle is appended. Entries of
//! sockets that were used since are skipped, so the list never has to be searched.

mod state;

use std::collections::VecDeque;
use std::task::{Context, Poll};

use self::state::{Demand, TurnEvictions};
use super::SocketKey;
use super::entry::{Fin, SocketAction, SocketEntry, SocketState};
use super::ownership::Cause;
use super::sockets::{Sockets, wake};
use crate::driver::EVICTED;

pub(super) use self::state::Eviction;

/// Most sockets for which accepting requests room, so that a burst is accepted in a few turns.
const ACCEPTED_AT_ONCE_MAX: usize = 32;

/// The share of the limit for which accepting requests room.
const ACCEPTED_AT_ONCE_SHARE: usize = 32;

/// Most sockets that one turn evicts; the next turn evicts the rest.
const EVICTED_PER_TURN_MAX: usize = 128;

/// Most sockets of one turn that are not evicted because a look into the kernel's buffer has found input.
const SKIPPED_PER_TURN_MAX: usize = 8;

impl Sockets<'_> {
    /// Whether the core has as many sockets as it may.
    pub(super) fn at_limit(&self) -> bool {
        self.room() == 0
    }

    /// How many more sockets the core may have before it evicts.
    pub(crate) fn room(&self) -> usize {
        self.core
            .sockets
            .accepting_max
            .saturating_sub(self.table.len())
    }

    /// Requests room for connections to accept. Returns the number to pass to [`Sockets::poll_room`].
    pub(super) fn request_room_for_many(&mut self) -> u64 {
        let share = self.core.sockets.accepting_max / ACCEPTED_AT_ONCE_SHARE;
        self.request_room(share.clamp(1, ACCEPTED_AT_ONCE_MAX));
        self.table.eviction.closed
    }

    /// Requests room for the sockets beyond the limit, and for so many connections.
    #[cold]
    pub(super) fn request_room_to_connect(&mut self, connections: usize) {
        let beyond = self
            .table
            .len()
            .saturating_sub(self.core.sockets.accepting_max);
        self.request_room(beyond + connections);
    }

    /// Requests that so many sockets close, including those that are being evicted: idle ones are
    /// evicted in this turn or the next.
    #[cold]
    fn request_room(&mut self, count: usize) {
        if !self.table.eviction.is_tracking {
            self.begin_tracking();
        }
        let eviction = &mut self.table.eviction;
        eviction.demand = match eviction.demand {
            Demand::New(others) => Demand::New(others.max(count)),
            Demand::None | Demand::Unmet => Demand::New(count),
        };
    }

    /// Ready once a socket has closed since [`Sockets::request_room_for_many`] returned `since`.
    pub(super) fn poll_room(&mut self, since: u64, cx: &Context<'_>) -> Poll<()> {
        let eviction = &mut self.table.eviction;
        if eviction.closed != since || !eviction.is_tracking {
            return Poll::Ready(());
        }
        if !eviction.wakers.iter().any(|w| w.will_wake(cx.waker())) {
            eviction.wakers.push(cx.waker().clone());
        }
        Poll::Pending
    }

    fn begin_tracking(&mut self) {
        let table = &mut *self.table;
        let mut idle: Vec<_> = table
            .slab
            .keys()
            .into_iter()
            .filter_map(|key| {
                let entry = table.slab.get(key)?;
                may_be_idle(entry).then_some((key, entry.idle_since))
            })
            .collect();
        idle.sort_by_key(|&(_, since)| since);
        table.eviction.idle = idle.into();
        table.eviction.is_tracking = true;
        table.eviction.began_at = table.len();
    }

    /// Lists a socket that has become idle.
    #[cold]
    #[inline(never)]
    pub(super) fn note_idle(&mut self, key: SocketKey) {
        let since = self.table.entry(key).idle_since;
        let bound = self.table.len() * 2;
        let mut idle = std::mem::take(&mut self.table.eviction.idle);
        if idle.len() >= bound {
            idle.retain(|&(key, since)| self.is_idle_since(key, since));
        }
        idle.push_back((key, since));
        let eviction = &mut self.table.eviction;
        eviction.idle = idle;
        if eviction.demand == Demand::Unmet {
            eviction.demand = Demand::New(1);
        }
    }

    fn is_idle_since(&self, key: SocketKey, since: u64) -> bool {
        let entry = self.table.slab.get(key);
        entry.is_some_and(|entry| entry.idle_since == since && may_be_idle(entry))
    }

    /// Begins the evictions of a turn. While reports are outstanding, nothing is evicted.
    pub(crate) fn begin_evictions(&mut self) {
        let is_reaped = self.table.driver.is_reaped();
        let eviction = &mut self.table.eviction;
        let missing = match eviction.demand {
            Demand::New(count) => count.saturating_sub(eviction.closing),
            Demand::None | Demand::Unmet => 0,
        };
        eviction.turn = TurnEvictions {
            missing,
            evictions_left: if is_reaped {
                missing.min(EVICTED_PER_TURN_MAX)
            } else {
                0
            },
            skips_left: SKIPPED_PER_TURN_MAX,
        };
    }

    /// Ends the evictions of a turn. The next one continues them if they are too many for one.
    pub(crate) fn end_evictions(&mut self) {
        let eviction = &mut self.table.eviction;
        if eviction.is_due() {
            eviction.demand = match eviction.turn.missing {
                0 => Demand::None,
                missing => Demand::New(eviction.closing + missing),
            };
        }
    }

    /// Evicts the socket that has been idle longest. `None` if no socket is idle, or after the last one
    /// of this turn.
    pub(crate) fn evict_next(&mut self) -> Option<SocketAction> {
        if self.table.eviction.turn.evictions_left == 0 {
            return None;
        }
        for _ in 0..self.table.eviction.idle.len() {
            let (key, since) = self.table.eviction.idle.pop_front()?;
            if !self.is_idle_since(key, since) {
                continue;
            }
            let entry = self.table.entry(key);
            if entry.receiving.is_readable() {
                continue;
            }
            // The end of a response waits for the peer to read.
            if entry.sending.queue.is_some() {
                self.table.eviction.idle.push_back((key, since));
                continue;
            }
            if self.has_input(key) {
                let turn = &mut self.table.eviction.turn;
                turn.skips_left -= 1;
                if turn.skips_left == 0 {
                    return None;
                }
                continue;
            }
            let turn = &mut self.table.eviction.turn;
            turn.missing -= 1;
            turn.evictions_left -= 1;
            return Some(self.evict(key));
        }
        let eviction = &mut self.table.eviction;
        eviction.demand = match eviction.closing {
            0 => Demand::Unmet,
            _ => Demand::None,
        };
        None
    }

    /// Whether the kernel holds bytes for a socket, probably of a request: the socket is listed again
    /// once it is idle again. A lingering socket discards its input.
    fn has_input(&mut self, key: SocketKey) -> bool {
        let table = &mut *self.table;
        let entry = table.slab.get(key);
        entry.is_some_and(|entry| {
            !matches!(entry.state, SocketState::Lingering { .. })
                && table.driver.has_input(entry.handle)
        })
    }

    fn evict(&mut self, key: SocketKey) -> SocketAction {
        let entry = self.table.entry(key);
        entry.is_evicted = true;
        let is_lingering = matches!(entry.state, SocketState::Lingering { .. });
        self.table.eviction.closing += 1;
        if is_lingering {
            self.core.counters.lingering_cut.add(1);
            self.close(key);
            return SocketAction::None;
        }
        self.core.counters.evicted.add(1);
        match self.take_parking(key) {
            Some(parking) => SocketAction::Resume(parking, key, Cause::Evicted),
            None => {
                self.fail(key, EVICTED);
                SocketAction::None
            }
        }
    }

    /// Notes that a socket was closed while tracking.
    #[cold]
    pub(super) fn note_closed(&mut self, was_evicted: bool) {
        let table = &mut *self.table;
        let len = table.len();
        let eviction = &mut table.eviction;
        eviction.closing -= usize::from(was_evicted);
        eviction.closed += 1;
        for waker in eviction.wakers.drain(..) {
            wake(&mut Some(waker));
        }
        table.connects.wake_first();
        let has_room = len < eviction.began_at.min(self.core.sockets.accepting_max) * 3 / 4;
        if has_room && eviction.closing == 0 {
            eviction.is_tracking = false;
            eviction.demand = Demand::None;
            eviction.idle = VecDeque::new();
        }
    }
}

/// Whether a socket has no request, apart from what it still has to send.
fn may_be_idle(entry: &SocketEntry) -> bool {
    let waits = match entry.state {
        SocketState::Parked(_) | SocketState::Lingering { .. } => true,
        SocketState::Owned => entry.awaits_request,
        SocketState::Finishing { .. } | SocketState::Resetting | SocketState::Closing => false,
    };
    waits
        && !entry.is_evicted
        && (entry.sending.fin == Fin::No || !matches!(entry.state, SocketState::Owned))
}
