//! The deadlines of connections, at which they have work without a packet.

use std::collections::BTreeSet;
use std::time::Instant;

/// The next deadline of each connection.
///
/// Deadlines mostly move to later. An entry then stays in its position, and is looked at again when its time has come.
#[derive(Default)]
pub(crate) struct Timers {
    /// At most one entry for each connection.
    entries: BTreeSet<(Instant, usize)>,
    connections: Vec<DueTimes>,
}

#[derive(Clone, Copy, Default)]
struct DueTimes {
    /// The time of its entry.
    entry: Option<Instant>,
    due: Option<Instant>,
}

impl Timers {
    /// Sets the deadline of a connection.
    #[inline]
    pub(crate) fn set(&mut self, connection: usize, due: Option<Instant>) {
        if self.connections.len() <= connection {
            self.connections.resize(connection + 1, DueTimes::default());
        }
        let times = &mut self.connections[connection];
        times.due = due;
        let Some(due) = due else { return };
        if times.entry.is_some_and(|entry| entry <= due) {
            return;
        }
        if let Some(entry) = times.entry.replace(due) {
            self.entries.remove(&(entry, connection));
        }
        self.entries.insert((due, connection));
    }

    /// The next connection whose deadline has passed; it has none then.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<usize> {
        loop {
            let (at, connection) = *self.entries.first()?;
            if at > now {
                return None;
            }
            self.entries.pop_first();
            let times = &mut self.connections[connection];
            times.entry = None;
            match times.due.take() {
                Some(due) if due > now => self.set(connection, Some(due)),
                Some(_) => return Some(connection),
                None => {}
            }
        }
    }

    /// When [`Timers::pop`] has something to do.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.entries.first().map(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_deadline_that_moves_is_reached_once() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut timers = Timers::default();
        timers.set(3, Some(at(10)));
        timers.set(1, Some(at(30)));
        timers.set(3, Some(at(50)));
        timers.set(1, Some(at(20)));
        assert_eq!(timers.next(), Some(at(10)));
        assert_eq!(timers.pop(at(15)), None);
        assert_eq!(timers.pop(at(25)), Some(1));
        assert_eq!(timers.pop(at(40)), None);
        timers.set(1, Some(at(60)));
        timers.set(1, None);
        assert_eq!(timers.pop(at(55)), Some(3));
        assert_eq!(timers.pop(at(100)), None);
        assert_eq!(timers.next(), None);
    }

    #[test]
    fn a_connection_has_one_entry() {
        let start = Instant::now();
        let mut timers = Timers::default();
        for ms in 0..10_000 {
            let now = start + Duration::from_millis(ms);
            let after = if ms % 7 == 0 { 1 } else { 75_000 };
            timers.set(0, Some(now + Duration::from_millis(after)));
            timers.pop(now);
            assert!(timers.entries.len() <= 1);
        }
    }
}
