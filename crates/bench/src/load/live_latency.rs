//! Latencies of a run that goes on, for the terminal: cheaper and coarser than what is reported in the end.

use std::sync::atomic::{AtomicU64, Ordering};

/// Steps of each doubling, as a power of two: a step is at most an eighth of its value.
const STEPS_BITS: u32 = 3;
const STEPS: usize = 64 << STEPS_BITS;

/// Counts of latencies since the start, which one core writes and the leading thread reads.
pub(super) struct LiveLatency(Box<[AtomicU64]>);

/// Counts of all cores, of a moment or of a time between two.
#[derive(Clone)]
pub(super) struct Steps(Vec<u64>);

impl Default for LiveLatency {
    fn default() -> LiveLatency {
        LiveLatency((0..STEPS).map(|_| AtomicU64::new(0)).collect())
    }
}

impl LiveLatency {
    /// Counts a request. For the core that writes.
    #[inline]
    pub(super) fn record(&self, nanoseconds: u64) {
        let count = &self.0[step_of(nanoseconds)];
        count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
}

/// The step that a value belongs to.
fn step_of(nanoseconds: u64) -> usize {
    let value = nanoseconds.max(1 << STEPS_BITS);
    let doublings = value.ilog2();
    let within = (value >> (doublings - STEPS_BITS)) & ((1 << STEPS_BITS) - 1);
    ((doublings as usize) << STEPS_BITS) | within as usize
}

/// The middle of a step, in nanoseconds.
fn middle_of(step: usize) -> f64 {
    let doublings = (step >> STEPS_BITS) as i32;
    let within = (step & ((1 << STEPS_BITS) - 1)) as f64;
    let steps = f64::from(1 << STEPS_BITS);
    2_f64.powi(doublings) * (1.0 + (within + 0.5) / steps)
}

impl Steps {
    /// The counts of all cores now.
    pub(super) fn of<'a>(cores: impl Iterator<Item = &'a LiveLatency>) -> Steps {
        let mut sum = vec![0; STEPS];
        for core in cores {
            for (sum, count) in sum.iter_mut().zip(&core.0) {
                *sum += count.load(Ordering::Relaxed);
            }
        }
        Steps(sum)
    }

    /// The counts after `before`.
    pub(super) fn since(&self, before: &Steps) -> Steps {
        let counts = self.0.iter().zip(&before.0);
        Steps(counts.map(|(now, before)| now - before).collect())
    }

    /// About the duration that the fraction `quantile` does not exceed, in nanoseconds; `None` without samples.
    pub(super) fn quantile(&self, quantile: f64) -> Option<f64> {
        let count: u64 = self.0.iter().sum();
        let rank = ((quantile * count as f64).ceil() as u64).max(1);
        let mut seen = 0;
        let step = self.0.iter().position(|count| {
            seen += count;
            seen >= rank
        });
        step.map(middle_of)
    }

    /// The shortest and the longest sample, in nanoseconds, and the counts of equal parts between them, on a logarithmic
    /// scale. `None` without samples.
    pub(super) fn shape(&self, parts_max: usize) -> Option<(f64, f64, Vec<f64>)> {
        let first = self.0.iter().position(|&count| count > 0)?;
        let last = self.0.iter().rposition(|&count| count > 0)?;
        let steps_per_part = (last - first + 1).div_ceil(parts_max);
        let parts = self.0[first..=last].chunks(steps_per_part);
        let counts = parts.map(|part| part.iter().sum::<u64>() as f64).collect();
        Some((middle_of(first), middle_of(last), counts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(nanoseconds: impl IntoIterator<Item = u64>) -> Steps {
        let live = LiveLatency::default();
        for value in nanoseconds {
            live.record(value);
        }
        Steps::of([&live].into_iter())
    }

    #[test]
    fn every_value_is_within_an_eighth_of_its_step() {
        for value in [8, 9, 100, 1_000, 123_456, 1_000_000_000, u64::MAX / 2] {
            let middle = middle_of(step_of(value));
            assert!(
                (middle / value as f64 - 1.0).abs() < 0.125,
                "{value}: {middle}"
            );
        }
        assert_eq!(step_of(0), step_of(8));
        assert!(step_of(u64::MAX) < STEPS);
    }

    #[test]
    fn quantiles_are_those_of_the_time_between_two_moments() {
        let live = LiveLatency::default();
        (0..1_000).for_each(|_| live.record(50));
        let before = Steps::of([&live].into_iter());
        (1..=1_000).for_each(|value| live.record(value * 1_000));
        let since = Steps::of([&live].into_iter()).since(&before);
        let near = |quantile, expected: f64| {
            let found = since.quantile(quantile).unwrap();
            assert!((found / expected - 1.0).abs() < 0.125, "{found} {expected}");
        };
        near(0.5, 500_000.0);
        near(0.99, 990_000.0);
        assert_eq!(of([]).quantile(0.5), None);
    }

    #[test]
    fn a_shape_has_the_counts_from_the_shortest_to_the_longest() {
        let (low, high, counts) = of([1_000, 1_000, 2_000, 4_000]).shape(10).unwrap();
        assert!(low < 1_130.0 && high > 3_900.0, "{low} {high}");
        assert_eq!(counts.iter().sum::<f64>(), 4.0);
        assert!(counts.len() <= 10 && counts[0] == 2.0, "{counts:?}");
        assert_eq!(of([5_000]).shape(10).unwrap().2, [1.0]);
        assert!(of([]).shape(10).is_none());
    }
}
