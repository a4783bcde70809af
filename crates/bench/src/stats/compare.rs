//! Whether two systems differ, from runs in the same rounds.
//!
//! Everything is computed with the logarithms of the ratios of each round. An effect of the
//! round on both systems cancels out, and a ratio and its inverse weigh alike.
//!
//! The test is the exact signed-rank test of Wilcoxon at 4.5 %. It assumes nothing about the shape of the
//! noise, and few outliers do not deceive it. The ratio and the interval belong to it: a difference is
//! significant if and only if the interval excludes 1. In simulations, 35 to 49 of 1,000 sets of equal systems
//! differ with 15 rounds. A difference of 3 % is found in 94 of 100 sets if single runs vary by 2 % (standard
//! deviation), in 79 if they vary by 2.5 %. A permutation test of the mean, and Student's t-test, find as many
//! with normal noise and fewer with outliers. Intervals of the bootstrap are too narrow for so few rounds.
//!
//! Six rounds are the least: even if one system is ahead in all of five, no test without assumptions falls below
//! 2 / 2^5 = 6.25 %.

use std::cmp::Ordering;

use serde::Serialize;

use super::median::Interval;
use super::{rank_sum, signed_rank};

/// The least number of rounds that can show a difference.
pub const PAIRS_MIN: usize = 6;

/// The direction of a difference between a system and its base.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Difference {
    /// The system is significantly smaller than the base.
    Smaller,
    /// The system is significantly larger than the base.
    Larger,
    /// The rounds show no difference, and exclude one of more than 5 %.
    Equal,
    /// The rounds show no difference, and do not exclude one.
    Undecided,
}

impl Difference {
    /// Whether the rounds show a difference.
    pub fn is_significant(self) -> bool {
        matches!(self, Difference::Smaller | Difference::Larger)
    }
}

/// The share of the base by which equal systems differ at most.
pub(crate) const EQUAL_WITHIN: f64 = 0.05;

/// Whether an interval of ratios that contains 1 leaves no room for a difference that matters.
pub(crate) fn is_equal(interval: Interval) -> bool {
    interval.low >= 1.0 / (1.0 + EQUAL_WITHIN) && interval.high <= 1.0 + EQUAL_WITHIN
}

/// A system compared with its base.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Comparison {
    /// The verdict.
    pub difference: Difference,
    /// The system divided by the base: the shift of Hodges and Lehmann of the logarithms. Less sensitive to
    /// outliers than a mean and less noisy than a median.
    pub ratio: f64,
    /// The ratios that the test does not reject: at least 95 %.
    pub interval: Interval,
    /// The share of rounds in which the system was larger, less the share in which it was smaller: Cliff's
    /// delta of pairs, from −1 to 1.
    pub dominance: f64,
    /// Rounds; without pairs those of the smaller set.
    pub pairs: usize,
}

/// Compares positive values of a system with those of its base, each pair from one round. `None` with fewer
/// than [`PAIRS_MIN`] pairs, or if a value is not positive and finite.
///
/// ```
/// use blitz_bench::stats::{Difference, compare};
///
/// // CPU time per request in µs of a system and its base, in six rounds of a machine that becomes slower.
/// let pairs = [(7.1, 9.9), (7.4, 10.3), (7.9, 10.9), (8.2, 11.8), (9.0, 12.4), (9.1, 12.6)];
/// let comparison = compare(&pairs).unwrap();
/// assert_eq!(comparison.difference, Difference::Smaller);
/// assert!((0.71..0.73).contains(&comparison.ratio));
/// assert!(compare(&pairs[..5]).is_none());
/// ```
pub fn compare(pairs: &[(f64, f64)]) -> Option<Comparison> {
    if pairs.len() < PAIRS_MIN || !pairs.iter().all(|&(a, b)| is_valid(a) && is_valid(b)) {
        return None;
    }
    let logs: Vec<f64> = pairs
        .iter()
        .map(|(value, base)| (value / base).ln())
        .collect();
    let (shift, interval) = signed_rank::shift(&logs)?;
    let count = |wanted: fn(f64) -> bool| logs.iter().filter(|log| wanted(**log)).count() as f64;
    let (larger, smaller) = (count(|log| log > 0.0), count(|log| log < 0.0));
    let dominance = (larger - smaller) / logs.len() as f64;
    Some(of_logs((shift, interval), dominance, logs.len()))
}

