//! Random choices of plans and contents, independent of those of the machine.

use std::ops::RangeInclusive;

use blitz_reactor::simulation;

#[derive(Debug, Clone)]
pub(crate) struct Random(simulation::Random);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(simulation::Random::new(seed))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    pub(crate) fn within(&mut self, range: RangeInclusive<u64>) -> u64 {
        let (low, high) = range.into_inner();
        low + self.next() % (high - low + 1)
    }

    /// True in `per_mille` of 1,000 cases.
    pub(crate) fn chance(&mut self, per_mille: u64) -> bool {
        self.next() % 1_000 < per_mille
    }

    pub(crate) fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[(self.next() % all.len() as u64) as usize]
    }

    /// A length: often 0 or a few bytes, rarely as many as `max`.
    pub(crate) fn length(&mut self, max: u64) -> u64 {
        match self.within(0..=9) {
            0..=2 => 0,
            3..=5 => self.within(1..=200.min(max)),
            6..=7 => self.within(1..=8_192.min(max)),
            8 => self.within(1..=65_536.min(max)),
            _ => self.within(1..=max),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The plans of all seeds change if these numbers do.
    #[test]
    fn the_numbers_are_those_of_splitmix64() {
        let mut random = Random::new(0);
        assert_eq!(random.next(), 0xE220_A839_7B1D_CDAF);
        assert_eq!(random.next(), 0x6E78_9E6A_A1B9_65F4);
        assert_eq!(random.next(), 0x06C4_5D18_8009_454F);
    }
}
