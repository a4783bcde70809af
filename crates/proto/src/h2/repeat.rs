//! Header blocks that repeat, as in requests for one resource, calls of one method or responses of one
//! handler. The head that such a block decoded to is kept, so that it is not decoded again.

/// A short header block that was received twice in a row, and its meaning for a version of the table.
#[derive(Debug)]
pub(crate) struct Repeat<T> {
    block: [u8; BLOCK_MAX],
    len: usize,
    /// The version of the decoder's table.
    version: u32,
    meaning: Option<Box<T>>,
}

/// Blocks of warm connections have a byte for each field.
const BLOCK_MAX: usize = 48;

impl<T> Repeat<T> {
    pub(crate) const fn new() -> Repeat<T> {
        Repeat {
            block: [0; BLOCK_MAX],
            len: 0,
            version: 0,
            meaning: None,
        }
    }

    /// The meaning of the block, if it is known.
    #[inline]
    pub(crate) fn recall(&self, block: &[u8], version: u32) -> Option<&T> {
        if self.len == block.len() && self.version == version && self.block[..self.len] == *block {
            return self.meaning.as_deref();
        }
        None
    }

    /// Notes a block that was decoded without a change to the table. Its meaning is kept only if the
    /// block before was the same, so that heads which never repeat cost next to nothing.
    pub(crate) fn note(&mut self, block: &[u8], version: u32, meaning: impl FnOnce() -> T) {
        let Some(room) = self.block.get_mut(..block.len()) else {
            return;
        };
        if self.len == block.len() && self.version == version && *room == *block {
            self.meaning = Some(Box::new(meaning()));
            return;
        }
        room.copy_from_slice(block);
        (self.len, self.version) = (block.len(), version);
        // Its memory is freed too: a connection whose requests have changed needs it no more.
        self.meaning = None;
    }

    /// Bytes of memory held, about.
    pub(crate) fn memory(&self) -> usize {
        const TEXT: usize = 512;
        self.meaning.as_ref().map_or(0, |_| size_of::<T>() + TEXT)
    }
}
