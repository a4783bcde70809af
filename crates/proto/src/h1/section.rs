//! Collects a section (a head, or trailers) that may come in pieces.

use super::finder::{Finder, SectionLimits};
use super::framing::Framing;
use crate::error::ErrorKind;
use crate::message::{Fields, is_token_byte};

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
    /// The section is in the caller's fields, its text with the empty line at the end.
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

    /// Whether what has arrived, and `input` after it, begins like this, as far as it goes.
    #[inline]
    pub(crate) fn may_begin(&self, input: &[u8], beginning: &[u8]) -> bool {
        if self.is_empty() && input.starts_with(beginning) {
            return true;
        }
        let arrived = self.partial.bytes().iter().chain(input);
        arrived.zip(beginning).all(|(byte, wanted)| byte == wanted)
    }

    /// Where the CR of the first line of the head is that was completed last.
    #[inline]
    pub(crate) fn first_line_end(&self) -> usize {
        self.finder.first_line_end
    }

    /// What the fields of that head say about framing.
    #[inline]
    pub(crate) fn framing(&self) -> &Framing {
        &self.finder.framing
    }

    /// Takes a single byte in the middle of a line, the case of a head that drips in; false if the
    /// byte needs a closer look.
    #[inline]
    pub(crate) fn take_in_line(&mut self, byte: u8) -> bool {
        if byte >= b' ' {
            self.partial.push(byte)
        } else {
            byte == b'\r' && self.partial.push_last(byte)
        }
    }

    /// Takes what belongs to the section. Once complete, it is moved into `fields`, whose memory
    /// is kept for the next one.
    #[inline(always)]
    pub(crate) fn take(&mut self, input: &[u8], fields: &mut Fields) -> Result<Taken, ErrorKind> {
        if input.is_empty() {
            return Ok(Taken {
                consumed: 0,
                complete: false,
            });
        }
        if !self.is_empty() {
            return self.take_more(input, fields);
        }
        self.finder.restart();
        if self.has_first_line {
            check_first_byte(input)?;
        }
        let Some(end) = self.finder.find(input)? else {
            self.partial.append(input);
            self.partial.open(self.finder.open_until(input.len()));
            return Ok(Taken {
                consumed: input.len(),
                complete: false,
            });
        };
        fields.block.clear();
        fields.block.extend_from_slice(&input[..end]);
        std::mem::swap(&mut self.finder.entries, &mut fields.entries);
        Ok(Taken {
            consumed: end,
            complete: true,
        })
    }

    #[cold]
    fn take_more(&mut self, input: &[u8], fields: &mut Fields) -> Result<Taken, ErrorKind> {
        let before = self.partial.len();
        // In pieces, because what follows the section would be copied for nothing.
        for piece in input.chunks(PIECE) {
            self.partial.append(piece);
            if let Some(end) = self.finder.find(self.partial.bytes())? {
                self.partial.move_into(end, &mut fields.block);
                std::mem::swap(&mut self.finder.entries, &mut fields.entries);
                return Ok(Taken {
                    consumed: end - before,
                    complete: true,
                });
            }
        }
        self.partial
            .open(self.finder.open_until(self.partial.len()));
        Ok(Taken {
            consumed: input.len(),
            complete: false,
        })
    }
}

/// Bytes of a section that are appended to its beginning at once.
const PIECE: usize = 512;

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
    fn bytes(&self) -> &[u8] {
        &self.window[..self.len()]
    }

    #[inline]
    fn push(&mut self, byte: u8) -> bool {
        match self.window.get_mut(self.next) {
            Some(slot) => {
                *slot = byte;
                self.next += 1;
                true
            }
            None => false,
        }
    }

    /// Adds a byte after which the next one has to be looked at.
    #[inline(never)]
    fn push_last(&mut self, byte: u8) -> bool {
        let is_pushed = self.push(byte);
        if is_pushed {
            (self.next, self.closed_len) = (Self::CLOSED, self.next);
        }
        is_pushed
    }

    /// Adds bytes; none may be pushed until [`Partial::open`].
    fn append(&mut self, bytes: &[u8]) {
        let len = self.len();
        let end = len + bytes.len();
        if self.window.len() < end {
            // Growing in steps keeps a connection that sends little from holding much.
            let room = end.next_multiple_of(PIECE);
            let has_room = self.window.capacity() >= end;
            self.window.resize(
                if has_room {
                    room.min(self.window.capacity())
                } else {
                    room
                },
                0,
            );
        }
        match bytes {
            // A head that drips in ends its lines here.
            [byte] => self.window[len] = *byte,
            _ => self.window[len..end].copy_from_slice(bytes),
        }
        (self.next, self.closed_len) = (Self::CLOSED, end);
    }

    /// Lets single bytes be pushed until the section has this length.
    fn open(&mut self, until: usize) {
        if until > self.closed_len {
            self.window.truncate(until);
            self.next = self.closed_len;
        }
    }

    /// Hands the first bytes over in exchange for the memory of `block`. The others were only
    /// looked at and stay with the caller.
    fn move_into(&mut self, end: usize, block: &mut Vec<u8>) {
        self.window.truncate(end);
        std::mem::swap(&mut self.window, block);
        (self.next, self.closed_len) = (Self::CLOSED, 0);
    }
}
