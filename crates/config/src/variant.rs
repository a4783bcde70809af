//! Variants of a route: its settings for requests that meet the conditions of blocks `when`.

use std::sync::Arc;

use crate::condition::Conditions;
use crate::settings::Settings;
use crate::span::Placed;

/// The variants of a route. On each level (the route, each enclosing one, the site) the first block applies whose
/// conditions hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variants {
    /// The levels that have blocks, the innermost first.
    pub levels: Vec<Level>,
    /// The settings of each combination of blocks but that without any, in the order of
    /// [their numbers](combination).
    pub settings: Vec<Settings>,
}

/// The conditions of the blocks of a level, in their order. Each has the place of its block. Routes below it share them.
pub type Level = Arc<[Placed<Conditions>]>;

/// The number of a combination of blocks, one of each level or none: 0 is the combination without any. `chosen` has the
/// position of the block that applies for each level, in the order of the levels, with the number of its blocks.
#[must_use]
pub fn combination(chosen: impl Iterator<Item = (Option<usize>, usize)>) -> usize {
    let (mut number, mut factor) = (0, 1);
    for (block, blocks) in chosen {
        number += block.map_or(0, |block| block + 1) * factor;
        factor *= blocks + 1;
    }
    number
}

impl Variants {
    /// The blocks of a combination, the innermost first.
    #[must_use]
    pub fn blocks(&self, mut number: usize) -> Vec<&Placed<Conditions>> {
        let mut blocks = Vec::new();
        for level in &self.levels {
            let choices = level.len() + 1;
            blocks.extend((number % choices).checked_sub(1).map(|at| &level[at]));
            number /= choices;
        }
        blocks
    }

    /// The settings of a combination; `None` for that without any block.
    #[must_use]
    pub fn settings(&self, number: usize) -> Option<&Settings> {
        self.settings.get(number.checked_sub(1)?)
    }
}
