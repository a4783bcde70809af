//! Header and trailer sections: one block of bytes, and fields as ranges into it.

use super::{AsName, Name, NameSet};

/// The fields of a head or a trailer section, in order of arrival (RFC 9110, section 5).
///
/// One block holds all text; clearing keeps its capacity, so that a reused head allocates nothing.
/// Text of replaced or removed fields stays in the block until [`Fields::clear`].
#[derive(Debug, Clone, Default)]
pub struct Fields {
    pub(crate) block: Vec<u8>,
    pub(crate) entries: Vec<FieldLine>,
}

/// One field: the position of its name and its value in the block.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FieldLine {
    pub(crate) value_start: u32,
    pub(crate) value_len: u32,
    /// The highest bit is a flag, see [`FieldLine::NEVER_INDEXED`].
    pub(crate) name_start: u32,
    pub(crate) label: StoredName,
}

const _: () = assert!(size_of::<FieldLine>() == 16);

/// The name of a field, and the length of its text in the block. One type, so that both are copied
/// at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StoredName {
    pub(crate) len: u16,
    pub(crate) name: Name,
}

/// A field that must not be sent: its name is not a token, or its value holds CR, LF, NUL or
/// another control character (RFC 9110, sections 5.1 and 5.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidField;

impl std::fmt::Display for InvalidField {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the field name or value holds a character that HTTP forbids")
    }
}

impl std::error::Error for InvalidField {}

/// The name of one field: the known name, and the text as it was received or given.
#[derive(Debug, Clone, Copy)]
pub struct FieldName<'a> {
    known: Name,
    text: &'a [u8],
}

#[allow(clippy::needless_pass_by_value)] // as below
impl<'a> FieldName<'a> {
    /// The known name, or [`Name::Other`].
    #[inline]
    #[must_use]
    pub fn known(&self) -> Name {
        self.known
    }

    /// The text in its original case.
    #[must_use]
    pub fn as_str(&self) -> &'a str {
        // Names are tokens, hence ASCII; the fallback is never taken.
        std::str::from_utf8(self.text).unwrap_or("")
    }

    /// The text in its original case.
    #[inline]
    #[must_use]
    pub fn as_bytes(&self) -> &'a [u8] {
        self.text
    }

    /// Whether this is the given name, in any case.
    #[must_use]
    pub fn is(&self, name: impl AsName) -> bool {
        self.known == name.known()
            && (self.known != Name::Other || self.text.eq_ignore_ascii_case(name.text().as_bytes()))
    }
}

// Names are given as `Name::Host` or `"x-name"`, which are no larger than references to them.
#[allow(clippy::needless_pass_by_value)]
impl Fields {
    /// No fields and no memory.
    #[must_use]
    pub const fn new() -> Fields {
        Fields {
            block: Vec::new(),
            entries: Vec::new(),
        }
    }

    /// Number of field lines.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no field.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The names in order; [`Name::Other`] for those that are not known.
    #[inline]
    pub fn names(&self) -> impl Iterator<Item = Name> {
        self.entries.iter().map(|entry| entry.label.name)
    }

    /// The set of the names.
    #[inline]
    #[must_use]
    pub fn name_set(&self) -> NameSet {
        let mut set = NameSet::default();
        for name in self.names() {
            set.insert(name);
        }
        set
    }

    /// Whether any of the fields may be sent as a trailer.
    pub(crate) fn has_trailers(&self) -> bool {
        !self.names().all(Name::is_forbidden_in_trailers)
    }

    /// Removes all fields and keeps the memory.
    #[inline]
    pub fn clear(&mut self) {
        self.block.clear();
        self.entries.clear();
    }

    /// Whether the fields are equal byte for byte, with the same positions in their blocks.
    #[inline]
    pub(crate) fn is_same(&self, other: &Fields) -> bool {
        self.block == other.block
            && self.entries.len() == other.entries.len()
            && self
                .entries
                .iter()
                .zip(&other.entries)
                .all(|(one, other)| one.is_same(other))
    }

    /// Bytes of memory held.
    pub(crate) fn memory(&self) -> usize {
        self.block.capacity() + self.entries.capacity() * size_of::<FieldLine>()
    }

    /// Copies `other` into the memory of `self`.
    #[inline]
    pub(crate) fn assign(&mut self, other: &Fields) {
        self.clear();
        self.block.extend_from_slice(&other.block);
        self.entries.extend_from_slice(&other.entries);
    }

