//! Finds the lines of a section and its end, and splits the fields on the way.
//!
//! This is the gatekeeper (RULES 8): it refuses CR and LF that do not form line ends, wrong fields,
//! and sections beyond their limits, as soon as the offending line is there. It resumes where it
//! stopped, so a section that comes in pieces costs little more than a whole one.

use std::num::NonZero;

use super::diagnose;
use super::framing::Framing;
use crate::error::ErrorKind;
use crate::limits::Limits;
use crate::message::{Entry, Name, is_token};
use crate::scan;

/// The bounds of one section: a head, or trailers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SectionLimits {
    /// Bytes of the request or status line; `None` for trailers, which have none.
    pub(crate) first_line_max: Option<usize>,
    /// Bytes of the field lines with their line ends.
    pub(crate) bytes_max: usize,
    /// Number of field lines.
    pub(crate) fields_max: usize,
}

impl SectionLimits {
    pub(crate) fn of_heads(limits: &Limits) -> SectionLimits {
        SectionLimits {
            first_line_max: Some(limits.request_line_bytes_max),
            bytes_max: limits.head_bytes_max,
            fields_max: limits.fields_max,
        }
    }

    pub(crate) fn of_trailers(limits: &Limits) -> SectionLimits {
        SectionLimits {
            first_line_max: None,
            bytes_max: limits.trailer_bytes_max,
            fields_max: limits.trailer_fields_max,
        }
    }
}

/// Where in a section the search stands. Offsets count from the section's first byte.
#[derive(Debug)]
pub(crate) struct Finder {
    limits: SectionLimits,
    /// The fields so far.
    pub(crate) entries: Vec<Entry>,
    /// What those of a head say that frame the message.
    pub(crate) framing: Framing,
    /// Where the CR of a head's first line is; 0 before it is found.
    pub(crate) first_line_end: usize,
    line_start: usize,
    /// Offset that the open line may not go beyond.
    line_end_max: usize,
    in_first_line: bool,
    /// The open line holds a control character, which no line may, besides tabs.
    has_control: bool,
    /// The last byte was CR.
    after_cr: bool,
}

impl Finder {
    pub(crate) fn new(limits: SectionLimits) -> Finder {
        let mut finder = Finder {
            limits,
            entries: Vec::new(),
            framing: Framing::default(),
            first_line_end: 0,
            line_start: 0,
            line_end_max: 0,
            in_first_line: false,
            has_control: false,
            after_cr: false,
        };
        finder.restart();
        finder
    }

    /// Begins a new section.
    #[inline]
    pub(crate) fn restart(&mut self) {
        self.entries.clear();
        self.framing = Framing::default();
        self.first_line_end = 0;
        self.line_start = 0;
        self.in_first_line = self.limits.first_line_max.is_some();
        self.line_end_max = self.limits.first_line_max.unwrap_or(self.limits.bytes_max);
        self.has_control = false;
        self.after_cr = false;
    }

    /// Continues in `section`, of which the first `from` bytes were looked at before. `Some(n)` if
    /// the section ends, with its empty line, after `n` bytes.
    #[inline]
    pub(crate) fn find(&mut self, section: &[u8], from: usize) -> Result<Option<usize>, ErrorKind> {
        // A CR is looked at again together with what follows it.
        let mut at = from - usize::from(self.after_cr);
        self.after_cr = false;
        while at < section.len() {
            let mut not_plain = scan::not_plain_from(section, at);
            while let Some(bits) = NonZero::new(not_plain) {
                let odd = at + bits.trailing_zeros() as usize;
                not_plain &= not_plain - 1;
                if section.get(odd..odd + 2) != Some(b"\r\n") {
                    self.take_odd_byte(section, odd)?;
                    continue;
                }
                not_plain &= not_plain.wrapping_sub(1);
                if self.end_line(section, odd)? {
                    return Ok(Some(odd + 2));
                }
            }
            // The last line's LF may be the first byte after this block.
            at = self.line_start.max(at + scan::BLOCK);
        }
        self.check_open_line(section.len() - usize::from(self.after_cr))?;
        Ok(None)
    }

    /// Up to which offset the open line may grow by plain bytes without asking again; 0 if the
    /// next byte has to be looked at.
    pub(crate) fn open_until(&self) -> usize {
        if self.after_cr { 0 } else { self.line_end_max }
    }

