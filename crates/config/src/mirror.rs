//! Copies of requests for another upstream.

use std::sync::Arc;

use crate::balance::TargetGroup;
use crate::span::Placed;

/// Percent of all, in millionths.
const MILLIONTHS_PER_PERCENT: f64 = 1e4;

/// An upstream that gets copies of the requests of a route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mirror {
    /// Its URL; of several servers that of the first.
    pub to: Placed<String>,
    /// The name of the upstream, if it has one and is the only target.
    pub name: Option<Arc<str>>,
    /// All servers, if there are several or they have settings.
    pub group: Option<Arc<TargetGroup>>,
    /// How many of the requests are copied.
    pub percent: Percent,
}

/// More than nothing, and at most all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Percent {
    millionths: u32,
}

impl Percent {
    /// All of them.
    pub const ALL: Percent = Percent {
        millionths: 1_000_000,
    };

    /// `None` if the number is not above 0 and at most 100, or is below a ten-thousandth.
    pub(crate) fn new(number: f64) -> Option<Percent> {
        let is_possible = number > 0.0 && number <= 100.0;
        let millionths = is_possible.then(|| (number * MILLIONTHS_PER_PERCENT).round() as u32);
        let millionths = millionths.filter(|&millionths| millionths > 0)?;
        Some(Percent { millionths })
    }

    /// Whether this random number chooses a request.
    #[must_use]
    pub fn chooses(self, random: u64) -> bool {
        let scaled = (u128::from(random) * u128::from(Percent::ALL.millionths)) >> 64;
        (scaled as u32) < self.millionths
    }

    /// The number, to four places.
    #[must_use]
    pub fn number(self) -> f64 {
        f64::from(self.millionths) / MILLIONTHS_PER_PERCENT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_are_chosen_as_the_number_says() {
        // The random numbers of a fixed seed (splitmix64).
        let mut state = 7_u64;
        let mut random = || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut one = state;
            one = (one ^ (one >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            one = (one ^ (one >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            one ^ (one >> 31)
        };
        for (number, expected) in [(0.1, 100), (1.0, 1_000), (12.5, 12_500), (99.0, 99_000)] {
            let percent = Percent::new(number).unwrap();
            let chosen = (0..100_000).filter(|_| percent.chooses(random())).count();
            let difference = chosen.abs_diff(expected);
            assert!(
                difference * difference < expected * 16,
                "{number}: {chosen}"
            );
        }
        let ends = [0, 1, u64::MAX / 2, u64::MAX];
        assert!(ends.iter().all(|&random| Percent::ALL.chooses(random)));
        let few = Percent::new(0.0001).unwrap();
        assert_eq!(
            ends.map(|random| few.chooses(random)),
            [true, true, false, false]
        );
    }

    #[test]
    fn a_number_is_above_nothing_and_at_most_all() {
        for number in [0.0, -1.0, 0.000_01, 100.1, f64::NAN, f64::INFINITY] {
            assert_eq!(Percent::new(number), None, "{number}");
        }
        assert_eq!(Percent::new(100.0), Some(Percent::ALL));
        assert!((Percent::new(0.25).unwrap().number() - 0.25).abs() < 1e-9);
    }
}
