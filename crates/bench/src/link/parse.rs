//! The text of `--link`: a profile, settings, or a profile with changes.

use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;
use std::time::Duration;

use super::profile::{PROFILES, Profile};
use super::spec::{
    Bottleneck, DirectionSpec, GilbertElliott, IN_FLIGHT_BYTES_MAX, LinkSpec, Loss, Probability,
    QueueLimit, Reordering,
};

/// Why a text describes no link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkSpecError {
    /// The text.
    text: String,
    problem: String,
    /// The text to write instead.
    fix: String,
}

impl fmt::Display for LinkSpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "invalid link '{}': {}; {}",
            self.text, self.problem, self.fix
        )
    }
}

impl std::error::Error for LinkSpecError {}

impl LinkSpec {
    /// The profiles and settings that the text may consist of, for `--help`.
    pub fn help() -> String {
        let mut help = "A profile, settings, or both, separated by commas:\n".to_owned();
        for profile in PROFILES {
            help += &format!("  {:<12} {}\n", profile.name, profile.about);
        }
        for (key, example, about) in KEYS {
            help += &format!("  {:<22} {about}\n", format!("{key}={example}"));
        }
        help + "down: or up: before a setting applies it to the server's or the client's packets only.\n"
    }
}

/// The setting that belongs to the client, and to no direction.
const MOVE_EVERY: &str = "move-every";

/// Each setting with an example and its meaning.
const KEYS: &[(&str, &str, &str)] = &[
    ("delay", "25ms", "delay of each direction"),
    ("rtt", "50ms", "twice the delay of each direction"),
    ("jitter", "2ms", "standard deviation of the delay"),
    (
        "rate",
        "100mbit",
        "bits per second: kbit, mbit, gbit or unlimited",
    ),
    (
        "queue",
        "256k",
        "bytes (k, m) or packets (100p) that wait for the rate; by default 100 ms",
    ),
    ("loss", "1%", "random loss"),
    (
        "lose-every",
        "500ms",
        "loss of one packet of at least 1,000 bytes in each interval",
    ),
    (
        MOVE_EVERY,
        "5s",
        "a new address for the client; the old one receives for 200 ms more",
    ),
    (
        "gilbert",
        "0.5%/25%",
        "loss in bursts: p/r, and the loss in the bad and the good state",
    ),
    (
        "reorder",
        "0.5%/3",
        "packets that others overtake, and how many",
    ),
    ("duplicate", "0.1%", "packets that arrive twice"),
];

impl FromStr for LinkSpec {
    type Err = LinkSpecError;

    fn from_str(text: &str) -> Result<LinkSpec, LinkSpecError> {
        parse(text).map_err(|Invalid { problem, fix }| LinkSpecError {
            text: text.to_owned(),
            problem,
            fix,
        })
    }
}

/// A problem and its remedy, before the whole text is known.
struct Invalid {
    problem: String,
    fix: String,
}

fn invalid<T>(problem: impl Into<String>, fix: impl Into<String>) -> Result<T, Invalid> {
    Err(Invalid {
        problem: problem.into(),
        fix: fix.into(),
    })
}

fn parse(text: &str) -> Result<LinkSpec, Invalid> {
    let mut items = text.split(',').map(str::trim).peekable();
    let profile = match items.peek() {
        Some(&"") => {
            return invalid("a part is empty", format!("write {}", known_profiles()));
        }
        Some(first) if !first.contains('=') => Some(find_profile(first)?),
        _ => None,
    };
    let mut drafts = match profile {
        Some(profile) => {
            items.next();
            let spec = profile.spec();
            [
                DirectionDraft::from(spec.down),
                DirectionDraft::from(spec.up),
            ]
        }
        None => [DirectionDraft::default(), DirectionDraft::default()],
    };
    let mut move_every = None;
    for item in items {
        match item.split_once('=') {
            Some((MOVE_EVERY, value)) => move_every = Some(interval(MOVE_EVERY, value)?),
            _ => apply(&mut drafts, item)?,
        }
    }
    let [down, up] = drafts;
    Ok(LinkSpec {
        profile: profile.map(|profile| profile.name),
        down: down.finish()?,
        up: up.finish()?,
        move_every,
    })
}

