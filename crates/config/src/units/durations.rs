//! Durations as texts: those of the file, with one number and one unit, and the sums that command lines have always taken.

use std::time::Duration;

use super::{ValueError, split};

const NANOS_PER_SECOND: u128 = 1_000_000_000;
const SECOND: u128 = NANOS_PER_SECOND;
const DAY: u128 = 86_400 * SECOND;

/// Nanoseconds by the unit, and the one of its names that the file knows.
const UNITS: [(u128, Option<&str>, &[&str]); 10] = [
    (1, None, &["nanos", "nsec", "ns"]),
    (1_000, None, &["usec", "us", "µs"]),
    (1_000_000, Some("ms"), &["millis", "msec", "ms"]),
    (
        SECOND,
        Some("s"),
        &["seconds", "second", "secs", "sec", "s"],
    ),
    (
        60 * SECOND,
        Some("m"),
        &["minutes", "minute", "mins", "min", "m"],
    ),
    (
        3_600 * SECOND,
        Some("h"),
        &["hours", "hour", "hrs", "hr", "h"],
    ),
    (DAY, Some("d"), &["days", "day", "d"]),
    (7 * DAY, None, &["weeks", "week", "wks", "wk", "w"]),
    // 30.44 and 365.25 days.
    (2_630_016 * SECOND, None, &["months", "month", "M"]),
    (
        31_557_600 * SECOND,
        None,
        &["years", "year", "yrs", "yr", "y"],
    ),
];

/// A duration: `500ms`, `30s`, `5m`, `1h`, `7d` or `0`.
///
/// # Errors
/// It is none; `unit-missing` for a number alone.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, ValueError> {
    let (number, unit) = split(text);
    let factor = UNITS.iter().find(|(_, name, _)| *name == Some(unit));
    match (number.is_empty(), unit.is_empty(), factor) {
        (false, true, _) if number.bytes().all(|byte| byte == b'0') => Ok(Duration::ZERO),
        (false, true, _) => Err(ValueError::new(
            "unit-missing",
            "the duration has no unit",
            format!("write \"{number}s\", or \"{number}m\" for minutes"),
        )),
        (false, false, Some((factor, ..))) => {
            let nanoseconds = number.parse::<u64>().ok();
            let nanoseconds = nanoseconds.map(|number| u128::from(number) * factor);
            nanoseconds.and_then(from_nanoseconds).ok_or_else(too_long)
        }
        _ => Err(no_duration()),
    }
}

/// The same, and sums, fractions and long names: `1h 30min`, `1.5 days`.
///
/// # Errors
/// As [`parse_duration`].
pub fn parse_duration_sum(text: &str) -> Result<Duration, ValueError> {
    let mut sum: u128 = 0;
    let mut rest = text.trim();
    if rest.bytes().all(|byte| byte.is_ascii_digit()) {
        return parse_duration(rest);
    }
    while !rest.is_empty() {
        let is_number = |c: char| c.is_ascii_digit() || c == '.' || c.is_whitespace();
        let (number, behind) = rest.split_at(rest.find(|c| !is_number(c)).unwrap_or(rest.len()));
        let is_unit = |c: char| c.is_alphabetic();
        let (unit, behind) = behind.split_at(behind.find(|c| !is_unit(c)).unwrap_or(behind.len()));
        let factor = UNITS.iter().find(|(.., names)| names.contains(&unit));
        let (factor, ..) = factor.ok_or_else(no_duration)?;
        let part = multiplied(number, *factor).ok_or_else(no_duration)?;
        sum = sum.checked_add(part).ok_or_else(too_long)?;
        rest = behind.trim_start();
    }
    from_nanoseconds(sum).ok_or_else(too_long)
}

/// A number that may have a fraction, times a factor below 2^64; less than a nanosecond is dropped.
fn multiplied(number: &str, factor: u128) -> Option<u128> {
    let number: String = number.split_whitespace().collect();
    let (whole, fraction) = number.split_once('.').unwrap_or((&number, "0"));
    let value = |digits: &str| digits.parse::<u64>().ok().map(u128::from);
    let parts = 10_u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    Some(value(whole)? * factor + value(fraction)? * factor / parts)
}

fn from_nanoseconds(sum: u128) -> Option<Duration> {
    let seconds = u64::try_from(sum / NANOS_PER_SECOND).ok()?;
    Some(Duration::new(seconds, (sum % NANOS_PER_SECOND) as u32))
}

fn no_duration() -> ValueError {
    let remedy = "write for example \"500ms\", \"30s\", \"5m\" or \"1h\"";
    ValueError::new("duration", "this is not a duration", remedy)
}

fn too_long() -> ValueError {
    let problem = "this is more than 2^64 seconds";
    ValueError::new("duration", problem, "write a shorter time")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        for (text, milliseconds) in [
            ("500ms", 500),
            ("30s", 30_000),
            ("5m", 300_000),
            ("1h", 3_600_000),
            ("7d", 604_800_000),
            ("0", 0),
            ("0s", 0),
        ] {
            let expected = Duration::from_millis(milliseconds);
            assert_eq!(parse_duration(text), Ok(expected), "{text}");
            assert_eq!(parse_duration_sum(text), Ok(expected), "{text}");
        }
        for (text, code) in [
            ("30", "unit-missing"),
            ("", "duration"),
            ("s", "duration"),
            ("-1s", "duration"),
            ("1S", "duration"),
            ("99999999999999999999s", "duration"),
            ("18446744073709551615d", "duration"),
        ] {
            assert_eq!(parse_duration(text).expect_err(text).code, code, "{text}");
            let error = parse_duration_sum(text).expect_err(text);
            assert_eq!(error.code, code, "{text}");
        }
    }

    /// The expected values are those of humantime 2.4.
    #[test]
    fn sums_are_for_command_lines_only() {
        for (text, milliseconds) in [
            ("1h30m", 5_400_000),
            ("1h 30min", 5_400_000),
            (" 1 h  30 min ", 5_400_000),
            ("2hours1sec", 7_201_000),
            ("1.5s", 1_500),
            ("0.25 days", 21_600_000),
            ("1500 us", 1),
            ("1 000s", 1_000_000),
            ("1month", 2_630_016_000),
            ("1M", 2_630_016_000),
            ("2weeks 1wk", 1_814_400_000),
            ("1y", 31_557_600_000),
        ] {
            let parsed = parse_duration_sum(text).expect(text);
            assert_eq!(parsed.as_millis(), milliseconds, "{text}");
            assert!(parse_duration(text).is_err(), "{text}");
        }
        for text in [
            "1.s",
            "1..5s",
            ".5s",
            "1h30",
            "1h m",
            "1 fortnight",
            "1s,2s",
            "forever",
        ] {
            assert!(parse_duration_sum(text).is_err(), "{text}");
        }
    }
}
