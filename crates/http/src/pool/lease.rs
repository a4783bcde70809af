//! Connections in use that return to their pool.

use std::time::{Duration, Instant};

use super::Upstream;
use crate::lifetime::Lifetime;
use crate::transport::Transport;

/// How long before the end of the time that a server announces its connection is closed, so that no request
/// meets the server's FIN; at most half of that time.
const KEEP_ALIVE_MARGIN: Duration = Duration::from_secs(1);

/// A connection in use that carries one request at a time: its upstream and its lifetime.
pub(crate) struct Lease {
    pub(super) upstream: Upstream,
    pub(super) lifetime: Lifetime,
    /// When it was to be closed if it had stayed idle, because of what the server had announced.
    pub(super) idle_until: Option<Instant>,
}

/// How long a server keeps an idle connection open, as far as it has announced that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IdleLimit {
    /// The connection has carried no request since it was idle last.
    Unchanged,
    Unknown,
    Announced(Duration),
}

impl IdleLimit {
    /// From `timeout` of `Keep-Alive`.
    #[inline]
    pub(crate) fn of(keep_alive_timeout_s: Option<u32>) -> IdleLimit {
        match keep_alive_timeout_s {
            None => IdleLimit::Unknown,
            Some(seconds) => IdleLimit::Announced(Duration::from_secs(seconds.into())),
        }
    }

    /// When a connection that becomes idle now is to be closed.
    #[inline]
    fn until(self, before: Option<Instant>, now: Instant) -> Option<Instant> {
        match self {
            IdleLimit::Unchanged => before,
            IdleLimit::Unknown => None,
            IdleLimit::Announced(time) => Some(now + time - KEEP_ALIVE_MARGIN.min(time / 2)),
        }
    }
}

impl Lease {
    /// Returns the connection to the pool. The caller guarantees that it is in the state of a new
    /// one.
    pub(crate) fn put_back(mut self, transport: Transport, limit: IdleLimit) {
        self.idle_until = limit.until(self.idle_until, blitz_reactor::now());
        self.upstream.release_active();
        self.upstream
            .take_back(transport, self.lifetime, self.idle_until);
    }

    /// Ends the lease of a connection that closes instead of returning.
    pub(crate) fn end(self) {
        self.upstream.release_active();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_close_before_the_server_closes_them() {
        let now = Instant::now();
        let left = |seconds| {
            let until = IdleLimit::of(Some(seconds)).until(None, now).unwrap();
            (until - now).as_millis()
        };
        assert_eq!([0, 1, 2, 5, 75].map(left), [0, 500, 1000, 4000, 74_000]);
        assert_eq!(IdleLimit::of(None).until(Some(now), now), None);
        assert_eq!(IdleLimit::Unchanged.until(Some(now), now), Some(now));
    }
}
