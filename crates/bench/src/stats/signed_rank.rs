//! The signed-rank test of Wilcoxon as an interval, and the shift of Hodges and Lehmann.
//!
//! If two systems are equal, their difference in a round is as often positive as negative, whatever the
//! machine does to both. The test needs nothing else: no shape of the noise, and no equal noise in all rounds.
//! (F. Wilcoxon: Individual comparisons by ranking methods, 1945; J. L. Hodges, E. L. Lehmann: Estimates of
//! location based on rank tests, 1963.)

use super::median::{Interval, middle};

/// The test rejects at this level. Below 5 %, because the position in a round may favour a system a little,
/// which the test would take for a difference. Of 15 values it rejects 4.1 %, of 7 3.1 %.
const LEVEL: f64 = 0.045;
/// Up to here the distribution of the sum of ranks is exact. Beyond, the normal approximation differs by less
/// than a thousandth.
const EXACT_MAX: usize = 60;
/// 97.75 % of the normal distribution lie below this.
const NORMAL_QUANTILE: f64 = 2.0047;

/// The shift of the values against 0, the median of the means of all pairs of values, and its interval: the
/// shifts that the test does not reject. It covers at least 95.5 %. With fewer than 6 values it reaches from
/// the least to the greatest one and covers less, 93.75 % with 5. `None` without values.
pub(super) fn shift(values: &[f64]) -> Option<(f64, Interval)> {
    let mut means = Vec::with_capacity(values.len() * (values.len() + 1) / 2);
    for (index, a) in values.iter().enumerate() {
        means.extend(values[index..].iter().map(|b| a + (b - a) / 2.0));
    }
    means.sort_by(f64::total_cmp);
    let last = means.len().checked_sub(1)?;
    // The sum of the ranks of negative values is the number of means below 0.
    let outside = rejected_sums(values.len()).saturating_sub(1);
    let interval = Interval {
        low: means[outside],
        high: means[last - outside],
    };
    Some((middle(&means), interval))
}

/// How many sums of ranks, 0, 1 and so on, are so small that the test rejects.
fn rejected_sums(count: usize) -> usize {
    if count > EXACT_MAX {
        let count = count as f64;
        let mean = count * (count + 1.0) / 4.0;
        let deviation = (mean * (2.0 * count + 1.0) / 6.0).sqrt();
        return (mean - NORMAL_QUANTILE * deviation + 0.5) as usize;
    }
    let mut below = 0.0;
    let is_rejected = |probability: &&f64| {
        below += **probability;
        below <= LEVEL / 2.0
    };
    distribution(count).iter().take_while(is_rejected).count()
}

/// The probability of each sum of ranks if each rank counts with probability one half.
fn distribution(count: usize) -> Vec<f64> {
    let mut probabilities = vec![1.0];
    for rank in 1..=count {
        let mut next = vec![0.0; probabilities.len() + rank];
        for (sum, probability) in probabilities.iter().enumerate() {
            next[sum] += probability / 2.0;
            next[sum + rank] += probability / 2.0;
        }
        probabilities = next;
    }
    probabilities
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_distribution_is_that_of_the_tables() {
        let below = |count, sum: usize| distribution(count)[..=sum].iter().sum::<f64>();
        assert_eq!(below(5, 0), 1.0 / 32.0);
        assert_eq!(below(7, 2), 3.0 / 128.0);
        // Two-sided, the sums 25 and 26 of 15 values have 4.79 % and 5.54 %.
        assert!((2.0 * below(15, 25) - 0.0479).abs() < 5e-5);
        assert!((2.0 * below(15, 26) - 0.0554).abs() < 5e-5);
    }

    #[test]
    fn sums_are_rejected_up_to_the_level() {
        for (count, expected) in [(0, 0), (1, 0), (5, 0), (6, 1), (7, 2), (15, 25)] {
            assert_eq!(rejected_sums(count), expected, "{count}");
        }
        // The approximation continues the exact numbers.
        let (exact, next) = (rejected_sums(EXACT_MAX), rejected_sums(EXACT_MAX + 1));
        let step = rejected_sums(EXACT_MAX + 2) - next;
        let difference = (next - exact).abs_diff(step);
        assert!(difference <= 2, "{exact}, {next}, {step}");
    }

    #[test]
    fn the_interval_excludes_zero_if_the_test_rejects() {
        // 15 values whose negative ones have these ranks.
        let interval = |negative: [i32; 2]| {
            let sign = |rank: i32| match negative.contains(&rank) {
                true => -f64::from(rank),
                false => f64::from(rank),
            };
            let values: Vec<f64> = (1..=15).map(sign).collect();
            shift(&values).unwrap().1
        };
        assert!(interval([11, 13]).low > 0.0, "24 is rejected");
        assert!(interval([12, 13]).low <= 0.0, "25 is not");
    }

    #[test]
    fn the_interval_of_five_values_is_their_range() {
        let range = Interval {
            low: 1.0,
            high: 5.0,
        };
        assert_eq!(shift(&[5.0, 1.0, 2.0, 4.0, 3.0]), Some((3.0, range)));
        assert_eq!(shift(&[]), None);
    }
}
