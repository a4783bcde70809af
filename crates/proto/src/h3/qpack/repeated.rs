//! Encoded lines that are likely to be needed again: without a dynamic table, each response would encode its date
//! and its media type anew, and each request its host.

use std::ops::RangeInclusive;

use crate::field_section::{LineName, Pseudo};
use crate::message::Name;

/// Lengths of values that are kept, in bytes: shorter ones are encoded as fast, longer ones are rare.
const VALUE_LEN: RangeInclusive<usize> = 8..=64;

/// The last line of each field whose values repeat.
#[derive(Debug, Default)]
pub(super) struct RepeatedLines {
    /// Empty before the first.
    lines: Vec<RepeatedLine>,
}

#[derive(Debug, Default)]
struct RepeatedLine {
    /// The value, and behind it the encoded line.
    text: Vec<u8>,
    value_len: usize,
}

/// Fields whose values hardly change, each with its index.
const fn place(name: LineName) -> Option<usize> {
    match name {
        LineName::Field(Name::Date) => Some(0),
        LineName::Field(Name::ContentType) => Some(1),
        LineName::Field(Name::Server) => Some(2),
        LineName::Field(Name::CacheControl) => Some(3),
        LineName::Pseudo(Pseudo::Authority) => Some(4),
        LineName::Field(Name::UserAgent) => Some(5),
        _ => None,
    }
}

const PLACES: usize = 6;

impl RepeatedLines {
    /// The line with this value, if it was the last with its name.
    #[inline]
    pub(super) fn get(&self, name: LineName, value: &[u8]) -> Option<&[u8]> {
        let line = self.lines.get(place(name)?)?;
        let (last, encoded) = line.text.split_at(line.value_len);
        (last == value && !encoded.is_empty()).then_some(encoded)
    }

    /// Keeps a line that was encoded.
    pub(super) fn keep(&mut self, name: LineName, value: &[u8], encoded: &[u8]) {
        let Some(place) = place(name).filter(|_| VALUE_LEN.contains(&value.len())) else {
            return;
        };
        if self.lines.is_empty() {
            self.lines.resize_with(PLACES, RepeatedLine::default);
        }
        let line = &mut self.lines[place];
        line.text.clear();
        line.text.extend_from_slice(value);
        line.text.extend_from_slice(encoded);
        line.value_len = value.len();
    }
}
