//! What a server's connection may hold of its client's while the core is short of memory (rule 4).
//!
//! Windows are given back smaller the less is left, so that clients send less. What they may send
//! already can still be more than there is room for, with many connections; one that holds more
//! than its part is then not read from until some of that is taken.

use super::outbound::{STREAMS_WHEN_SHORT, is_short};
use super::wire::State;
use crate::counters::count;

/// A connection that holds no more than this is always read from.
const HELD_MIN: usize = 16 * 1024;

impl State {
    /// Adjusts the windows to what is left.
    pub(super) fn cap_windows(&mut self) {
        if self.shared.is_client() {
            return;
        }
        let share = blitz_reactor::fair_share();
        match is_short(share, self.limits()) {
            true => self.machine.cap_windows(share, share * STREAMS_WHEN_SHORT),
            false => {
                self.machine.cap_windows(usize::MAX, usize::MAX);
                self.call_crowded();
            }
        }
    }

    /// Whether nothing is read at the moment. Time that passes so does not count against those who
    /// send.
    pub(super) fn is_held_back(&mut self) -> bool {
        let is_held_back = self.holds_too_much();
        let before = std::mem::replace(&mut self.was_held_back, is_held_back);
        match (before, is_held_back) {
            (false, true) => count(|counters| counters.h2_held_back += 1),
            (true, false) => {
                let streams = self.streams.values_mut();
                streams.for_each(|stream| stream.receiving.pace.forgive());
            }
            _ => {}
        }
        is_held_back
    }

    /// Whether nothing more should be read until some of what came is taken.
    ///
    /// Not while content waits for a window: the frame that opens it may be what would be read
    /// next, and those who hold may be those who wait.
    pub(super) fn holds_too_much(&self) -> bool {
        let held = self.machine.held();
        if held <= HELD_MIN || self.unsent > 0 || self.shared.is_client() {
            return false;
        }
        let share = blitz_reactor::fair_share();
        is_short(share, self.limits()) && held > share * STREAMS_WHEN_SHORT
    }
}
