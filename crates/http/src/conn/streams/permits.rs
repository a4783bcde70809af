//! How many requests a client's connection may carry.

use std::task::{Context, Waker};

use crate::exchange::{note, wake};
use crate::lifetime::Lifetime;

/// The stream permits of one connection. A request holds one from the moment that the pool chose the
/// connection until its stream begins.
pub(in crate::conn) struct Permits {
    /// Held by requests that have not begun.
    pub(in crate::conn) reserved: usize,
    /// What the server showed to be too much for it, whatever it allows.
    limit: usize,
    /// A request was begun.
    pub(in crate::conn) is_used: bool,
    /// Waits for the server to say what it takes.
    settling: Option<Waker>,
    pub(in crate::conn) lifetime: Lifetime,
}

impl Permits {
    pub(in crate::conn) fn new(lifetime: Lifetime) -> Permits {
        Permits {
            reserved: 0,
            limit: usize::MAX,
            is_used: false,
            settling: None,
            lifetime,
        }
    }

    /// The server refused a stream while it worked on `open` others. One that refuses even the
    /// only one gets no more on this connection.
    pub(in crate::conn) fn refused(&mut self, open: usize) {
        self.limit = self.limit.min(open);
    }

    /// No request is to begin any more.
    pub(in crate::conn) fn retire(&mut self) {
        self.limit = 0;
    }

    pub(in crate::conn) fn are_retired(&self) -> bool {
        self.limit == 0
    }

    /// Those that are left of `available` while `open` are in use.
    pub(in crate::conn) fn free(&self, open: usize, available: usize) -> usize {
        let limit = self.limit.saturating_sub(open);
        available.min(limit).saturating_sub(self.reserved)
    }

    /// The server has said what it takes, or never will.
    pub(in crate::conn) fn settled(&mut self) {
        wake(&mut self.settling);
    }

    pub(in crate::conn) fn await_settling(&mut self, cx: &Context<'_>) {
        note(&mut self.settling, cx);
    }

    /// It answered one in full, so it may be given another.
    pub(in crate::conn) fn answered(&mut self) {
        if self.limit > 0 {
            self.limit = self.limit.saturating_add(1);
        }
    }
}
