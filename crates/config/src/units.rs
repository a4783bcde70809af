//! Durations, sizes and statuses as texts.

mod durations;
mod rates;

use std::fmt;
use std::time::Duration;

pub(crate) use durations::parse_duration;
pub use durations::parse_duration_sum;
pub(crate) use rates::{Rate, parse_rate};

/// Why a text is not a value, and the remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValueError {
    /// The code of the diagnostic.
    pub code: &'static str,
    /// The problem.
    pub problem: String,
    /// The remedy.
    pub remedy: String,
}

impl ValueError {
    pub(crate) fn new(
        code: &'static str,
        problem: impl Into<String>,
        remedy: impl Into<String>,
    ) -> ValueError {
        ValueError {
            code,
            problem: problem.into(),
            remedy: remedy.into(),
        }
    }
}

impl fmt::Display for ValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n  {}", self.problem, self.remedy)
    }
}

impl std::error::Error for ValueError {}

/// A limit of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeLimit {
    /// More than zero.
    After(Duration),
    /// No limit.
    Forever,
}

/// Statuses of errors, 400 to 599.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StatusPattern {
    /// One status: `404`.
    Exact(u16),
    /// The hundred of this digit: `5xx`.
    Class(u8),
}

impl StatusPattern {
    /// Whether a status is one of these.
    #[must_use]
    pub fn matches(self, status: u16) -> bool {
        match self {
            StatusPattern::Exact(exact) => exact == status,
            StatusPattern::Class(digit) => status / 100 == u16::from(digit),
        }
    }
}

impl fmt::Display for StatusPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StatusPattern::Exact(status) => status.fmt(f),
            StatusPattern::Class(digit) => write!(f, "{digit}xx"),
        }
    }
}

/// Factors by the unit in lower case: powers of 1,024.
const SIZE_UNITS: [(&str, u64); 7] = [
    ("", 1),
    ("k", 1 << 10),
    ("kib", 1 << 10),
    ("m", 1 << 20),
    ("mib", 1 << 20),
    ("g", 1 << 30),
    ("gib", 1 << 30),
];

/// A duration above zero, or `forever`.
///
/// # Errors
/// It is neither.
pub(crate) fn parse_time_limit(text: &str) -> Result<TimeLimit, ValueError> {
    if text == "forever" {
        return Ok(TimeLimit::Forever);
    }
    let duration = parse_duration(text)?;
    if duration.is_zero() {
        return Err(ValueError::new(
            "duration",
            "no time at all would end every request",
            "write for example \"30s\", or \"forever\" for no limit",
        ));
    }
    Ok(TimeLimit::After(duration))
}

/// A size in bytes: `10`, `10k`, `10m`, `1g`, also `10MiB`; powers of 1,024.
///
/// # Errors
/// It is none.
pub fn parse_size(text: &str) -> Result<u64, ValueError> {
    let (number, unit) = split(text);
    let unit = unit.to_ascii_lowercase();
    let factor = SIZE_UNITS.iter().find(|(name, _)| *name == unit);
    let (Some((_, factor)), false) = (factor, number.is_empty()) else {
        let remedy = match unit.as_str() {
            "kb" | "mb" | "gb" if !number.is_empty() => {
                format!("write \"{number}{}\", in powers of 1,024", &unit[..1])
            }
            _ => "write bytes, or for example \"512k\", \"10m\", \"1g\"".to_owned(),
        };
        return Err(ValueError::new("size", "this is not a size", remedy));
    };
    let bytes = number.parse::<u64>().ok();
    let bytes = bytes.and_then(|number| number.checked_mul(*factor));
    let too_large = || {
        let problem = "this is more than 2^64 bytes";
        ValueError::new("size", problem, "write a smaller number")
    };
    bytes.ok_or_else(too_large)
}

/// A number of bytes with the largest unit that divides it.
pub(crate) fn size_text(bytes: &str) -> Option<String> {
    let bytes: u64 = bytes.parse().ok().filter(|bytes| *bytes > 0)?;
    let units = SIZE_UNITS.iter().rev();
    let mut dividing =
        units.filter(|(unit, factor)| unit.len() == 1 && bytes.is_multiple_of(*factor));
    let (unit, factor) = dividing.next()?;
    Some(format!("{}{unit}", bytes / factor))
}

/// A status of an error, or a hundred of them: `404`, `5xx`.
///
/// # Errors
/// It is none.
pub fn parse_status(text: &str) -> Result<StatusPattern, ValueError> {
    let pattern = match text.as_bytes() {
        [digit @ b'4'..=b'5', b'x', b'x'] => Some(StatusPattern::Class(digit - b'0')),
        [b'4'..=b'5', b'0'..=b'9', b'0'..=b'9'] => text.parse().ok().map(StatusPattern::Exact),
        _ => None,
    };
    pattern.ok_or_else(|| {
        let problem = format!("`{text}` is no status of an error");
        ValueError::new(
            "status",
            problem,
            "write for example 404, or 5xx for all from 500",
        )
    })
}

/// The digits, and the rest.
fn split(text: &str) -> (&str, &str) {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    text.split_at(digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_time_are_above_zero() {
        assert_eq!(parse_time_limit("forever"), Ok(TimeLimit::Forever));
        let second = TimeLimit::After(Duration::from_secs(1));
        assert_eq!(parse_time_limit("1s"), Ok(second));
        assert_eq!(parse_time_limit("0").expect_err("zero").code, "duration");
        assert!(parse_duration("forever").is_err());
    }

    #[test]
    fn sizes_are_powers_of_1024() {
        for (text, bytes) in [
            ("0", 0),
            ("10", 10),
            ("512k", 512 << 10),
            ("512KiB", 512 << 10),
            ("10m", 10 << 20),
            ("10M", 10 << 20),
            ("1g", 1 << 30),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for (text, remedy) in [
            ("", "write bytes"),
            ("m", "write bytes"),
            ("-1", "write bytes"),
            ("1.5m", "write bytes"),
            ("10mb", "write \"10m\""),
            ("10 m", "write bytes"),
            ("18446744073709551616", "smaller"),
            ("99999999999g", "smaller"),
        ] {
            let error = parse_size(text).expect_err(text);
            assert!(error.remedy.contains(remedy), "{text}: {error}");
        }
    }

    #[test]
    fn statuses_are_those_of_errors() {
        assert_eq!(parse_status("404"), Ok(StatusPattern::Exact(404)));
        assert_eq!(parse_status("5xx"), Ok(StatusPattern::Class(5)));
        for text in ["", "200", "600", "40", "4xX", "3xx", "4x4", "+40", "404 "] {
            assert!(parse_status(text).is_err(), "{text}");
        }
        assert!(StatusPattern::Class(5).matches(503));
        assert!(!StatusPattern::Class(5).matches(404));
        assert!(StatusPattern::Exact(404).matches(404));
    }
}