    /// Bytes of the block of names and values; known names need none.
    #[inline]
    pub(crate) fn text_len(&self) -> usize {
        self.block.len()
    }

    /// Bytes of memory allocated for names and values.
    #[inline]
    #[must_use]
    pub fn text_capacity(&self) -> usize {
        self.block.capacity()
    }

    /// Adds a field at the end. The text must be valid: use [`Fields::try_append`] for text that
    /// comes from users or the network.
    #[inline]
    pub fn append(&mut self, name: impl AsName, value: impl AsRef<[u8]>) {
        let value = value.as_ref();
        debug_assert!(is_valid(&name, value), "invalid field {:?}", name.text());
        let entry = self.store(&name, value);
        self.entries.push(entry);
    }

    /// Adds a valid field at the end, and refuses any other.
    ///
    /// # Errors
    /// [`InvalidField`] if HTTP forbids the name or the value.
    pub fn try_append(
        &mut self,
        name: impl AsName,
        value: impl AsRef<[u8]>,
    ) -> Result<(), InvalidField> {
        if !is_valid(&name, value.as_ref()) {
            return Err(InvalidField);
        }
        self.append(name, value);
        Ok(())
    }

    /// Gives the field exactly this value: replaces the first occurrence in place and removes the
    /// others. The text must be valid, as for [`Fields::append`].
    pub fn set(&mut self, name: impl AsName, value: impl AsRef<[u8]>) {
        let value = value.as_ref();
        debug_assert!(is_valid(&name, value), "invalid field {:?}", name.text());
        let replacement = self.store(&name, value);
        let Some(first) = self.position(&name) else {
            return self.entries.push(replacement);
        };
        self.entries[first] = replacement;
        let mut index = 0;
        let (block, known) = (&self.block, name.known());
        self.entries.retain(|entry| {
            index += 1;
            index <= first + 1 || !entry.is_named(block, known, &name)
        });
    }

    /// Removes every occurrence; true if there was one.
    pub fn remove(&mut self, name: impl AsName) -> bool {
        let Some(first) = self.position(&name) else {
            return false;
        };
        self.entries.remove(first);
        let (block, known) = (&self.block, name.known());
        self.entries
            .retain(|entry| !entry.is_named(block, known, &name));
        true
    }

    /// Removes the fields for which `keep` returns false.
    pub fn retain(&mut self, mut keep: impl FnMut(FieldName<'_>, &[u8]) -> bool) {
        let block = &self.block;
        self.entries
            .retain(|entry| keep(entry.field_name(block), entry.value_in(block)));
    }

    /// Value of the first occurrence, without surrounding white space.
    #[inline]
    #[must_use]
    pub fn get(&self, name: impl AsName) -> Option<&[u8]> {
        self.position(&name)
            .map(|at| self.entries[at].value_in(&self.block))
    }

    /// Value of the first occurrence, if it is UTF-8.
    #[must_use]
    pub fn get_str(&self, name: impl AsName) -> Option<&str> {
        self.get(name)
            .and_then(|value| std::str::from_utf8(value).ok())
    }

    /// Values of all occurrences, in order.
    pub fn get_all<N: AsName>(&self, name: N) -> impl Iterator<Item = &[u8]> + use<'_, N> {
        let known = name.known();
        let matching = move |entry: &&FieldLine| entry.is_named(&self.block, known, &name);
        self.entries
            .iter()
            .filter(matching)
            .map(|entry| entry.value_in(&self.block))
    }

    /// Whether the field occurs.
    #[inline]
    #[must_use]
    pub fn contains(&self, name: impl AsName) -> bool {
        self.position(&name).is_some()
    }

    /// All fields in order.
    #[inline]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (FieldName<'_>, &[u8])> + Clone {
        let block = &self.block;
        self.entries
            .iter()
            .map(move |entry| (entry.field_name(block), entry.value_in(block)))
    }

    #[inline]
    fn position(&self, name: &impl AsName) -> Option<usize> {
        let (block, known) = (&self.block, name.known());
        self.entries
            .iter()
            .position(|entry| entry.is_named(block, known, name))
    }

    fn store(&mut self, name: &impl AsName, value: &[u8]) -> FieldLine {
        let known = name.known();
        // Known names are written from the table, so only unknown ones need room in the block.
        let text = if known == Name::Other {
            name.text()
        } else {
            ""
        };
        let name_start = self.block.len();
        assert!(
            name_start + text.len() + value.len() < FieldLine::NEVER_INDEXED as usize,
            "fields over 2 GiB"
        );
        assert!(text.len() <= u16::MAX as usize, "field name over 64 KiB");
        self.block.extend_from_slice(text.as_bytes());
        let value_start = self.block.len();
        self.block.extend_from_slice(value);
        FieldLine {
            value_start: value_start as u32,
            value_len: value.len() as u32,
            name_start: name_start as u32,
            label: StoredName {
                len: text.len() as u16,
                name: known,
            },
        }
    }
}

