//! Arrivals of requests in an open loop: when each is planned, whatever the server does.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::arguments::limited;
use crate::number;
use crate::random::Random;

/// Planned requests per second over time: segments one after the other. Written `2000`, `100..5000` for a ramp, or
/// `1000:10s,2000:10s` for steps; segments without a duration share what is left of the run.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RateProfile(Vec<RateSegment>);

#[derive(Debug, Clone, Copy, PartialEq)]
struct RateSegment {
    /// Requests per second at the start and at the end.
    from: f64,
    to: f64,
    length: Option<Duration>,
}

/// How the arrivals of one rate are spaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Spacing {
    /// At equal distances, as wrk2 does
    Constant,
    /// At random, as independent users do
    Poisson,
}

/// The planned arrivals of one core, as times since the start of the run.
pub(super) struct Arrivals {
    /// Start, length, and rate at both ends.
    segments: Vec<(Duration, Duration, f64, f64)>,
    spacing: Spacing,
    random: Random,
    cores: f64,
    /// Arrivals of all cores that are planned before the next one of this core: a count for constant spacing, a sum
    /// of exponential distances for Poisson.
    position: f64,
    /// The segment that the position lies in, and the position of its start.
    segment: usize,
    before_segment: f64,
}

impl RateProfile {
    /// The rate, if it never changes.
    #[must_use]
    pub(super) fn constant(&self) -> Option<f64> {
        match self.0[..] {
            [RateSegment { from, to, .. }] if from == to => Some(from),
            _ => None,
        }
    }

    /// The rate of the warm-up: that of the start; `None` if it starts with no requests.
    pub(super) fn warm_up(&self) -> Option<RateProfile> {
        let from = self.0.first()?.from;
        let segment = RateSegment {
            from,
            to: from,
            length: None,
        };
        (from > 0.0).then(|| RateProfile(vec![segment]))
    }

    /// Arrivals of core `index` of `cores`, for a run of this length. Two calls with one seed plan the same.
    pub(super) fn arrivals(
        &self,
        run: Duration,
        spacing: Spacing,
        (index, cores): (usize, usize),
        seed: u64,
    ) -> Arrivals {
        let fixed: Duration = self.0.iter().filter_map(|segment| segment.length).sum();
        let open = self.0.iter().filter(|segment| segment.length.is_none());
        let share = run.saturating_sub(fixed) / (open.count().max(1) as u32);
        let mut start = Duration::ZERO;
        let segments = self.0.iter().map(|segment| {
            let length = segment.length.unwrap_or(share);
            let placed = (start, length, segment.from, segment.to);
            start += length;
            placed
        });
        let mut random = Random::new(seed ^ (index as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let position = match spacing {
            Spacing::Constant => index as f64,
            Spacing::Poisson => random.exponential() * cores as f64,
        };
        Arrivals {
            segments: segments.collect(),
            spacing,
            random,
            cores: cores as f64,
            position,
            segment: 0,
            before_segment: 0.0,
        }
    }
}

impl Iterator for Arrivals {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        loop {
            let &(start, length, from, to) = self.segments.get(self.segment)?;
            let length_s = length.as_secs_f64();
            let arrivals = (from + to) / 2.0 * length_s;
            let within = self.position - self.before_segment;
            if within >= arrivals {
                self.before_segment += arrivals;
                self.segment += 1;
                continue;
            }
            self.position += match self.spacing {
                Spacing::Constant => self.cores,
                Spacing::Poisson => self.random.exponential() * self.cores,
            };
            return Some(start + Duration::from_secs_f64(time_of(within, from, to, length_s)));
        }
    }
}

/// The time within a segment at which so many arrivals were planned: the inverse of the integral of a rate that
/// changes linearly.
fn time_of(arrivals: f64, from: f64, to: f64, length_s: f64) -> f64 {
    if arrivals == 0.0 {
        return 0.0;
    }
    let slope = (to - from) / length_s;
    if slope.abs() < 1e-9 {
        return arrivals / from;
    }
    let root = (from * from + 2.0 * slope * arrivals).max(0.0).sqrt();
    // The form without cancellation: the rate at the start may be 0.
    2.0 * arrivals / (from + root)
}

impl FromStr for RateProfile {
    type Err = String;

