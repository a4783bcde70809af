//! Decoding field sections, and the instructions that change the table they refer to (RFC 9204, sections 2.2
//! and 4).

use super::{read_integer, static_table};
use crate::error::ErrorKind;
use crate::field_compression::table::{DynamicEntry, DynamicTable, ENTRY_OVERHEAD};
use crate::field_compression::{Malformed, huffman, integer};
use crate::field_section::{Budget, DecodedLine, FieldLines, LineName, Overflow, line_problem};
use crate::message::Name;

/// The decoder of one connection.
#[derive(Debug)]
pub struct Decoder {
    table: DynamicTable,
    /// The largest capacity that the peer may set.
    capacity_max: usize,
    /// Entries inserted since the beginning.
    inserted: u64,
    /// Changes with each instruction.
    version: u32,
    /// As many of them as the peer knows to have arrived.
    known: u64,
    /// Bytes that were inserted, as RFC 9204 counts them. A duplication of one byte inserts a whole entry.
    inserted_bytes: u64,
    /// The beginning of an instruction whose rest has not arrived.
    partial: Vec<u8>,
    /// A name that is inserted again while its entry may be evicted.
    scratch: Vec<u8>,
}

/// The prefix of a field section (RFC 9204, section 4.5.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefix {
    /// The number of insertions that the section needs.
    required: u64,
    base: u64,
    /// Bytes of the prefix.
    len: usize,
}

/// The lines of a section.
pub(crate) struct SectionLines<'d, 'b> {
    decoder: &'d Decoder,
    section: FieldSection<'b>,
}

#[derive(Debug)]
struct FieldSection<'b> {
    rest: &'b [u8],
    prefix: Prefix,
    budget: Budget,
}

/// The Huffman code of a text has at most 30 bits for a byte.
const CODE_BYTES_MAX: usize = 4;

/// Bytes of an instruction beside its texts.
const INSTRUCTION_OVERHEAD: usize = 24;

/// An instruction of the encoder (RFC 9204, section 4.3).
#[derive(Debug, Clone, Copy)]
enum Instruction<'b> {
    Capacity(u64),
    InsertStatic(u64, StringLiteral<'b>),
    InsertDynamic(u64, StringLiteral<'b>),
    Insert(StringLiteral<'b>, StringLiteral<'b>),
    Duplicate(u64),
}

/// A string literal that is not decoded yet.
#[derive(Debug, Clone, Copy)]
struct StringLiteral<'b> {
    bytes: &'b [u8],
    is_huffman: bool,
}

/// The end of the input came before that of an instruction.
enum Incomplete {
    /// More may come.
    More,
    Never,
}

impl Decoder {
    /// A decoder whose table holds at most `capacity_max` bytes, which the peer learns from
    /// `SETTINGS_QPACK_MAX_TABLE_CAPACITY` (RFC 9204, section 5).
    #[must_use]
    pub fn new(capacity_max: usize) -> Decoder {
        Decoder {
            table: DynamicTable::new(0),
            capacity_max,
            inserted: 0,
            version: 0,
            known: 0,
            inserted_bytes: 0,
            partial: Vec::new(),
            scratch: Vec::new(),
        }
    }

    /// Handles bytes of the peer's encoder stream.
    ///
    /// # Errors
    /// QPACK_ENCODER_STREAM_ERROR.
    pub fn handle_instructions(&mut self, bytes: &[u8]) -> Result<(), Malformed> {
        if self.partial.is_empty() {
            let consumed = self.follow(bytes)?;
            self.partial.extend_from_slice(&bytes[consumed..]);
        } else {
            let mut partial = std::mem::take(&mut self.partial);
            partial.extend_from_slice(bytes);
            let consumed = self.follow(&partial)?;
            partial.drain(..consumed);
            self.partial = partial;
        }
        if self.partial.is_empty() {
            self.partial = Vec::new();
        }
        Ok(())
    }

