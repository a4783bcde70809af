//! Finds the lines of a section and its end, and splits each field line.
//!
//! The finder enforces rule 8: it refuses CR and LF that do not form line ends, malformed fields,
//! and sections beyond their limits, as soon as the offending line is complete. It resumes where it
//! stopped, so a section that arrives in pieces costs little more than one that arrives whole.

use std::num::NonZero;

use super::diagnose;
use super::framing::FramingFields;
use crate::error::ErrorKind;
use crate::message::{FieldLine, Name, NamePattern, Span, StoredName, is_token};
use crate::scan;
use crate::section_max::SectionMax;

/// The bounds of one section: a head, or trailers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LineLimits {
    /// Bytes of the request or status line; `None` for trailers, which have no such line.
    pub(crate) first_line_max: Option<usize>,
    /// Bytes of the field lines with their line ends.
    pub(crate) bytes_max: usize,
    /// Number of field lines.
    pub(crate) fields_max: usize,
}

impl LineLimits {
    /// Of a head, whose first line is beside these.
    pub(crate) fn of_head(max: SectionMax, first_line_max: usize) -> LineLimits {
        LineLimits {
            first_line_max: Some(first_line_max),
            bytes_max: max.bytes,
            fields_max: max.fields,
        }
    }

    pub(crate) fn of_trailers(max: SectionMax) -> LineLimits {
        LineLimits {
            first_line_max: None,
            bytes_max: max.bytes,
            fields_max: max.fields,
        }
    }
}

/// The position of the search in a section. Offsets count from the section's first byte.
#[derive(Debug)]
pub(crate) struct Finder {
    limits: LineLimits,
    /// The framing that the fields of a head declare.
    pub(crate) framing: FramingFields,
    /// Offset of the CR of a head's first line; 0 before it is found.
    pub(crate) first_line_end: usize,
    /// Offset up to which the section was scanned; a CR at the end is scanned again with the next
    /// byte.
    seen: usize,
    line_start: usize,
    /// Highest offset that the open line may reach.
    line_end_max: usize,
    line: OpenLine,
    /// Number of further fields allowed, in an ordinary line; 0 in any other line.
    fields_left: usize,
    /// Names by their position in the previous section. A client usually repeats the same names in
    /// the same order, so the finder tries these first.
    cached_names: [CachedName; CACHED_NAMES],
}

/// A name found at a certain position.
#[derive(Debug, Clone, Copy)]
struct CachedName {
    /// Matches lines with this name; matches no line if the name is not a known one.
    pattern: &'static NamePattern,
    label: StoredName,
}

impl CachedName {
    const NONE: CachedName = CachedName {
        pattern: Name::Other.pattern(),
        label: StoredName {
            len: 0,
            name: Name::Other,
        },
    };
}

/// The kind of the line whose end was not found yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OpenLine {
    /// A request line or status line.
    First,
    Field,
    /// A field line with a control character other than a tab, which is forbidden.
    FieldWithControl,
}

const CACHED_NAMES: usize = 16;

/// The only ASCII control character above the printable range.
const DEL: u8 = 0x7f;

impl Finder {
    pub(crate) fn new(limits: LineLimits) -> Finder {
        let mut finder = Finder {
            limits,
            framing: FramingFields::default(),
            first_line_end: 0,
            seen: 0,
            line_start: 0,
            line_end_max: 0,
            line: OpenLine::Field,
            fields_left: 0,
            cached_names: [CachedName::NONE; CACHED_NAMES],
        };
        finder.restart();
        finder
    }

    /// Bytes that the first line may have; 0 without one.
    pub(crate) fn first_line_max(&self) -> usize {
        self.limits.first_line_max.unwrap_or(0)
    }