    fn from_str(text: &str) -> Result<RateProfile, String> {
        let segments = text.split(',').map(segment).collect::<Result<_, _>>()?;
        Ok(RateProfile(segments))
    }
}

fn segment(text: &str) -> Result<RateSegment, String> {
    let (rates, length) = match text.split_once(':') {
        Some((rates, length)) => {
            let length = blitz_config::parse_duration_sum(length)
                .map_err(|_| format!("`{length}` is no duration; write 500ms, 10s or 1m"))?;
            if length.is_zero() {
                return Err(format!("`{text}` has no duration; leave out `:0s`"));
            }
            let length = limited(length, text)?;
            (rates, Some(length))
        }
        None => (text, None),
    };
    let (from, to) = rates.split_once("..").unwrap_or((rates, rates));
    let (from, to) = (rate(from)?, rate(to)?);
    if from + to == 0.0 {
        return Err(format!("`{text}` plans no requests; write a rate above 0"));
    }
    Ok(RateSegment { from, to, length })
}

/// `2000`, `2.5k` or `1m` requests per second.
fn rate(text: &str) -> Result<f64, String> {
    let lower = text.trim().to_ascii_lowercase();
    let (digits, factor) = match lower.strip_suffix(['k', 'm']) {
        Some(digits) if lower.ends_with('k') => (digits, 1e3),
        Some(digits) => (digits, 1e6),
        None => (lower.as_str(), 1.0),
    };
    match digits.parse::<f64>() {
        Ok(number) if number.is_finite() && number >= 0.0 && number * factor <= 1e9 => {
            Ok(number * factor)
        }
        _ => Err(format!(
            "`{text}` is no rate in requests per second; write 2000, 2.5k, 100..5000 for a ramp, or \
             1000:10s,2000:10s for steps"
        )),
    }
}

impl fmt::Display for RateProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, segment) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str(", then ")?;
            }
            match segment.from == segment.to {
                true => write!(f, "{}", segment.from)?,
                false => write!(f, "{} to {}", segment.from, segment.to)?,
            }
            f.write_str(" requests/s")?;
            if let Some(length) = segment.length {
                write!(f, " for {}", number::exact_duration(length))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: Duration = Duration::from_secs(10);

    fn planned(text: &str, spacing: Spacing, cores: usize) -> Vec<f64> {
        let profile: RateProfile = text.parse().unwrap();
        let mut all: Vec<f64> = (0..cores)
            .flat_map(|core| profile.arrivals(RUN, spacing, (core, cores), 7))
            .map(|at| at.as_secs_f64())
            .collect();
        all.sort_by(f64::total_cmp);
        all
    }

    #[test]
    fn constant_arrivals_are_equally_spaced_over_all_cores() {
        for cores in [1, 3] {
            let all = planned("100", Spacing::Constant, cores);
            assert_eq!(all.len(), 1_000);
            for (index, at) in all.iter().enumerate() {
                assert!((at - index as f64 / 100.0).abs() < 1e-6, "{index}: {at}");
            }
        }
    }

    #[test]
    fn poisson_arrivals_have_the_rate_and_the_variance_of_independent_users() {
        let all = planned("2000", Spacing::Poisson, 2);
        // 20,000 expected; the standard deviation is 141.
        assert!((19_400..20_600).contains(&all.len()), "{}", all.len());
        let mut counts = [0.0_f64; 1_000];
        for at in all {
            counts[((at * 100.0) as usize).min(999)] += 1.0;
        }
        let mean = counts.iter().sum::<f64>() / 1_000.0;
        let variance = counts.iter().map(|n| (n - mean).powi(2)).sum::<f64>() / 999.0;
        assert!(
            (0.85..1.15).contains(&(variance / mean)),
            "{variance} / {mean}"
        );
    }

    #[test]
    fn a_ramp_has_the_arrivals_of_its_mean_rate_and_ends_at_its_last_rate() {
        let all = planned("0..1000", Spacing::Constant, 2);
        assert_eq!(all.len(), 5_000);
        let late = all.iter().filter(|&&at| at >= 9.0).count();
        assert!((949..=951).contains(&late), "{late}");
        assert!(all.iter().all(|at| (0.0..10.0).contains(at)));
    }

    #[test]
    fn steps_follow_each_other_and_share_the_time_that_is_left() {
        let all = planned("100:2s,300,500:4s", Spacing::Constant, 1);
        let between = |from: f64, to: f64| all.iter().filter(|&&at| at >= from && at < to).count();
        assert_eq!(between(0.0, 2.0), 200);
        assert_eq!(between(2.0, 6.0), 1_200);
        assert_eq!(between(6.0, 10.0), 2_000);
    }

    #[test]
    fn wrong_rates_say_what_to_write() {
        for text in ["", "fast", "-1", "0", "10:soon", "10:0s", "1..x", "1e300"] {
            let error = text.parse::<RateProfile>().unwrap_err();
            assert!(
                error.contains("write") || error.contains("leave out"),
                "{text}: {error}"
            );
        }
        let profile: RateProfile = "2.5k,100..200:5s".parse().unwrap();
        assert_eq!(
            profile.to_string(),
            "2500 requests/s, then 100 to 200 requests/s for 5s"
        );
    }
}
