//! Numbers for people: three significant digits, commas between thousands, and always a unit.

use std::time::Duration;

/// Digits that a measured value has.
const SIGNIFICANT_DIGITS: i32 = 3;

/// The text for a value that does not exist.
pub(crate) const NONE: &str = "–";

/// The value with three significant digits: `168,000`, `10.8`, `0.0123`.
pub(crate) fn significant(value: f64) -> String {
    if !value.is_finite() {
        return NONE.to_owned();
    }
    if value == 0.0 {
        return "0".to_owned();
    }
    let rounded = round_significant(value);
    fixed(rounded, decimals_of(rounded))
}

/// The value with so many decimals, and commas between thousands.
pub(crate) fn fixed(value: f64, decimals: usize) -> String {
    let text = format!("{:.decimals$}", value.abs());
    let (whole, fraction) = match text.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (text.as_str(), None),
    };
    let is_zero = text.bytes().all(|byte| matches!(byte, b'0' | b'.'));
    let mut out = String::new();
    if value < 0.0 && !is_zero {
        out.push('−');
    }
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    if let Some(fraction) = fraction {
        out.push('.');
        out.push_str(fraction);
    }
    out
}

/// A count, exactly.
pub(crate) fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A time in nanoseconds, in the unit that suits it: `686 µs`, `1.45 ms`.
pub(crate) fn duration(nanoseconds: f64) -> String {
    if !nanoseconds.is_finite() {
        return NONE.to_owned();
    }
    let rounded = round_significant(nanoseconds);
    let (divisor, unit) = match rounded.abs() {
        value if value < 1e3 => (1.0, "ns"),
        value if value < 1e6 => (1e3, "µs"),
        value if value < 1e9 => (1e6, "ms"),
        _ => (1e9, "s"),
    };
    format!("{} {unit}", significant(rounded / divisor))
}

/// A time of an axis, without superfluous zeros: `200 µs`, `1.5 ms`.
pub(crate) fn duration_tick(nanoseconds: f64) -> String {
    let text = duration(nanoseconds);
    match text.split_once(' ') {
        Some((value, unit)) if value.contains('.') => {
            let value = value.trim_end_matches('0').trim_end_matches('.');
            format!("{value} {unit}")
        }
        _ => text,
    }
}

/// A number of bytes, in the unit that suits it: `1.25 GB`.
pub(crate) fn bytes(value: f64) -> String {
    if !value.is_finite() {
        return NONE.to_owned();
    }
    let rounded = round_significant(value);
    let (divisor, unit) = match rounded.abs() {
        value if value < 1e3 => (1.0, "B"),
        value if value < 1e6 => (1e3, "kB"),
        value if value < 1e9 => (1e6, "MB"),
        _ => (1e9, "GB"),
    };
    format!("{} {unit}", significant(rounded / divisor))
}

/// A length of time in words of hours, minutes and seconds: `1 h 12 min`, `42 s`.
pub(crate) fn long_time(seconds: f64) -> String {
    let whole = seconds.round().max(0.0) as u64;
    match (whole / 3_600, whole / 60 % 60, whole % 60) {
        (0, 0, _) if seconds < 10.0 => format!("{} s", significant(seconds)),
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (hours, minutes, _) => format!("{hours} h {minutes} min"),
    }
}

/// A moment in seconds since 1970: `2026-11-25 14:03 UTC`.
pub(crate) fn moment(seconds: f64) -> String {
    let since = Duration::try_from_secs_f64(seconds).unwrap_or_default();
    // The last year that RFC 3339 can write is 9999.
    let since = since.min(Duration::from_secs(253_402_300_799));
    let (days, seconds) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute) = (seconds / 3_600, seconds / 60 % 60);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02} UTC")
}

