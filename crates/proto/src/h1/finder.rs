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
use crate::message::{Entry, Name, Outline, is_token};
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
    /// How far the section was looked at; a CR at the end waits for what follows it.
    seen: usize,
    line_start: usize,
    /// Offset that the open line may not go beyond.
    line_end_max: usize,
    line: OpenLine,
    /// Fields that may still come, in an ordinary line; 0 in any other.
    fields_left: usize,
    /// Names by their place in the section before this one. The same client sends the same names
    /// in the same order again and again, so these are tried first.
    usual: [&'static Outline; USUAL],
}

/// The line whose end was not found yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OpenLine {
    /// A request line or status line.
    First,
    Field,
    /// A field line with a control character, which none may hold besides tabs.
    FieldWithControl,
}

const USUAL: usize = 16;

impl Finder {
    pub(crate) fn new(limits: SectionLimits) -> Finder {
        let mut finder = Finder {
            limits,
            entries: Vec::new(),
            framing: Framing::default(),
            first_line_end: 0,
            seen: 0,
            line_start: 0,
            line_end_max: 0,
            line: OpenLine::Field,
            fields_left: 0,
            usual: [Name::Other.outline(); USUAL],
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
        self.seen = 0;
        self.line_start = 0;
        (self.line, self.line_end_max, self.fields_left) = match self.limits.first_line_max {
            Some(line_max) => (OpenLine::First, line_max, 0),
            None => (
                OpenLine::Field,
                self.limits.bytes_max,
                self.limits.fields_max,
            ),
        };
    }

    /// Continues in `section`, which is what was given before and more. `Some(n)` if the section
    /// ends, with its empty line, after `n` bytes.
    #[inline]
    pub(crate) fn find(&mut self, section: &[u8]) -> Result<Option<usize>, ErrorKind> {
        let mut at = self.seen;
        while at < section.len() {
            let mut not_plain = scan::not_plain_from(section, at);
            while let Some(bits) = NonZero::new(not_plain) {
                let odd = at + bits.trailing_zeros() as usize;
                not_plain &= not_plain - 1;
                if section.get(odd..odd + 2) != Some(b"\r\n") {
                    if self.is_open_cr(section, odd)? {
                        self.seen = odd;
                        return Ok(None);
                    }
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
        self.seen = section.len();
        self.check_open_line(section.len())?;
        Ok(None)
    }

    /// Up to which offset the open line may grow by bytes that are no controls without asking
    /// again; 0 if the next byte has to be looked at.
    pub(crate) fn open_until(&self, section_len: usize) -> usize {
        if self.seen < section_len {
            0
        } else {
            self.line_end_max
        }
    }

    /// Deals with a byte that is not plain and does not begin a whole line end; true for a CR at
    /// the end of what was received.
    #[cold]
    fn is_open_cr(&mut self, section: &[u8], at: usize) -> Result<bool, ErrorKind> {
        self.check_open_line(at)?;
        match section[at] {
            b'\r' if at + 1 == section.len() => return Ok(true),
            b'\r' => return Err(ErrorKind::BareCr),
            b'\n' => return Err(ErrorKind::BareLf),
            b'\t' => {}
            byte if byte.is_ascii_control() && self.line == OpenLine::Field => {
                self.line = OpenLine::FieldWithControl;
                self.fields_left = 0;
            }
            _ => {}
        }
        Ok(false)
    }

    /// Deals with a line whose CR is at offset `cr`; true if it is the empty one at the end.
    #[inline(always)]
    fn end_line(&mut self, section: &[u8], cr: usize) -> Result<bool, ErrorKind> {
        let start = self.line_start;
        if cr == start {
            return Ok(true);
        }
        self.check_open_line(cr)?;
        self.line_start = cr + 2;
        let (fields_left, is_special) = self.fields_left.overflowing_sub(1);
        self.fields_left = fields_left;
        if is_special {
            return self.end_special_line(section, start, cr).map(|()| false);
        }
        let line = &section[start..cr];
        let Some((name, name_len, value)) = self.split(line, &section[start..]) else {
            return Err(diagnose::field_line(line));
        };
        let value = trim(value);
        self.entries.push(Entry {
            value_start: (cr - value.start_from_end) as u32,
            value_len: value.len as u32,
            name_start: start as u32,
            name_len: name_len as u16,
            name,
            never_indexed: false,
        });
        if name.is_policed() {
            self.police(section).map(|()| false)
        } else {
            Ok(false)
        }
    }

    /// Deals with the end of a line that is no ordinary field.
    #[cold]
    fn end_special_line(
        &mut self,
        section: &[u8],
        start: usize,
        cr: usize,
    ) -> Result<(), ErrorKind> {
        match self.line {
            OpenLine::Field => return Err(ErrorKind::TooManyFields),
            OpenLine::FieldWithControl => {
                return Err(diagnose::field_line(&section[start..cr]));
            }
            OpenLine::First => {}
        }
        self.line = OpenLine::Field;
        self.fields_left = self.limits.fields_max;
        self.first_line_end = cr;
        self.line_end_max = self.line_start + self.limits.bytes_max;
        Ok(())
    }

    /// The known name, its length, and the raw value of a line that `lines` begins with.
    #[inline]
    fn split<'l>(&mut self, line: &'l [u8], lines: &[u8]) -> Option<(Name, usize, &'l [u8])> {
        let usual = &mut self.usual[self.entries.len() % USUAL];
        let (name, len) = if usual.begins(lines) {
            (usual.name, usual.len)
        } else {
            let (name, len) = find_name(line, lines)?;
            *usual = name.outline();
            (name, len)
        };
        Some((name, len, line.get(len + 1..)?))
    }

    /// Notes what the last field says, if it is a field of a head.
    #[inline(never)]
    fn police(&mut self, section: &[u8]) -> Result<(), ErrorKind> {
        match self.entries.last() {
            Some(entry) if self.limits.first_line_max.is_some() => {
                self.framing.note(*entry, entry.value_in(section))
            }
            _ => Ok(()),
        }
    }

    #[inline]
    fn check_open_line(&self, end: usize) -> Result<(), ErrorKind> {
        if end <= self.line_end_max {
            return Ok(());
        }
        Err(match self.line {
            OpenLine::First => ErrorKind::RequestLineTooLong,
            _ => ErrorKind::HeadTooLarge,
        })
    }
}

// `field-line = field-name ":" OWS field-value OWS` (RFC 9112, section 5). Control characters are
// excluded before, so a name or a value can only be wrong by its other characters.

/// The known name and the length of what is before the first colon, if that is a token.
#[cold]
fn find_name(line: &[u8], lines: &[u8]) -> Option<(Name, usize)> {
    let len = scan::position(line, b':')?;
    let text = &line[..len];
    let guess = Name::guess(text).outline();
    if guess.len == len && guess.begins(lines) {
        return Some((guess.name, len));
    }
    // At the very end of what was received, a known name may be missed so far.
    let is_good = is_token(text) && len <= u16::MAX as usize;
    is_good.then(|| (Name::parse(text), len))
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
        && let ([first, ..], [.., last]) = (rest, rest)
        && *first > b' '
        && *last > b' '
    {
        return Trimmed {
            start_from_end: rest.len(),
            len: rest.len(),
        };
    }
    trim_all(value)
}

#[cold]
fn trim_all(value: &[u8]) -> Trimmed {
    let rest = value.trim_ascii_start();
    Trimmed {
        start_from_end: rest.len(),
        len: rest.trim_ascii_end().len(),
    }
}
