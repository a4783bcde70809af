//! What a socket has to send, and the memory of the send that is under way.

use std::collections::VecDeque;

use crate::buffer::Chunk;
use crate::driver::{SendBuffers, SendVectors};

/// Queued chunks, in order, with the vectors that describe them to the kernel. Boxed, so that the
/// description stays where the kernel was told it is.
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
        assert!(!chunk.is_empty(), "an empty piece would be sent for ever");
        self.bytes += chunk.len();
        self.chunks.push_back(chunk);
    }

    /// Bytes that the kernel has not taken.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Describes what is queued. The pointers stay valid until the next call of `describe`,
    /// `sent` or `clear`: chunks keep their bytes where they are, and `push` moves only the
    /// chunks' handles.
    pub(crate) fn describe(&mut self) -> SendBuffers {
        assert!(self.bytes > 0, "an empty send was never asked for");
        if self.chunks.len() == 1 {
            let chunk = &self.chunks[0];
            return SendBuffers::One(chunk.as_ptr(), chunk.len());
        }
        self.vectors.describe(self.chunks.iter())
    }

    /// The kernel has taken `n` bytes. Chunks whose drop may run foreign code go to `dead`.
    pub(crate) fn sent(&mut self, mut n: usize, dead: &mut Vec<Chunk>) {
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
            bury(self.chunks.pop_front(), dead);
        }
    }

    pub(crate) fn clear(&mut self, dead: &mut Vec<Chunk>) {
        while !self.chunks.is_empty() {
            bury(self.chunks.pop_front(), dead);
        }
        self.bytes = 0;
    }
}

/// Drops a chunk, now or where foreign code may run.
#[inline]
fn bury(chunk: Option<Chunk>, dead: &mut Vec<Chunk>) {
    dead.extend(chunk.filter(Chunk::is_foreign));
}
