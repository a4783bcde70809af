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
        let lines = Lines::default();
        let mut finder = Finder {
            limits,
            lines,
            line_start: 0,
            line_end_max: 0,
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
        let skipped = at;
        for control in scan::controls(&input[skipped..]) {
            let control = skipped + control;
            match (input[control], input.get(control + 1)) {
                // The second half of a line end that was dealt with.
                (b'\n', _) if control < at => {}
                (b'\r', Some(b'\n')) => {
                    at = control + 2;
                    if self.end_line(before + control)? {
                        return Ok(Some(at));
                    }
                }
                (b'\r', None) => {
                    self.after_cr = true;
                    self.check_open_line(before + control)?;
                    return Ok(None);
                }
                (b'\r', Some(_)) => return Err(ErrorKind::BareCr),
                (b'\n', _) => return Err(ErrorKind::BareLf),
                (other, _) => self.lines.have_controls |= other != b'\t',
            }
        }
        self.check_open_line(before + input.len())?;
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
        if self.lines.ends.is_empty() && self.limits.first_line_max.is_some() {
            self.line_end_max = cr + 2 + self.limits.bytes_max;
        }
        self.line_start = cr + 2;
        self.lines.ends.push(cr as u32);
        let fields = self.lines.ends.len() - usize::from(self.limits.first_line_max.is_some());
        if fields > self.limits.fields_max {
            Err(ErrorKind::TooManyFields)
        } else {
            Ok(false)
        }
    }

    #[inline]
    fn check_open_line(&self, end: usize) -> Result<(), ErrorKind> {
        if end <= self.line_end_max {
            return Ok(());
        }
        let in_first_line = self.lines.ends.is_empty() && self.limits.first_line_max.is_some();
        Err(if in_first_line {
            ErrorKind::RequestLineTooLong
        } else {
            ErrorKind::HeadTooLarge
        })
    }
}
