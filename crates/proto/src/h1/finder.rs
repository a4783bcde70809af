//! Finds the lines of a section and its end, and splits the fields on the way.
//!
//! This is the gatekeeper (rule 8): it refuses CR and LF that do not form line ends, wrong fields,
//! and sections beyond their limits, as soon as the offending line is there. It resumes where it
//! stopped, so a section that comes in pieces costs little more than a whole one.

use std::num::NonZero;

use super::diagnose;
use super::framing::Framing;
use crate::error::ErrorKind;
use crate::limits::Limits;
use crate::message::{FieldLine, Name, Outline, Span, StoredName, is_token};
use crate::scan;

/// The bounds of one section: a head, or trailers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LineLimits {
    /// Bytes of the request or status line; `None` for trailers, which have none.
    pub(crate) first_line_max: Option<usize>,
    /// Bytes of the field lines with their line ends.
    pub(crate) bytes_max: usize,
    /// Number of field lines.
    pub(crate) fields_max: usize,
}

impl LineLimits {
    pub(crate) fn of_heads(limits: &Limits) -> LineLimits {
        LineLimits {
            first_line_max: Some(limits.request_line_bytes_max),
            bytes_max: limits.head_bytes_max,
            fields_max: limits.fields_max,
        }
    }

    pub(crate) fn of_trailers(limits: &Limits) -> LineLimits {
        LineLimits {
            first_line_max: None,
            bytes_max: limits.trailer_bytes_max,
            fields_max: limits.trailer_fields_max,
        }
    }
}

/// Where in a section the search stands. Offsets count from the section's first byte.
#[derive(Debug)]
pub(crate) struct Finder {
    limits: LineLimits,
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
    usual: [Usual; USUAL],
}

/// A name that was found in a certain place.
#[derive(Debug, Clone, Copy)]
struct Usual {
    /// What lines with this name look like; none does if the name is no known one.
    outline: &'static Outline,
    label: StoredName,
}

impl Usual {
    const NONE: Usual = Usual {
        outline: Name::Other.outline(),
        label: StoredName {
            len: 0,
            name: Name::Other,
        },
    };
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

/// The control character that is not below the others.
const DEL: u8 = 0x7f;

impl Finder {
    pub(crate) fn new(limits: LineLimits) -> Finder {
        let mut finder = Finder {
            limits,
            framing: Framing::default(),
            first_line_end: 0,
            seen: 0,
            line_start: 0,
            line_end_max: 0,
            line: OpenLine::Field,
            fields_left: 0,
            usual: [Usual::NONE; USUAL],
        };
        finder.restart();
        finder
    }

    /// Begins a new section.
    #[inline]
    pub(crate) fn restart(&mut self) {
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

    /// Continues in `section`, which is what was given before and more, and adds its fields to
    /// `entries`. `Some(n)` if the section ends, with its empty line, after `n` bytes.
    // Apart from its callers, since it needs all registers.
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
            // The last line's LF may be the first byte after this block.
            at = self.line_start.max(at + scan::BLOCK);
        }
        self.seen = section.len();
        self.check_open_line(section.len())?;
        Ok(None)
    }

    /// Continues in `section`, of which only a line end and bytes above the controls are new: the
    /// rest of a line that is not empty.
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

    /// How many bytes that are no controls the open line may grow by, without asking again, after
    /// this many bytes of the section; 0 if the next byte has to be looked at.
    pub(crate) fn room(&self, section_len: usize) -> usize {
        if self.seen < section_len {
            0
        } else {
            self.line_end_max.saturating_sub(section_len)
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
        let place = entries.len() % USUAL;
        if !self.usual[place].outline.begins(&section[start..]) {
            self.learn_name(&section[start..], cr - start, entries)?;
        }
        let label = self.usual[place].label;
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
        // What the fields of trailers say about framing, nobody asks.
        if name.is_policed() && self.limits.first_line_max.is_some() {
            self.framing.note(name, value, section)?;
        }
        Ok(false)
    }

    /// Deals with the end of a line that is no ordinary field.
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

    /// Finds the name of a line that does not begin with the usual one, which it becomes.
    ///
    /// `field-line = field-name ":" OWS field-value OWS` (RFC 9112, section 5). Control characters
    /// are excluded before, so a name or a value can only be wrong by its other characters.
    #[cold]
    fn learn_name(
        &mut self,
        lines: &[u8],
        line_len: usize,
        entries: &mut Vec<FieldLine>,
    ) -> Result<(), ErrorKind> {
        if entries.capacity() == 0 {
            entries.reserve(USUAL);
        }
        let line = &lines[..line_len];
        let text = scan::position(line, b':').map(|colon| &line[..colon]);
        let Some(text) = text.filter(|text| text.len() <= usize::from(u16::MAX)) else {
            return Err(diagnose::field_line(line));
        };
        let guess = Name::guess(text);
        let outline = guess.outline();
        let is_guessed = outline.len() == text.len() && outline.begins(lines);
        if !is_guessed && !is_token(text) {
            return Err(diagnose::field_line(line));
        }
        // At the very end of what was received, the outline may miss a known name.
        let name = if is_guessed { guess } else { Name::parse(text) };
        let len = text.len() as u16;
        self.usual[entries.len() % USUAL] = Usual {
            outline: name.outline(),
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

/// How far before its end a value begins without the white space around it, and its length.
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
