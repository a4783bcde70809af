//! The order in which streams send (RFC 9218, section 10).

use super::Priority;

/// The streams that have content to send and room in their windows, in no order: they are few,
/// and a turn is up to 16 KiB. `Id` is the identifier of a stream.
#[derive(Debug)]
pub struct Schedule<Id> {
    ready: Vec<Ready<Id>>,
    /// Turns so far. The waiting time of a stream is counted in turns.
    turn: u32,
}

impl<Id> Default for Schedule<Id> {
    fn default() -> Schedule<Id> {
        Schedule {
            ready: Vec::new(),
            turn: 0,
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Ready<Id> {
    id: Id,
    priority: Priority,
    /// The turn at which the stream became ready.
    since: u32,
}

/// A turn of a stream, which it may give back.
#[derive(Debug, Clone, Copy)]
pub struct Turn<Id>(Ready<Id>);

/// One of this many turns goes to the stream that has waited longest, whatever the priorities, so
/// that no stream starves.
const TURNS_PER_FAIR_ONE: u32 = 16;

impl<Id: Copy + Ord> Schedule<Id> {
    /// Whether no stream is ready.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ready.is_empty()
    }

    /// Adds a stream that is ready to send, unless it was added before.
    pub fn add(&mut self, id: Id, priority: Priority) {
        let since = self.turn;
        self.push(Ready {
            id,
            priority,
            since,
        });
    }

    fn push(&mut self, new: Ready<Id>) {
        if self.ready.iter().all(|ready| ready.id != new.id) {
            self.ready.push(new);
        }
    }

    /// Removes a stream.
    pub fn remove(&mut self, id: Id) {
        self.ready.retain(|ready| ready.id != id);
    }

    /// Changes the priority of a stream that is ready.
    pub fn change(&mut self, id: Id, priority: Priority) {
        for ready in self.ready.iter_mut().filter(|ready| ready.id == id) {
            ready.priority = priority;
        }
    }

    /// Removes and returns the stream that sends next.
    #[allow(
        clippy::should_implement_trait,
        reason = "it is no sequence: streams are added between"
    )]
    pub fn next(&mut self) -> Option<Id> {
        self.next_turn().map(|turn| turn.id())
    }

    /// Adds a stream again that could send nothing in its turn. It has waited as long as before, and the turn does not
    /// count: where all streams wait for room in their connection, they would otherwise wait for ever.
    pub fn give_back(&mut self, turn: Turn<Id>) {
        self.turn = self.turn.wrapping_sub(1);
        self.push(turn.0);
    }

    /// As [`Schedule::next`], for a stream that may not be able to send.
    pub fn next_turn(&mut self) -> Option<Turn<Id>> {
        self.turn = self.turn.wrapping_add(1);
        let turn = self.turn;
        let waited = |ready: &Ready<Id>| turn.wrapping_sub(ready.since);
        let is_fair = turn.is_multiple_of(TURNS_PER_FAIR_ONE);
        // The most urgent first; among equals those that are sent as a whole, by age of the request,
        // before incremental ones in round robin.
        let rank = |ready: &Ready<Id>| {
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
        chosen.map(|at| Turn(self.ready.swap_remove(at)))
    }

    /// Bytes of memory held.
    pub(crate) fn memory(&self) -> usize {
        self.ready.capacity() * size_of::<Ready<Id>>()
    }
}

impl<Id: Copy> Turn<Id> {
    /// The stream.
    #[must_use]
    pub fn id(&self) -> Id {
        self.0.id
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
            let id = schedule.next().expect("a stream is always ready");
            seen.push(id);
            schedule.add(id, priority(id));
        }
        seen
    }

    #[test]
    fn the_most_urgent_stream_is_first_and_equals_take_turns() {
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
    fn streams_take_turns_although_the_connection_has_room_for_one_at_a_time() {
        let mut schedule = Schedule::default();
        (1..=3).for_each(|id| schedule.add(id, Priority::UNSTATED));
        let mut sent = Vec::new();
        for _ in 0..30 {
            let first = schedule.next_turn().expect("all are ready").id();
            sent.push(first);
            schedule.add(first, Priority::UNSTATED);
            let refused: Vec<_> = std::iter::from_fn(|| schedule.next_turn()).collect();
            refused
                .into_iter()
                .for_each(|turn| schedule.give_back(turn));
        }
        for id in 1..=3 {
            let turns = sent.iter().filter(|&&other| other == id).count();
            assert!(
                (8..=12).contains(&turns),
                "{id} had {turns} turns: {sent:?}"
            );
        }
    }

    #[test]
    fn no_stream_starves() {
        let seen = turns(&[(1, 7, false), (3, 0, false), (5, 0, true)], 200);
        for id in [1, 3, 5] {
            let count = seen.iter().filter(|&&other| other == id).count();
            assert!(count >= 3, "{id} had {count} turns");
        }
    }
}