fn find_profile(name: &str) -> Result<&'static Profile, Invalid> {
    match Profile::find(name) {
        Some(profile) => Ok(profile),
        None => invalid(
            format!("there is no profile '{name}'"),
            format!("write {}, or settings such as delay=25ms", known_profiles()),
        ),
    }
}

fn known_profiles() -> String {
    let names: Vec<&str> = PROFILES.iter().map(|profile| profile.name).collect();
    names.join(", ")
}

/// Applies one setting to both directions, or to that of its prefix.
fn apply(drafts: &mut [DirectionDraft; 2], item: &str) -> Result<(), Invalid> {
    let Some((name, value)) = item.split_once('=') else {
        let fix = match Profile::find(item) {
            Some(profile) => format!("write {} first", profile.name),
            None => format!("write {}", known_keys()),
        };
        return invalid(format!("'{item}' has no value"), fix);
    };
    let (chosen, key) = match name.split_once(':') {
        None => (&mut drafts[..], name),
        Some(("down", key)) => (&mut drafts[..1], key),
        Some(("up", key)) => (&mut drafts[1..], key),
        Some((direction, _)) => {
            return invalid(
                format!("there is no direction '{direction}'"),
                "write down: for packets of the server, up: for those of the client",
            );
        }
    };
    if key == MOVE_EVERY {
        return invalid(
            "the address of the client has no direction",
            "write move-every= without down: or up:",
        );
    }
    if key == "rtt" && chosen.len() == 1 {
        return invalid(
            "a round trip has both directions",
            "write delay= instead of rtt=",
        );
    }
    for draft in chosen {
        draft.set(key, value)?;
    }
    Ok(())
}

fn known_keys() -> String {
    let keys: Vec<String> = KEYS.iter().map(|(key, ..)| format!("{key}=")).collect();
    keys.join(", ")
}

/// One direction, before it is known whether its settings fit together.
#[derive(Debug, Clone, Default)]
struct DirectionDraft {
    rate_bits: Option<NonZeroU64>,
    queue: Option<QueueLimit>,
    /// Everything but the bottleneck.
    spec: DirectionSpec,
}

impl From<DirectionSpec> for DirectionDraft {
    fn from(spec: DirectionSpec) -> DirectionDraft {
        DirectionDraft {
            rate_bits: spec.bottleneck.map(|bottleneck| bottleneck.rate_bits),
            queue: spec.bottleneck.map(|bottleneck| bottleneck.queue),
            spec,
        }
    }
}

impl DirectionDraft {
    fn set(&mut self, key: &str, value: &str) -> Result<(), Invalid> {
        match key {
            "delay" => self.spec.delay = duration(key, value)?,
            "rtt" => self.spec.delay = duration(key, value)? / 2,
            "jitter" => self.spec.jitter = duration(key, value)?,
            "rate" => self.rate_bits = rate(value)?,
            "queue" => self.queue = Some(queue(value)?),
            "loss" => self.spec.loss = Loss::Random(percentage(key, value)?),
            "gilbert" => self.spec.loss = Loss::GilbertElliott(gilbert_elliott(value)?),
            "lose-every" => self.spec.loss = Loss::Every(interval(key, value)?),
            "reorder" => self.spec.reordering = reordering(value)?,
            "duplicate" => self.spec.duplicates = percentage(key, value)?,
            _ => {
                return invalid(
                    format!("there is no setting '{key}'"),
                    format!("write {}", known_keys()),
                );
            }
        }
        Ok(())
    }

