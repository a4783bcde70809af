//! The distribution of many durations, at a resolution of three significant digits.

use std::time::Duration;

use hdrhistogram::Histogram;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The shortest duration that is told from another one.
const LOWEST_NS: u64 = 100;
/// The longest duration; longer ones count as this one.
const HIGHEST_NS: u64 = 3_600_000_000_000;
const SIGNIFICANT_DIGITS: u8 = 3;
const COARSE_DIGITS: u8 = 2;

/// Samples beyond a percentile that it takes for an estimate.
const SAMPLES_BEYOND_MIN: f64 = 10.0;

/// Records durations without allocating: a histogram with a relative error of 0.1 %.
pub struct Recorder(Histogram<u64>);

/// The distribution of the values of a [`Recorder`]. It can be merged with others, and written to a file and read back,
/// without loss.
///
/// Percentiles of a merged distribution are those of all samples. An average of percentiles would mean nothing.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Distribution {
    /// Number of samples.
    pub count: u64,
    /// The shortest sample, in nanoseconds; 0 without samples.
    pub min_ns: u64,
    /// The longest sample, in nanoseconds; 0 without samples.
    pub max_ns: u64,
    /// The sum of all samples, in nanoseconds.
    pub sum_ns: f64,
    /// Durations in nanoseconds, ascending, and how many samples each stands for.
    pub buckets: Vec<(u64, u64)>,
}

impl Default for Recorder {
    fn default() -> Recorder {
        Recorder::new()
    }
}

impl Recorder {
    /// An empty recorder.
    #[must_use]
    pub fn new() -> Recorder {
        let histogram = Histogram::new_with_bounds(LOWEST_NS, HIGHEST_NS, SIGNIFICANT_DIGITS);
        Recorder(histogram.expect("the bounds are valid"))
    }

    /// An empty recorder with a relative error of 1 % in a tenth of the memory.
    pub(crate) fn coarse() -> Recorder {
        let histogram = Histogram::new_with_bounds(LOWEST_NS, HIGHEST_NS, COARSE_DIGITS);
        Recorder(histogram.expect("the bounds are valid"))
    }

    /// Records one duration.
    #[inline]
    pub fn record(&mut self, duration: Duration) {
        let nanoseconds = duration.as_nanos().min(u128::from(HIGHEST_NS)) as u64;
        self.0.saturating_record(nanoseconds);
    }

    /// Adds everything to `to`, and forgets it.
    pub(crate) fn move_to(&mut self, to: &mut Recorder) {
        if !self.0.is_empty() {
            to.0.add(&self.0).expect("all have the same bounds");
            self.0.reset();
        }
    }

    /// Number of samples.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The distribution of the values that were recorded so far.
    #[must_use]
    pub fn distribution(&self) -> Distribution {
        if self.0.is_empty() {
            return Distribution::default();
        }
        let buckets: Vec<(u64, u64)> = self
            .0
            .iter_recorded()
            .map(|step| {
                (
                    self.0.median_equivalent(step.value_iterated_to()),
                    step.count_at_value(),
                )
            })
            .collect();
        Distribution {
            count: self.0.len(),
            min_ns: self.0.min(),
            max_ns: self.0.max(),
            sum_ns: buckets
                .iter()
                .map(|&(value, count)| value as f64 * count as f64)
                .sum(),
            buckets,
        }
    }
}

