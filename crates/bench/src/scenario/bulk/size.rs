//! Sizes of content, as people write them.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;
/// The largest content of a run.
const BYTES_MAX: u64 = 1024 * MIB;

/// The length of one content in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct ContentSize(u64);

impl ContentSize {
    /// The size to which the goals apply.
    pub(crate) const GOAL: ContentSize = ContentSize(MIB);
    /// The sizes of `--size all`.
    pub(crate) const ALL: [ContentSize; 5] = [
        ContentSize(10 * KIB),
        ContentSize(64 * KIB),
        ContentSize(256 * KIB),
        ContentSize(MIB),
        ContentSize(100 * MIB),
    ];

    pub(crate) fn bytes(self) -> u64 {
        self.0
    }

    /// Content of which a run transfers a few pieces only.
    pub(crate) fn is_huge(self) -> bool {
        self.0 >= 16 * MIB
    }
}

impl FromStr for ContentSize {
    type Err = String;

    /// A number of bytes, or of KiB with `k`, or of MiB with `m`.
    fn from_str(text: &str) -> Result<ContentSize, String> {
        let (digits, unit) = match text.as_bytes().last() {
            Some(b'k' | b'K') => (&text[..text.len() - 1], KIB),
            Some(b'm' | b'M') => (&text[..text.len() - 1], MIB),
            _ => (text, 1),
        };
        let count: Option<u64> = digits.parse().ok();
        let bytes = count.and_then(|count| count.checked_mul(unit));
        match bytes.filter(|bytes| (1..=BYTES_MAX).contains(bytes)) {
            Some(bytes) => Ok(ContentSize(bytes)),
            None => Err(format!(
                "'{text}' is not a size; write 4096, 10k, 1m or all, up to 1024m"
            )),
        }
    }
}

impl fmt::Display for ContentSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bytes if bytes.is_multiple_of(MIB) => write!(f, "{} MiB", bytes / MIB),
            bytes if bytes.is_multiple_of(KIB) => write!(f, "{} KiB", bytes / KIB),
            bytes => write!(f, "{bytes} bytes"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_printed_with_their_unit() {
        for (text, bytes, printed) in [
            ("10k", 10_240, "10 KiB"),
            ("1m", 1 << 20, "1 MiB"),
            ("1024k", 1 << 20, "1 MiB"),
            ("1000", 1000, "1000 bytes"),
        ] {
            let size: ContentSize = text.parse().unwrap();
            assert_eq!(
                (size.bytes(), size.to_string()),
                (bytes, printed.to_owned())
            );
        }
    }

    #[test]
    fn other_words_and_sizes_out_of_range_are_errors() {
        for wrong in ["", "k", "0", "1g", "-1", "1025m", "99999999999999999999m"] {
            assert!(wrong.parse::<ContentSize>().is_err(), "{wrong}");
        }
    }
}