    fn finish(self) -> Result<DirectionSpec, Invalid> {
        let bottleneck = match (self.rate_bits, self.queue) {
            (Some(rate_bits), queue) => Some(Bottleneck {
                rate_bits,
                queue: queue.unwrap_or_else(|| default_queue(rate_bits)),
            }),
            // A profile whose rate was set to unlimited has a queue, too.
            (None, Some(_)) if self.spec.bottleneck.is_none() => {
                return invalid("nothing waits in a queue without a rate", "add rate=10mbit");
            }
            (None, _) => None,
        };
        let spec = DirectionSpec {
            bottleneck,
            ..self.spec
        };
        if spec.jitter > spec.delay {
            return invalid(
                "the jitter exceeds the delay",
                "write a delay that is at least as long",
            );
        }
        if spec.in_flight_bytes() > IN_FLIGHT_BYTES_MAX {
            return invalid(
                format!(
                    "{} MB would be queued and under way, but the limit is {} MB",
                    spec.in_flight_bytes() / 1_000_000,
                    IN_FLIGHT_BYTES_MAX / 1_000_000
                ),
                "reduce the queue, the rate or the delay",
            );
        }
        Ok(spec)
    }
}

/// The packets that the rate sends in 100 ms, and at least 20.
fn default_queue(rate_bits: NonZeroU64) -> QueueLimit {
    QueueLimit::Bytes((rate_bits.get() / 80).max(20 * 1500))
}

const DELAY_MAX: Duration = Duration::from_secs(10);

fn duration(key: &str, value: &str) -> Result<Duration, Invalid> {
    let fix = "write a duration such as 25ms, 0.5ms, 150us or 1s";
    let (number, unit) = number_and_unit(key, value, fix)?;
    let seconds = match unit {
        "s" => number,
        "ms" => number / 1e3,
        "us" | "µs" => number / 1e6,
        "" if number == 0.0 => 0.0,
        "" => return invalid(format!("{key}={value} has no unit"), fix),
        _ => return invalid(format!("'{unit}' is no unit of time"), fix),
    };
    if seconds > DELAY_MAX.as_secs_f64() {
        return invalid(
            format!("{key}={value} is too long"),
            format!("write at most {}s", DELAY_MAX.as_secs()),
        );
    }
    Ok(Duration::from_secs_f64(seconds))
}

/// A duration that is not zero.
fn interval(key: &str, value: &str) -> Result<Duration, Invalid> {
    let interval = duration(key, value)?;
    match interval.is_zero() {
        true => invalid(format!("{key}={value} never ends"), "write at least 1ms"),
        false => Ok(interval),
    }
}

/// 100 Gbit/s.
const RATE_BITS_MAX: f64 = 100e9;

fn rate(value: &str) -> Result<Option<NonZeroU64>, Invalid> {
    let fix = "write a rate such as 500kbit, 10mbit, 2.5gbit or unlimited";
    if value == "unlimited" {
        return Ok(None);
    }
    let (number, unit) = number_and_unit("rate", value, fix)?;
    let bits = match unit.to_ascii_lowercase().trim_end_matches("/s") {
        "bit" => number,
        "kbit" => number * 1e3,
        "mbit" => number * 1e6,
        "gbit" => number * 1e9,
        "" => return invalid(format!("rate={value} has no unit"), fix),
        _ => return invalid(format!("'{unit}' is no unit of a rate"), fix),
    };
    if !(1e3..=RATE_BITS_MAX).contains(&bits) {
        return invalid(
            format!("rate={value} is out of range"),
            "write 1kbit to 100gbit",
        );
    }
    Ok(NonZeroU64::new(bits as u64))
}

fn queue(value: &str) -> Result<QueueLimit, Invalid> {
    let fix = "write bytes such as 1500, 256k or 1m, or packets such as 100p";
    let (number, unit) = number_and_unit("queue", value, fix)?;
    let limit = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => QueueLimit::Bytes(number as u64),
        "k" | "kb" | "kib" => QueueLimit::Bytes((number * 1024.0) as u64),
        "m" | "mb" | "mib" => QueueLimit::Bytes((number * 1024.0 * 1024.0) as u64),
        "p" => QueueLimit::Packets(number as u64),
        _ => return invalid(format!("'{unit}' is no unit of a queue"), fix),
    };
    if matches!(limit, QueueLimit::Bytes(0) | QueueLimit::Packets(0)) {
        return invalid("a queue holds at least the packet that is being sent", fix);
    }
    Ok(limit)
}