    /// Follows all complete instructions; returns their length.
    fn follow(&mut self, bytes: &[u8]) -> Result<usize, Malformed> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let mut after = rest;
            match Instruction::parse(&mut after, self.capacity_max) {
                Ok(instruction) => self.execute(instruction)?,
                Err(Incomplete::More) => break,
                Err(Incomplete::Never) => return Err(Malformed),
            }
            rest = after;
        }
        Ok(bytes.len() - rest.len())
    }

    fn execute(&mut self, instruction: Instruction<'_>) -> Result<(), Malformed> {
        let mut text = std::mem::take(&mut self.scratch);
        let done = self.execute_with(instruction, &mut text);
        text.clear();
        self.scratch = text;
        done
    }

    fn execute_with(
        &mut self,
        instruction: Instruction<'_>,
        text: &mut Vec<u8>,
    ) -> Result<(), Malformed> {
        self.version = self.version.wrapping_add(1);
        let (name, name_problem) = match instruction {
            Instruction::Capacity(capacity) => {
                let capacity = usize::try_from(capacity).map_err(|_| Malformed)?;
                if capacity > self.capacity_max {
                    return Err(Malformed);
                }
                self.table.resize(capacity);
                return Ok(());
            }
            Instruction::InsertStatic(index, _) => {
                let entry = static_table::get(index).ok_or(Malformed)?;
                text.extend_from_slice(entry.name_text.as_bytes());
                (entry.name, None)
            }
            Instruction::InsertDynamic(age, _) | Instruction::Duplicate(age) => {
                let entry = self.by_age(age)?;
                text.extend_from_slice(self.table.name_text(entry));
                (entry.name, name_problem(&self.table, entry))
            }
            Instruction::Insert(name, _) => {
                name.decode(text)?;
                let (name, problem) = LineName::parse(text);
                if !name.known_text().is_empty() {
                    text.clear();
                }
                (name, problem)
            }
        };
        let value_start = text.len();
        match instruction {
            Instruction::InsertStatic(_, value)
            | Instruction::InsertDynamic(_, value)
            | Instruction::Insert(_, value) => value.decode(text)?,
            Instruction::Duplicate(age) => {
                let entry = self.by_age(age)?;
                text.extend_from_slice(self.table.value(entry));
            }
            Instruction::Capacity(_) => {}
        }
        let (name_text, value) = text.split_at(value_start);
        let name_len = name.known_text().len() + name_text.len();
        // RFC 9204, section 3.2.2: "It is an error if the encoder attempts to add an entry that is larger
        // than the dynamic table capacity".
        let size = name_len + value.len() + ENTRY_OVERHEAD;
        if size > self.table.size_max() {
            return Err(Malformed);
        }
        self.inserted_bytes += size as u64;
        let problem = name_problem.or_else(|| line_problem(name, value));
        self.table.insert(name, problem, name_text, value);
        self.inserted += 1;
        Ok(())
    }

    /// The entry that was inserted `age` insertions before the last.
    fn by_age(&self, age: u64) -> Result<&DynamicEntry, Malformed> {
        let age = usize::try_from(age).map_err(|_| Malformed)?;
        self.table.get(age).ok_or(Malformed)
    }

    /// Changes with the table: what a section means depends on it.
    pub(crate) fn version(&self) -> u32 {
        self.version
    }

    /// Reads the prefix of a section.
    ///
    /// # Errors
    /// QPACK_DECOMPRESSION_FAILED.
    pub fn prefix(&self, section: &[u8]) -> Result<Prefix, Malformed> {
        let mut rest = section;
        let encoded = read_integer(&mut rest, 8)?;
        let is_negative = rest.first().ok_or(Malformed)? & 0x80 != 0;
        let delta = read_integer(&mut rest, 7)?;
        let required = self.required(encoded)?;
        let base = match is_negative {
            false => required.checked_add(delta),
            true => required
                .checked_sub(delta)
                .and_then(|base| base.checked_sub(1)),
        };
        Ok(Prefix {
            required,
            base: base.ok_or(Malformed)?,
            len: section.len() - rest.len(),
        })
    }

    /// RFC 9204, section 4.5.1.1.
    fn required(&self, encoded: u64) -> Result<u64, Malformed> {
        if encoded == 0 {
            return Ok(0);
        }
        let entries_max = (self.capacity_max / ENTRY_OVERHEAD) as u64;
        let full_range = 2 * entries_max;
        if encoded > full_range {
            return Err(Malformed);
        }
        let value_max = self.inserted + entries_max;
        let wrapped = value_max / full_range * full_range;
        let required = wrapped + encoded - 1;
        match required {
            0 => Err(Malformed),
            _ if required <= value_max => Ok(required),
            _ if required <= full_range => Err(Malformed),
            _ => Ok(required - full_range),
        }
    }

    /// Whether a section has to wait for instructions.
    #[must_use]
    pub fn is_blocked(&self, prefix: &Prefix) -> bool {
        prefix.required > self.inserted
    }

    /// A section was decoded whose prefix is this: appends what the peer has to know (RFC 9204, section 4.4.1).
    pub fn acknowledge(&mut self, prefix: &Prefix, stream: u64, out: &mut Vec<u8>) {
        if prefix.required > 0 {
            integer::write(stream, 7, 0x80, out);
            self.known = self.known.max(prefix.required);
        }
    }

    /// A stream ends whose sections will not be decoded: appends what the peer has to know (RFC 9204, section
    /// 4.4.2). Not needed without a table.
    pub fn cancel(&self, stream: u64, out: &mut Vec<u8>) {
        if self.capacity_max > 0 {
            integer::write(stream, 6, 0x40, out);
        }
    }

    /// Appends how many insertions have arrived that the peer does not know to have (RFC 9204, section 4.4.3).
    pub fn acknowledge_insertions(&mut self, out: &mut Vec<u8>) {
        if self.inserted > self.known {
            integer::write(self.inserted - self.known, 6, 0x00, out);
            self.known = self.inserted;
        }
    }

    /// Decodes a whole section that is not blocked, and reports each field: name, value and whether it may
    /// never be indexed. For tools and tests; a connection decodes directly into a message.
    ///
    /// # Errors
    /// QPACK_DECOMPRESSION_FAILED.
    pub fn decode(
        &self,
        prefix: &Prefix,
        section: &[u8],
        mut on_field: impl FnMut(&[u8], &[u8], bool),
    ) -> Result<(), Malformed> {
        let mut lines = SectionLines::new(self, prefix, section, Budget::unlimited());
        let mut text = Vec::new();
        while let Some(line) = lines.next_line(&mut text)? {
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

    /// Bytes that were inserted since the beginning.
    pub(crate) fn inserted_bytes(&self) -> u64 {
        self.inserted_bytes
    }

    /// Bytes of memory held.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.table.memory() + self.partial.capacity() + self.scratch.capacity()
    }
}