/// The date of a day, which is counted from 1970-01-01, in the Gregorian calendar.
fn date(day: u64) -> (u64, u64, u64) {
    // A year begins in March here, so that the leap day is its last one. 1970-01-01 is day 719,468 of year 0, and
    // 400 years have 146,097 days.
    let day = day + 719_468;
    let (era, of_era) = (day / 146_097, day % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    // Five months in turn have 153 days.
    let month = (5 * of_year + 2) / 153;
    let of_month = of_year - (153 * month + 2) / 5 + 1;
    let (month, is_next) = match month {
        0..10 => (month + 3, 0),
        _ => (month - 9, 1),
    };
    (era * 400 + year + is_next, month, of_month)
}

/// A duration as flags take it, with the largest unit that leaves no fraction: `90s`, `2m`, `1500ms`.
pub(crate) fn exact_duration(duration: Duration) -> String {
    let units = [
        (86_400_000_000_000, "d"),
        (3_600_000_000_000, "h"),
        (60_000_000_000, "m"),
        (1_000_000_000, "s"),
        (1_000_000, "ms"),
        (1_000, "us"),
        (1, "ns"),
    ];
    let nanoseconds = duration.as_nanos();
    let is_exact = |(unit, _): &&(u128, &str)| nanoseconds.is_multiple_of(*unit);
    match units.iter().find(is_exact) {
        Some((unit, name)) if nanoseconds > 0 => format!("{}{name}", nanoseconds / unit),
        _ => "0".to_owned(),
    }
}

/// A share as a percentile: 0.999 is `99.9`.
pub(crate) fn percentile(quantile: f64) -> String {
    let text = format!("{:.6}", quantile * 100.0);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A value of an axis whose ticks are `step` apart.
pub(crate) fn tick(value: f64, step: f64) -> String {
    let decimals = (-(step.log10() + 1e-9).floor()).clamp(0.0, 12.0) as usize;
    fixed(value, decimals)
}

/// The value, rounded to three significant digits.
fn round_significant(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let scale = 10f64.powi(SIGNIFICANT_DIGITS - 1 - magnitude(value));
    (value * scale).round() / scale
}

fn decimals_of(rounded: f64) -> usize {
    (SIGNIFICANT_DIGITS - 1 - magnitude(rounded)).clamp(0, 12) as usize
}

/// The power of ten of the first digit. A little more than the logarithm, which may be just below a whole number.
fn magnitude(value: f64) -> i32 {
    (value.abs().log10() + 1e-12).floor() as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_three_significant_digits() {
        let cases = [
            (168_449.0, "168,000"),
            (1_234_567.0, "1,230,000"),
            (999.9, "1,000"),
            (999.4, "999"),
            (10.77, "10.8"),
            (9.999, "10.0"),
            (1.0, "1.00"),
            (0.012_345, "0.0123"),
            (1000.0, "1,000"),
            (0.1, "0.100"),
            (-4.321, "−4.32"),
            (0.0, "0"),
            (f64::NAN, "–"),
            (f64::INFINITY, "–"),
        ];
        for (value, text) in cases {
            assert_eq!(significant(value), text, "{value}");
        }
        assert_eq!([bytes(f64::NAN), duration(f64::NAN)], [NONE, NONE]);
    }

    #[test]
    fn times_and_sizes_have_the_unit_that_suits_them() {
        let times = [420.0, 686_400.0, 999_900.0, 1_449_000.0, 2.5e9, 0.0].map(duration);
        assert_eq!(
            times,
            ["420 ns", "686 µs", "1.00 ms", "1.45 ms", "2.50 s", "0 ns"]
        );
        let ticks = [2e5, 1e6, 1.5e6, 0.0].map(duration_tick);
        assert_eq!(ticks, ["200 µs", "1 ms", "1.5 ms", "0 ns"]);
        assert_eq!(bytes(1_250_000_000.0), "1.25 GB");
        let long = [4.2, 42.0, 61.0, 7_384.0].map(long_time);
        assert_eq!(long, ["4.20 s", "42 s", "1 min 1 s", "2 h 3 min"]);
    }

    #[test]
    fn moments_from_files_cannot_be_out_of_range() {
        assert_eq!(moment(1_764_079_200.0), "2025-11-25 14:00 UTC");
        assert_eq!(moment(-1.0), "1970-01-01 00:00 UTC");
        assert_eq!(moment(f64::MAX), "1970-01-01 00:00 UTC");
        assert_eq!(moment(1e15), "9999-12-31 23:59 UTC");
    }

    #[test]
    fn dates_have_leap_days() {
        for (day, expected) in [
            (58, (1970, 2, 28)),
            (59, (1970, 3, 1)),
            (789, (1972, 2, 29)),
            (11_016, (2000, 2, 29)),
            (11_017, (2000, 3, 1)),
            (47_540, (2100, 2, 28)),
            (47_541, (2100, 3, 1)),
            (20_453, (2025, 12, 31)),
        ] {
            assert_eq!(date(day), expected, "{day}");
        }
    }

    #[test]
    fn durations_are_written_as_flags_take_them() {
        for (milliseconds, text) in [
            (0, "0"),
            (1_500, "1500ms"),
            (90_000, "90s"),
            (120_000, "2m"),
        ] {
            let duration = Duration::from_millis(milliseconds);
            assert_eq!(exact_duration(duration), text);
            assert_eq!(blitz_config::parse_duration_sum(text), Ok(duration));
        }
    }

    #[test]
    fn counts_are_exact_and_ticks_have_the_decimals_of_their_step() {
        assert_eq!(
            [0, 999, 1_000, 12_345_678].map(count),
            ["0", "999", "1,000", "12,345,678"]
        );
        assert_eq!(tick(0.3, 0.1), "0.3");
        assert_eq!(tick(150_000.0, 50_000.0), "150,000");
        assert_eq!(tick(-0.0, 1.0), "0");
        assert_eq!(
            [0.5, 0.999, 0.9999].map(percentile),
            ["50", "99.9", "99.99"]
        );
    }
}
