//! Connections in use that return to their pool.

use super::Upstream;
use crate::lifetime::{IdleLimit, Lifetime};
use crate::transport::Transport;

/// A connection in use that carries one request at a time: its upstream and its lifetime.
pub(crate) struct Lease {
    pub(super) upstream: Upstream,
    pub(super) lifetime: Lifetime,
}

impl Lease {
    /// Returns the connection to the pool. The caller guarantees that it is in the state of a new
    /// one.
    pub(crate) fn put_back(mut self, transport: Transport, limit: IdleLimit) {
        self.lifetime.limit_idle(limit);
        self.upstream.release_active();
        self.upstream.take_back(transport, self.lifetime);
    }

    /// Ends the lease of a connection that closes instead of returning.
    pub(crate) fn end(self) {
        self.upstream.release_active();
    }
}