/// Compares positive values of a system with those of a base that was measured at another time. Their rounds form no
/// pairs, and what the machine was like at the two times is part of the difference. `None` if the sets are so small that
/// no difference could be significant (4 values in each suffice), or if a value is not positive and finite.
///
/// The test is the exact rank-sum test of Wilcoxon, Mann and Whitney at 5 %, of the logarithms. It assumes that the
/// values of a set are independent.
///
/// ```
/// use blitz_bench::stats::{Difference, compare_sets};
///
/// let comparison = compare_sets(&[7.1, 7.4, 7.2, 7.3, 7.2], &[8.0, 7.9, 8.3, 8.1]).unwrap();
/// assert_eq!(comparison.difference, Difference::Smaller);
/// assert!(compare_sets(&[7.1, 7.4, 7.2], &[8.0, 7.9, 8.3]).is_none());
/// ```
pub fn compare_sets(values: &[f64], base: &[f64]) -> Option<Comparison> {
    if !values.iter().chain(base).all(|&value| is_valid(value)) {
        return None;
    }
    let logs = |values: &[f64]| -> Vec<f64> { values.iter().map(|value| value.ln()).collect() };
    let (values, base) = (logs(values), logs(base));
    let (shift, interval) = rank_sum::shift(&values, &base)?;
    let all = || {
        let pairs = values
            .iter()
            .flat_map(|value| base.iter().map(move |base| (value, base)));
        pairs.map(|(value, base)| value.total_cmp(base))
    };
    let count = |wanted: Ordering| all().filter(|order| *order == wanted).count() as f64;
    let (larger, smaller) = (count(Ordering::Greater), count(Ordering::Less));
    let dominance = (larger - smaller) / (values.len() * base.len()) as f64;
    let pairs = values.len().min(base.len());
    Some(of_logs((shift, interval), dominance, pairs))
}

/// A comparison whose shift and interval are those of logarithms.
fn of_logs((shift, interval): (f64, Interval), dominance: f64, pairs: usize) -> Comparison {
    let ratios = Interval {
        low: interval.low.exp(),
        high: interval.high.exp(),
    };
    let difference = match interval.contains(0.0) {
        true if is_equal(ratios) => Difference::Equal,
        true => Difference::Undecided,
        false if shift < 0.0 => Difference::Smaller,
        false => Difference::Larger,
    };
    Comparison {
        difference,
        ratio: shift.exp(),
        interval: ratios,
        dominance,
        pairs,
    }
}

fn is_valid(value: f64) -> bool {
    value > 0.0 && value.is_finite()
}

impl Comparison {
    /// The verdict in words, for example `significantly smaller: 0.76 (0.74 to 0.78)`.
    pub fn text(&self) -> String {
        let Interval { low, high } = self.interval;
        let words = match self.difference {
            Difference::Smaller => "significantly smaller",
            Difference::Larger => "significantly larger",
            Difference::Equal => "equal",
            Difference::Undecided => "undecided",
        };
        format!("{words}: {:.2} ({low:.2} to {high:.2})", self.ratio)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_ratios(ratios: &[f64]) -> Comparison {
        let pairs: Vec<_> = ratios.iter().map(|&ratio| (ratio, 1.0)).collect();
        compare(&pairs).unwrap()
    }

    #[test]
    fn six_rounds_show_a_difference_only_if_all_agree() {
        let all = of_ratios(&[0.70, 0.71, 0.72, 0.69, 0.70, 0.98]);
        assert_eq!(all.difference, Difference::Smaller);
        assert_eq!(all.dominance, -1.0);
        assert!(all.interval.high < 1.0);
        let five = of_ratios(&[0.70, 0.71, 0.72, 0.69, 0.70, 1.01]);
        assert_eq!(five.difference, Difference::Undecided);
        assert!(five.interval.contains(1.0));
    }

    #[test]
    fn an_outlier_changes_the_ratio_little_and_does_not_make_a_difference() {
        let mut ratios = [0.99, 1.01, 1.02, 0.98, 1.0, 1.01, 0.99, 1.0, 0.98, 1.02];
        ratios[3] = 3.0;
        let comparison = of_ratios(&ratios);
        assert!(!comparison.difference.is_significant());
        assert!((comparison.ratio - 1.0).abs() < 0.02, "{comparison:?}");
    }

    #[test]
    fn equal_values_do_not_differ() {
        let equal = of_ratios(&[1.0; 15]);
        assert_eq!(equal.difference, Difference::Equal);
        assert_eq!((equal.ratio, equal.dominance), (1.0, 0.0));
        assert_eq!(equal.text(), "equal: 1.00 (1.00 to 1.00)");
    }

    #[test]
    fn equality_takes_an_interval_within_5_percent_and_not_a_missing_difference() {
        let of = |spread: f64| {
            let ratios = [
                1.0 - spread,
                1.0,
                1.0 + spread,
                1.0,
                1.0 - spread,
                1.0 + spread,
            ];
            of_ratios(&ratios).difference
        };
        assert_eq!(of(0.01), Difference::Equal);
        assert_eq!(of(0.04), Difference::Equal);
        assert_eq!(of(0.06), Difference::Undecided);
        assert_eq!(of(0.5), Difference::Undecided);
        let sets = |spread: f64| {
            let values = [1.0, 1.0 + spread, 1.0 - spread, 1.0 + spread / 2.0, 1.0];
            compare_sets(&values, &values).unwrap().difference
        };
        assert_eq!(sets(0.01), Difference::Equal);
        assert_eq!(sets(0.3), Difference::Undecided);
        assert!(!Difference::Equal.is_significant() && !Difference::Undecided.is_significant());
    }

    #[test]
    fn invalid_values_are_not_compared() {
        for invalid in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let mut pairs = [(1.0, 1.0); 6];
            pairs[2].0 = invalid;
            assert_eq!(compare(&pairs), None, "{invalid}");
            assert_eq!(compare_sets(&[1.0; 6], &[invalid; 6]), None, "{invalid}");
        }
    }
}