/// Why no message may have this name. The problem of an entry may concern only its value.
fn name_problem(table: &DynamicTable, entry: &DynamicEntry) -> Option<ErrorKind> {
    match entry.name {
        LineName::Field(Name::Other) if entry.problem.is_some() => {
            LineName::parse(table.name_text(entry)).1
        }
        _ => None,
    }
}

impl<'b> Instruction<'b> {
    /// Parses the instruction at the front of `rest`, whose texts fit into a table of `capacity_max` bytes.
    fn parse(rest: &mut &'b [u8], capacity_max: usize) -> Result<Instruction<'b>, Incomplete> {
        let first = rest[0];
        let text = |rest: &mut &'b [u8], prefix_bits| {
            StringLiteral::parse(rest, prefix_bits, capacity_max)
        };
        Ok(match first >> 5 {
            0b100.. => {
                let index = integer_or_more(rest, 6)?;
                let value = text(rest, 7)?;
                match first & 0x40 {
                    0 => Instruction::InsertDynamic(index, value),
                    _ => Instruction::InsertStatic(index, value),
                }
            }
            0b010 | 0b011 => Instruction::Insert(text(rest, 5)?, text(rest, 7)?),
            0b001 => Instruction::Capacity(integer_or_more(rest, 5)?),
            _ => Instruction::Duplicate(integer_or_more(rest, 5)?),
        })
    }
}

/// As [`read_integer`], where more bytes may follow.
fn integer_or_more(rest: &mut &[u8], prefix_bits: u32) -> Result<u64, Incomplete> {
    const INTEGER_BYTES_MAX: usize = 10;
    let available = rest.len();
    read_integer(rest, prefix_bits).map_err(|_| match available {
        0..INTEGER_BYTES_MAX => Incomplete::More,
        _ => Incomplete::Never,
    })
}

