//! Bytes on their way out.

use std::ops::Deref;
use std::ptr::NonNull;

use bytes::Bytes;

use super::{Buffer, Slice};

/// Bytes to send, owned by the send until the kernel has taken the last of them.
#[derive(Debug)]
pub struct Chunk {
    /// Start of what is left.
    bytes: NonNull<u8>,
    /// Bytes that are left.
    left: usize,
    owner: Owner,
}

/// Keeps the bytes, which stay at their place as long as it does and is not changed.
#[derive(Debug)]
#[expect(dead_code, reason = "held for the sake of their drop")]
enum Owner {
    Slice(Slice),
    Buffer(Buffer),
    Static,
    Owned(Vec<u8>),
    Shared(Bytes),
}

impl Chunk {
    /// Bytes that are left.
    #[inline]
    pub fn len(&self) -> usize {
        self.left
    }

    /// Whether nothing is left.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.left == 0
    }

    /// Drops the first `n` bytes.
    ///
    /// # Panics
    /// If there are fewer.
    pub fn advance(&mut self, n: usize) {
        assert!(n <= self.left, "cannot advance {n} of {} bytes", self.left);
        // SAFETY: as many bytes are left, so this stays inside, or just behind.
        self.bytes = unsafe { self.bytes.add(n) };
        self.left -= n;
    }

    /// Dropping it may run code that is not ours (`Bytes::from_owner`).
    pub(crate) fn is_foreign(&self) -> bool {
        matches!(self.owner, Owner::Shared(_))
    }

    /// Moves a small received slice into pooled memory, so that it stops pinning a receive
    /// buffer (rule 3).
    pub fn unpin(self) -> Chunk {
        match &self.owner {
            Owner::Slice(_) => {
                let mut copy = Buffer::take();
                copy.extend_from_slice(&self);
                copy.into()
            }
            _ => self,
        }
    }
}

impl Deref for Chunk {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: a part of what the owner keeps; nobody writes to it.
        unsafe { std::slice::from_raw_parts(self.bytes.as_ptr(), self.left) }
    }
}

macro_rules! from {
    ($($type:ty => |$value:ident| $kind:expr;)*) => {$(
        impl From<$type> for Chunk {
            #[inline]
            fn from($value: $type) -> Chunk {
                let all: &[u8] = $value.as_ref();
                Chunk { bytes: NonNull::from(all).cast(), left: all.len(), owner: $kind }
            }
        }
    )*};
}

from! {
    Slice => |slice| Owner::Slice(slice);
    Buffer => |buffer| Owner::Buffer(buffer);
    &'static [u8] => |bytes| Owner::Static;
    &'static str => |text| Owner::Static;
    Vec<u8> => |bytes| Owner::Owned(bytes);
    String => |text| Owner::Owned(text.into_bytes());
    Bytes => |bytes| Owner::Shared(bytes);
}