impl FieldLine {
    /// A flag in `name_start`: the sender forbids every compression table on the path to hold the
    /// field (RFC 7541, section 7.1.3). A separate member would cost memory for each field of
    /// HTTP/1, which has no such flag.
    pub(crate) const NEVER_INDEXED: u32 = 1 << 31;

    /// Whether no compression table may hold the field.
    #[inline]
    pub(crate) fn is_never_indexed(&self) -> bool {
        self.name_start & FieldLine::NEVER_INDEXED != 0
    }

    /// Uses few comparisons, since this runs for every field of each repeated head.
    #[inline]
    fn is_same(&self, other: &FieldLine) -> bool {
        let numbers = |entry: &FieldLine| (entry.value_start, entry.value_len, entry.name_start);
        numbers(self) == numbers(other) && self.label == other.label
    }

    /// The name's text; a known name that was not received on the wire has its canonical one.
    #[inline]
    pub(crate) fn name_in<'a>(&self, block: &'a [u8]) -> &'a [u8] {
        if self.label.len == 0 {
            return self.label.name.canonical().as_bytes();
        }
        &block[(self.name_start & !FieldLine::NEVER_INDEXED) as usize..][..self.label.len as usize]
    }

    #[inline]
    pub(crate) fn value_in<'a>(&self, block: &'a [u8]) -> &'a [u8] {
        &block[self.value_start as usize..][..self.value_len as usize]
    }

    /// Whether it has a name, which is this one if it is known.
    #[inline]
    fn is_named(&self, block: &[u8], known: Name, name: &impl AsName) -> bool {
        self.label.name == known
            && (known != Name::Other
                || self
                    .name_in(block)
                    .eq_ignore_ascii_case(name.text().as_bytes()))
    }

    #[inline]
    fn field_name<'a>(&self, block: &'a [u8]) -> FieldName<'a> {
        FieldName {
            known: self.label.name,
            text: self.name_in(block),
        }
    }
}

fn is_valid(name: &impl AsName, value: &[u8]) -> bool {
    name.text().len() <= u16::MAX as usize && name.is_valid() && is_valid_value(value)
}

/// `token` of RFC 9110, section 5.6.2.
#[inline]
pub(crate) fn is_token(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(|&byte| is_token_byte(byte))
}

/// `tchar` of RFC 9110, section 5.6.2.
#[inline]
pub(crate) fn is_token_byte(byte: u8) -> bool {
    TOKEN_BYTES[byte as usize]
}

/// `field-content` of RFC 9110, section 5.5: visible, blank or above ASCII, nothing else.
pub(crate) fn is_valid_value(value: &[u8]) -> bool {
    let is_valid = |&byte: &u8| (byte >= 0x20 && byte != 0x7f) || byte == b'\t';
    let (blocks, rest) = value.as_chunks::<8>();
    let mut blocks = blocks.iter();
    blocks.all(|block| is_visible(*block) || block.iter().all(is_valid))
        && rest.iter().all(is_valid)
}

/// Whether no byte is a control character.
#[inline]
fn is_visible(block: [u8; 8]) -> bool {
    const EACH: u64 = u64::MAX / 0xff;
    let word = u64::from_ne_bytes(block);
    // The highest bit of a byte is set if it is below another one; above a byte that is, it may be set as well.
    let below = |word: u64, byte: u64| word.wrapping_sub(EACH * byte) & !word;
    (below(word, 0x20) | below(word ^ (EACH * 0x7f), 1)) & (EACH * 0x80) == 0
}

static TOKEN_BYTES: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 128 {
        table[byte] = (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    let others = b"!#$%&'*+-.^_`|~";
    let mut index = 0;
    while index < others.len() {
        table[others[index] as usize] = true;
        index += 1;
    }
    table
};
