//! Random numbers of one purpose.

use std::f64::consts::TAU;

use super::spec::Probability;
use crate::random;

/// A seeded generator. The same seed gives the same numbers on every machine.
#[derive(Debug, Clone)]
pub(super) struct Random(random::Random);

impl Random {
    /// The generator of one purpose: numbers of different streams do not depend on each other, so that a
    /// change of one setting leaves the random choices of the others as they were.
    pub(super) fn new(seed: u64, stream: u64) -> Random {
        let seed = random::Random::new(seed).bits().wrapping_add(stream);
        Random(random::Random::new(random::Random::new(seed).bits()))
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0.bits()
    }

    /// True with this probability.
    pub(super) fn chance(&mut self, probability: Probability) -> bool {
        self.0.uniform() < probability.fraction()
    }

    /// A number of the standard normal distribution (Box-Muller).
    pub(super) fn normal(&mut self) -> f64 {
        // ln(0) is infinite, so the first number is in (0, 1].
        let radius = (-2.0 * (1.0 - self.0.uniform()).ln()).sqrt();
        radius * (TAU * self.0.uniform()).cos()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_reference_implementation() {
        let mut random = random::Random::new(1_234_567);
        let expected = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
        ];
        assert_eq!([random.bits(), random.bits(), random.bits()], expected);
    }

    #[test]
    fn normal_numbers_have_mean_0_and_variance_1() {
        let mut random = Random::new(1, 1);
        let count = 100_000;
        let (mut sum, mut squares) = (0.0, 0.0);
        for _ in 0..count {
            let number = random.normal();
            sum += number;
            squares += number * number;
        }
        let mean = sum / f64::from(count);
        let variance = squares / f64::from(count) - mean * mean;
        // Five standard errors.
        assert!(mean.abs() < 0.016, "{mean}");
        assert!((variance - 1.0).abs() < 0.023, "{variance}");
    }

    #[test]
    fn streams_of_one_seed_differ() {
        assert_ne!(Random::new(1, 1).next(), Random::new(1, 2).next());
        assert_eq!(Random::new(1, 1).next(), Random::new(1, 1).next());
    }
}
