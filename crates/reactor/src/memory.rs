//! The memory limit of the calling core, and bytes that count against it.

use crate::buffer::{Buffer, Chunk, Slice};
use crate::core;

/// The most bytes that one stream should hold, given the core's free receive memory (rule 4). Code that
/// forwards content checks this limit before it takes more.
pub fn fair_share() -> usize {
    core::with(|core| core.resources.pool.fair_share())
}

/// Whether less than half of the core's receive memory is available.
pub fn is_memory_scarce() -> bool {
    core::with(|core| core.resources.pool.is_scarce())
}

/// Bytes that the calling core can receive before it reaches its limit of memory.
pub fn memory_available() -> usize {
    core::with(|core| core.resources.pool.available())
}

/// Counts bytes against the calling core's memory limit, as if they had been received.
pub fn charge(bytes: usize) {
    core::with(|core| core.resources.pool.charge(bytes));
}

/// Takes back a [`charge`]. Does nothing on a thread whose reactor has ended.
pub fn discharge(bytes: usize) {
    core::try_with(|core| core.resources.pool.discharge(bytes));
}

impl Slice {
    /// A slice of the caller's bytes. They count against the core's limit, as received bytes do.
    ///
    /// # Panics
    /// If the buffer holds 64 KiB or more.
    pub fn from_buffer(bytes: Buffer) -> Slice {
        core::with(|core| Slice::of_copy(&core.resources.pool, bytes))
    }
}

impl Chunk {
    /// For bytes that wait: a copy that occupies no receive buffer (rule 3) and to which
    /// [`Chunk::try_append`] can add others.
    #[must_use]
    pub fn kept(self) -> Chunk {
        match self.is_copy() {
            true => self,
            false => Slice::from_buffer(Buffer::from(self.to_vec())).into(),
        }
    }
}
