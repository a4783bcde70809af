//! Percentiles, and the number of samples that they need.
//!
//! A percentile is read from all samples of a distribution. Percentiles of parts are never averaged: the mean
//! of two 99th percentiles is a percentile of nothing.

use std::fmt;

/// Samples that must lie beyond a percentile. With ten, the standard error of their number is a third of it.
const BEYOND_MIN: u64 = 10;

/// A percentile above 0 and below 100, in thousandths of a percent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Percentile(u32);

/// A percentile that was read.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Reading {
    /// The value below which so many percent of the samples lie.
    Value(f64),
    /// Fewer samples than the percentile needs.
    NotEnoughSamples {
        /// Samples that there are.
        samples: u64,
        /// Samples that it needs.
        needed: u64,
    },
}

impl Percentile {
    /// The median.
    pub const P50: Percentile = Percentile(50_000);
    /// 90 %.
    pub const P90: Percentile = Percentile(90_000);
    /// 99 %.
    pub const P99: Percentile = Percentile(99_000);
    /// 99.9 %.
    pub const P99_9: Percentile = Percentile(99_900);
    /// 99.99 %.
    pub const P99_99: Percentile = Percentile(99_990);
    /// 99.999 %.
    pub const P99_999: Percentile = Percentile(99_999);

    const WHOLE: u32 = 100_000;

    /// The share of samples that lie below, between 0 and 1.
    pub fn share(self) -> f64 {
        f64::from(self.0) / f64::from(Percentile::WHOLE)
    }

    /// The least number of samples with ten beyond this percentile: 1,000 for p99, 10,000 for p99.9. Below the
    /// median the smaller side counts.
    pub fn samples_needed(self) -> u64 {
        let beyond = self.0.min(Percentile::WHOLE - self.0);
        (BEYOND_MIN * u64::from(Percentile::WHOLE)).div_ceil(u64::from(beyond))
    }

    /// Whether so many samples carry this percentile.
    pub fn is_carried_by(self, samples: u64) -> bool {
        samples >= self.samples_needed()
    }

    /// Reads the percentile of all samples, which are sorted, as the least sample with so many percent at or
    /// below it (nearest rank).
    pub fn of_sorted(self, samples: &[f64]) -> Reading {
        self.read(samples.len() as u64, || {
            let rank = (self.share() * samples.len() as f64).ceil() as usize;
            samples[rank.clamp(1, samples.len()) - 1]
        })
    }

    /// Reads the percentile with `read`, for example from a histogram, if the samples carry it.
    pub fn read(self, samples: u64, read: impl FnOnce() -> f64) -> Reading {
        match self.is_carried_by(samples) {
            true => Reading::Value(read()),
            false => Reading::NotEnoughSamples {
                samples,
                needed: self.samples_needed(),
            },
        }
    }
}

impl fmt::Display for Percentile {
    /// `p50`, `p99.9`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p{}", f64::from(self.0) / 1000.0)
    }
}

impl fmt::Display for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reading::Value(value) => write!(f, "{value:.0}"),
            Reading::NotEnoughSamples { samples, needed } => {
                write!(f, "not enough samples ({samples} of {needed})")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_samples_lie_beyond_a_percentile() {
        for (percentile, name, needed) in [
            (Percentile::P50, "p50", 20),
            (Percentile::P90, "p90", 100),
            (Percentile::P99, "p99", 1_000),
            (Percentile::P99_9, "p99.9", 10_000),
            (Percentile::P99_99, "p99.99", 100_000),
            (Percentile::P99_999, "p99.999", 1_000_000),
        ] {
            assert_eq!(percentile.to_string(), name);
            assert_eq!(percentile.samples_needed(), needed);
            assert!(percentile.is_carried_by(needed) && !percentile.is_carried_by(needed - 1));
        }
    }

    #[test]
    fn a_percentile_is_read_by_nearest_rank_or_not_at_all() {
        let samples: Vec<f64> = (1..=1000).map(f64::from).collect();
        assert_eq!(Percentile::P50.of_sorted(&samples), Reading::Value(500.0));
        assert_eq!(Percentile::P99.of_sorted(&samples), Reading::Value(990.0));
        let reading = Percentile::P99_9.of_sorted(&samples);
        assert_eq!(reading.to_string(), "not enough samples (1000 of 10000)");
        assert_eq!(
            Percentile::P99.of_sorted(&[]).to_string(),
            "not enough samples (0 of 1000)"
        );
    }
}
