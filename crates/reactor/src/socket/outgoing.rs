//! The send queue of a socket, and the memory of the pending send.

use std::collections::VecDeque;

use crate::buffer::Chunk;
use crate::driver::{SendBuffers, SendVectors};

/// Queued chunks, in order, with the vectors that describe them to the kernel. Boxed, because the kernel
/// has a pointer to the vectors.
pub(crate) struct Outgoing {
    chunks: VecDeque<Chunk>,
    /// Bytes in `chunks`.
    bytes: usize,
    vectors: SendVectors,
}

impl Outgoing {
    pub(crate) fn new() -> Box<Outgoing> {
        Box::new(Outgoing {
            chunks: VecDeque::new(),
            bytes: 0,
            vectors: SendVectors::new(),
        })
    }

    #[inline]
    pub(crate) fn push(&mut self, chunk: Chunk) {
        assert!(!chunk.is_empty(), "an empty chunk would never be removed");
        self.bytes += chunk.len();
        self.chunks.push_back(chunk);
    }

    /// Queued bytes that the kernel has not taken.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Describes the queue to the kernel. The pointers stay valid until the next call of `describe`,
    /// `sent` or `clear`: chunks do not move their bytes, and `push` moves only the `Chunk` values.
    pub(crate) fn describe(&mut self) -> SendBuffers {
        assert!(self.bytes > 0, "only a queue with content is sent");
        if self.chunks.len() == 1 {
            let chunk = &self.chunks[0];
            return SendBuffers::One(chunk.as_ptr(), chunk.len());
        }
        self.vectors.describe(self.chunks.iter())
    }

    /// Removes `n` bytes that the kernel has taken. Chunks whose drop may run code of other crates go to
    /// `to_drop`.
    pub(crate) fn sent(&mut self, mut n: usize, to_drop: &mut Vec<Chunk>) {
        assert!(
            n <= self.bytes,
            "the kernel cannot take more than it was given"
        );
        self.bytes -= n;
        while n > 0 {
            let first = &mut self.chunks[0];
            if first.len() > n {
                return first.advance(n);
            }
            n -= first.len();
            drop_later(self.chunks.pop_front(), to_drop);
        }
    }

    pub(crate) fn clear(&mut self, to_drop: &mut Vec<Chunk>) {
        while !self.chunks.is_empty() {
            drop_later(self.chunks.pop_front(), to_drop);
        }
        self.bytes = 0;
    }
}

/// Drops a chunk, or lists it for the caller if its drop may run code of other crates.
#[inline]
fn drop_later(chunk: Option<Chunk>, to_drop: &mut Vec<Chunk>) {
    to_drop.extend(chunk.filter(Chunk::is_foreign));
}
