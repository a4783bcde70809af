//! Collects a section (a head, or trailers) that may come in pieces.

use super::finder::{Finder, Lines, SectionLimits};
use crate::error::ErrorKind;
use crate::message::is_token_byte;

/// Holds the part of a section that has arrived; empty between two sections.
#[derive(Debug)]
pub(crate) struct SectionBuffer {
    finder: Finder,
    has_first_line: bool,
    partial: Partial,
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
        SectionBuffer {
            finder: Finder::new(limits),
            has_first_line: limits.first_line_max.is_some(),
            partial: Partial::default(),
        }
    }

    /// Whether no byte of a section has arrived.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.partial.len() == 0
    }

    /// What the section that was completed last consists of.
    #[inline]
    pub(crate) fn lines(&self) -> &Lines {
        self.finder.lines()
    }

    /// Takes a single byte in the middle of a line, the case of a head that drips in; false if the
    /// byte needs a closer look.
    #[inline]
    pub(crate) fn take_plain(&mut self, byte: u8) -> bool {
        is_plain(byte) && self.partial.push_in_line(byte)
    }

    /// Takes what belongs to the section. Once complete, the section is moved into `block`, whose
    /// memory is kept for the next one.
    pub(crate) fn take(&mut self, input: &[u8], block: &mut Vec<u8>) -> Result<Taken, ErrorKind> {
        let before = self.partial.len();
        if before == 0 {
            self.finder.restart();
            if self.has_first_line {
                check_first_byte(input)?;
            }
        }
        let Some(end) = self.finder.find(before, input)? else {
            self.partial.append(input, self.finder.open_until());
            return Ok(Taken {
                consumed: input.len(),
                complete: false,
            });
        };
        if before == 0 {
            block.clear();
            block.extend_from_slice(&input[..end]);
        } else {
            self.partial.append(&input[..end], 0);
            self.partial.move_into(block);
        }
        Ok(Taken {
            consumed: end,
            complete: true,
        })
    }
}

/// Visible ASCII or space: allowed in every kind of line, as far as the finder cares.
#[inline]
fn is_plain(byte: u8) -> bool {
    matches!(byte, b' '..=b'~')
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

/// A vector whose bytes up to its length are a window that fills up, so that adding one byte is
/// one comparison, one store and one addition: a head that drips in must cost its sender more
/// than it costs us.
#[derive(Debug, Default)]
struct Partial {
    window: Vec<u8>,
    /// Where the next byte in the middle of a line goes; beyond the window if none may.
    next: usize,
    /// Bytes of the section, while `next` does not say it.
    closed_len: usize,
}

impl Partial {
    const CLOSED: usize = usize::MAX;

    #[inline]
    fn len(&self) -> usize {
        if self.next == Self::CLOSED {
            self.closed_len
        } else {
            self.next
        }
    }

    #[inline]
    fn push_in_line(&mut self, byte: u8) -> bool {
        match self.window.get_mut(self.next) {
            Some(slot) => {
                *slot = byte;
                self.next += 1;
                true
            }
            None => false,
        }
    }

    /// Adds bytes, after which the line may grow up to `open_until`.
    fn append(&mut self, bytes: &[u8], open_until: usize) {
        let len = self.len();
        let end = len + bytes.len();
        // Growing in steps keeps a connection that sends little from holding much.
        const STEP: usize = 512;
        if self.window.len() <= end {
            self.window.resize((end + 1).next_multiple_of(STEP), 0);
        }
        self.window[len..end].copy_from_slice(bytes);
        let is_open = open_until > end;
        if is_open {
            self.window.truncate(open_until);
        }
        (self.next, self.closed_len) = if is_open {
            (end, 0)
        } else {
            (Self::CLOSED, end)
        };
    }

    /// Hands the bytes over in exchange for the memory of `block`.
    fn move_into(&mut self, block: &mut Vec<u8>) {
        self.window.truncate(self.len());
        std::mem::swap(&mut self.window, block);
        (self.next, self.closed_len) = (Self::CLOSED, 0);
    }
}
