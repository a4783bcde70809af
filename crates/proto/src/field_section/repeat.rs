//! A cache for repeated header blocks, as in requests for one resource, calls of one method or
//! responses of one handler. It holds the decoded head, so that the block is not decoded again.

/// Longest text of a head that is cached: references to the table make much of a short block.
const TEXT_MAX: usize = 2 * 1024;

/// A short header block that was received twice in a row, and its decoded form for a version of the
/// table.
#[derive(Debug)]
pub(crate) struct Repeat<T, const BLOCK_MAX: usize> {
    block: [u8; BLOCK_MAX],
    len: usize,
    /// The version of the decoder's table.
    version: u32,
    decoded: Option<Box<T>>,
    /// Bytes of text in the decoded form.
    text_len: usize,
}

impl<T, const BLOCK_MAX: usize> Repeat<T, BLOCK_MAX> {
    pub(crate) const fn new() -> Repeat<T, BLOCK_MAX> {
        Repeat {
            block: [0; BLOCK_MAX],
            len: 0,
            version: 0,
            decoded: None,
            text_len: 0,
        }
    }

    /// The decoded form of the block, if it is cached.
    #[inline]
    pub(crate) fn find(&self, block: &[u8], version: u32) -> Option<&T> {
        if self.len == block.len() && self.version == version && self.block[..self.len] == *block {
            return self.decoded.as_deref();
        }
        None
    }

    /// Records a block that was decoded, to so many bytes of text, without a change to the table. Its
    /// decoded form is cached only if the previous block was equal, so that heads that never repeat cost
    /// little.
    pub(crate) fn note(
        &mut self,
        block: &[u8],
        version: u32,
        text_len: usize,
        decoded: impl FnOnce() -> T,
    ) {
        let room = self.block.get_mut(..block.len());
        let Some(room) = room.filter(|_| text_len <= TEXT_MAX) else {
            return;
        };
        if self.len == block.len() && self.version == version && *room == *block {
            self.decoded = Some(Box::new(decoded()));
            self.text_len = text_len;
            return;
        }
        room.copy_from_slice(block);
        (self.len, self.version) = (block.len(), version);
        // This also frees its memory, which the new requests do not need.
        self.decoded = None;
    }

    /// Approximate bytes of memory held.
    pub(crate) fn memory(&self) -> usize {
        let decoded = self.decoded.as_ref();
        decoded.map_or(0, |_| size_of::<T>() + self.text_len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_counted_and_limited() {
        let mut repeat: Repeat<u64, 8> = Repeat::new();
        let twice = |repeat: &mut Repeat<u64, 8>, block, text_len| {
            repeat.note(block, 1, text_len, || 7);
            repeat.note(block, 1, text_len, || 7);
        };
        twice(&mut repeat, b"short", TEXT_MAX);
        assert_eq!(repeat.find(b"short", 1), Some(&7));
        assert_eq!(repeat.memory(), size_of::<u64>() + TEXT_MAX);
        twice(&mut repeat, b"long", TEXT_MAX + 1);
        assert_eq!(repeat.find(b"long", 1), None);
        // A longer one does not replace it.
        assert_eq!(repeat.find(b"short", 1), Some(&7));
        twice(&mut repeat, b"other", 1);
        assert_eq!(repeat.memory(), size_of::<u64>() + 1);
    }
}