impl Distribution {
    /// Checks a distribution of a file, which may be damaged.
    ///
    /// # Errors
    /// The values that contradict each other.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        let mut counts = self.buckets.iter().map(|&(_, count)| count);
        let sum = counts.try_fold(0_u64, u64::checked_add);
        let are_ascending = self.buckets.windows(2).all(|pair| pair[0].0 < pair[1].0);
        match () {
            () if sum != Some(self.count) => {
                Err("the counts of the buckets are not that of all samples")
            }
            () if !are_ascending => Err("the buckets are not in ascending order"),
            () if self.min_ns > self.max_ns => {
                Err("the shortest sample is longer than the longest one")
            }
            () if !(self.sum_ns >= 0.0 && self.sum_ns.is_finite()) => {
                Err("the sum of the samples is no time")
            }
            () => Ok(()),
        }
    }

    /// The duration that the fraction `quantile` of the samples does not exceed, for example 0.99; `None` without
    /// samples. Whether so many samples carry it is the question of [`Distribution::carries`].
    #[must_use]
    pub(crate) fn quantile(&self, quantile: f64) -> Option<Duration> {
        let rank = ((quantile * self.count as f64).ceil() as u64).clamp(1, self.count.max(1));
        let mut seen = 0;
        let bucket = self.buckets.iter().find(|(_, count)| {
            seen += count;
            seen >= rank
        });
        let (value, _) = bucket?;
        Some(Duration::from_nanos(
            (*value).clamp(self.min_ns, self.max_ns),
        ))
    }

    /// Whether the samples are enough for a percentile: at least ten lie beyond it. The 99.9th percentile takes 10,000.
    #[must_use]
    pub(crate) fn carries(&self, quantile: f64) -> bool {
        // Rounded, because 1 − 0.999 is less than a thousandth in binary.
        let beyond = (1.0 - quantile) * self.count as f64;
        (beyond * 1e6).round() / 1e6 >= SAMPLES_BEYOND_MIN
    }

    /// [`Distribution::quantile`] where the samples are enough for it.
    #[must_use]
    pub(crate) fn percentile(&self, quantile: f64) -> Option<Duration> {
        self.quantile(quantile).filter(|_| self.carries(quantile))
    }

    /// The share of the samples that `limit` is not exceeded by; `None` without samples.
    #[must_use]
    pub(crate) fn share_within(&self, limit: Duration) -> Option<f64> {
        let within = self
            .buckets
            .iter()
            .take_while(|(value, _)| u128::from(*value) <= limit.as_nanos());
        let within: u64 = within.map(|(_, count)| count).sum();
        (self.count > 0).then(|| within as f64 / self.count as f64)
    }

    /// The mean; `None` without samples.
    #[must_use]
    pub(crate) fn mean(&self) -> Option<Duration> {
        (self.count > 0).then(|| Duration::from_nanos((self.sum_ns / self.count as f64) as u64))
    }

    /// Adds the samples of another distribution.
    pub(crate) fn merge(&mut self, other: &Distribution) {
        if other.count == 0 {
            return;
        }
        self.min_ns = match self.count {
            0 => other.min_ns,
            _ => self.min_ns.min(other.min_ns),
        };
        self.max_ns = self.max_ns.max(other.max_ns);
        self.count += other.count;
        self.sum_ns += other.sum_ns;
        self.buckets.extend_from_slice(&other.buckets);
        self.buckets.sort_unstable_by_key(|&(value, _)| value);
        self.buckets.dedup_by(|next, kept| {
            let is_same = next.0 == kept.0;
            if is_same {
                kept.1 += next.1;
            }
            is_same
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(nanoseconds: impl IntoIterator<Item = u64>) -> Distribution {
        let mut recorder = Recorder::new();
        for value in nanoseconds {
            recorder.record(Duration::from_nanos(value));
        }
        recorder.distribution()
    }

    fn near(found: Option<Duration>, expected_ns: f64) -> bool {
        found.is_some_and(|found| (found.as_nanos() as f64 / expected_ns - 1.0).abs() < 0.001)
    }

    #[test]
    fn quantiles_are_those_of_the_samples_within_a_thousandth() {
        let uniform = of((1..=100_000).map(|step| step * 1_000));
        assert!(near(uniform.quantile(0.5), 50_000_000.0));
        assert!(near(uniform.quantile(0.99), 99_000_000.0));
        assert!(near(uniform.quantile(1.0), 100_000_000.0));
        assert!(near(uniform.mean(), 50_000_500.0));
        assert_eq!(of([]).quantile(0.5), None);
    }

    #[test]
    fn a_share_counts_the_samples_up_to_its_limit() {
        let uniform = of((1..=1_000).map(|step| step * 10_000));
        let share = |ms| uniform.share_within(Duration::from_millis(ms));
        assert!((share(4).unwrap() - 0.4).abs() < 0.002);
        assert_eq!(
            (share(11), of([]).share_within(Duration::ZERO)),
            (Some(1.0), None)
        );
    }

    #[test]
    fn a_percentile_takes_ten_samples_beyond_it() {
        let few = of((0..9_999).map(|step| 1_000 + step));
        assert!(few.percentile(0.99).is_some() && few.percentile(0.999).is_none());
        assert!(of((0..10_000).map(|step| 1_000 + step)).carries(0.999));
        // Of 20 samples the 95th percentile would be the maximum.
        assert!(!of((0..20).map(|step| 1_000 + step)).carries(0.95));
    }

    #[test]
    fn merged_distributions_are_those_of_all_samples() {
        let mut merged = of((0..1_000).map(|step| 5_000 + step));
        merged.merge(&of((1_000..3_000).map(|step| 5_000 + step)));
        merged.merge(&Distribution::default());
        let all = of((0..3_000).map(|step| 5_000 + step));
        assert_eq!(merged, all);
        let mut none = Distribution::default();
        none.merge(&all);
        assert_eq!(none, all);
    }

    #[test]
    fn damaged_distributions_are_found() {
        let whole = of([1_000, 2_000, 2_000]);
        assert_eq!((whole.check(), of([]).check()), (Ok(()), Ok(())));
        let damages: [fn(&mut Distribution); 6] = [
            |it| it.count = 4,
            |it| it.min_ns = it.max_ns + 1,
            |it| it.buckets.reverse(),
            |it| it.buckets.clear(),
            |it| it.buckets = vec![(1, u64::MAX), (2, u64::MAX)],
            |it| it.sum_ns = -1.0,
        ];
        for damage in damages {
            let mut damaged = whole.clone();
            damage(&mut damaged);
            assert!(damaged.check().is_err(), "{damaged:?}");
        }
    }

    #[test]
    fn a_file_keeps_it_without_loss() {
        let distribution = of([150, 2_000_000, 7_200_000_000_000_000]);
        let text = serde_json::to_string(&distribution).unwrap();
        assert_eq!(
            serde_json::from_str::<Distribution>(&text).unwrap(),
            distribution
        );
    }
}
