//! Collects a section (a head, or trailers) that may come in pieces.

use super::finder::{Finder, LineLimits};
use super::framing::Framing;
use crate::error::ErrorKind;
use crate::message::{Fields, is_token_byte};

/// Collects a section in the block of the fields that it is for.
#[derive(Debug)]
pub(crate) struct SectionBuffer {
    finder: Finder,
    has_first_line: bool,
    /// Some of the section has arrived.
    has_begun: bool,
    recent: Recent,
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
    pub(crate) fn new(limits: LineLimits) -> SectionBuffer {
        SectionBuffer {
            finder: Finder::new(limits),
            has_first_line: limits.first_line_max.is_some(),
            has_begun: false,
            recent: Recent::CLOSED,
        }
    }

    /// Whether no byte of a section has arrived.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        !self.has_begun
    }

    /// Whether what has arrived, and `input` after it, begins like this, as far as it goes.
    #[inline]
    pub(crate) fn may_begin(&self, fields: &Fields, input: &[u8], beginning: &[u8]) -> bool {
        if self.is_empty() {
            let len = input.len().min(beginning.len());
            return input[..len] == beginning[..len];
        }
        let arrived = fields.block.iter().chain(self.recent.bytes()).chain(input);
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
            self.recent.push(byte)
        } else {
            byte == b'\r' && self.recent.push_last(byte)
        }
    }

    /// Takes the LF that ends a line which dripped in; false if there is more to the byte.
    pub(crate) fn take_line_feed(&mut self, fields: &mut Fields) -> Result<bool, ErrorKind> {
        let Fields { block, entries } = fields;
        let [_, .., b'\r'] = self.recent.bytes() else {
            return Ok(false);
        };
        self.recent.move_into(block);
        block.push(b'\n');
        self.finder.find_line(block, entries)?;
        self.recent.open(self.finder.room(block.len()));
        Ok(true)
    }

    /// Takes what belongs to the section. The same fields have to be presented until it is
    /// complete; what they held before is lost with the first byte.
    #[inline(always)]
    pub(crate) fn take(&mut self, input: &[u8], fields: &mut Fields) -> Result<Taken, ErrorKind> {
        if input.is_empty() {
            return Ok(Taken {
                consumed: 0,
                complete: false,
            });
        }
        if self.has_begun {
            return self.take_more(input, fields);
        }
        self.finder.restart();
        fields.clear();
        if self.has_first_line {
            check_first_byte(input)?;
        }
        let found = self.finder.find(input, &mut fields.entries);
        let Some(end) = found.inspect_err(|_| keep_refused(fields, input))? else {
            fields.block.extend_from_slice(input);
            self.has_begun = true;
            self.recent.open(self.finder.room(input.len()));
            return Ok(Taken {
                consumed: input.len(),
                complete: false,
            });
        };
        fields.block.extend_from_slice(&input[..end]);
        Ok(Taken {
            consumed: end,
            complete: true,
        })
    }

    #[cold]
    fn take_more(&mut self, input: &[u8], fields: &mut Fields) -> Result<Taken, ErrorKind> {
        let Fields { block, entries } = fields;
        self.recent.move_into(block);
        let before = block.len();
        // In pieces, because what follows the section would be copied for nothing.
        for piece in input.chunks(PIECE) {
            block.extend_from_slice(piece);
            if let Some(end) = self.finder.find(block, entries)? {
                self.has_begun = false;
                block.truncate(end);
                return Ok(Taken {
                    consumed: end - before,
                    complete: true,
                });
            }
        }
        self.recent.open(self.finder.room(block.len()));
        Ok(Taken {
            consumed: input.len(),
            complete: false,
        })
    }
}

/// Lets the fields before the fault be read: the answer may depend on them.
#[cold]
fn keep_refused(fields: &mut Fields, input: &[u8]) {
    fields.block.extend_from_slice(input);
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

/// Bytes of a line that came one by one. Adding one is a comparison, a store and an addition: a
/// head that drips in must cost its sender more than it costs us.
#[derive(Debug)]
struct Recent {
    bytes: [u8; 256],
    /// Where the first one is: so that the last that may be added is the one before the array's.
    from: u8,
    /// Where the next one goes; at the array's last byte, none may be added.
    at: u8,
    /// Where they end, if none may be added.
    end: u8,
}

impl Recent {
    const CLOSED: Recent = Recent {
        bytes: [0; 256],
        from: u8::MAX,
        at: u8::MAX,
        end: u8::MAX,
    };

    #[inline]
    fn push(&mut self, byte: u8) -> bool {
        // An index of eight bits needs no check; what is written where none may be added, nobody
        // reads.
        self.bytes[usize::from(self.at)] = byte;
        let next = self.at.wrapping_add(1);
        if next == 0 {
            return false;
        }
        self.at = next;
        true
    }

    /// Adds a byte after which the next one has to be looked at.
    #[inline(never)]
    fn push_last(&mut self, byte: u8) -> bool {
        let is_pushed = self.push(byte);
        if is_pushed {
            (self.end, self.at) = (self.at, u8::MAX);
        }
        is_pushed
    }

    fn bytes(&self) -> &[u8] {
        let end = if self.at < u8::MAX { self.at } else { self.end };
        self.bytes
            .get(usize::from(self.from)..usize::from(end))
            .unwrap_or(&[])
    }

    /// Lets so many bytes be added.
    fn open(&mut self, room: usize) {
        self.from = u8::MAX - room.min(usize::from(u8::MAX)) as u8;
        (self.at, self.end) = (self.from, u8::MAX);
    }

    /// Moves the bytes to the end of the block; no more may be added.
    fn move_into(&mut self, block: &mut Vec<u8>) {
        block.extend_from_slice(self.bytes());
        self.open(0);
    }
}
