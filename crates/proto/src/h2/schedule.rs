//! Whose turn it is to send (RFC 9218, section 10).

use super::priority::Priority;

/// The streams that have something to send and room in their windows, in no order: they are few,
/// and a turn is a frame of up to 16 KiB.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    ready: Vec<Ready>,
    /// Counts turns; says who has waited longest.
    turn: u32,
}

#[derive(Debug, Clone, Copy)]
struct Ready {
    id: u32,
    priority: Priority,
    /// The turn at which the stream got in line.
    since: u32,
}

/// Of so many turns one goes to whoever has waited longest, whatever the priorities: nobody
/// starves.
const TURNS_PER_FAIR_ONE: u32 = 16;

impl Schedule {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.ready.is_empty()
    }

    /// Puts a stream in line, unless it already is.
    pub(crate) fn add(&mut self, id: u32, priority: Priority) {
        if self.ready.iter().all(|ready| ready.id != id) {
            self.ready.push(Ready {
                id,
                priority,
                since: self.turn,
            });
        }
    }

    /// Takes a stream out of the line.
    pub(crate) fn remove(&mut self, id: u32) {
        self.ready.retain(|ready| ready.id != id);
    }

    /// Changes what a stream in line is worth.
    pub(crate) fn change(&mut self, id: u32, priority: Priority) {
        for ready in self.ready.iter_mut().filter(|ready| ready.id == id) {
            ready.priority = priority;
        }
    }

    /// Takes out the stream whose turn it is.
    pub(crate) fn next(&mut self) -> Option<u32> {
        self.turn = self.turn.wrapping_add(1);
        let turn = self.turn;
        let waited = |ready: &Ready| turn.wrapping_sub(ready.since);
        let is_fair = turn.is_multiple_of(TURNS_PER_FAIR_ONE);
        // The most urgent; among them those to be sent whole, the oldest request first; then, round
        // about, whoever has waited longest.
        let rank = |ready: &Ready| {
            let waited = if ready.priority.incremental {
                waited(ready)
            } else {
                0
            };
            (
                ready.priority.urgency,
                ready.priority.incremental,
                u32::MAX - waited,
                ready.id,
            )
        };
        let indices = 0..self.ready.len();
        let chosen = if is_fair {
            indices.max_by_key(|&at| waited(&self.ready[at]))
        } else {
            indices.min_by_key(|&at| rank(&self.ready[at]))
        };
        chosen.map(|at| self.ready.swap_remove(at).id)
    }

    /// Bytes of memory held.
    pub(crate) fn memory(&self) -> usize {
        self.ready.capacity() * size_of::<Ready>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first turns among streams that always have more to send.
    fn turns(streams: &[(u32, u8, bool)], count: usize) -> Vec<u32> {
        let mut schedule = Schedule::default();
        let priority = |id: u32| {
            let (_, urgency, incremental) = streams.iter().find(|s| s.0 == id).expect("known");
            Priority {
                urgency: *urgency,
                incremental: *incremental,
            }
        };
        streams
            .iter()
            .for_each(|stream| schedule.add(stream.0, priority(stream.0)));
        let mut seen = Vec::new();
        for _ in 0..count {
            let id = schedule.next().expect("somebody is always ready");
            seen.push(id);
            schedule.add(id, priority(id));
        }
        seen
    }

    #[test]
    fn the_most_urgent_goes_first_and_equals_take_turns() {
        assert_eq!(
            turns(&[(1, 3, true), (3, 3, true), (5, 3, true)], 6),
            [1, 3, 5, 1, 3, 5]
        );
        assert_eq!(
            turns(&[(1, 3, true), (3, 0, false), (5, 0, false)], 3),
            [3, 3, 3]
        );
        assert_eq!(turns(&[(1, 3, true), (3, 3, false)], 3), [3, 3, 3]);
    }

    #[test]
    fn nobody_starves() {
        let seen = turns(&[(1, 7, false), (3, 0, false), (5, 0, true)], 200);
        for id in [1, 3, 5] {
            let count = seen.iter().filter(|&&other| other == id).count();
            assert!(count >= 3, "{id} had {count} turns");
        }
    }
}
