//! The description of a link: what each direction does to packets.

use std::fmt;
use std::num::NonZeroU64;
use std::time::Duration;

/// The packets of a direction that are queued or under way have at most this many bytes together. More are
/// dropped and counted, as by a full queue.
pub(super) const IN_FLIGHT_BYTES_MAX: u64 = 64 << 20;

/// The effects of a link on packets, in both directions. The text of `--link` is parsed into it.
///
/// [`LinkSpec::help`] describes the text; `Display` states the description in words.
#[derive(Debug, Clone, PartialEq)]
pub struct LinkSpec {
    /// The profile with which the text began.
    pub(super) profile: Option<&'static str>,
    /// From the server to the client.
    pub(super) down: DirectionSpec,
    /// From the client to the server.
    pub(super) up: DirectionSpec,
    /// How long the client keeps its address, which never changes by default.
    pub(super) move_every: Option<Duration>,
}

impl LinkSpec {
    /// Whether packets are lost on the way, beside those that find a queue full.
    #[must_use]
    pub(crate) fn loses_packets(&self) -> bool {
        let loses = |direction: &DirectionSpec| match direction.loss {
            Loss::Random(probability) => !probability.is_zero(),
            Loss::GilbertElliott(_) | Loss::Every(_) => true,
        };
        loses(&self.down) || loses(&self.up)
    }
}

impl fmt::Display for LinkSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(profile) = self.profile {
            write!(f, "{profile}: ")?;
        }
        match self.down == self.up {
            true => write!(f, "each direction {}", self.down)?,
            false => write!(f, "down {}; up {}", self.down, self.up)?,
        }
        match self.move_every {
            Some(interval) => write!(
                f,
                "; the client's address changes every {}",
                Milliseconds(interval)
            ),
            None => Ok(()),
        }
    }
}

/// The effects of one direction on packets. The default delivers all of them immediately.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct DirectionSpec {
    /// The mean propagation delay, one way.
    pub(super) delay: Duration,
    /// The standard deviation of the delay. It varies gradually, so it does not reorder packets.
    pub(super) jitter: Duration,
    /// The bottleneck of the path, if the rate is limited.
    pub(super) bottleneck: Option<Bottleneck>,
    pub(super) loss: Loss,
    pub(super) reordering: Reordering,
    /// Packets that are delivered twice.
    pub(super) duplicates: Probability,
}

impl DirectionSpec {
    /// Bytes that are queued or under way if a sender uses the whole rate.
    pub(super) fn in_flight_bytes(&self) -> u64 {
        let Some(Bottleneck { rate_bits, queue }) = self.bottleneck else {
            return 0;
        };
        // A normal deviation hardly ever exceeds four standard deviations.
        let seconds = (self.delay + 4 * self.jitter).as_secs_f64();
        let on_the_way = (rate_bits.get() as f64 / 8.0 * seconds) as u64;
        on_the_way.saturating_add(queue.bytes_max())
    }
}

impl fmt::Display for DirectionSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "delay {}", Milliseconds(self.delay))?;
        if !self.jitter.is_zero() {
            write!(f, ", jitter {}", Milliseconds(self.jitter))?;
        }
        match &self.bottleneck {
            Some(bottleneck) => write!(f, ", {bottleneck}")?,
            None => f.write_str(", unlimited rate")?,
        }
        match self.loss {
            Loss::Random(probability) if probability.is_zero() => {}
            Loss::Random(probability) => write!(f, ", loss {probability}")?,
            Loss::GilbertElliott(chain) => write!(f, ", {chain}")?,
            Loss::Every(interval) => {
                write!(f, ", one long packet lost every {}", Milliseconds(interval))?;
            }
        }
        let Reordering { probability, gap } = self.reordering;
        if !probability.is_zero() {
            write!(f, ", {probability} overtaken by {gap} packets")?;
        }
        if !self.duplicates.is_zero() {
            write!(f, ", {} delivered twice", self.duplicates)?;
        }
        Ok(())
    }
}

/// A transmitter with a queue in front of it. A packet that does not fit in the queue is dropped.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Bottleneck {
    /// Bits per second of whole IP packets.
    pub(super) rate_bits: NonZeroU64,
    pub(super) queue: QueueLimit,
}

