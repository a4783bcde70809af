//! Sizes in bytes on the command line.

/// Factors by the suffix in lower case: powers of 1024, as in nginx.
const UNITS: [(&str, u64); 7] = [
    ("", 1),
    ("k", 1 << 10),
    ("kib", 1 << 10),
    ("m", 1 << 20),
    ("mib", 1 << 20),
    ("g", 1 << 30),
    ("gib", 1 << 30),
];

/// The bytes of a size such as `512k`, `10MiB` or `1g`.
///
/// # Errors
/// The problem and the remedy.
pub(crate) fn size(value: &str) -> Result<u64, String> {
    let remedy = "write bytes, or 512k, 10m, 1g (KiB, MiB, GiB)";
    let (number, suffix) = split(value);
    let (Some(factor), false) = (factor(&suffix), number.is_empty()) else {
        if let ("kb" | "mb" | "gb", false) = (suffix.as_str(), number.is_empty()) {
            let unit = &suffix[..1];
            return Err(format!(
                "this is not a size\n  write {number}{unit}, in powers of 1024"
            ));
        }
        return Err(format!("this is not a size\n  {remedy}"));
    };
    let bytes = number
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(factor));
    match bytes {
        Some(0) => Err("0 would refuse all content\n  leave the flag out for no limit".to_owned()),
        Some(bytes) => Ok(bytes),
        None => Err("this is more than 2^64 bytes\n  leave the flag out for no limit".to_owned()),
    }
}

/// The same, with errors of the caller's. `None` if it is no size, or too large for any limit.
pub(crate) fn parse_size(value: &str) -> Option<u64> {
    let (number, suffix) = split(value);
    number.parse::<u64>().ok()?.checked_mul(factor(&suffix)?)
}

/// The digits, and the suffix in lower case.
fn split(value: &str) -> (&str, String) {
    let digits = value.bytes().take_while(u8::is_ascii_digit).count();
    let (number, suffix) = value.split_at(digits);
    (number, suffix.to_ascii_lowercase())
}

fn factor(suffix: &str) -> Option<u64> {
    let unit = UNITS.iter().find(|(name, _)| *name == suffix);
    unit.map(|(_, factor)| *factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes_are_powers_of_1024() {
        for (value, bytes) in [
            ("1", 1),
            ("512k", 512 << 10),
            ("512KiB", 512 << 10),
            ("10m", 10 << 20),
            ("10M", 10 << 20),
            ("10mib", 10 << 20),
            ("1g", 1 << 30),
            ("1GiB", 1 << 30),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(size(value), Ok(bytes), "{value}");
        }
    }

    #[test]
    fn other_sizes_are_errors_with_a_remedy() {
        for (value, problem) in [
            ("", "not a size"),
            ("m", "not a size"),
            ("-1", "not a size"),
            ("1.5m", "not a size"),
            ("10mb", "not a size"),
            ("10 m", "not a size"),
            ("0", "refuse all content"),
            ("0k", "refuse all content"),
            ("18446744073709551616", "more than 2^64"),
            ("99999999999g", "more than 2^64"),
        ] {
            let error = size(value).expect_err(value);
            assert!(error.contains(problem) && error.contains("\n  "), "{error}");
        }
    }
}
