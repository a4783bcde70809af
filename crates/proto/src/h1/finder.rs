//! Finds the end of a head in input that comes in any pieces, looking at no byte twice.
//!
//! The finder, not the splitter behind it, is the gatekeeper (RULES 8): it refuses CR and LF that
//! do not form line ends, and sections beyond their limits, as soon as the offending byte is there.

use memchr::memchr2;

use crate::error::ErrorKind;
use crate::limits::Limits;

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
#[derive(Debug, Clone)]
pub(crate) struct Finder {
    /// Limit of the first line, while that line is open.
    first_line_max: Option<usize>,
    /// Offset from which the open line, and all that follow, may not go on.
    end_max: usize,
    /// Offset of the open line's first byte.
    line_start: usize,
    /// Field lines that may still come.
    fields_left: usize,
    /// The last byte was CR.
    after_cr: bool,
}

impl Finder {
    pub(crate) fn new(limits: &SectionLimits) -> Finder {
        Finder {
            first_line_max: limits.first_line_max,
            end_max: limits.bytes_max,
            line_start: 0,
            fields_left: limits.fields_max,
            after_cr: false,
        }
    }

    /// Continues with `input`, before which `before` bytes of the section were seen. `Some(n)` if
    /// the section ends, with its empty line, after `n` bytes of the input.
    #[inline]
    pub(crate) fn find(&mut self, before: usize, input: &[u8]) -> Result<Option<usize>, ErrorKind> {
        let mut at = 0;
        if self.after_cr {
            match input.first() {
                None => return Ok(None),
                Some(b'\n') => at = 1,
                Some(_) => return Err(ErrorKind::BareCr),
            }
            self.after_cr = false;
            if self.end_line(before - 1)? {
                return Ok(Some(at));
            }
        }
        while let Some(skipped) = memchr2(b'\r', b'\n', &input[at..]) {
            let line_end = at + skipped;
            match (input[line_end], input.get(line_end + 1)) {
                (b'\r', Some(b'\n')) => {}
                (b'\r', None) => {
                    self.after_cr = true;
                    self.check_open_line(before + line_end)?;
                    return Ok(None);
                }
                (b'\r', Some(_)) => return Err(ErrorKind::BareCr),
                _ => return Err(ErrorKind::BareLf),
            }
            at = line_end + 2;
            if self.end_line(before + line_end)? {
                return Ok(Some(at));
            }
        }
        self.check_open_line(before + input.len())?;
        Ok(None)
    }

    /// Up to which offset the open line may grow by bytes other than CR and LF without asking the
    /// finder again; 0 if it has to be asked for the next byte.
    pub(crate) fn open_until(&self) -> usize {
        match self.first_line_max {
            _ if self.after_cr => 0,
            Some(line_max) => line_max,
            None => self.end_max,
        }
    }

    /// Deals with a line whose CR is at offset `cr`; true if it is the empty one at the end.
    #[inline]
    fn end_line(&mut self, cr: usize) -> Result<bool, ErrorKind> {
        if cr == self.line_start {
            return Ok(true);
        }
        self.check_open_line(cr)?;
        self.line_start = cr + 2;
        if self.first_line_max.take().is_some() {
            self.end_max += self.line_start;
            return Ok(false);
        }
        self.fields_left = self
            .fields_left
            .checked_sub(1)
            .ok_or(ErrorKind::TooManyFields)?;
        Ok(false)
    }

    #[inline]
    fn check_open_line(&self, end: usize) -> Result<(), ErrorKind> {
        match self.first_line_max {
            Some(line_max) if end > line_max => Err(ErrorKind::RequestLineTooLong),
            None if end > self.end_max => Err(ErrorKind::HeadTooLarge),
            _ => Ok(()),
        }
    }
}