fn gilbert_elliott(value: &str) -> Result<GilbertElliott, Invalid> {
    let fix =
        "write p/r such as gilbert=0.5%/25%, with the loss in each state: gilbert=1%/25%/50%/0.1%";
    let parts: Vec<&str> = value.split('/').collect();
    let (to_bad, to_good, losses) = match parts[..] {
        [to_bad, to_good] => (to_bad, to_good, ["100%", "0%"]),
        [to_bad, to_good, bad_loss] => (to_bad, to_good, [bad_loss, "0%"]),
        [to_bad, to_good, bad_loss, good_loss] => (to_bad, to_good, [bad_loss, good_loss]),
        _ => return invalid("gilbert= has two to four percentages", fix),
    };
    let chain = GilbertElliott {
        to_bad: percentage("gilbert", to_bad)?,
        to_good: percentage("gilbert", to_good)?,
        bad_loss: percentage("gilbert", losses[0])?,
        good_loss: percentage("gilbert", losses[1])?,
    };
    if chain.to_good.is_zero() {
        return invalid("with r=0 the bad state never ends", fix);
    }
    Ok(chain)
}

fn reordering(value: &str) -> Result<Reordering, Invalid> {
    let fix = "write reorder=0.5%, or reorder=0.5%/3 for packets that 3 others overtake";
    let (probability, gap) = match value.split_once('/') {
        None => (value, None),
        Some((probability, gap)) => (probability, Some(gap)),
    };
    let probability = percentage("reorder", probability)?;
    let gap = match gap.map(str::parse) {
        None => Reordering::default().gap,
        Some(Ok(gap @ 1..=1000)) => gap,
        Some(_) => return invalid(format!("reorder={value} has no number from 1 to 1000"), fix),
    };
    Ok(Reordering { probability, gap })
}

fn percentage(key: &str, value: &str) -> Result<Probability, Invalid> {
    let fix = format!("write a percentage from 0% to 100%, such as {key}=1%");
    let (number, unit) = number_and_unit(key, value, &fix)?;
    match (unit, Probability::percent(number)) {
        ("%", Some(probability)) => Ok(probability),
        ("", Some(probability)) if probability.is_zero() => Ok(probability),
        ("%", None) => invalid(format!("{value} is more than everything"), fix),
        _ => invalid(format!("'{value}' is no percentage"), fix),
    }
}

