//! Which packets are lost.

use std::time::Duration;

use super::random::Random;
use super::spec::{GilbertElliott, Loss};

/// The least length of a packet that carries content, and not only acknowledgments.
const LONG_BYTES: u64 = 1_000;

/// The loss of one direction. Random loss depends on the seed and the number of the packet only, so packets of TCP
/// and QUIC are lost alike.
#[derive(Debug)]
pub(super) struct LossProcess {
    loss: Loss,
    /// The state of the Gilbert-Elliott chain.
    is_bad: bool,
    random: Random,
    /// When the next single packet may be lost.
    next_single: Duration,
}

impl LossProcess {
    /// A chain of two states starts in the good one.
    pub(super) fn new(loss: Loss, random: Random) -> LossProcess {
        LossProcess {
            loss,
            is_bad: false,
            random,
            next_single: match loss {
                Loss::Every(interval) => interval,
                _ => Duration::ZERO,
            },
        }
    }

    /// Whether the next packet is lost, which is sent at `now`.
    pub(super) fn next(&mut self, now: Duration, length: u64) -> bool {
        match self.loss {
            Loss::Random(probability) => self.random.chance(probability),
            Loss::GilbertElliott(chain) => self.step(chain),
            Loss::Every(interval) => {
                let is_lost = length >= LONG_BYTES && now >= self.next_single;
                if is_lost {
                    self.next_single = now + interval;
                }
                is_lost
            }
        }
    }

    fn step(&mut self, chain: GilbertElliott) -> bool {
        let leaves = if self.is_bad {
            chain.to_good
        } else {
            chain.to_bad
        };
        self.is_bad ^= self.random.chance(leaves);
        let loss = if self.is_bad {
            chain.bad_loss
        } else {
            chain.good_loss
        };
        self.random.chance(loss)
    }
}

#[cfg(test)]
mod tests {
    use super::super::spec::Probability;
    use super::*;

    const PACKETS: u32 = 1_000_000;

    fn percent(value: f64) -> Probability {
        Probability::percent(value).unwrap()
    }

    fn lost(loss: Loss) -> Vec<bool> {
        let mut process = LossProcess::new(loss, Random::new(7, 1));
        (0..PACKETS)
            .map(|_| process.next(Duration::ZERO, 1500))
            .collect()
    }

    fn share(lost: &[bool]) -> f64 {
        lost.iter().filter(|lost| **lost).count() as f64 / lost.len() as f64
    }

    #[test]
    fn random_loss_is_within_the_binomial_bounds() {
        for value in [0.1, 1.0, 20.0] {
            let share = share(&lost(Loss::Random(percent(value))));
            let p = value / 100.0;
            // 3.29 standard errors: 99.9 %.
            let bound = 3.29 * (p * (1.0 - p) / f64::from(PACKETS)).sqrt();
            assert!((share - p).abs() < bound, "{value} %: {share}");
        }
    }

    #[test]
    fn nothing_is_lost_at_0_and_everything_at_100_percent() {
        assert_eq!(share(&lost(Loss::Random(percent(0.0)))), 0.0);
        assert_eq!(share(&lost(Loss::Random(percent(100.0)))), 1.0);
    }

    #[test]
    fn bursts_have_the_mean_length_and_the_mean_loss_of_the_chain() {
        let chain = GilbertElliott {
            to_bad: percent(0.5),
            to_good: percent(25.0),
            bad_loss: percent(100.0),
            good_loss: percent(0.0),
        };
        let lost = lost(Loss::GilbertElliott(chain));
        let bursts = lost.windows(2).filter(|pair| !pair[0] && pair[1]).count();
        let length = share(&lost) * f64::from(PACKETS) / bursts as f64;
        // A geometric length has a standard deviation of √(1 - r) / r = 3.46, and there are about 4,900.
        assert!((length - chain.mean_burst()).abs() < 0.17, "{length}");
        assert!((share(&lost) / chain.mean_loss() - 1.0).abs() < 0.06);
    }

    #[test]
    fn both_states_may_lose_packets() {
        let chain = GilbertElliott {
            to_bad: percent(5.0),
            to_good: percent(20.0),
            bad_loss: percent(50.0),
            good_loss: percent(1.0),
        };
        // A fifth of the packets is in the bad state: 0.2 × 0.5 + 0.8 × 0.01.
        assert!((chain.mean_loss() - 0.108).abs() < 1e-9);
        let share = share(&lost(Loss::GilbertElliott(chain)));
        assert!((share - 0.108).abs() < 0.003, "{share}");
    }

    #[test]
    fn one_long_packet_is_lost_in_each_interval() {
        let interval = Duration::from_millis(500);
        let mut loss = LossProcess::new(Loss::Every(interval), Random::new(1, 1));
        let mut lost = Vec::new();
        for millisecond in 0..1_800 {
            let now = Duration::from_millis(millisecond);
            assert!(!loss.next(now, 52), "an acknowledgment was lost");
            if loss.next(now, 1_500) {
                lost.push(millisecond);
            }
        }
        assert_eq!(lost, [500, 1_000, 1_500]);
    }
}
