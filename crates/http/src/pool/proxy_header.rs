//! Connections that begin with a header of the PROXY protocol. The header tells one client, so its connections are never
//! used for the requests of others: each header has an endpoint of its own.

use std::cell::Cell;
use std::time::Duration;

use super::{Heads, PoolEndpoint, Upstream};
use crate::client::ProxyHeader;
use crate::counters::count;
use crate::error::ClientError;

/// The most idle time of a connection that begins with a header: its client may never return.
const IDLE_TIMEOUT_MAX: Duration = Duration::from_secs(5);

/// How many connections all clients of an endpoint use.
#[derive(Default)]
pub(super) struct ClientsInUse(Cell<usize>);

impl ClientsInUse {
    pub(super) fn acquire(&self) {
        self.0.set(self.0.get() + 1);
    }

    pub(super) fn release(&self) {
        self.0.set(self.0.get() - 1);
    }
}

impl Upstream {
    /// The connections to the same address that begin with this header. The limit of connections to the upstream is that of
    /// all headers together; at the limit, requests that need another connection fail instead of waiting.
    #[must_use]
    pub fn with_header(&self, header: ProxyHeader) -> Upstream {
        self.other(Heads::Usual, Some(header))
    }

    /// Whether the limit allows a client another connection.
    #[inline]
    pub(super) fn has_room_for_client(&self) -> bool {
        let connections_max = self.0.pool.options.limits.upstream_connections_max;
        self.0.header.is_none() || self.0.of_all_clients.0.get() < connections_max
    }

    /// # Errors
    /// Clients use as many connections as they may. Those of other clients wake no request of this one, so that it does not
    /// wait.
    #[inline]
    pub(super) fn check_room_for_client(&self) -> Result<(), ClientError> {
        match self.has_room_for_client() {
            true => Ok(()),
            false => {
                count(|counters| counters.upstream_queue_full += 1);
                Err(ClientError::QueueFull)
            }
        }
    }
}

impl PoolEndpoint {
    /// How long its connections may be idle.
    pub(super) fn idle_timeout(&self) -> Duration {
        let idle_timeout = self.pool.options.idle_timeout;
        match self.header {
            Some(_) => idle_timeout.min(IDLE_TIMEOUT_MAX),
            None => idle_timeout,
        }
    }
}
