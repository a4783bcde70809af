//! Field sections of HTTP/2 and HTTP/3: from pseudo-header fields and fields to heads, and back
//! (RFC 9113, section 8; RFC 9114, section 4).
//!
//! This module holds the rules that both versions share: the names ([`line_name`]), the fields that a
//! message may have ([`policy`]), the conversion of a section to a head ([`receive`]) and the order in
//! which it is sent ([`send`]). Specific to a version, and not here: the compression ([`Lines`] and
//! [`send::LineEncoder`] are its two directions) and the frames that carry a section.
//!
//! The comments quote RFC 9113. RFC 9114 says the same in these sections: 4.2 for names and values,
//! 4.2.1 for cookies, 4.3 for pseudo-header fields, 4.1.2 for malformed messages, 4.5 for 101.

mod line_name;
mod policy;
pub(crate) mod receive;
pub(crate) mod repeat;
pub(crate) mod send;

use crate::error::ErrorKind;
use crate::field_compression::Malformed;
use crate::limits::Limits;

pub(crate) use line_name::{LineName, Pseudo};
pub(crate) use policy::{is_malformed, line_problem};

/// How large a section may be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FieldSectionLimits {
    pub(crate) head_bytes_max: usize,
    pub(crate) fields_max: usize,
    pub(crate) response_fields_max: usize,
    path_bytes_max: usize,
    pub(crate) trailer_bytes_max: usize,
    pub(crate) trailer_fields_max: usize,
}

impl FieldSectionLimits {
    pub(crate) fn new(limits: &Limits) -> FieldSectionLimits {
        FieldSectionLimits {
            head_bytes_max: limits.head_bytes_max,
            fields_max: limits.fields_max,
            response_fields_max: limits.response_fields_max,
            path_bytes_max: limits.request_line_bytes_max,
            trailer_bytes_max: limits.trailer_bytes_max,
            trailer_fields_max: limits.trailer_fields_max,
        }
    }

    /// The limit that is announced to the peer.
    pub(crate) fn field_section_size_max(&self) -> u32 {
        self.head_bytes_max as u32
    }
}

/// The field lines of a section that is being decoded.
pub(crate) trait Lines {
    /// The next line within the budget; its text is appended to `text`. The rest is decoded for the
    /// sake of the compression's table.
    fn next_line(&mut self, text: &mut Vec<u8>) -> Result<Option<DecodedLine>, Malformed>;

    /// The limit that the section exceeded.
    fn overflow(&self) -> Option<Overflow>;
}

/// A field line whose text was appended to the block of the message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DecodedLine {
    pub(crate) name: LineName,
    /// Why no message may hold this line.
    pub(crate) problem: Option<ErrorKind>,
    /// No compression table on the way may hold the line (RFC 7541, section 6.2.3; RFC 9204, section
    /// 4.5.4).
    pub(crate) never_indexed: bool,
    /// Bytes of the name's text, 0 for a known name; the text is right before the value.
    pub(crate) name_len: u16,
    pub(crate) value_start: u32,
    pub(crate) value_len: u32,
}

impl DecodedLine {
    #[inline]
    pub(crate) fn new(
        name: LineName,
        problem: Option<ErrorKind>,
        name_len: usize,
        value_start: usize,
        value_len: usize,
    ) -> DecodedLine {
        DecodedLine {
            name,
            problem,
            never_indexed: false,
            name_len: name_len as u16,
            value_start: value_start as u32,
            value_len: value_len as u32,
        }
    }
}

/// How much of a section may still become fields. A line counts as its name, its value and 32 bytes
/// (RFC 9113, section 6.5.2; RFC 9114, section 4.2.2).
#[derive(Debug)]
pub(crate) struct Budget {
    bytes_left: u32,
    fields_left: u32,
    overflow: Option<Overflow>,
}

/// The limit that a section exceeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Overflow {
    Bytes,
    Fields,
}

impl Budget {
    pub(crate) fn new(bytes_max: usize, fields_max: usize) -> Budget {
        Budget {
            bytes_left: bytes_max.min(u32::MAX as usize) as u32,
            fields_left: fields_max.min(u32::MAX as usize) as u32,
            overflow: None,
        }
    }

    /// The limit that was exceeded.
    #[inline]
    pub(crate) fn overflow(&self) -> Option<Overflow> {
        self.overflow
    }

    /// Notes an exceeded limit, unless there was one before.
    pub(crate) fn exceed(&mut self, overflow: Overflow) {
        self.overflow.get_or_insert(overflow);
    }

    /// Whether a line of this size is still within the limits.
    #[inline]
    pub(crate) fn admits(&mut self, size: u32) -> bool {
        if size <= self.bytes_left && self.fields_left > 0 {
            self.bytes_left -= size;
            self.fields_left -= 1;
            return true;
        }
        self.refuse()
    }

    #[cold]
    fn refuse(&mut self) -> bool {
        let is_full = self.fields_left == 0;
        self.exceed(if is_full {
            Overflow::Fields
        } else {
            Overflow::Bytes
        });
        // The lines that follow are not part of the message either.
        (self.bytes_left, self.fields_left) = (0, 0);
        false
    }
}
