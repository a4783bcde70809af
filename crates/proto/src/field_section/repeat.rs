//! A cache for repeated header blocks, as in requests for one resource, calls of one method or
//! responses of one handler. It holds the decoded head, so that the block is not decoded again.

/// A short header block that was received twice in a row, and its decoded form for a version of the
/// table.
#[derive(Debug)]
pub(crate) struct Repeat<T, const BLOCK_MAX: usize> {
    block: [u8; BLOCK_MAX],
    len: usize,
    /// The version of the decoder's table.
    version: u32,
    decoded: Option<Box<T>>,
}

impl<T, const BLOCK_MAX: usize> Repeat<T, BLOCK_MAX> {
    pub(crate) const fn new() -> Repeat<T, BLOCK_MAX> {
        Repeat {
            block: [0; BLOCK_MAX],
            len: 0,
            version: 0,
            decoded: None,
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

    /// Records a block that was decoded without a change to the table. Its decoded form is cached only
    /// if the previous block was equal, so that heads that never repeat cost little.
    pub(crate) fn note(&mut self, block: &[u8], version: u32, decoded: impl FnOnce() -> T) {
        let Some(room) = self.block.get_mut(..block.len()) else {
            return;
        };
        if self.len == block.len() && self.version == version && *room == *block {
            self.decoded = Some(Box::new(decoded()));
            return;
        }
        room.copy_from_slice(block);
        (self.len, self.version) = (block.len(), version);
        // This also frees its memory, which the new requests do not need.
        self.decoded = None;
    }

    /// Approximate bytes of memory held.
    pub(crate) fn memory(&self) -> usize {
        const TEXT: usize = 512;
        self.decoded.as_ref().map_or(0, |_| size_of::<T>() + TEXT)
    }
}
