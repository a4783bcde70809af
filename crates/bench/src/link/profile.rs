//! Links with names. Their figures are typical of a kind of network, not those of the best or the worst.

use std::num::NonZeroU64;
use std::time::Duration;

use super::spec::{
    Bottleneck, DirectionSpec, GilbertElliott, LinkSpec, Loss, Probability, QueueLimit, Reordering,
};

/// A link with a name.
#[derive(Debug)]
pub(super) struct Profile {
    pub(super) name: &'static str,
    /// The network that it resembles.
    pub(super) about: &'static str,
    down: Figures,
    up: Figures,
}

impl Profile {
    /// The profile of this name.
    pub(super) fn find(name: &str) -> Option<&'static Profile> {
        PROFILES.iter().find(|profile| profile.name == name)
    }

    pub(super) fn spec(&self) -> LinkSpec {
        LinkSpec {
            profile: Some(self.name),
            down: self.down.spec(),
            up: self.up.spec(),
            move_every: None,
        }
    }
}

/// The figures of one direction.
#[derive(Debug, Clone, Copy)]
struct Figures {
    delay_us: u64,
    jitter_us: u64,
    rate_kbit: u64,
    queue_kib: u64,
    loss: Loss,
}

impl Figures {
    fn spec(self) -> DirectionSpec {
        let rate_bits = NonZeroU64::new(self.rate_kbit * 1000);
        DirectionSpec {
            delay: Duration::from_micros(self.delay_us),
            jitter: Duration::from_micros(self.jitter_us),
            bottleneck: rate_bits.map(|rate_bits| Bottleneck {
                rate_bits,
                queue: QueueLimit::Bytes(self.queue_kib * 1024),
            }),
            loss: self.loss,
            reordering: Reordering::default(),
            duplicates: Probability::default(),
        }
    }
}

/// All profiles.
///
/// | profile | source of the figures |
/// |---|---|
/// | `lan` | Gigabit Ethernet with one switch |
/// | `dc` | two zones of a cloud region: round trips of 0.5 to 1 ms, and 10 Gbit/s for an instance |
/// | `cable` | DOCSIS 3: the FCC's Measuring Broadband America finds about 20 ms; queue of 100 ms and more |
/// | `4g` | a loaded LTE cell: Ofcom and WebPageTest have 50 to 70 ms; deep queues of the base station |
/// | `3g` | WebPageTest's `3G`: 1.6 Mbit/s, 768 kbit/s, 300 ms |
/// | `satellite` | geostationary: 36,000 km up and down twice and a scheduler, 600 ms |
/// | `lossy-wifi` | a busy 2.4 GHz channel, whose retransmissions fail in bursts |
pub(super) const PROFILES: &[Profile] = &[
    Profile {
        name: "lan",
        about: "one switch, 1 Gbit/s",
        down: figures(150, 20, 1_000_000, 512),
        up: figures(150, 20, 1_000_000, 512),
    },
    Profile {
        name: "dc",
        about: "two zones of a cloud region",
        down: figures(400, 50, 10_000_000, 4096),
        up: figures(400, 50, 10_000_000, 4096),
    },
    Profile {
        name: "cable",
        about: "a home with DOCSIS",
        down: figures(10_000, 1_000, 250_000, 3072),
        up: figures(10_000, 2_000, 25_000, 384),
    },
    Profile {
        name: "4g",
        about: "a telephone in a loaded cell",
        down: Figures {
            loss: LOSS_4G,
            ..figures(30_000, 5_000, 30_000, 1024)
        },
        up: Figures {
            loss: LOSS_4G,
            ..figures(30_000, 8_000, 10_000, 512)
        },
    },
    Profile {
        name: "3g",
        about: "a telephone far from its cell",
        down: figures(150_000, 15_000, 1_600, 128),
        up: figures(150_000, 15_000, 768, 64),
    },
    Profile {
        name: "satellite",
        about: "a geostationary satellite",
        down: Figures {
            loss: LOSS_SATELLITE,
            ..figures(300_000, 10_000, 25_000, 2048)
        },
        up: Figures {
            loss: LOSS_SATELLITE,
            ..figures(300_000, 15_000, 3_000, 256)
        },
    },
    Profile {
        name: "lossy-wifi",
        about: "a busy channel that loses packets in bursts",
        down: Figures {
            loss: LOSS_WIFI,
            ..figures(5_000, 2_000, 50_000, 512)
        },
        up: Figures {
            loss: LOSS_WIFI,
            ..figures(5_000, 2_000, 20_000, 256)
        },
    },
];

const fn figures(delay_us: u64, jitter_us: u64, rate_kbit: u64, queue_kib: u64) -> Figures {
    Figures {
        delay_us,
        jitter_us,
        rate_kbit,
        queue_kib,
        loss: Loss::Random(percent(0.0)),
    }
}

/// The radio repeats lost blocks; little is left to the transport.
const LOSS_4G: Loss = Loss::Random(percent(0.05));

const LOSS_SATELLITE: Loss = Loss::Random(percent(0.2));

/// 2 % in bursts of 4 packets.
const LOSS_WIFI: Loss = Loss::GilbertElliott(GilbertElliott {
    to_bad: percent(0.51),
    to_good: percent(25.0),
    bad_loss: percent(100.0),
    good_loss: percent(0.0),
});

const fn percent(value: f64) -> Probability {
    match Probability::percent(value) {
        Some(probability) => probability,
        None => panic!("a percentage"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::spec::IN_FLIGHT_BYTES_MAX;
    use super::*;

    #[test]
    fn profiles_fit_the_limit_of_packets_under_way() {
        for profile in PROFILES {
            let spec = profile.spec();
            for direction in [spec.down, spec.up] {
                assert!(
                    direction.in_flight_bytes() <= IN_FLIGHT_BYTES_MAX,
                    "{}",
                    profile.name
                );
                assert!(direction.jitter <= direction.delay, "{}", profile.name);
            }
        }
    }

    #[test]
    fn profiles_are_found_by_name() {
        let names: Vec<&str> = PROFILES.iter().map(|profile| profile.name).collect();
        assert_eq!(
            names,
            ["lan", "dc", "cable", "4g", "3g", "satellite", "lossy-wifi"]
        );
        assert!(names.iter().all(|name| Profile::find(name).is_some()));
        assert!(Profile::find("5g").is_none());
    }
}
