//! Messages that repeat themselves: clients that ask for the same again and again, calls of one
//! method, answers of one handler. What such a head became last time need not be found out anew.

/// A short header block that came twice in a row, and what it meant while the table was as it is.
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

    /// What the block means, if that is known.
    #[inline]
    pub(crate) fn recall(&self, block: &[u8], version: u32) -> Option<&T> {
        if self.len == block.len() && self.version == version && self.block[..self.len] == *block {
            return self.meaning.as_deref();
        }
        None
    }

    /// Takes note of a block that was decoded without a change to the table; what it means is kept
    /// if it came before, so that heads which never repeat cost next to nothing.
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
        // Its memory goes too: a connection that has changed its habits should not pay for it.
        self.meaning = None;
    }

    /// Bytes of memory held, about.
    pub(crate) fn memory(&self) -> usize {
        const TEXT: usize = 512;
        self.meaning.as_ref().map_or(0, |_| size_of::<T>() + TEXT)
    }
}
