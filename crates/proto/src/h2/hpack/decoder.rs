//! Decoding header blocks (RFC 7541, section 3).

use super::{Malformed, read_integer, static_table};
use crate::error::ErrorKind;
use crate::field_compression::huffman;
use crate::field_compression::table::{DynamicTable, ENTRY_OVERHEAD};
use crate::field_section::{Budget, DecodedLine, FieldLines, LineName, Overflow, line_problem};
use crate::message::Name;

/// The decoder of one direction.
#[derive(Debug)]
pub struct Decoder {
    table: DynamicTable,
    /// The largest table size that the peer may set.
    size_limit: usize,
}

/// A block that is being decoded.
#[derive(Debug)]
struct FieldBlock<'a> {
    rest: &'a [u8],
    budget: Budget,
    /// A size update is valid only before the first field.
    has_begun: bool,
}

/// The lines of a block.
pub(crate) struct BlockLines<'d, 'b> {
    decoder: &'d mut Decoder,
    block: FieldBlock<'b>,
}

impl Decoder {
    /// A decoder whose table holds at most `size_limit` bytes, as RFC 7541 counts them. The peer
    /// must learn it from `SETTINGS_HEADER_TABLE_SIZE` if it is not 4,096.
    #[must_use]
    pub fn new(size_limit: usize) -> Decoder {
        Decoder {
            table: DynamicTable::new(size_limit.min(DEFAULT_SIZE)),
            size_limit: size_limit.max(DEFAULT_SIZE),
        }
    }

    /// Decodes a whole block and reports each field: name, value and whether it may never be
    /// indexed. For tools and tests; a connection decodes directly into a message.
    ///
    /// # Errors
    /// The block is malformed.
    pub fn decode(
        &mut self,
        block: &[u8],
        mut on_field: impl FnMut(&[u8], &[u8], bool),
    ) -> Result<(), Malformed> {
        let mut block = FieldBlock::new(block, Budget::unlimited());
        let mut text = Vec::new();
        while let Some(line) = self.next(&mut block, &mut text)? {
            let value_start = line.value_start as usize;
            let name = match line.name.known_text() {
                "" => &text[value_start - usize::from(line.name_len)..value_start],
                known => known.as_bytes(),
            };
            let value = &text[value_start..][..line.value_len as usize];
            on_field(name, value, line.never_indexed);
            text.clear();
        }
        Ok(())
    }

    /// Changes the largest table size, after the peer has acknowledged the settings.
    pub(crate) fn set_size_limit(&mut self, size_limit: usize) {
        self.size_limit = size_limit;
        if self.table.size_max() > size_limit {
            self.table.resize(size_limit);
        }
    }

    /// Differs after every change of the table. While it is equal, a block decodes to the same fields.
    #[inline]
    pub(crate) fn version(&self) -> u32 {
        self.table.version()
    }

    /// The next field of the block within its limits; its text is appended to `text`.
    #[inline(always)]
    fn next(
        &mut self,
        block: &mut FieldBlock<'_>,
        text: &mut Vec<u8>,
    ) -> Result<Option<DecodedLine>, Malformed> {
        // After the first requests, nearly every field is an index of one byte.
        if let [first @ 0x81..=0xfe, after @ ..] = block.rest {
            block.rest = after;
            let line = self.indexed(usize::from(first & 0x7f), block, text)?;
            if line.is_some() {
                return Ok(line);
            }
        }
        self.next_other(block, text)
    }

    #[inline(never)]
    fn next_other(
        &mut self,
        block: &mut FieldBlock<'_>,
        text: &mut Vec<u8>,
    ) -> Result<Option<DecodedLine>, Malformed> {
        while let Some(&first) = block.rest.first() {
            let line = if first & 0x80 != 0 {
                let index = read_integer(&mut block.rest, 7)?;
                self.indexed(index, block, text)?
            } else {
                self.not_indexed(first, block, text)?
            };
            if line.is_some() {
                return Ok(line);
            }
        }
        Ok(None)
    }

    /// RFC 7541, section 6.1.
    #[inline(always)]
    fn indexed(
        &self,
        index: usize,
        block: &mut FieldBlock<'_>,
        text: &mut Vec<u8>,
    ) -> Result<Option<DecodedLine>, Malformed> {
        block.has_begun = true;
        if let Some(age) = index.checked_sub(static_table::LEN + 1) {
            let entry = self.table.get(age).ok_or(Malformed)?;
            if !block.budget.admits(entry.name, entry.size) {
                return Ok(None);
            }
            let name_len = self.table.copy_name(entry, text);
            let value = self.table.value(entry);
            let value_start = text.len();
            text.extend_from_slice(value);
            let line = DecodedLine::new(
                entry.name,
                entry.problem,
                name_len,
                value_start,
                value.len(),
            );
            return Ok(Some(line));
        }
        let entry = static_table::get(index).ok_or(Malformed)?;
        if !block.budget.admits(entry.name, entry.size) {
            return Ok(None);
        }
        let value_start = text.len();
        text.extend_from_slice(entry.value.as_bytes());
        let problem = if entry.value.is_empty() {
            line_problem(entry.name, b"")
        } else {
            None
        };
        Ok(Some(DecodedLine::new(
            entry.name,
            problem,
            0,
            value_start,
            entry.value.len(),
        )))
    }

