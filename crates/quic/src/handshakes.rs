//! Handshakes that are not complete.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// At the limit, handshakes that have lasted for so long are closed for new clients. Younger ones may still be those of
/// honest clients, which mostly complete within three round trips.
const REPLACEABLE_AFTER: Duration = Duration::from_secs(1);

/// One handshake.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Handshake {
    /// The time at which it has to be complete.
    pub(crate) due: Instant,
    /// The client proved its address before.
    pub(crate) is_validated: bool,
}

/// The incomplete handshakes of an endpoint.
#[derive(Default)]
pub(crate) struct Handshakes {
    /// The due times and connections of clients that have proved their address before, and of others.
    validated: BTreeSet<(Instant, usize)>,
    unvalidated: BTreeSet<(Instant, usize)>,
}

impl Handshakes {
    pub(crate) fn len(&self) -> usize {
        self.validated.len() + self.unvalidated.len()
    }

    pub(crate) fn insert(&mut self, connection: usize, handshake: Handshake) {
        self.of_kind(handshake).insert((handshake.due, connection));
    }

    pub(crate) fn remove(&mut self, connection: usize, handshake: Handshake) {
        self.of_kind(handshake).remove(&(handshake.due, connection));
    }

    /// The connection whose handshake is closed for a new client, if there is one: the oldest without a proved address,
    /// because it may be forged, or else the oldest of the others. `timeout` is the time that handshakes have.
    pub(crate) fn replaceable(&self, timeout: Duration, now: Instant) -> Option<usize> {
        let is_old = |&&(due, _): &&(Instant, usize)| due + REPLACEABLE_AFTER <= now + timeout;
        let oldest = |kind: &BTreeSet<(Instant, usize)>| kind.first().filter(is_old).copied();
        let found = oldest(&self.unvalidated).or_else(|| oldest(&self.validated));
        found.map(|(_, connection)| connection)
    }

    fn of_kind(&mut self, handshake: Handshake) -> &mut BTreeSet<(Instant, usize)> {
        match handshake.is_validated {
            true => &mut self.validated,
            false => &mut self.unvalidated,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(10);

    #[test]
    fn the_oldest_is_replaced_and_first_those_without_a_proved_address() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut handshakes = Handshakes::default();
        let handshake = |began, is_validated| Handshake {
            due: at(began) + TIMEOUT,
            is_validated,
        };
        for (connection, began, is_validated) in [
            (7, 0, true),
            (3, 100, true),
            (9, 250, false),
            (1, 300, false),
        ] {
            handshakes.insert(connection, handshake(began, is_validated));
        }
        assert_eq!(handshakes.len(), 4);
        assert_eq!(handshakes.replaceable(TIMEOUT, at(999)), None);
        assert_eq!(handshakes.replaceable(TIMEOUT, at(1_000)), Some(7));
        assert_eq!(handshakes.replaceable(TIMEOUT, at(1_250)), Some(9));
        handshakes.remove(9, handshake(250, false));
        handshakes.remove(1, handshake(300, false));
        assert_eq!(handshakes.replaceable(TIMEOUT, at(1_250)), Some(7));
        handshakes.remove(7, handshake(0, true));
        assert_eq!(handshakes.replaceable(TIMEOUT, at(1_099)), None);
        assert_eq!(handshakes.replaceable(TIMEOUT, at(1_100)), Some(3));
        handshakes.remove(3, handshake(100, true));
        assert_eq!(handshakes.len(), 0);
    }
}
