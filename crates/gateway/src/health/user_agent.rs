//! The name of checks in the logs of servers.

pub(super) const USER_AGENT: &str = concat!("blitz/", env!("CARGO_PKG_VERSION"), " (health check)");