impl<'b> StringLiteral<'b> {
    fn parse(
        rest: &mut &'b [u8],
        prefix_bits: u32,
        len_max: usize,
    ) -> Result<StringLiteral<'b>, Incomplete> {
        let first = rest.first().ok_or(Incomplete::More)?;
        let is_huffman = first & 1 << prefix_bits != 0;
        let len = integer_or_more(rest, prefix_bits)?;
        let code_max = len_max * CODE_BYTES_MAX + INSTRUCTION_OVERHEAD;
        let len = usize::try_from(len)
            .ok()
            .filter(|&len| len <= code_max)
            .ok_or(Incomplete::Never)?;
        let (bytes, after) = rest.split_at_checked(len).ok_or(Incomplete::More)?;
        *rest = after;
        Ok(StringLiteral { bytes, is_huffman })
    }

    fn decode(&self, out: &mut Vec<u8>) -> Result<(), Malformed> {
        if self.is_huffman {
            return huffman::decode(self.bytes, out);
        }
        out.extend_from_slice(self.bytes);
        Ok(())
    }
}

impl<'d, 'b> SectionLines<'d, 'b> {
    /// The lines of a section that is not blocked, within this budget.
    pub(crate) fn new(
        decoder: &'d Decoder,
        prefix: &Prefix,
        section: &'b [u8],
        budget: Budget,
    ) -> SectionLines<'d, 'b> {
        let section = FieldSection {
            rest: &section[prefix.len..],
            prefix: *prefix,
            budget,
        };
        SectionLines { decoder, section }
    }

    /// RFC 9204, sections 4.5.2 and 4.5.3.
    fn indexed(
        &mut self,
        reference: LineReference,
        text: &mut Vec<u8>,
    ) -> Result<Option<DecodedLine>, Malformed> {
        let (name, name_len, value, problem) = match reference {
            LineReference::Static(index) => {
                let entry = static_table::get(index).ok_or(Malformed)?;
                if !self.section.budget.admits(entry.name, entry.size) {
                    return Ok(None);
                }
                text.extend_from_slice(entry.name_text.as_bytes());
                let problem = match entry.value {
                    "" => line_problem(entry.name, b""),
                    _ => None,
                };
                let value = entry.value.as_bytes();
                (entry.name, entry.name_text.len(), value, problem)
            }
            LineReference::Dynamic(absolute) => {
                let entry = self.entry(absolute)?;
                if !self.section.budget.admits(entry.name, entry.size) {
                    return Ok(None);
                }
                let table = &self.decoder.table;
                let name_len = table.copy_name(entry, text);
                (entry.name, name_len, table.value(entry), entry.problem)
            }
        };
        let value_start = text.len();
        text.extend_from_slice(value);
        let line = DecodedLine::new(name, problem, name_len, value_start, value.len());
        Ok(Some(line))
    }

