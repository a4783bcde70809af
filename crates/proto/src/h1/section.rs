//! Buffers a section (a head, or trailers) that may arrive in pieces.

use super::finder::{Finder, LineLimits};
use super::framing::FramingFields;
use crate::error::ErrorKind;
use crate::message::{Fields, is_token_byte};

/// Buffers a section in the block of its fields.
#[derive(Debug)]
pub(crate) struct SectionBuffer {
    finder: Finder,
    has_first_line: bool,
    /// The first byte of the section has arrived.
    has_begun: bool,
    partial_line: PartialLine,
}

/// The result of one call of [`SectionBuffer::take`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SectionStep {
    /// Bytes of the input that belong to the section.
    pub(crate) consumed: usize,
    /// The caller's fields hold the section, with the text up to and including the empty line.
    pub(crate) complete: bool,
}

impl SectionBuffer {
    pub(crate) fn new(limits: LineLimits) -> SectionBuffer {
        SectionBuffer {
            finder: Finder::new(limits),
            has_first_line: limits.first_line_max.is_some(),
            has_begun: false,
            partial_line: PartialLine::CLOSED,
        }
    }

    /// Whether no byte of a section has arrived.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        !self.has_begun
    }

    /// Whether the received bytes, followed by `input`, agree with `beginning` over the shorter of
    /// the two lengths.
    #[inline]
    pub(crate) fn may_begin(&self, fields: &Fields, input: &[u8], beginning: &[u8]) -> bool {
        if self.is_empty() {
            let mut pairs = input.iter().zip(beginning);
            return pairs.all(|(byte, wanted)| byte == wanted);
        }
        let arrived = fields
            .block
            .iter()
            .chain(self.partial_line.bytes())
            .chain(input);
        arrived.zip(beginning).all(|(byte, wanted)| byte == wanted)
    }

    /// Offset of the CR of the first line, in the last complete head.
    #[inline]
    pub(crate) fn first_line_end(&self) -> usize {
        self.finder.first_line_end
    }

    /// Bytes that the first line of a head may have.
    #[inline]
    pub(crate) fn first_line_max(&self) -> usize {
        self.finder.first_line_max()
    }

    /// The framing that the fields of that head declare.
    #[inline]
    pub(crate) fn framing(&self) -> &FramingFields {
        &self.finder.framing
    }

    /// Takes a single byte in the middle of a line, for a head that arrives byte by byte; false if
    /// the byte needs the full parser.
    #[inline]
    pub(crate) fn take_in_line(&mut self, byte: u8) -> bool {
        if byte >= b' ' {
            self.partial_line.push(byte)
        } else {
            byte == b'\r' && self.partial_line.push_last(byte)
        }
    }

    /// Takes the LF at the end of a line that arrived byte by byte; false if the byte needs the full
    /// parser.
    pub(crate) fn take_line_feed(&mut self, fields: &mut Fields) -> Result<bool, ErrorKind> {
        let Fields { block, entries } = fields;
        let [_, .., b'\r'] = self.partial_line.bytes() else {
            return Ok(false);
        };
        self.partial_line.move_into(block);
        block.push(b'\n');
        self.finder.find_line(block, entries)?;
        self.partial_line.open(self.finder.room(block.len()));
        Ok(true)
    }

    /// Takes the bytes that belong to the section. The caller passes the same fields until the
    /// section is complete; the first byte clears them.
    #[inline(always)]
    pub(crate) fn take(
        &mut self,
        input: &[u8],
        fields: &mut Fields,
    ) -> Result<SectionStep, ErrorKind> {
        if input.is_empty() {
            return Ok(SectionStep {
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
        let Some(end) = found.inspect_err(|_| keep_refused_input(fields, input))? else {
            fields.block.extend_from_slice(input);
            self.has_begun = true;
            self.partial_line.open(self.finder.room(input.len()));
            return Ok(SectionStep {
                consumed: input.len(),
                complete: false,
            });
        };
        fields.block.extend_from_slice(&input[..end]);
        Ok(SectionStep {
            consumed: end,
            complete: true,
        })
    }

    #[cold]
    fn take_more(&mut self, input: &[u8], fields: &mut Fields) -> Result<SectionStep, ErrorKind> {
        let Fields { block, entries } = fields;
        self.partial_line.move_into(block);
        let before = block.len();
        // In pieces, to avoid copying many bytes that follow the section.
        for piece in input.chunks(PIECE) {
            block.extend_from_slice(piece);
            if let Some(end) = self.finder.find(block, entries)? {
                self.has_begun = false;
                block.truncate(end);
                return Ok(SectionStep {
                    consumed: end - before,
                    complete: true,
                });
            }
        }
        self.partial_line.open(self.finder.room(block.len()));
        Ok(SectionStep {
            consumed: input.len(),
            complete: false,
        })
    }
}

/// Keeps the bytes before the fault readable: the response may depend on them.
#[cold]
fn keep_refused_input(fields: &mut Fields, input: &[u8]) {
    fields.block.extend_from_slice(input);
}

/// Bytes that are appended to an incomplete section at once.
const PIECE: usize = 512;

/// A head begins with a token, or with the CR of an empty line. Other input, for example a TLS
/// handshake, may never contain a line end, so it is refused at once and not at the deadline.
#[inline]
fn check_first_byte(input: &[u8]) -> Result<(), ErrorKind> {
    match input.first() {
        Some(&byte) if !is_token_byte(byte) && byte != b'\r' && byte != b'\n' => {
            Err(ErrorKind::Method)
        }
        _ => Ok(()),
    }
}

/// Bytes of a line that arrived one by one. Adding one is a comparison, a store and an addition: a
/// head that arrives byte by byte must cost the sender more than the receiver.
#[derive(Debug)]
struct PartialLine {
    bytes: [u8; 256],
    /// Index of the first byte, chosen so that the buffer is full one byte before the array's end.
    from: u8,
    /// Index of the next byte; the array's last index means that the buffer is closed.
    at: u8,
    /// Index behind the last byte, if the buffer is closed.
    end: u8,
}

impl PartialLine {
    const CLOSED: PartialLine = PartialLine {
        bytes: [0; 256],
        from: u8::MAX,
        at: u8::MAX,
        end: u8::MAX,
    };

    #[inline]
    fn push(&mut self, byte: u8) -> bool {
        // An index of eight bits needs no bounds check; a byte written to a closed buffer is never
        // read.
        self.bytes[usize::from(self.at)] = byte;
        let next = self.at.wrapping_add(1);
        if next == 0 {
            return false;
        }
        self.at = next;
        true
    }

    /// Adds a byte and closes the buffer, so that the full parser takes the next byte.
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

    /// Empties the buffer and makes room for `room` bytes, at most 255.
    fn open(&mut self, room: usize) {
        self.from = u8::MAX - room.min(usize::from(u8::MAX)) as u8;
        (self.at, self.end) = (self.from, u8::MAX);
    }

    /// Moves the bytes to the end of the block and closes the buffer.
    fn move_into(&mut self, block: &mut Vec<u8>) {
        block.extend_from_slice(self.bytes());
        self.open(0);
    }
}
