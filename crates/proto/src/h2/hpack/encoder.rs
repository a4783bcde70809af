//! Encoding header blocks (RFC 7541, section 6).

use super::{static_table, write_integer};
use crate::field_compression::huffman;
use crate::field_compression::table::{DynamicTable, ENTRY_OVERHEAD};
use crate::field_section::send::{LineEncoder, pseudo};
use crate::field_section::{LineName, Pseudo};
use crate::message::{Method, Status};

/// The encoder of one direction.
///
/// A field is inserted into the dynamic table when it is sent for the second time in a row, so that
/// values that occur once (identifiers, most paths) do not evict values that repeat. The position of a
/// field in the table is stored under a hash of the field and found without a search.
#[derive(Debug)]
pub struct Encoder {
    table: DynamicTable,
    cache: Box<[[CachedEntry; 2]; SETS]>,
    size_limit: usize,
    /// The smallest size since the last block, and the final one (RFC 7541, section 4.2).
    size_update: Option<(usize, usize)>,
}

/// The last field with a certain hash.
#[derive(Debug, Clone, Copy, Default)]
struct CachedEntry {
    hash: u16,
    /// The table's count of insertions directly after this field's insertion; 0 while the field is not
    /// in the table.
    inserted: u16,
}

/// Pairs of slots, a power of two. The messages of one connection rarely have that many repeated
/// fields, so three of them rarely share one pair.
const SETS: usize = 64;

/// A field larger than this fraction of the table would evict too many others.
const SIZE_PART_MAX: usize = 4;

/// The initial size on both ends (RFC 9113, section 6.5.2).
const DEFAULT_SIZE: usize = 4096;

impl Encoder {
    /// An encoder whose table holds at most `size_limit` bytes, or fewer if the peer's settings require
    /// it.
    #[must_use]
    pub fn new(size_limit: usize) -> Encoder {
        let size = size_limit.min(DEFAULT_SIZE);
        Encoder {
            table: DynamicTable::new(size),
            cache: Box::new([[CachedEntry::default(); 2]; SETS]),
            size_limit,
            size_update: (size < DEFAULT_SIZE).then_some((size, size)),
        }
    }

    /// Applies the peer's `SETTINGS_HEADER_TABLE_SIZE`.
    pub fn set_peer_size(&mut self, size: usize) {
        let size = size.min(self.size_limit);
        let least = self.size_update.map_or(size, |(least, _)| least);
        if size != self.table.size_max() || self.size_update.is_some() {
            self.size_update = Some((least.min(size), size));
        }
    }

    /// Begins a block.
    #[inline]
    pub fn begin(&mut self, out: &mut Vec<u8>) {
        if self.size_update.is_some() {
            self.update_size(out);
        }
    }

    /// Appends a field: a name in lower case and a value, as text. For tools and tests.
    pub fn encode(&mut self, name: &[u8], value: &[u8], never_indexed: bool, out: &mut Vec<u8>) {
        let (line_name, _) = LineName::parse(name);
        let name_text = if line_name.known_text().is_empty() {
            name
        } else {
            b""
        };
        if never_indexed {
            self.never_indexed(line_name, name_text, value, out);
        } else {
            self.field(line_name, name_text, value, out);
        }
    }

    /// Appends a field; `name_text` is empty if the name is known.
    #[inline(always)]
    fn field(&mut self, name: LineName, name_text: &[u8], value: &[u8], out: &mut Vec<u8>) {
        let (set, hash) = hash(name, name_text, value);
        for slot in &self.cache[set % SETS] {
            let age = (self.table.inserted() as u16).wrapping_sub(slot.inserted);
            if slot.hash == hash
                && slot.inserted != 0
                && let Some(entry) = self.table.get(usize::from(age))
                && entry.name.code() == name.code()
                && self.table.value(entry) == value
                && (name_text.is_empty() || self.table.name_text(entry) == name_text)
            {
                return match static_table::LEN + 1 + usize::from(age) {
                    index @ ..0x7f => out.push(0x80 | index as u8),
                    index => write_integer(index, 7, 0x80, out),
                };
            }
        }
        self.literal((set, hash), name, name_text, value, out);
    }

    /// Appends a field that no table, here or at later hops, may hold (RFC 7541, section 7.1.3).
    fn never_indexed(&mut self, name: LineName, name_text: &[u8], value: &[u8], out: &mut Vec<u8>) {
        write_literal(0x10, 4, name, name_text, value, out);
    }

    /// Differs after every change of the table; `None` while a change is pending. While it is equal, a
    /// head is encoded to the same block.
    #[inline]
    pub(crate) fn version(&self) -> Option<u32> {
        if self.size_update.is_some() {
            None
        } else {
            Some(self.table.version())
        }
    }

    /// Appends an entry of the static table.
    #[inline]
    fn static_entry(index: u8, out: &mut Vec<u8>) {
        out.push(0x80 | index);
    }

