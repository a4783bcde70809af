//! Finds the end of a section in input that comes in any pieces, looking at no byte twice.
//!
//! The finder is the gatekeeper (RULES 8): it refuses CR and LF that do not form line ends, and
//! sections beyond their limits, as soon as the offending byte is there.

use crate::error::ErrorKind;
use crate::limits::Limits;
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
    lines: Lines,
    /// Offset of the open line's first byte.
    line_start: usize,
    /// Offset that the open line may not go beyond.
    line_end_max: usize,
    /// No line has ended yet, and the first one is not a field.
    in_first_line: bool,
    /// Number of lines that the section may have.
    lines_max: usize,
    /// The last byte was CR.
    after_cr: bool,
}

/// What is known of a section's lines once its end is found.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    /// For each line but the empty one at the end, the offset of its CR.
    pub(crate) ends: Vec<u32>,
    /// Somewhere there is a control character besides line ends and tabs.
    pub(crate) have_controls: bool,
}

impl Finder {
    pub(crate) fn new(limits: SectionLimits) -> Finder {
        let mut finder = Finder {
            limits,
            lines: Lines::default(),
            line_start: 0,
            line_end_max: 0,
            in_first_line: false,
            lines_max: limits.fields_max + usize::from(limits.first_line_max.is_some()),
            after_cr: false,
        };
        finder.restart();
        finder
    }

    /// Begins a new section.
    #[inline]
    pub(crate) fn restart(&mut self) {
        self.lines.ends.clear();
        self.lines.have_controls = false;
        self.line_start = 0;
        self.in_first_line = self.limits.first_line_max.is_some();
        self.line_end_max = self.limits.first_line_max.unwrap_or(self.limits.bytes_max);
        self.after_cr = false;
    }

    /// What was found; complete once [`Finder::find`] found the end.
    pub(crate) fn lines(&self) -> &Lines {
        &self.lines
    }

    /// Continues with `input`, before which `before` bytes of the section were seen. `Some(n)` if
    /// the section ends, with its empty line, after `n` bytes of the input.
    #[inline]
    pub(crate) fn find(&mut self, before: usize, input: &[u8]) -> Result<Option<usize>, ErrorKind> {
        let (blocks, tail) = input.as_chunks();
        let mut at = 0;
        for block in blocks {
            if let Some(end) = self.find_in_block(before + at, scan::not_plain(block), block)? {
                return Ok(Some(at + end));
            }
            at += scan::BLOCK;
        }
        let end = match input.last_chunk() {
            // The last bytes, some of them again, make a whole block.
            Some(block) if !tail.is_empty() => {
                let not_plain = scan::not_plain(block) >> (scan::BLOCK - tail.len());
                self.find_in_block(before + at, not_plain, tail)?
            }
            _ => self.find_byte_by_byte(before + at, tail)?,
        };
        if let Some(end) = end {
            return Ok(Some(at + end));
        }
        // A CR belongs to the line end, which is not counted.
        self.check_open_line(before + input.len() - usize::from(self.after_cr))?;
        Ok(None)
    }

    /// Looks at a block, or the part of it that was received, in which these bytes are not plain.
    #[inline]
    fn find_in_block(
        &mut self,
        before: usize,
        mut not_plain: u64,
        bytes: &[u8],
    ) -> Result<Option<usize>, ErrorKind> {
        if self.after_cr {
            if let end @ Some(_) = self.find_byte_by_byte(before, &bytes[..1])? {
                return Ok(end);
            }
            not_plain &= !1;
        }
        while not_plain != 0 {
            let at = not_plain.trailing_zeros() as usize;
            // Anything but a whole line end, which is rare, takes the long way.
            if bytes.get(at..at + 2) != Some(b"\r\n") {
                let end = self.find_byte_by_byte(before + at, &bytes[at..])?;
                return Ok(end.map(|end| at + end));
            }
            not_plain &= not_plain - 1;
            not_plain &= not_plain - 1;
            if self.end_line(before + at)? {
                return Ok(Some(at + 2));
            }
        }
        Ok(None)
    }

    fn find_byte_by_byte(
        &mut self,
        before: usize,
        bytes: &[u8],
    ) -> Result<Option<usize>, ErrorKind> {
        for (at, &byte) in bytes.iter().enumerate() {
            match byte {
                b'\n' if self.after_cr => {
                    self.after_cr = false;
                    if self.end_line(before + at - 1)? {
                        return Ok(Some(at + 1));
                    }
                }
                _ if self.after_cr => return Err(ErrorKind::BareCr),
                b'\r' => self.after_cr = true,
                b'\n' => return Err(ErrorKind::BareLf),
                b'\t' => {}
                _ => self.lines.have_controls |= byte.is_ascii_control(),
            }
        }
        Ok(None)
    }

    /// Up to which offset the open line may grow by visible characters without asking again; 0 if
    /// the next byte has to be looked at.
    pub(crate) fn open_until(&self) -> usize {
        if self.after_cr { 0 } else { self.line_end_max }
    }

    /// Deals with a line whose CR is at offset `cr`; true if it is the empty one at the end.
    #[inline]
    fn end_line(&mut self, cr: usize) -> Result<bool, ErrorKind> {
        if cr == self.line_start {
            return Ok(true);
        }
        self.check_open_line(cr)?;
        self.line_start = cr + 2;
        if self.in_first_line {
            self.in_first_line = false;
            self.line_end_max = self.line_start + self.limits.bytes_max;
        }
        if self.lines.ends.len() == self.lines_max {
            return Err(ErrorKind::TooManyFields);
        }
        self.lines.ends.push(cr as u32);
        Ok(false)
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
