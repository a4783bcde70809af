//! Simulated rounds of two systems on a noisy machine.

use blitz_bench::stats::Random;

/// The noise of single runs.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Noise {
    /// Normal, with this standard deviation relative to the value.
    Normal(f64),
    /// Runs are delayed, never accelerated: a log-normal delay with this median relative to the value.
    LogNormal(f64),
    /// Student's t with two degrees of freedom, and every twentieth run takes 1.3 to 2 times as long.
    HeavyTails,
    /// Normal noise of each run, on a machine whose speed drifts by a tenth in each round.
    Drift { run: f64 },
}

/// Rounds of a system that takes `ratio` times what its base takes.
pub(crate) fn rounds(
    noise: Noise,
    ratio: f64,
    count: usize,
    random: &mut Random,
) -> Vec<(f64, f64)> {
    let drift = match noise {
        Noise::Drift { .. } => 0.1,
        _ => 0.02,
    };
    let mut level = 10.0;
    let mut round = || {
        level *= (drift * normal(random)).exp();
        let system = level * ratio * factor(noise, random);
        (system, level * factor(noise, random))
    };
    std::iter::repeat_with(&mut round).take(count).collect()
}

fn factor(noise: Noise, random: &mut Random) -> f64 {
    match noise {
        Noise::Normal(deviation) => (1.0 + deviation * normal(random)).max(0.1),
        Noise::LogNormal(median) => 1.0 + median * normal(random).exp(),
        Noise::HeavyTails => {
            // Z / sqrt(chi² / 2) with two degrees of freedom; chi² / 2 is exponential.
            let t = normal(random) / (-uniform(random).ln()).sqrt();
            let outlier = match random.index(20) {
                0 => 1.3 + 0.7 * uniform(random),
                _ => 1.0,
            };
            ((1.0 + 0.015 * t) * outlier).max(0.1)
        }
        Noise::Drift { run } => factor(Noise::Normal(run), random),
    }
}

/// Above 0 and at most 1.
pub(crate) fn uniform(random: &mut Random) -> f64 {
    ((random.bits() >> 11) + 1) as f64 / (1_u64 << 53) as f64
}

/// With mean 0 and standard deviation 1 (Box and Muller).
pub(crate) fn normal(random: &mut Random) -> f64 {
    let radius = (-2.0 * uniform(random).ln()).sqrt();
    radius * (std::f64::consts::TAU * uniform(random)).cos()
}
