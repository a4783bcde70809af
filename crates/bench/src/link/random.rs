//! A seeded generator of random numbers: SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).

use std::f64::consts::TAU;

use super::spec::Probability;

/// The same seed gives the same numbers on every machine.
#[derive(Debug, Clone)]
pub(super) struct Random {
    state: u64,
}

impl Random {
    /// The generator of one purpose: numbers of different streams do not depend on each other, so that a
    /// change of one setting leaves the random choices of the others as they were.
    pub(super) fn new(seed: u64, stream: u64) -> Random {
        let state = Random { state: seed }.next().wrapping_add(stream);
        Random {
            state: Random { state }.next(),
        }
    }

    pub(super) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// True with this probability.
    pub(super) fn chance(&mut self, probability: Probability) -> bool {
        self.unit() < probability.fraction()
    }

    /// A number of the standard normal distribution (Box-Muller).
    pub(super) fn normal(&mut self) -> f64 {
        // ln(0) is infinite, so the first number is in (0, 1].
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (TAU * self.unit()).cos()
    }

    /// A number in [0, 1).
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_reference_implementation() {
        let mut random = Random { state: 1_234_567 };
        let expected = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
        ];
        assert_eq!([random.next(), random.next(), random.next()], expected);
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
