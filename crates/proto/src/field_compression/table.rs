//! The dynamic table (RFC 7541, section 2.3.2; RFC 9204, section 3.2), the same for both directions.

use crate::error::ErrorKind;
use crate::field_section::LineName;

/// RFC 7541, section 4.1: "The size of an entry is the sum of its name's length in octets [...],
/// its value's length in octets [...], and 32."
pub(crate) const ENTRY_OVERHEAD: usize = 32;

/// Fields in order of insertion; the oldest is evicted first.
///
/// One block holds their text in the same order. Insertions append to it; the space of evicted fields
/// is reclaimed when it exceeds the remaining text.
#[derive(Debug)]
pub(crate) struct DynamicTable {
    text: Vec<u8>,
    /// The offset at which `text` begins, in bytes since the beginning of the connection. Wraps.
    text_start: u32,
    /// Entries before `first` were evicted.
    entries: Vec<DynamicEntry>,
    first: usize,
    size: usize,
    size_max: usize,
    /// Entries inserted so far; wraps.
    inserted: u32,
    /// Changes so far; wraps.
    version: u32,
}

/// A field of the table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DynamicEntry {
    pub(crate) name: LineName,
    /// The rule that this field violates in any message, determined at insertion.
    pub(crate) problem: Option<ErrorKind>,
    /// The name's text is kept only if the name is not known.
    name_len: u16,
    value_len: u32,
    start: u32,
    /// As RFC 7541 counts it.
    pub(crate) size: u32,
}

impl DynamicTable {
    pub(crate) const fn new(size_max: usize) -> DynamicTable {
        DynamicTable {
            text: Vec::new(),
            text_start: 0,
            entries: Vec::new(),
            first: 0,
            size: 0,
            size_max,
            inserted: 0,
            version: 0,
        }
    }

    /// Entries inserted since the beginning.
    #[inline]
    pub(crate) fn inserted(&self) -> u32 {
        self.inserted
    }

    /// Differs after every change of the table.
    #[inline]
    pub(crate) fn version(&self) -> u32 {
        self.version
    }

    /// The entry inserted `age` insertions before the newest.
    #[inline]
    pub(crate) fn get(&self, age: usize) -> Option<&DynamicEntry> {
        let at = self.entries.len().checked_sub(age + 1)?;
        if at < self.first {
            return None;
        }
        self.entries.get(at)
    }

    /// The name's text, empty if the name is known.
    #[inline]
    pub(crate) fn name_text(&self, entry: &DynamicEntry) -> &[u8] {
        &self.text[self.offset(entry)..][..usize::from(entry.name_len)]
    }

    /// Appends the name's text, if the name is not known; returns its length.
    #[inline]
    pub(crate) fn copy_name(&self, entry: &DynamicEntry, out: &mut Vec<u8>) -> usize {
        if entry.name_len > 0 {
            out.extend_from_slice(self.name_text(entry));
        }
        usize::from(entry.name_len)
    }

    #[inline]
    pub(crate) fn value(&self, entry: &DynamicEntry) -> &[u8] {
        let start = self.offset(entry) + usize::from(entry.name_len);
        &self.text[start..start + entry.value_len as usize]
    }

    #[inline]
    fn offset(&self, entry: &DynamicEntry) -> usize {
        entry.start.wrapping_sub(self.text_start) as usize
    }

    /// Adds a field and evicts as many as necessary; a field larger than the table empties it
    /// (RFC 7541, section 4.4). `name_text` is empty if the name is known.
    pub(crate) fn insert(
        &mut self,
        name: LineName,
        problem: Option<ErrorKind>,
        name_text: &[u8],
        value: &[u8],
    ) {
        self.version = self.version.wrapping_add(1);
        let name_len = name.known_text().len().max(name_text.len());
        let size = name_len + value.len() + ENTRY_OVERHEAD;
        self.evict(self.size_max.saturating_sub(size));
        if size > self.size_max {
            return;
        }
        self.reclaim(name_text.len() + value.len());
        let start = self.text_start.wrapping_add(self.text.len() as u32);
        self.text.extend_from_slice(name_text);
        self.text.extend_from_slice(value);
        self.entries.push(DynamicEntry {
            name,
            problem,
            name_len: name_text.len() as u16,
            value_len: value.len() as u32,
            start,
            size: size as u32,
        });
        self.size += size;
        self.inserted = self.inserted.wrapping_add(1);
    }

    /// Changes the maximum size (RFC 7541, section 4.3).
    pub(crate) fn resize(&mut self, size_max: usize) {
        self.version = self.version.wrapping_add(1);
        self.size_max = size_max;
        self.evict(size_max);
    }

    #[inline]
    pub(crate) fn size_max(&self) -> usize {
        self.size_max
    }

    /// Bytes of memory held.
    pub(crate) fn memory(&self) -> usize {
        self.text.capacity() + self.entries.capacity() * size_of::<DynamicEntry>()
    }

    fn evict(&mut self, size: usize) {
        while self.size > size {
            self.size -= self.entries[self.first].size as usize;
            self.first += 1;
        }
    }

    /// Moves live text to the front of its block if that halves the block. Moves then cost at most as
    /// much as the insertions before them.
    fn reclaim(&mut self, needed: usize) {
        if self.first > self.entries.len() / 2 {
            self.entries.drain(..self.first);
            self.first = 0;
        }
        if self.text.len() + needed <= self.text.capacity() {
            return;
        }
        let unused = match self.entries.get(self.first) {
            Some(oldest) => self.offset(oldest),
            None => self.text.len(),
        };
        if unused >= self.text.len() - unused {
            self.text.drain(..unused);
            self.text_start = self.text_start.wrapping_add(unused as u32);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Name;

    fn len(table: &DynamicTable) -> usize {
        table.entries.len() - table.first
    }

    fn insert(table: &mut DynamicTable, name: &str, value: &str) {
        table.insert(
            LineName::Field(Name::Other),
            None,
            name.as_bytes(),
            value.as_bytes(),
        );
    }

    #[test]
    fn the_oldest_leave_and_the_text_stays_bounded() {
        let mut table = DynamicTable::new(200);
        for round in 0..10_000 {
            insert(&mut table, "x-name", &format!("value {round}"));
            assert!(
                table.size <= 200 && table.text.capacity() < 400,
                "{}",
                table.text.capacity()
            );
            for age in 0..len(&table) {
                let entry = table.get(age).expect("within its length");
                assert_eq!(table.name_text(entry), b"x-name");
                assert_eq!(
                    table.value(entry),
                    format!("value {}", round - age).as_bytes()
                );
            }
        }
        assert_eq!(len(&table), 4);
        insert(&mut table, "x-name", &"x".repeat(163));
        assert_eq!((len(&table), table.size), (0, 0));
        insert(&mut table, "x-name", &"x".repeat(162));
        assert_eq!((len(&table), table.size), (1, 200));
        table.resize(199);
        assert_eq!((len(&table), table.size), (0, 0));
    }
}
