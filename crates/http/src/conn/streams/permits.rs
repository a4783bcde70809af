//! The number of requests that a client's connection may carry.

use std::task::{Context, Waker};
use std::time::Instant;

use crate::exchange::{note, wake};
use crate::lifetime::Lifetime;

/// The stream permits of one connection. A request holds one from the moment that the pool chose the
/// connection until its stream begins.
pub(in crate::conn) struct Permits {
    /// Held by requests that have not begun.
    pub(in crate::conn) reserved: usize,
    /// A limit below the server's own, after it has refused streams.
    limit: usize,
    /// A request was begun.
    pub(in crate::conn) is_used: bool,
    /// Waits for the server's SETTINGS.
    settling: Option<Waker>,
    pub(in crate::conn) lifetime: Lifetime,
    made: Instant,
}

impl Permits {
    pub(in crate::conn) fn new(lifetime: Lifetime) -> Permits {
        Permits {
            reserved: 0,
            limit: usize::MAX,
            is_used: false,
            settling: None,
            lifetime,
            made: blitz_reactor::now(),
        }
    }

    pub(in crate::conn) fn were_made_since(&self, moment: Instant) -> bool {
        self.made >= moment
    }

    /// The server refused a stream while it worked on `open` others. A server that refuses even a
    /// single stream gets no more on this connection.
    pub(in crate::conn) fn refused(&mut self, open: usize) {
        self.limit = self.limit.min(open);
    }

    /// No more requests begin.
    pub(in crate::conn) fn retire(&mut self) {
        self.limit = 0;
    }

    pub(in crate::conn) fn are_retired(&self) -> bool {
        self.limit == 0
    }

    /// The free permits of `available` while `open` streams are in use.
    pub(in crate::conn) fn free(&self, open: usize, available: usize) -> usize {
        let limit = self.limit.saturating_sub(open);
        available.min(limit).saturating_sub(self.reserved)
    }

    /// The server's SETTINGS were received, or will never be.
    pub(in crate::conn) fn settings_known(&mut self) {
        wake(&mut self.settling);
    }

    pub(in crate::conn) fn await_settling(&mut self, cx: &Context<'_>) {
        note(&mut self.settling, cx);
    }

    /// A response was received completely, so the limit grows by one.
    pub(in crate::conn) fn answered(&mut self) {
        if self.limit > 0 {
            self.limit = self.limit.saturating_add(1);
        }
    }
}
