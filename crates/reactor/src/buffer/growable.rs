//! Growable buffers whose memory is used again.

use std::cell::RefCell;
use std::fmt;
use std::ops::{Deref, DerefMut};

/// A buffer that grew beyond this goes back to the allocator, not to the pool.
const CAPACITY_KEPT_MAX: usize = 64 * 1024;

/// Most buffers that one core keeps: one for each of as many connections at work at a time.
const BUFFERS_KEPT_MAX: usize = 1024;

/// Most bytes that the kept buffers have room for together.
const BYTES_KEPT_MAX: usize = 8 * 1024 * 1024;

thread_local! {
    static KEPT: RefCell<Kept> = const {
        RefCell::new(Kept {
            buffers: Vec::new(),
            bytes: 0,
        })
    };
}

struct Kept {
    buffers: Vec<Vec<u8>>,
    /// Room in all of them.
    bytes: usize,
}

impl Kept {
    fn pop(&mut self) -> Option<Vec<u8>> {
        let buffer = self.buffers.pop()?;
        self.bytes -= buffer.capacity();
        Some(buffer)
    }

    fn push(&mut self, buffer: Vec<u8>) {
        let bytes = self.bytes + buffer.capacity();
        if self.buffers.len() < BUFFERS_KEPT_MAX && bytes <= BYTES_KEPT_MAX {
            self.buffers.push(buffer);
            self.bytes = bytes;
        }
    }
}

/// A growable byte buffer, empty at first, whose memory returns to the core when dropped.
pub struct Buffer(Vec<u8>);

impl Buffer {
    /// An empty buffer, with the capacity that its last user left.
    pub fn take() -> Buffer {
        let kept = KEPT.try_with(|kept| kept.borrow_mut().pop());
        Buffer(kept.ok().flatten().unwrap_or_default())
    }
}

/// Gives the memory of the kept buffers to the allocator.
pub(crate) fn forget_kept() {
    let kept = KEPT.try_with(|kept| {
        let mut kept = kept.borrow_mut();
        kept.bytes = 0;
        std::mem::take(&mut kept.buffers)
    });
    drop(kept);
}

impl From<Vec<u8>> for Buffer {
    fn from(bytes: Vec<u8>) -> Buffer {
        Buffer(bytes)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let mut bytes = std::mem::take(&mut self.0);
        if (1..=CAPACITY_KEPT_MAX).contains(&bytes.capacity()) {
            bytes.clear();
            // The thread may be ending; then the allocator takes the memory.
            let _ = KEPT.try_with(|kept| kept.borrow_mut().push(bytes));
        }
    }
}

impl Deref for Buffer {
    type Target = Vec<u8>;

    fn deref(&self) -> &Vec<u8> {
        &self.0
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.0
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({:?})", self.escape_ascii().to_string())
    }
}
