//! Growable buffers from a free list.

use std::cell::RefCell;
use std::fmt;
use std::ops::{Deref, DerefMut};

use crate::core_local;

/// A buffer with a larger capacity is returned to the allocator instead of the free list.
const CAPACITY_KEPT_MAX: usize = 64 * 1024;

/// Most buffers of the free list: one for each of as many active connections.
const BUFFERS_KEPT_MAX: usize = 1024;

/// Most bytes of capacity in the free list.
const BYTES_KEPT_MAX: usize = 8 * 1024 * 1024;

core_local! {
    static FREE_LIST: RefCell<FreeList> = const {
        RefCell::new(FreeList {
            buffers: Vec::new(),
            bytes: 0,
        })
    };
}

struct FreeList {
    buffers: Vec<Vec<u8>>,
    /// Their total capacity.
    bytes: usize,
}

impl FreeList {
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

/// A growable byte buffer whose memory returns to the core's free list when it is dropped.
pub struct Buffer(Vec<u8>);

impl Buffer {
    /// Takes an empty buffer from the free list, with the capacity that it has from its previous use.
    pub fn take() -> Buffer {
        let buffer = FREE_LIST.try_with(|free| free.borrow_mut().pop());
        Buffer(buffer.ok().flatten().unwrap_or_default())
    }
}

/// Returns the memory of the free list to the allocator.
pub(crate) fn free_unused_buffers() {
    let buffers = FREE_LIST.try_with(|free| {
        let mut free = free.borrow_mut();
        free.bytes = 0;
        std::mem::take(&mut free.buffers)
    });
    drop(buffers);
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
            // While the thread ends, the allocator takes the memory.
            let _ = FREE_LIST.try_with(|free| free.borrow_mut().push(bytes));
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