    /// Deals with a byte that is not plain and does not begin a line end.
    #[cold]
    fn take_odd_byte(&mut self, section: &[u8], at: usize) -> Result<(), ErrorKind> {
        self.check_open_line(at)?;
        match section[at] {
            b'\r' if at + 1 == section.len() => self.after_cr = true,
            b'\r' => return Err(ErrorKind::BareCr),
            b'\n' => return Err(ErrorKind::BareLf),
            b'\t' => {}
            byte => self.has_control |= byte.is_ascii_control(),
        }
        Ok(())
    }

    /// Deals with a line whose CR is at offset `cr`; true if it is the empty one at the end.
    #[inline]
    fn end_line(&mut self, section: &[u8], cr: usize) -> Result<bool, ErrorKind> {
        let start = self.line_start;
        if cr == start {
            return Ok(true);
        }
        self.check_open_line(cr)?;
        self.line_start = cr + 2;
        if self.in_first_line {
            self.in_first_line = false;
            self.has_control = false;
            self.first_line_end = cr;
            self.line_end_max = cr + 2 + self.limits.bytes_max;
            return Ok(false);
        }
        if self.entries.len() == self.limits.fields_max {
            return Err(ErrorKind::TooManyFields);
        }
        if self.has_control {
            return Err(diagnose::field_line(&section[start..cr]));
        }
        let line = &section[start..cr];
        let Some((name, name_len)) = split_name(section, start, line) else {
            return Err(diagnose::field_line(line));
        };
        let value = trim(&line[name_len + 1..]);
        self.entries.push(Entry {
            value_start: (cr - value.start_from_end) as u32,
            value_len: value.len as u32,
            name_start: start as u32,
            name_len: name_len as u16,
            name,
        });
        if name.is_policed() {
            self.police(section).map(|()| false)
        } else {
            Ok(false)
        }
    }

    /// Notes what the last field says, if it is a field of a head.
    #[inline(never)]
    fn police(&mut self, section: &[u8]) -> Result<(), ErrorKind> {
        match self.entries.last() {
            Some(entry) if self.limits.first_line_max.is_some() => {
                self.framing.note(entry, entry.value_in(section))
            }
            _ => Ok(()),
        }
    }

    #[inline]
    fn check_open_line(&self, end: usize) -> Result<(), ErrorKind> {
        if end <= self.line_end_max {
            return Ok(());
        }
        Err(if self.in_first_line {
            ErrorKind::RequestLineTooLong
        } else {
            ErrorKind::HeadTooLarge
        })
    }
}

// `field-line = field-name ":" OWS field-value OWS` (RFC 9112, section 5). Control characters are
// excluded before, so a name or a value can only be wrong by its other characters.

/// The known name, and the length of a line's name: all before its first colon, if that is a token.
#[inline]
fn split_name(section: &[u8], start: usize, line: &[u8]) -> Option<(Name, usize)> {
    if let Some(chunk) = section[start..].first_chunk() {
        let colons = NonZero::new(scan::equal(chunk, b':'));
        let len = colons.map_or(usize::MAX, |colons| colons.trailing_zeros() as usize);
        if let Some(text) = line.get(..len) {
            let name = Name::parse_in_line(text, chunk);
            if name != Name::Other && len < line.len() {
                return Some((name, len));
            }
        }
    }
    split_other_name(line)
}

/// The same for unknown names, those of sixteen bytes and more, and the end of what was received.
#[inline(never)]
fn split_other_name(line: &[u8]) -> Option<(Name, usize)> {
    let len = scan::position(line, b':')?;
    let text = &line[..len];
    let name = Name::parse(text);
    // A known name is a token, so only the others have to be looked at.
    let is_good = name != Name::Other || (is_token(text) && len <= u16::MAX as usize);
    is_good.then_some((name, len))
}

/// A value without the white space around it.
struct Trimmed {
    start_from_end: usize,
    len: usize,
}

#[inline]
fn trim(value: &[u8]) -> Trimmed {
    // Most values have one space before and none after them.
    if let [b' ', rest @ ..] = value
        && let [first, .., last] = rest
        && *first > b' '
        && *last > b' '
    {
        return Trimmed {
            start_from_end: rest.len(),
            len: rest.len(),
        };
    }
    let rest = value.trim_ascii_start();
    Trimmed {
        start_from_end: rest.len(),
        len: rest.trim_ascii_end().len(),
    }
}