    /// Begins a new section.
    #[inline]
    pub(crate) fn restart(&mut self) {
        self.framing = FramingFields::default();
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

    /// Continues in `section`, which begins with the bytes of the previous calls, and adds its fields
    /// to `entries`. `Some(n)` if the section ends, with its empty line, after `n` bytes.
    // Not inlined, since it needs all registers.
    #[inline(never)]
    pub(crate) fn find(
        &mut self,
        section: &[u8],
        entries: &mut Vec<FieldLine>,
    ) -> Result<Option<usize>, ErrorKind> {
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
                if self.end_line(section, odd, entries)? {
                    return Ok(Some(odd + 2));
                }
            }
            // The LF of the last line may be the first byte after this block.
            at = self.line_start.max(at + scan::BLOCK);
        }
        self.seen = section.len();
        self.check_open_line(section.len())?;
        Ok(None)
    }

    /// Continues in `section`, whose new bytes complete a line that is not empty: bytes from 0x20 on,
    /// then CRLF.
    pub(crate) fn find_line(
        &mut self,
        section: &[u8],
        entries: &mut Vec<FieldLine>,
    ) -> Result<(), ErrorKind> {
        let cr = section.len() - b"\r\n".len();
        if scan::contains(&section[self.line_start..], DEL) {
            return self.find(section, entries).map(|_| ());
        }
        self.seen = section.len();
        self.end_line(section, cr, entries)?;
        self.check_open_line(section.len())
    }

    /// Number of bytes other than controls that may be added to the open line, after `section_len`
    /// bytes of the section, without another check; 0 if the next byte must be checked.
    pub(crate) fn room(&self, section_len: usize) -> usize {
        if self.seen < section_len {
            0
        } else {
            self.line_end_max.saturating_sub(section_len)
        }
    }

    /// Handles a byte that is not plain and does not begin a complete line end; true for a CR at the
    /// end of the received bytes.
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

    /// Handles a line whose CR is at offset `cr`; true for the empty line at the end.
    #[inline(always)]
    fn end_line(
        &mut self,
        section: &[u8],
        cr: usize,
        entries: &mut Vec<FieldLine>,
    ) -> Result<bool, ErrorKind> {
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
        let place = entries.len() % CACHED_NAMES;
        if !self.cached_names[place]
            .pattern
            .is_prefix_of(&section[start..])
        {
            self.cache_name(&section[start..], cr - start, entries)?;
        }
        let label = self.cached_names[place].label;
        let Some(value) = section.get(start + usize::from(label.len) + 1..cr) else {
            return Err(diagnose::field_line(&section[start..cr]));
        };
        let (start_from_end, len) = trim(value);
        let value = Span {
            start: (cr - start_from_end) as u32,
            end: (cr - start_from_end + len) as u32,
        };
        entries.push(FieldLine {
            value_start: value.start,
            value_len: len as u32,
            name_start: start as u32,
            label,
        });
        let name = label.name;
        // Trailers do not change the framing.
        if name.frames_or_routes() && self.limits.first_line_max.is_some() {
            self.framing.note(name, value, section)?;
        }
        Ok(false)
    }

    /// Handles the end of a first line, a field beyond the limit, or a field with a control character.
    #[inline]
    fn end_special_line(
        &mut self,
        section: &[u8],
        start: usize,
        cr: usize,
    ) -> Result<(), ErrorKind> {
        if self.line != OpenLine::First {
            return Err(self.refuse_line(&section[start..cr]));
        }
        self.line = OpenLine::Field;
        self.fields_left = self.limits.fields_max;
        self.first_line_end = cr;
        self.line_end_max = self.line_start + self.limits.bytes_max;
        Ok(())
    }

    /// Parses the name of a line that does not begin with the cached name, and caches it.
    ///
    /// `field-line = field-name ":" OWS field-value OWS` (RFC 9112, section 5). Control characters
    /// are excluded before, so only other characters can make the name or the value invalid.
    #[cold]
    fn cache_name(
        &mut self,
        lines: &[u8],
        line_len: usize,
        entries: &mut Vec<FieldLine>,
    ) -> Result<(), ErrorKind> {
        if entries.capacity() == 0 {
            entries.reserve(CACHED_NAMES);
        }
        let line = &lines[..line_len];
        let text = scan::position(line, b':').map(|colon| &line[..colon]);
        let Some(text) = text.filter(|text| text.len() <= usize::from(u16::MAX)) else {
            return Err(diagnose::field_line(line));
        };
        let guess = Name::guess(text);
        let pattern = guess.pattern();
        let is_guessed = pattern.len() == text.len() && pattern.is_prefix_of(lines);
        if !is_guessed && !is_token(text) {
            return Err(diagnose::field_line(line));
        }
        // At the very end of the received bytes, the pattern may miss a known name.
        let name = if is_guessed { guess } else { Name::parse(text) };
        let len = text.len() as u16;
        self.cached_names[entries.len() % CACHED_NAMES] = CachedName {
            pattern: name.pattern(),
            label: StoredName { len, name },
        };
        Ok(())
    }

    #[cold]
    fn refuse_line(&self, line: &[u8]) -> ErrorKind {
        match self.line {
            OpenLine::Field => ErrorKind::TooManyFields,
            _ => diagnose::field_line(line),
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

/// For a value without surrounding white space: its start, counted back from the end of the
/// untrimmed value, and its length.
#[inline]
fn trim(value: &[u8]) -> (usize, usize) {
    // Most values have one space before and none after them.
    if let [b' ', rest @ ..] = value
        && let ([first, ..], [.., last]) = (rest, rest)
        && *first > b' '
        && *last > b' '
    {
        return (rest.len(), rest.len());
    }
    trim_all(value)
}

#[cold]
fn trim_all(value: &[u8]) -> (usize, usize) {
    let rest = value.trim_ascii_start();
    (rest.len(), rest.trim_ascii_end().len())
}
