//! Numbers for people, a few characters each.

use crate::live::Quantile;

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// A whole number with separators: `12,345`.
pub(crate) fn count(value: f64) -> String {
    let digits = format!("{:.0}", value.max(0.0));
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number per second, small ones with a decimal.
pub(crate) fn rate(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        ..0.05 => "<0.1".to_owned(),
        ..9.95 => format!("{value:.1}"),
        _ => count(value),
    }
}

/// A share of 1 in percent. Only everything is 100 %, and only nothing is 0 %.
pub(crate) fn percent(share: f64) -> String {
    let value = share * 100.0;
    match value {
        0.0 => "0%".to_owned(),
        ..0.1 => "<0.1%".to_owned(),
        ..9.95 => format!("{value:.1}%"),
        ..99.0 => format!("{value:.0}%"),
        ..100.0 => format!("{:.1}%", value.min(99.9)),
        _ => "100%".to_owned(),
    }
}

/// A duration with two or three digits: `850 µs`, `1.2 ms`, `12 s`.
pub(crate) fn duration(seconds: f64) -> String {
    let (value, unit) = match seconds {
        ..0.000_999_5 => (seconds * 1e6, "µs"),
        ..0.999_5 => (seconds * 1e3, "ms"),
        _ => (seconds, "s"),
    };
    match value {
        ..9.95 if unit != "µs" => format!("{value:.1} {unit}"),
        _ => format!("{value:.0} {unit}"),
    }
}

/// A dash without requests.
pub(crate) fn quantile(quantile: Option<Quantile>) -> String {
    match quantile {
        None => "-".to_owned(),
        Some(Quantile::At(seconds)) => duration(seconds),
        Some(Quantile::Above(seconds)) => format!(">{seconds} s"),
    }
}

/// Bytes in units of 1024: `85 MiB`.
pub(crate) fn bytes(value: f64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let (mut value, mut unit) = (value, 0);
    while value >= 1023.5 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    match value {
        ..9.95 if unit > 0 => format!("{value:.1} {}", units[unit]),
        _ => format!("{value:.0} {}", units[unit]),
    }
}

/// A time with one unit or two: `12 s`, `5 min`, `4 h 5 min`, `3 d 4 h`.
pub(crate) fn age(seconds: f64) -> String {
    let seconds = seconds.max(0.0) as u64;
    let two = |large: u64, name: &str, small: u64, small_name: &str| match small {
        0 => format!("{large} {name}"),
        _ => format!("{large} {name} {small} {small_name}"),
    };
    match seconds {
        ..MINUTE => format!("{seconds} s"),
        MINUTE..HOUR => format!("{} min", seconds / MINUTE),
        HOUR..DAY => two(seconds / HOUR, "h", seconds % HOUR / MINUTE, "min"),
        _ => two(seconds / DAY, "d", seconds % DAY / HOUR, "h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        type Case = (fn(f64) -> String, f64, &'static str);
        let cases: [Case; 33] = [
            (count, 0.0, "0"),
            (count, 999.0, "999"),
            (count, 1_234_567.0, "1,234,567"),
            (rate, 0.0, "0"),
            (rate, 0.01, "<0.1"),
            (rate, 9.94, "9.9"),
            (rate, 9.96, "10"),
            (rate, 12_345.4, "12,345"),
            (percent, 0.0, "0%"),
            (percent, 0.000_01, "<0.1%"),
            (percent, 0.012_34, "1.2%"),
            (percent, 0.5, "50%"),
            (percent, 0.999_999, "99.9%"),
            (percent, 1.0, "100%"),
            (duration, 0.000_012_3, "12 µs"),
            (duration, 0.000_999_9, "1.0 ms"),
            (duration, 0.001_25, "1.2 ms"),
            (duration, 0.25, "250 ms"),
            (duration, 0.999_9, "1.0 s"),
            (duration, 12.3, "12 s"),
            (bytes, 0.0, "0 B"),
            (bytes, 1000.0, "1000 B"),
            (bytes, 1023.9, "1.0 KiB"),
            (bytes, 85.0 * 1024.0 * 1024.0, "85 MiB"),
            (bytes, 3e15, "2728 TiB"),
            (age, 0.5, "0 s"),
            (age, 59.9, "59 s"),
            (age, 300.0, "5 min"),
            (age, 3600.0, "1 h"),
            (age, 14_700.0, "4 h 5 min"),
            (age, 86_400.0, "1 d"),
            (age, 273_600.0, "3 d 4 h"),
            (age, -5.0, "0 s"),
        ];
        for (form, value, text) in cases {
            assert_eq!(form(value), text, "{value}");
        }
        assert_eq!(quantile(None), "-");
        assert_eq!(quantile(Some(Quantile::At(0.5))), "500 ms");
        assert_eq!(quantile(Some(Quantile::Above(10.0))), ">10 s");
    }
}
