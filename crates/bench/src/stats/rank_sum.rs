//! The rank-sum test of Wilcoxon, Mann and Whitney as an interval, and the shift of Hodges and Lehmann.
//!
//! For two sets of values without pairs. If both come from one distribution, every order of all values is equally
//! probable, whatever the distribution is. (H. B. Mann, D. R. Whitney: On a test of whether one of two random
//! variables is stochastically larger than the other, 1947.)

use super::median::{Interval, middle};

/// The test rejects at this level. Of 4 and 4 values it rejects 2.9 %, of 7 and 7 3.8 %, of 15 and 15 4.5 %.
const LEVEL: f64 = 0.05;
/// Up to so many values of both sets together the distribution is exact. Beyond, the normal approximation differs by
/// less than a thousandth.
const EXACT_MAX: usize = 120;
/// 97.5 % of the normal distribution lie below this.
const NORMAL_QUANTILE: f64 = 1.96;

/// The shift of the values against those of the base, the median of all differences, and its interval: the shifts that
/// the test does not reject. `None` if the sets are so small that the test rejects nothing, 4 and 3 values for example.
pub(super) fn shift(values: &[f64], base: &[f64]) -> Option<(f64, Interval)> {
    let outside = rejected_counts(values.len(), base.len()).checked_sub(1)?;
    let mut differences: Vec<f64> = values
        .iter()
        .flat_map(|value| base.iter().map(move |base| value - base))
        .collect();
    differences.sort_by(f64::total_cmp);
    let last = differences.len() - 1;
    // The test counts the differences below 0.
    let interval = Interval {
        low: differences[outside],
        high: differences[last - outside],
    };
    Some((middle(&differences), interval))
}

/// How many counts of differences below 0, from 0 on, are so small that the test rejects.
fn rejected_counts(values: usize, base: usize) -> usize {
    if values.min(base) == 0 {
        return 0;
    }
    if values + base > EXACT_MAX {
        let (values, base) = (values as f64, base as f64);
        let mean = values * base / 2.0;
        let deviation = (values * base * (values + base + 1.0) / 12.0).sqrt();
        return (mean - NORMAL_QUANTILE * deviation + 0.5).max(0.0) as usize;
    }
    let mut below = 0.0;
    let is_rejected = |probability: &&f64| {
        below += **probability;
        below <= LEVEL / 2.0
    };
    let distribution = distribution(values, base);
    distribution.iter().take_while(is_rejected).count()
}

/// The probability of each count of differences below 0, if every order of all values is equally probable.
///
/// The greatest of all values is one of the `values` with probability `values` / (`values` + `base`), and is then above
/// all of the base; otherwise it is above all of the values.
fn distribution(values: usize, base: usize) -> Vec<f64> {
    // rows[b]: the distribution of so many values, and of b of the base.
    let mut rows: Vec<Vec<f64>> = vec![vec![1.0]; base + 1];
    for v in 1..=values {
        let mut next: Vec<Vec<f64>> = vec![vec![1.0]];
        for b in 1..=base {
            let share = v as f64 / (v + b) as f64;
            let mut row = vec![0.0; v * b + 1];
            for (count, probability) in rows[b].iter().enumerate() {
                row[count] += share * probability;
            }
            for (count, probability) in next[b - 1].iter().enumerate() {
                row[count + v] += (1.0 - share) * probability;
            }
            next.push(row);
        }
        rows = next;
    }
    rows.swap_remove(base)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_distribution_is_that_of_the_tables() {
        let of_4_and_4 = distribution(4, 4);
        assert!((of_4_and_4[0] - 1.0 / 70.0).abs() < 1e-12);
        // Two-sided, 64 of 15 and 15 values have 4.5 %, and 23 of 10 and 10 have 4.3 %.
        let below = |size: usize, count: usize| {
            let distribution = distribution(size, size);
            2.0 * distribution[..=count].iter().sum::<f64>()
        };
        assert!((below(15, 64) - 0.045).abs() < 5e-4, "{}", below(15, 64));
        assert!((below(10, 23) - 0.043).abs() < 5e-4, "{}", below(10, 23));
        assert!((distribution(7, 9).iter().sum::<f64>() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn counts_are_rejected_up_to_the_level() {
        // The critical values of the tables, plus one.
        for (values, base, expected) in [
            (0, 9, 0),
            (3, 3, 0),
            (4, 4, 1),
            (5, 5, 3),
            (7, 7, 9),
            (10, 10, 24),
            (15, 15, 65),
            (5, 8, 7),
            (8, 5, 7),
        ] {
            assert_eq!(rejected_counts(values, base), expected, "{values}, {base}");
        }
        // The approximation continues the exact numbers.
        let of = |size| rejected_counts(size, size);
        let (exact, next) = (of(60), of(61));
        let step = of(62) - next;
        assert!(
            (next - exact).abs_diff(step) <= 4,
            "{exact}, {next}, {step}"
        );
    }

    #[test]
    fn the_interval_excludes_zero_if_the_test_rejects() {
        let base: Vec<f64> = (0..5).map(f64::from).collect();
        // Two differences below 0 are rejected, three are not.
        let rejected = shift(&[1.5, 4.1, 5.0, 6.0, 7.0], &base);
        assert!(rejected.unwrap().1.low <= 0.0, "three");
        let rejected = shift(&[2.5, 4.1, 5.0, 6.0, 7.0], &base);
        assert!(rejected.unwrap().1.low > 0.0, "two");
        assert_eq!(shift(&[1.0; 3], &[2.0; 4]), None);
        assert_eq!(shift(&[], &[]), None);
    }

    #[test]
    fn the_shift_is_the_median_of_the_differences() {
        let base = [1.0, 2.0, 3.0, 4.0];
        let (value, interval) = shift(&[11.0, 12.0, 13.0, 14.0], &base).unwrap();
        assert_eq!((value, interval.low, interval.high), (10.0, 7.0, 13.0));
    }
}