    /// Literal fields and size updates (RFC 7541, sections 6.2 and 6.3).
    fn not_indexed(
        &mut self,
        first: u8,
        block: &mut FieldBlock<'_>,
        text: &mut Vec<u8>,
    ) -> Result<Option<DecodedLine>, Malformed> {
        match first >> 4 {
            0b0100.. => self.literal(block, 6, text),
            0b0010 | 0b0011 => {
                let size = read_integer(&mut block.rest, 5)?;
                // RFC 7541, section 4.2: "This dynamic table size update MUST occur at the
                // beginning of the first header block following the change".
                if block.has_begun || size > self.size_limit {
                    return Err(Malformed);
                }
                self.table.resize(size);
                Ok(None)
            }
            _ => self.literal(block, 4, text),
        }
    }

    fn literal(
        &mut self,
        block: &mut FieldBlock<'_>,
        prefix_bits: u32,
        text: &mut Vec<u8>,
    ) -> Result<Option<DecodedLine>, Malformed> {
        let never_indexed = block.rest[0] >> 4 == 0b0001;
        block.has_begun = true;
        let start = text.len();
        let (name, name_problem) = self.name(block, prefix_bits, text)?;
        let value_start = text.len();
        string(&mut block.rest, text)?;
        let (name_text, value) = text[start..].split_at(value_start - start);
        let problem = name_problem.or_else(|| line_problem(name, value));
        let name_len = name.known_text().len().max(name_text.len());
        let size = name_len + value.len() + ENTRY_OVERHEAD;
        let (name_len, value_len) = (name_text.len(), value.len());
        if prefix_bits == 6 {
            self.table.insert(name, problem, name_text, value);
        }
        if name_len > usize::from(u16::MAX) || !block.budget.admits(name, size as u32) {
            block.budget.exceed(Overflow::Bytes);
            text.truncate(start);
            return Ok(None);
        }
        let line = DecodedLine::new(name, problem, name_len, value_start, value_len);
        Ok(Some(DecodedLine {
            never_indexed,
            ..line
        }))
    }

    /// Reads a name; its text remains in `text` only if the name is not known.
    fn name(
        &mut self,
        block: &mut FieldBlock<'_>,
        prefix_bits: u32,
        text: &mut Vec<u8>,
    ) -> Result<(LineName, Option<ErrorKind>), Malformed> {
        let index = read_integer(&mut block.rest, prefix_bits)?;
        if index == 0 {
            let start = text.len();
            string(&mut block.rest, text)?;
            let (name, problem) = LineName::parse(&text[start..]);
            if !name.known_text().is_empty() {
                text.truncate(start);
            }
            return Ok((name, problem));
        }
        if let Some(entry) = static_table::get(index) {
            return Ok((entry.name, None));
        }
        let entry = self
            .table
            .get(index - static_table::LEN - 1)
            .ok_or(Malformed)?;
        text.extend_from_slice(self.table.name_text(entry));
        // The problem of the old entry may concern only its value. An unknown name is checked again:
        // a malformed name, also an empty one, is malformed from any source (RFC 9113, section
        // 8.2.1).
        let problem = match entry.name {
            LineName::Field(Name::Other) if entry.problem.is_some() => {
                LineName::parse(self.table.name_text(entry)).1
            }
            _ => None,
        };
        Ok((entry.name, problem))
    }

    /// Bytes of memory held.
    pub(crate) fn memory(&self) -> usize {
        self.table.memory()
    }
}

impl<'d, 'b> BlockLines<'d, 'b> {
    /// The lines of a block within this budget.
    #[inline]
    pub(crate) fn new(
        decoder: &'d mut Decoder,
        block: &'b [u8],
        budget: Budget,
    ) -> BlockLines<'d, 'b> {
        let block = FieldBlock::new(block, budget);
        BlockLines { decoder, block }
    }
}

impl FieldLines for BlockLines<'_, '_> {
    #[inline(always)]
    fn next_line(&mut self, text: &mut Vec<u8>) -> Result<Option<DecodedLine>, Malformed> {
        self.decoder.next(&mut self.block, text)
    }

    #[inline]
    fn overflow(&self) -> Option<Overflow> {
        self.block.budget.overflow()
    }
}

impl<'a> FieldBlock<'a> {
    fn new(bytes: &'a [u8], budget: Budget) -> FieldBlock<'a> {
        FieldBlock {
            rest: bytes,
            budget,
            has_begun: false,
        }
    }
}

/// The initial size on both ends (RFC 9113, section 6.5.2).
const DEFAULT_SIZE: usize = 4096;

/// Appends a string literal (RFC 7541, section 5.2).
fn string(rest: &mut &[u8], out: &mut Vec<u8>) -> Result<(), Malformed> {
    let is_huffman = rest.first().ok_or(Malformed)? & 0x80 != 0;
    let len = read_integer(rest, 7)?;
    let (text, after) = rest.split_at_checked(len).ok_or(Malformed)?;
    *rest = after;
    if is_huffman {
        return huffman::decode(text, out);
    }
    out.extend_from_slice(text);
    Ok(())
}
