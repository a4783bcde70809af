//! Outcomes in a row, and the verdict that follows from them.

use std::cell::Cell;

use crate::upstream::CheckState;

/// The last outcomes of a server, as far as they are the same.
#[derive(Debug, Default)]
pub(super) struct Streak {
    has_passed: Cell<bool>,
    length: Cell<u16>,
}

impl Streak {
    /// The verdict after another outcome. The limits are those of `rise` and `fall`. The first outcome decides alone: a
    /// server that is new and broken would else get requests until `fall` checks have failed.
    pub(super) fn note(
        &self,
        state: CheckState,
        has_passed: bool,
        (rise, fall): (u16, u16),
    ) -> CheckState {
        let length = match self.has_passed.get() == has_passed {
            true => self.length.get().saturating_add(1),
            false => 1,
        };
        self.has_passed.set(has_passed);
        self.length.set(length);
        match (state, has_passed) {
            (CheckState::Unknown, true) => CheckState::Up,
            (CheckState::Unknown, false) => CheckState::Down,
            (CheckState::Down, true) if length >= rise => CheckState::Up,
            (CheckState::Up, false) if length >= fall => CheckState::Down,
            (state, _) => state,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The states after these outcomes, `+` and `-`.
    fn states(outcomes: &str, limits: (u16, u16)) -> String {
        let (streak, mut state) = (Streak::default(), CheckState::Unknown);
        let mut states = String::new();
        for outcome in outcomes.chars() {
            state = streak.note(state, outcome == '+', limits);
            states.push(match state {
                CheckState::Unknown => '?',
                CheckState::Up => 'u',
                CheckState::Down => 'd',
            });
        }
        states
    }

    #[test]
    fn outcomes_in_a_row_change_the_state() {
        assert_eq!(states("++--+---++", (2, 3)), "uuuuuuuddu");
        assert_eq!(states("-+-+-++", (2, 3)), "ddddddu");
        assert_eq!(states("+-+-+-", (1, 1)), "ududud");
        assert_eq!(states("---+++---", (3, 2)), "ddddduudd");
    }
}
