//! Sizes in bytes on the command line.

/// The bytes of a size such as `512k`, `10MiB` or `1g`.
///
/// # Errors
/// The problem and the remedy.
pub(crate) fn size(value: &str) -> Result<u64, String> {
    match blitz_config::parse_size(value) {
        Ok(0) => Err("0 would refuse all content\n  leave the flag out for no limit".to_owned()),
        Ok(bytes) => Ok(bytes),
        // A shell needs no quotes.
        Err(error) => Err(error.to_string().replace('"', "")),
    }
}

/// The same, with errors of the caller's. `None` if it is no size, or too large for any limit.
pub(crate) fn parse_size(value: &str) -> Option<u64> {
    blitz_config::parse_size(value).ok()
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
