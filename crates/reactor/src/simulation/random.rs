//! Random numbers for plans and peers.

use crate::timer;

/// The generator of a core, with a seed of its own, so that a plan does not depend on the machine.
#[derive(Debug, Clone)]
pub struct Random(timer::Random);

impl Random {
    /// The generator of this seed.
    #[must_use]
    pub fn new(seed: u64) -> Random {
        Random(timer::Random::new(seed))
    }

    /// Sixty-four random bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        self.0.next()
    }
}