    #[inline(never)]
    fn literal(
        &mut self,
        (set, hash): (usize, u16),
        name: LineName,
        name_text: &[u8],
        value: &[u8],
        out: &mut Vec<u8>,
    ) {
        let name_len = name.known_text().len().max(name_text.len());
        let size = name_len + value.len() + ENTRY_OVERHEAD;
        let slots = &mut self.cache[set % SETS];
        let seen = slots.iter_mut().find(|slot| slot.hash == hash);
        let Some(slot) = seen.filter(|_| size <= self.table.size_max() / SIZE_PART_MAX) else {
            // Replaces the older slot, unless only the newer one is not in the table.
            if slots[1].inserted == 0 || slots[0].inserted != 0 {
                slots[1] = slots[0];
            }
            slots[0] = CachedEntry { hash, inserted: 0 };
            return write_literal(0x00, 4, name, name_text, value, out);
        };
        write_literal(0x40, 6, name, name_text, value, out);
        self.table.insert(name, None, name_text, value);
        slot.inserted = self.table.inserted() as u16;
    }

    #[cold]
    fn update_size(&mut self, out: &mut Vec<u8>) {
        let Some((least, size)) = self.size_update.take() else {
            return;
        };
        for size in [least, size].into_iter().skip(usize::from(least == size)) {
            write_integer(size, 5, 0x20, out);
            self.table.resize(size);
        }
    }

    /// Bytes of memory held.
    pub(crate) fn memory(&self) -> usize {
        self.table.memory() + size_of_val(&*self.cache)
    }
}

impl LineEncoder for Encoder {
    #[inline]
    fn method(&mut self, method: Method, token: &str, out: &mut Vec<u8>) {
        match method {
            Method::Get => Encoder::static_entry(2, out),
            Method::Post => Encoder::static_entry(3, out),
            _ => pseudo(self, Pseudo::Method, token, out),
        }
    }

    #[inline]
    fn scheme(&mut self, scheme: &'static str, out: &mut Vec<u8>) {
        Encoder::static_entry(if scheme == "https" { 7 } else { 6 }, out);
    }

    #[inline]
    fn path(&mut self, path: &str, out: &mut Vec<u8>) {
        match path {
            "/" => Encoder::static_entry(4, out),
            path => pseudo(self, Pseudo::Path, path, out),
        }
    }

    #[inline]
    fn status(&mut self, status: Status, out: &mut Vec<u8>) {
        let index = match status.code() {
            200 => 8,
            204 => 9,
            206 => 10,
            304 => 11,
            400 => 12,
            404 => 13,
            500 => 14,
            code => {
                let mut digits = itoa::Buffer::new();
                return pseudo(self, Pseudo::Status, digits.format(code), out);
            }
        };
        Encoder::static_entry(index, out);
    }

    #[inline(always)]
    fn line(&mut self, name: LineName, name_text: &[u8], value: &[u8], out: &mut Vec<u8>) {
        self.field(name, name_text, value, out);
    }

    fn never_indexed_line(
        &mut self,
        name: LineName,
        name_text: &[u8],
        value: &[u8],
        out: &mut Vec<u8>,
    ) {
        self.never_indexed(name, name_text, value, out);
    }
}

fn write_literal(
    first: u8,
    prefix_bits: u32,
    name: LineName,
    name_text: &[u8],
    value: &[u8],
    out: &mut Vec<u8>,
) {
    let index = static_table::index_of_name(name);
    write_integer(index, prefix_bits, first, out);
    if index == 0 {
        let known = name.known_text().as_bytes();
        write_string(if known.is_empty() { name_text } else { known }, out);
    }
    write_string(value, out);
}

/// Appends a string literal in whichever form is shorter.
fn write_string(text: &[u8], out: &mut Vec<u8>) {
    let len = huffman::encoded_len(text);
    if len < text.len() {
        write_integer(len, 7, 0x80, out);
        huffman::encode(text, len, out);
    } else {
        write_integer(text.len(), 7, 0x00, out);
        out.extend_from_slice(text);
    }
}

/// The index of a pair of slots, and a tag. Length, start and end distinguish repeated fields; the
/// comparison with the table makes the result exact.
#[inline]
fn hash(name: LineName, name_text: &[u8], value: &[u8]) -> (usize, u16) {
    let code = u64::from(name.code());
    let text = if name_text.is_empty() {
        0
    } else {
        ends(name_text)
    };
    let key = ends(value) ^ text.rotate_left(23) ^ code << 32 ^ (value.len() as u64) << 48;
    let mixed = key.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    ((mixed >> 58) as usize, (mixed >> 32) as u16)
}

#[inline]
fn ends(text: &[u8]) -> u64 {
    if let (Some(first), Some(last)) = (text.first_chunk(), text.last_chunk()) {
        return u64::from_le_bytes(*first) ^ u64::from_le_bytes(*last).rotate_left(29);
    }
    if let (Some(first), Some(last)) = (text.first_chunk(), text.last_chunk()) {
        return u64::from(u32::from_le_bytes(*first)) | u64::from(u32::from_le_bytes(*last)) << 32;
    }
    text.iter()
        .fold(0, |bits, &byte| bits << 8 | u64::from(byte))
}
