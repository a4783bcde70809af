//! The random choices of the network: values and faults, as the conditions allow them.

use std::ops::RangeInclusive;

use super::conditions::Conditions;
use super::network::Network;

impl Network {
    /// A value of one of the conditions' ranges.
    pub(crate) fn draw(&mut self, range: fn(&Conditions) -> &RangeInclusive<u64>) -> u64 {
        let (low, high) = range(&self.conditions).clone().into_inner();
        low + self.random.next() % (high - low + 1)
    }

    /// Whether a fault happens, with the probability that the conditions give it.
    pub(crate) fn happens(&mut self, per_mille: fn(&Conditions) -> u16) -> bool {
        let per_mille = per_mille(&self.conditions);
        per_mille > 0 && self.random.next() % 1_000 < u64::from(per_mille)
    }

    /// Shortens a length, with the probability that the conditions give.
    pub(crate) fn shorten(&mut self, len: usize) -> usize {
        match self.happens(|conditions| conditions.short) && len > 1 {
            true => 1 + (self.random.next() % (len as u64 - 1)) as usize,
            false => len,
        }
    }
}
