//! Field sections of HTTP/2 and HTTP/3: from pseudo-header fields and fields to heads, and back
//! (RFC 9113, section 8; RFC 9114, section 4).
//!
//! This module holds the rules that both versions share: the names ([`line_name`]), the fields that a
//! message may have ([`policy`]), the conversion of a section to a head ([`receive`]) and the order in
//! which it is sent ([`send`]). Specific to a version, and not here: the compression ([`FieldLines`] and
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
use crate::message::Name;
use crate::section_max::SectionMax;

pub(crate) use line_name::{LineName, Pseudo};
pub(crate) use policy::{is_malformed, line_problem};

/// How large the sections of received messages may be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FieldSectionLimits {
    head: SectionMax,
    trailers: SectionMax,
    cookie_crumbs_max: usize,
    path_bytes_max: usize,
}

/// `:method`, `:scheme` and `:path` are in the request line of HTTP/1, `:authority` is its `Host`.
const LINES_OF_REQUEST_LINE: usize = 3;

/// `:status`
const LINES_OF_STATUS_LINE: usize = 1;

impl FieldSectionLimits {
    /// Of the messages that the peer of this end sends.
    pub(crate) fn new(limits: &Limits, is_server: bool) -> FieldSectionLimits {
        let (head, trailers) = match is_server {
            true => {
                let max = SectionMax::of_requests(limits);
                let head = SectionMax {
                    bytes: max.bytes.saturating_add(limits.request_line_bytes_max),
                    fields: max.fields.saturating_add(LINES_OF_REQUEST_LINE),
                };
                (head, SectionMax::of_trailers(limits))
            }
            false => {
                let max = SectionMax::of_responses(limits);
                let head = SectionMax {
                    fields: max.fields.saturating_add(LINES_OF_STATUS_LINE),
                    ..max
                };
                (head, max)
            }
        };
        FieldSectionLimits {
            head,
            trailers,
            cookie_crumbs_max: limits.cookie_crumbs_max,
            path_bytes_max: limits.request_line_bytes_max,
        }
    }

    pub(crate) fn head_budget(&self) -> Budget {
        Budget::new(self.head, self.cookie_crumbs_max)
    }

    pub(crate) fn trailers_budget(&self) -> Budget {
        Budget::new(self.trailers, self.cookie_crumbs_max)
    }

    /// The limit that is announced to the peer.
    pub(crate) fn field_section_size_max(&self) -> u32 {
        u32::try_from(self.head.bytes).unwrap_or(u32::MAX)
    }
}

/// The field lines of a section that is being decoded.
pub(crate) trait FieldLines {
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
/// (RFC 9113, section 6.5.2; RFC 9114, section 4.2.2). The crumbs of a cookie are one field, of the size that they
/// have once they are joined, and their number has a limit of its own (rule 25).
#[derive(Debug)]
pub(crate) struct Budget {
    bytes_left: u32,
    fields_left: u32,
    crumbs_left: u32,
    has_cookie: bool,
    overflow: Option<Overflow>,
}

/// The limit that a section exceeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Overflow {
    Bytes,
    Fields,
    Crumbs,
}

const COOKIE: LineName = LineName::Field(Name::Cookie);

/// The size of a line beside its texts.
const LINE_OVERHEAD: u32 = 32;

/// The delimiter between two crumbs (RFC 9113, section 8.2.3).
pub(crate) const CRUMB_DELIMITER: &[u8; 2] = b"; ";

impl Budget {
    /// For lines that are decoded for their effect on the compression only.
    pub(crate) const NONE: Budget = Budget {
        bytes_left: 0,
        fields_left: 0,
        crumbs_left: 0,
        has_cookie: false,
        overflow: None,
    };

    fn new(max: SectionMax, crumbs_max: usize) -> Budget {
        let count = |max: usize| u32::try_from(max).unwrap_or(u32::MAX);
        Budget {
            bytes_left: count(max.bytes),
            fields_left: count(max.fields),
            crumbs_left: count(crumbs_max),
            ..Budget::NONE
        }
    }

    /// For tools that decode a section of any size.
    pub(crate) fn unlimited() -> Budget {
        let max = SectionMax {
            bytes: usize::MAX,
            fields: usize::MAX,
        };
        Budget::new(max, usize::MAX)
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

    /// Whether a line of this name and size is still within the limits.
    #[inline]
    pub(crate) fn admits(&mut self, name: LineName, size: u32) -> bool {
        if name == COOKIE {
            return self.admits_crumb(size);
        }
        self.admits_field(size)
    }

    fn admits_crumb(&mut self, size: u32) -> bool {
        if !self.has_cookie {
            self.has_cookie = true;
            self.crumbs_left = self.crumbs_left.saturating_sub(1);
            return self.admits_field(size);
        }
        let Some(crumbs_left) = self.crumbs_left.checked_sub(1) else {
            return self.refuse(Overflow::Crumbs);
        };
        self.crumbs_left = crumbs_left;
        let name_len = COOKIE.known_text().len() as u32;
        let joined = size.saturating_sub(LINE_OVERHEAD + name_len) + CRUMB_DELIMITER.len() as u32;
        let Some(bytes_left) = self.bytes_left.checked_sub(joined) else {
            return self.refuse(Overflow::Bytes);
        };
        self.bytes_left = bytes_left;
        true
    }

    #[inline]
    fn admits_field(&mut self, size: u32) -> bool {
        if size <= self.bytes_left && self.fields_left > 0 {
            self.bytes_left -= size;
            self.fields_left -= 1;
            return true;
        }
        self.refuse(match self.fields_left {
            0 => Overflow::Fields,
            _ => Overflow::Bytes,
        })
    }

    #[cold]
    fn refuse(&mut self, overflow: Overflow) -> bool {
        self.exceed(overflow);
        // The lines that follow are not part of the message either.
        (self.bytes_left, self.fields_left, self.crumbs_left) = (0, 0, 0);
        false
    }
}
