//! Chance of the plan and of contents, apart from that of the machine.

use std::ops::RangeInclusive;

/// SplitMix64 (Steele, Lea, Flood 2014).
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
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

    /// A length: often none or few bytes, seldom as many as `max`.
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
