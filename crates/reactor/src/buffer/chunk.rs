//! Bytes on their way out.

use std::ops::Deref;

use bytes::Bytes;

use super::{Buffer, Slice};

/// Bytes to send, owned by the send until the kernel has taken the last of them.
#[derive(Debug)]
pub struct Chunk {
    bytes: Kind,
    /// Bytes at the front that have left.
    sent: usize,
    /// Bytes that are left.
    left: usize,
}

/// Kept apart from [`Chunk`] so that whoever makes one cannot disturb the count.
#[derive(Debug)]
enum Kind {
    Slice(Slice),
    Buffer(Buffer),
    Static(&'static [u8]),
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
        self.sent += n;
        self.left -= n;
    }

    /// Dropping it may run code that is not ours (`Bytes::from_owner`).
    pub(crate) fn is_foreign(&self) -> bool {
        matches!(self.bytes, Kind::Shared(_))
    }

    /// Moves a small received slice into pooled memory, so that it stops pinning a receive
    /// buffer (rule 3).
    pub fn unpin(self) -> Chunk {
        match &self.bytes {
            Kind::Slice(_) => {
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

    fn deref(&self) -> &[u8] {
        let all: &[u8] = match &self.bytes {
            Kind::Slice(bytes) => bytes,
            Kind::Buffer(bytes) => bytes,
            Kind::Static(bytes) => bytes,
            Kind::Owned(bytes) => bytes,
            Kind::Shared(bytes) => bytes,
        };
        &all[self.sent..]
    }
}

macro_rules! from {
    ($($type:ty => |$value:ident| $kind:expr;)*) => {$(
        impl From<$type> for Chunk {
            #[inline]
            fn from($value: $type) -> Chunk {
                let left = $value.len();
                Chunk { bytes: $kind, sent: 0, left }
            }
        }
    )*};
}

from! {
    Slice => |slice| Kind::Slice(slice);
    Buffer => |buffer| Kind::Buffer(buffer);
    &'static [u8] => |bytes| Kind::Static(bytes);
    &'static str => |text| Kind::Static(text.as_bytes());
    Vec<u8> => |bytes| Kind::Owned(bytes);
    String => |text| Kind::Owned(text.into_bytes());
    Bytes => |bytes| Kind::Shared(bytes);
}
