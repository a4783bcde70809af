//! `grpc-timeout`: how long a client waits for the end of its call.

use std::time::Duration;

/// Name of the field.
pub(super) const FIELD: &str = "grpc-timeout";

/// Most digits (PROTOCOL-HTTP2, `TimeoutValue`).
const DIGITS_MAX: usize = 8;

/// Largest value with that many digits.
const VALUE_MAX: u128 = 99_999_999;

/// `1*8DIGIT` and a unit; `None` for anything else, which is left to the server to refuse.
pub(super) fn parse(value: &[u8]) -> Option<Duration> {
    let (unit, digits) = value.split_last()?;
    if !(1..=DIGITS_MAX).contains(&digits.len()) || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let count = digits
        .iter()
        .fold(0_u64, |count, digit| count * 10 + u64::from(digit - b'0'));
    Some(match unit {
        b'H' => Duration::from_secs(count * 3600),
        b'M' => Duration::from_secs(count * 60),
        b'S' => Duration::from_secs(count),
        b'm' => Duration::from_millis(count),
        b'u' => Duration::from_micros(count),
        b'n' => Duration::from_nanos(count),
        _ => return None,
    })
}

/// In the finest unit in which it fits, rounded down: the server never gets more time than is left.
pub(super) fn format(left: Duration) -> String {
    let units = [
        (left.as_nanos(), 'n'),
        (left.as_micros(), 'u'),
        (left.as_millis(), 'm'),
        (u128::from(left.as_secs()), 'S'),
        (u128::from(left.as_secs() / 60), 'M'),
    ];
    let fitting = units.into_iter().find(|(count, _)| *count <= VALUE_MAX);
    let (count, unit) = fitting.unwrap_or((u128::from(left.as_secs() / 3600), 'H'));
    format!("{count}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_has_a_number_and_a_unit() {
        let parsed = |value: &str| parse(value.as_bytes());
        assert_eq!(parsed("5S"), Some(Duration::from_secs(5)));
        assert_eq!(parsed("0n"), Some(Duration::ZERO));
        assert_eq!(parsed("10m"), Some(Duration::from_millis(10)));
        assert_eq!(
            parsed("99999999H"),
            Some(Duration::from_secs(99_999_999 * 3600))
        );
        for wrong in [
            "",
            "S",
            "5",
            "5s",
            "123456789S",
            "-1S",
            "1.5S",
            "1 S",
            "+1S",
        ] {
            assert_eq!(parsed(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn remaining_time_is_written_in_the_finest_unit_that_fits() {
        for (left, text) in [
            (Duration::ZERO, "0n"),
            (Duration::from_micros(1_500), "1500000n"),
            (Duration::from_millis(123_456), "123456m"),
            (Duration::from_secs(100_000), "100000S"),
            (Duration::from_secs(99_999_999 * 3600), "99999999H"),
        ] {
            let written = format(left);
            let read = parse(written.as_bytes());
            assert!(read.is_some_and(|read| read <= left), "{written}");
            if written != text {
                assert!(
                    left.as_secs() > 0 && written.len() <= DIGITS_MAX + 1,
                    "{written}"
                );
            }
        }
    }
}