    /// The entry with an absolute index (RFC 9204, section 3.2.4), which the section has announced to need.
    fn entry(&self, absolute: u64) -> Result<&'d DynamicEntry, Malformed> {
        let decoder = self.decoder;
        // RFC 9204, section 2.2.1: the required insert count is larger than all indices that a section refers
        // to.
        if absolute >= self.section.prefix.required || absolute >= decoder.inserted {
            return Err(Malformed);
        }
        decoder.by_age(decoder.inserted - 1 - absolute)
    }

    /// An index relative to the base (RFC 9204, section 3.2.5).
    fn relative(&self, index: u64) -> Result<LineReference, Malformed> {
        let before = self.section.prefix.base.checked_sub(index);
        let absolute = before.and_then(|before| before.checked_sub(1));
        absolute.map(LineReference::Dynamic).ok_or(Malformed)
    }

    /// An index that counts from the base on (RFC 9204, section 3.2.6).
    fn post_base(&self, index: u64) -> Result<LineReference, Malformed> {
        let absolute = self.section.prefix.base.checked_add(index);
        absolute.map(LineReference::Dynamic).ok_or(Malformed)
    }

    /// A line whose value is a literal (RFC 9204, sections 4.5.4 to 4.5.6).
    fn literal(&mut self, first: u8, text: &mut Vec<u8>) -> Result<Option<DecodedLine>, Malformed> {
        let start = text.len();
        let (reference, never_indexed) = match first >> 4 {
            0b0100.. => {
                let index = self.integer(4)?;
                let reference = match first & 0x10 {
                    0 => self.relative(index)?,
                    _ => LineReference::Static(index),
                };
                (Some(reference), first & 0x20 != 0)
            }
            0b0010 | 0b0011 => (None, first & 0x10 != 0),
            _ => {
                let index = self.integer(3)?;
                (Some(self.post_base(index)?), first & 0x08 != 0)
            }
        };
        let (name, name_problem) = match reference {
            Some(LineReference::Static(index)) => {
                let entry = static_table::get(index).ok_or(Malformed)?;
                text.extend_from_slice(entry.name_text.as_bytes());
                (entry.name, None)
            }
            Some(LineReference::Dynamic(absolute)) => {
                let entry = self.entry(absolute)?;
                let table = &self.decoder.table;
                table.copy_name(entry, text);
                (entry.name, name_problem(table, entry))
            }
            None => {
                self.string(3, text)?;
                let (name, problem) = LineName::parse(&text[start..]);
                if !name.known_text().is_empty() {
                    text.truncate(start);
                }
                (name, problem)
            }
        };
        let value_start = text.len();
        self.string(7, text)?;
        let (name_text, value) = text[start..].split_at(value_start - start);
        let problem = name_problem.or_else(|| line_problem(name, value));
        let (name_len, value_len) = (name_text.len(), value.len());
        let size = name.known_text().len() + name_len + value_len + ENTRY_OVERHEAD;
        let size = u32::try_from(size).unwrap_or(u32::MAX);
        if name_len > usize::from(u16::MAX) || !self.section.budget.admits(name, size) {
            self.section.budget.exceed(Overflow::Bytes);
            text.truncate(start);
            return Ok(None);
        }
        let line = DecodedLine::new(name, problem, name_len, value_start, value_len);
        Ok(Some(DecodedLine {
            never_indexed,
            ..line
        }))
    }

    #[inline]
    fn integer(&mut self, prefix_bits: u32) -> Result<u64, Malformed> {
        read_integer(&mut self.section.rest, prefix_bits)
    }

    /// Appends a string literal (RFC 9204, section 4.1.2).
    fn string(&mut self, prefix_bits: u32, out: &mut Vec<u8>) -> Result<(), Malformed> {
        let first = self.section.rest.first().ok_or(Malformed)?;
        let is_huffman = first & 1 << prefix_bits != 0;
        let len = usize::try_from(self.integer(prefix_bits)?).map_err(|_| Malformed)?;
        let (bytes, after) = self.section.rest.split_at_checked(len).ok_or(Malformed)?;
        self.section.rest = after;
        StringLiteral { bytes, is_huffman }.decode(out)
    }
}

/// The target of a line's reference.
#[derive(Debug, Clone, Copy)]
enum LineReference {
    Static(u64),
    /// By its absolute index.
    Dynamic(u64),
}

impl FieldLines for SectionLines<'_, '_> {
    fn next_line(&mut self, text: &mut Vec<u8>) -> Result<Option<DecodedLine>, Malformed> {
        while let Some(&first) = self.section.rest.first() {
            // No other section depends on the rest: sections do not change the table.
            if self.overflow().is_some() {
                break;
            }
            let line = match first >> 4 {
                0b1000.. => {
                    let index = self.integer(6)?;
                    let reference = match first & 0x40 {
                        0 => self.relative(index)?,
                        _ => LineReference::Static(index),
                    };
                    self.indexed(reference, text)?
                }
                0b0001 => {
                    let index = self.integer(4)?;
                    let reference = self.post_base(index)?;
                    self.indexed(reference, text)?
                }
                _ => self.literal(first, text)?,
            };
            if line.is_some() {
                return Ok(line);
            }
        }
        Ok(None)
    }

    #[inline]
    fn overflow(&self) -> Option<Overflow> {
        self.section.budget.overflow()
    }
}
