//! The variation of the delay.

use std::time::Duration;

use super::random::Random;

/// The deviation from the mean delay, as a function of time.
///
/// At each multiple of a period it has a normally distributed value, and between two of them it changes
/// linearly. It falls more slowly than time passes, so no packet overtakes an earlier one, and the mean
/// delay of a dense flow of packets is that of single ones. A deviation for each packet alone would have
/// to hold back all that would overtake, which makes the mean delay grow with the number of packets.
#[derive(Debug)]
pub(super) struct Jitter {
    deviation: Duration,
    period: Duration,
    seed: u64,
}

/// Values beyond this many standard deviations are cut off.
const VALUE_MAX: f64 = 3.0;

/// Linear interpolation of independent values reduces their variance to two thirds, averaged over time.
/// This factor, the root of 3/2, restores it.
const INTERPOLATION: f64 = 1.224_744_871_391_589;

/// Two neighbouring values differ by at most 2 × 3 × 1.22 = 7.35 standard deviations, so that with this
/// period the deviation falls by at most 0.92 s in a second.
const PERIOD_DEVIATIONS: u32 = 8;

const PERIOD_MIN: Duration = Duration::from_millis(10);

impl Jitter {
    /// `deviation` is the standard deviation.
    pub(super) fn new(deviation: Duration, mut random: Random) -> Jitter {
        Jitter {
            deviation,
            period: (deviation * PERIOD_DEVIATIONS).max(PERIOD_MIN),
            seed: random.next(),
        }
    }

    /// Adds the deviation at time `now` to the mean delay. The result is not negative.
    pub(super) fn vary(&self, delay: Duration, now: Duration) -> Duration {
        if self.deviation.is_zero() {
            return delay;
        }
        let periods = now.as_secs_f64() / self.period.as_secs_f64();
        let index = periods as u64;
        let part = periods.fract();
        let value = self.value(index) * (1.0 - part) + self.value(index + 1) * part;
        let seconds = delay.as_secs_f64() + value * self.deviation.as_secs_f64();
        Duration::from_secs_f64(seconds.max(0.0))
    }

    /// The value at a multiple of the period, in standard deviations.
    fn value(&self, index: u64) -> f64 {
        let normal = Random::new(self.seed, index).normal();
        normal.clamp(-VALUE_MAX, VALUE_MAX) * INTERPOLATION
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DELAY: Duration = Duration::from_millis(50);
    const DEVIATION: Duration = Duration::from_millis(5);

    fn delays(step: Duration) -> Vec<f64> {
        let jitter = Jitter::new(DEVIATION, Random::new(3, 1));
        (0..1_000_000)
            .map(|i| jitter.vary(DELAY, i * step).as_secs_f64())
            .collect()
    }

    #[test]
    fn mean_and_standard_deviation_are_as_configured() {
        let delays = delays(Duration::from_millis(7));
        let count = delays.len() as f64;
        let mean = delays.iter().sum::<f64>() / count;
        let variance = delays.iter().map(|d| (d - mean).powi(2)).sum::<f64>() / count;
        assert!((mean - DELAY.as_secs_f64()).abs() < 1e-4, "{mean}");
        let deviation = variance.sqrt() / DEVIATION.as_secs_f64();
        assert!((deviation - 1.0).abs() < 0.02, "{deviation}");
    }

    #[test]
    fn no_packet_overtakes_another() {
        let step = Duration::from_micros(10);
        for pair in delays(step).windows(2) {
            assert!(pair[1] + step.as_secs_f64() >= pair[0]);
        }
    }

    #[test]
    fn a_delay_is_never_negative() {
        let jitter = Jitter::new(DEVIATION, Random::new(3, 1));
        let short = Duration::from_millis(1);
        let delays = (0..10_000).map(|i| jitter.vary(short, i * short));
        assert!(delays.min().unwrap().is_zero());
    }
}
