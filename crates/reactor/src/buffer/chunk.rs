//! Bytes to send.

use std::ops::Deref;
use std::ptr::NonNull;

use bytes::Bytes;

use super::{Buffer, Slice};

/// Bytes to send. A socket owns them until the kernel has taken the last one.
#[derive(Debug)]
pub struct Chunk {
    /// Start of the remaining bytes.
    bytes: NonNull<u8>,
    /// The number of remaining bytes.
    left: usize,
    owner: ByteOwner,
}

/// Owns the bytes. They do not move while their owner lives unchanged.
#[derive(Debug)]
#[expect(dead_code, reason = "most owners are only dropped")]
enum ByteOwner {
    Slice(Slice),
    Buffer(Buffer),
    Static,
    Owned(Vec<u8>),
    Shared(Bytes),
}

impl Chunk {
    /// The number of remaining bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.left
    }

    /// Whether no bytes remain.
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
        // SAFETY: at least `n` bytes remain, so the pointer stays inside them or at their end.
        self.bytes = unsafe { self.bytes.add(n) };
        self.left -= n;
    }

    /// Splits off the first `n` bytes. Received and shared bytes are shared between the two chunks, others
    /// are copied into pooled memory.
    ///
    /// # Panics
    /// If there are fewer.
    pub fn split_to(&mut self, n: usize) -> Chunk {
        assert!(n <= self.left, "cannot split {n} off {} bytes", self.left);
        let owner = match &self.owner {
            ByteOwner::Slice(slice) => ByteOwner::Slice(slice.clone()),
            ByteOwner::Static => ByteOwner::Static,
            ByteOwner::Shared(bytes) => ByteOwner::Shared(bytes.clone()),
            ByteOwner::Buffer(_) | ByteOwner::Owned(_) => {
                let mut copy = Buffer::take();
                copy.extend_from_slice(&self[..n]);
                self.advance(n);
                return copy.into();
            }
        };
        let head = Chunk {
            bytes: self.bytes,
            left: n,
            owner,
        };
        self.advance(n);
        head
    }

    /// Appends bytes, as [`Slice::try_append`] does; `false`, and no change, if that cannot be done.
    #[must_use]
    pub fn try_append(&mut self, more: &[u8]) -> bool {
        let ByteOwner::Slice(slice) = &mut self.owner else {
            return false;
        };
        let end = self.bytes.as_ptr().addr() + self.left;
        if slice.as_ptr().addr() + slice.len() != end {
            return false;
        }
        let gone = slice.len() - self.left;
        if !slice.try_append(more) {
            return false;
        }
        let left = &slice[gone..];
        (self.bytes, self.left) = (NonNull::from(left).cast(), left.len());
        true
    }

    /// Whether its bytes are a copy that counts against the core's limit.
    pub(crate) fn is_copy(&self) -> bool {
        matches!(&self.owner, ByteOwner::Slice(slice) if slice.is_copy())
    }

    /// Whether dropping it may run code of other crates (`Bytes::from_owner`).
    pub(crate) fn is_foreign(&self) -> bool {
        matches!(self.owner, ByteOwner::Shared(_))
    }
}

impl Deref for Chunk {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: a range of the owner's bytes, which nothing changes.
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
    Slice => |slice| ByteOwner::Slice(slice);
    Buffer => |buffer| ByteOwner::Buffer(buffer);
    &'static [u8] => |bytes| ByteOwner::Static;
    &'static str => |text| ByteOwner::Static;
    Vec<u8> => |bytes| ByteOwner::Owned(bytes);
    String => |text| ByteOwner::Owned(text.into_bytes());
    Bytes => |bytes| ByteOwner::Shared(bytes);
}