impl fmt::Display for Bottleneck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = self.rate_bits.get() as f64;
        let (value, unit) = match rate {
            1e9.. => (rate / 1e9, "Gbit/s"),
            1e6.. => (rate / 1e6, "Mbit/s"),
            1e3.. => (rate / 1e3, "kbit/s"),
            _ => (rate, "bit/s"),
        };
        write!(f, "{value} {unit} with a queue of {}", self.queue)
    }
}

/// The size of a queue. It includes the packet that is being transmitted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum QueueLimit {
    Bytes(u64),
    Packets(u64),
}

impl QueueLimit {
    fn bytes_max(self) -> u64 {
        match self {
            QueueLimit::Bytes(bytes) => bytes,
            QueueLimit::Packets(packets) => packets.saturating_mul(1500),
        }
    }
}

impl fmt::Display for QueueLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // One decimal.
            QueueLimit::Bytes(bytes) => write!(f, "{} KiB", (*bytes as f64 / 102.4).round() / 10.0),
            QueueLimit::Packets(packets) => write!(f, "{packets} packets"),
        }
    }
}

/// How packets are lost after the queue, on the way.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Loss {
    /// Each packet independently of the others.
    Random(Probability),
    /// In bursts.
    GilbertElliott(GilbertElliott),
    /// One packet in each interval, of those that are long enough to carry content.
    Every(Duration),
}

impl Default for Loss {
    fn default() -> Loss {
        Loss::Random(Probability::default())
    }
}

/// A chain of two states (Gilbert 1960, Elliott 1963), which takes one step for each packet.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct GilbertElliott {
    /// The probability of a step from good to bad: `p`.
    pub(super) to_bad: Probability,
    /// The probability of a step from bad to good: `r`.
    pub(super) to_good: Probability,
    /// The loss in the bad state.
    pub(super) bad_loss: Probability,
    /// The loss in the good state.
    pub(super) good_loss: Probability,
}

impl GilbertElliott {
    /// The share of packets that are lost.
    pub(super) fn mean_loss(&self) -> f64 {
        let (p, r) = (self.to_bad.fraction(), self.to_good.fraction());
        let bad = p / (p + r);
        bad * self.bad_loss.fraction() + (1.0 - bad) * self.good_loss.fraction()
    }

    /// The mean number of packets from a step into the bad state to the next step into the good one.
    pub(super) fn mean_burst(&self) -> f64 {
        1.0 / self.to_good.fraction()
    }
}

impl fmt::Display for GilbertElliott {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let loss = Probability::percent(self.mean_loss() * 100.0).unwrap_or_default();
        write!(
            f,
            "loss {loss} in bursts of {:.1} packets",
            self.mean_burst()
        )
    }
}

/// Packets that later ones overtake.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Reordering {
    pub(super) probability: Probability,
    /// How many packets overtake such a packet.
    pub(super) gap: u32,
}

impl Default for Reordering {
    /// Three duplicate acknowledgments cause a retransmission of TCP ([RFC 5681, section
    /// 3.2](https://www.rfc-editor.org/rfc/rfc5681#section-3.2)), and three later packets one of QUIC
    /// ([RFC 9002, section 6.1.1](https://www.rfc-editor.org/rfc/rfc9002#section-6.1.1)).
    fn default() -> Reordering {
        Reordering {
            probability: Probability::default(),
            gap: 3,
        }
    }
}

/// A number from 0 to 1.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Probability(f64);

impl Probability {
    /// A percentage from 0 to 100.
    pub(super) const fn percent(percent: f64) -> Option<Probability> {
        match percent {
            0.0..=100.0 => Some(Probability(percent / 100.0)),
            _ => None,
        }
    }

    pub(super) fn fraction(self) -> f64 {
        self.0
    }

    pub(super) fn is_zero(self) -> bool {
        self.0 == 0.0
    }
}

impl fmt::Display for Probability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Four decimals, without the noise of binary fractions.
        write!(f, "{} %", (self.0 * 1e6).round() / 1e4)
    }
}

/// A duration as milliseconds, with microseconds as decimals.
pub(super) struct Milliseconds(pub(super) Duration);

impl fmt::Display for Milliseconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms", self.0.as_micros() as f64 / 1e3)
    }
}
