//! How long results are used, and the pauses between queries.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::time::Duration;

/// Shortest time between queries, if the TTL is shorter.
pub(super) const REFRESH_MIN: Duration = Duration::from_secs(1);
/// Longest time between queries: changes of the hosts file apply within five minutes.
pub(super) const REFRESH_MAX: Duration = Duration::from_secs(300);
/// Pause before a query after the first failure of a connection, since the last query: requests wait for it.
pub(super) const PAUSE_FIRST: Duration = Duration::from_millis(100);
/// The same before the next one if that changed nothing, and after the first failure of a query; it doubles
/// with each further one.
pub(super) const PAUSE_MIN: Duration = Duration::from_secs(1);
/// Longest of these pauses.
pub(super) const PAUSE_MAX: Duration = Duration::from_secs(30);

pub(super) fn longer(pause: Duration) -> Duration {
    (pause * 2).clamp(PAUSE_MIN, PAUSE_MAX)
}

/// Up to a quarter longer, so that many gateways do not query at the same moment.
pub(super) fn with_jitter(pause: Duration) -> Duration {
    let random = RandomState::new().hash_one(()) % 256;
    pause + pause / 4 * random as u32 / 256
}