/// Splits `2.5gbit` in its number and its unit.
fn number_and_unit<'a>(key: &str, value: &'a str, fix: &str) -> Result<(f64, &'a str), Invalid> {
    let end = value
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(value.len());
    let (number, unit) = value.split_at(end);
    match number.parse() {
        Ok(number) => Ok((number, unit)),
        Err(_) => invalid(format!("{key}={value} has no number"), fix),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> LinkSpec {
        text.parse().unwrap_or_else(|e| panic!("{e}"))
    }

    fn error(text: &str) -> String {
        text.parse::<LinkSpec>().unwrap_err().to_string()
    }

    #[test]
    fn a_profile_alone_is_a_link() {
        for profile in PROFILES {
            assert_eq!(parsed(profile.name), profile.spec());
        }
    }

    #[test]
    fn settings_apply_to_both_directions() {
        let spec = parsed("delay=25ms,jitter=2ms,loss=1%,rate=100mbit,queue=256k,reorder=0.5%");
        assert_eq!(spec.down, spec.up);
        assert_eq!(
            spec.to_string(),
            "each direction delay 25 ms, jitter 2 ms, 100 Mbit/s with a queue of 256 KiB, loss 1 %, \
             0.5 % overtaken by 3 packets"
        );
    }

    #[test]
    fn a_prefix_chooses_a_direction() {
        let spec = parsed("rtt=50ms,rate=100mbit,up:rate=10mbit,down:loss=1%");
        assert_eq!(
            spec.to_string(),
            "down delay 25 ms, 100 Mbit/s with a queue of 1220.7 KiB, loss 1 %; \
             up delay 25 ms, 10 Mbit/s with a queue of 122.1 KiB"
        );
    }

    #[test]
    fn a_profile_can_be_changed() {
        let spec = parsed("4g,loss=3%,up:delay=40ms");
        assert_eq!(
            spec.to_string(),
            "4g: down delay 30 ms, jitter 5 ms, 30 Mbit/s with a queue of 1024 KiB, loss 3 %; \
             up delay 40 ms, jitter 8 ms, 10 Mbit/s with a queue of 512 KiB, loss 3 %"
        );
        let unlimited = parsed("lan,rate=unlimited,jitter=0");
        assert_eq!(
            unlimited.to_string(),
            "lan: each direction delay 0.15 ms, unlimited rate"
        );
    }

    #[test]
    fn bursts_are_described_by_two_to_four_percentages() {
        let spec = parsed("gilbert=0.5%/25%");
        let text =
            "each direction delay 0 ms, unlimited rate, loss 1.9608 % in bursts of 4.0 packets";
        assert_eq!(spec.to_string(), text);
        assert_eq!(spec, parsed("gilbert=0.5%/25%/100%/0%"));
        assert_ne!(spec, parsed("gilbert=0.5%/25%/50%"));
    }

    #[test]
    fn units_are_those_of_the_field() {
        assert_eq!(parsed("rate=2.5gbit").down, parsed("rate=2500Mbit/s").down);
        assert_eq!(parsed("delay=0.5ms").down, parsed("delay=500us").down);
        assert_eq!(
            parsed("rate=1mbit,queue=1m").down,
            parsed("rate=1mbit,queue=1024k").down
        );
        let packets = parsed("rate=1mbit,queue=100p").to_string();
        assert_eq!(
            packets,
            "each direction delay 0 ms, 1 Mbit/s with a queue of 100 packets"
        );
    }

    #[test]
    fn errors_name_the_problem_and_the_remedy() {
        for (text, expected) in [
            (
                "5g",
                "no profile '5g'; write lan, dc, cable, 4g, 3g, satellite, lossy-wifi, or settings",
            ),
            ("", "a part is empty; write lan"),
            ("delay=5ms,4g", "'4g' has no value; write 4g first"),
            (
                "4g,fast",
                "'fast' has no value; write delay=, rtt=, jitter=, rate=, queue=, loss=",
            ),
            ("4g,latency=5ms", "no setting 'latency'; write delay="),
            ("sideways:delay=5ms", "no direction 'sideways'; write down:"),
            ("up:rtt=5ms", "both directions; write delay="),
            (
                "delay=5",
                "delay=5 has no unit; write a duration such as 25ms",
            ),
            ("delay=5min", "'min' is no unit of time"),
            ("delay=11s", "too long; write at most 10s"),
            ("delay=fast", "delay=fast has no number"),
            ("delay=1.2.3ms", "has no number"),
            ("delay=-1ms", "delay=-1ms has no number"),
            (
                "rate=10",
                "rate=10 has no unit; write a rate such as 500kbit",
            ),
            ("rate=10mbps", "'mbps' is no unit of a rate"),
            ("rate=1bit", "out of range; write 1kbit to 100gbit"),
            ("queue=10k", "without a rate; add rate=10mbit"),
            ("rate=1mbit,queue=0", "at least the packet"),
            (
                "loss=1",
                "'1' is no percentage; write a percentage from 0% to 100%, such as loss=1%",
            ),
            ("loss=101%", "101% is more than everything"),
            ("gilbert=1%", "two to four percentages"),
            ("gilbert=1%/0%", "the bad state never ends"),
            ("reorder=1%/0", "no number from 1 to 1000"),
            ("delay=1ms,jitter=2ms", "the jitter exceeds the delay"),
            (
                "delay=10s,rate=10gbit",
                "be queued and under way, but the limit is 67 MB",
            ),
        ] {
            let error = error(text);
            assert!(
                error.starts_with(&format!("invalid link '{text}': ")),
                "{error}"
            );
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn the_help_names_every_profile_and_setting() {
        let help = LinkSpec::help();
        for name in PROFILES
            .iter()
            .map(|p| p.name)
            .chain(KEYS.iter().map(|k| k.0))
        {
            assert!(help.contains(name), "{name}");
        }
        for (key, example, _) in KEYS {
            let text = format!("rate=10mbit,delay=5ms,{key}={example}");
            parsed(&text);
        }
    }
}
