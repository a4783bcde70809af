//! Collects a section (a head, or trailers) that may come in pieces.

use super::finder::{Finder, SectionLimits};
use crate::error::ErrorKind;
use crate::message::is_token_byte;

/// Holds the part of a section that has arrived; empty between two sections.
#[derive(Debug)]
pub(crate) struct SectionBuffer {
    limits: SectionLimits,
    finder: Finder,
    partial: Vec<u8>,
    /// While `partial` is shorter than this, a byte that is not a control needs no finder.
    plain_until: usize,
}

/// Outcome of one attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Taken {
    /// Bytes of the input that went into the section.
    pub(crate) consumed: usize,
    /// The block holds the whole section, with the empty line at its end.
    pub(crate) complete: bool,
}

impl SectionBuffer {
    pub(crate) fn new(limits: SectionLimits) -> SectionBuffer {
        let finder = Finder::new(&limits);
        SectionBuffer {
            limits,
            finder,
            partial: Vec::new(),
            plain_until: 0,
        }
    }

    /// Whether no byte of a section has arrived.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.partial.is_empty()
    }

    /// Takes a single byte in the middle of a line, the case of a head that drips in; false if the
    /// byte needs a closer look. Some ten instructions, so that dripping costs the sender more.
    #[inline]
    pub(crate) fn take_plain(&mut self, byte: u8) -> bool {
        let is_plain = byte >= b' ' && self.partial.len() < self.plain_until;
        if is_plain {
            self.partial.push(byte);
        }
        is_plain
    }

    /// Takes what belongs to the section. Once complete, the section is moved into `block`, whose
    /// memory is kept for the next one.
    pub(crate) fn take(&mut self, input: &[u8], block: &mut Vec<u8>) -> Result<Taken, ErrorKind> {
        if self.partial.is_empty() && self.limits.first_line_max.is_some() {
            check_first_byte(input)?;
        }
        let Some(end) = self.finder.find(self.partial.len(), input)? else {
            self.partial.extend_from_slice(input);
            self.plain_until = self.finder.open_until();
            return Ok(Taken {
                consumed: input.len(),
                complete: false,
            });
        };
        block.clear();
        if self.partial.is_empty() {
            block.extend_from_slice(&input[..end]);
        } else {
            self.partial.extend_from_slice(&input[..end]);
            std::mem::swap(&mut self.partial, block);
        }
        self.finder = Finder::new(&self.limits);
        self.plain_until = 0;
        Ok(Taken {
            consumed: end,
            complete: true,
        })
    }
}

/// A head begins with a token, or with the CR of an empty line. Anything else, a TLS handshake for
/// example, would never end its line, and its sender should not have to wait for a deadline.
#[inline]
fn check_first_byte(input: &[u8]) -> Result<(), ErrorKind> {
    match input.first() {
        Some(&byte) if !is_token_byte(byte) && byte != b'\r' && byte != b'\n' => {
            Err(ErrorKind::Method)
        }
        _ => Ok(()),
    }
}
