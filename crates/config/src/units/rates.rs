//! Rates as texts.

use std::time::Duration;

use super::ValueError;

/// The highest rate in a second, and the largest number of a rate.
const COUNT_MAX: u32 = 1_000_000;

const UNITS: [(&str, u64); 4] = [("s", 1), ("min", 60), ("h", 3600), ("d", 24 * 3600)];

/// So many in a period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rate {
    pub(crate) count: u32,
    pub(crate) period: Duration,
}

/// A rate: `100/s`, `10/min`, `1000/h`, `5000/d`.
///
/// # Errors
/// It is none.
pub(crate) fn parse_rate(text: &str) -> Result<Rate, ValueError> {
    let error = |problem: String, remedy: String| Err(ValueError::new("rate", problem, remedy));
    let Some((number, unit)) = text.split_once('/') else {
        return error(
            format!("`{text}` is no rate"),
            "write for example \"100/s\" or \"10/min\"".to_owned(),
        );
    };
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number {
        return error(
            format!("`{number}` is no number of requests"),
            format!("write for example \"100/{unit}\""),
        );
    }
    let known = UNITS.iter().find(|(name, _)| *name == unit);
    let Some((_, seconds)) = known else {
        let meant = match unit.to_ascii_lowercase().as_str() {
            "sec" | "second" | "seconds" => "s",
            "m" | "minute" | "minutes" => "min",
            "hour" | "hours" | "hr" => "h",
            "day" | "days" => "d",
            _ => {
                return error(
                    format!("`{unit}` is no unit of time of a rate"),
                    format!(
                        "write \"{number}/s\", \"{number}/min\", \"{number}/h\" or \"{number}/d\""
                    ),
                );
            }
        };
        return error(
            format!("`{unit}` is no unit of time of a rate"),
            format!("write \"{number}/{meant}\""),
        );
    };
    let count = number.parse().ok();
    match count.filter(|count| (1..=COUNT_MAX).contains(count)) {
        Some(count) => Ok(Rate {
            count,
            period: Duration::from_secs(*seconds),
        }),
        None => error(
            "this number of requests is not possible".to_owned(),
            format!("write a number from 1 to {COUNT_MAX}"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_a_number_and_a_unit() {
        for (text, count, seconds) in [
            ("100/s", 100, 1),
            ("10/min", 10, 60),
            ("1000000/h", 1_000_000, 3600),
            ("1/d", 1, 86_400),
        ] {
            let period = Duration::from_secs(seconds);
            assert_eq!(parse_rate(text).unwrap(), Rate { count, period });
        }
        for text in [
            "",
            "100",
            "100/",
            "/s",
            "0/s",
            "-1/s",
            "1.5/s",
            "1/m",
            "1000001/s",
        ] {
            assert_eq!(parse_rate(text).unwrap_err().code, "rate", "{text}");
        }
    }
}
