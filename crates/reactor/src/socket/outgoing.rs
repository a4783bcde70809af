//! What a socket has to send, and the memory of the send that is under way.

use std::collections::VecDeque;

use crate::buffer::Chunk;

/// Most pieces of one send; the rest goes with the next.
const PIECES_MAX: usize = 64;

/// Queued chunks, in order, with the vectors that describe them to the kernel. Boxed, so that the
/// description stays where the kernel was told it is.
pub(crate) struct Outgoing {
    chunks: VecDeque<Chunk>,
    /// Bytes in `chunks`.
    bytes: usize,
    vectors: Vec<libc::iovec>,
    message: libc::msghdr,
}

/// How to hand it to the kernel.
#[derive(Clone, Copy)]
pub(crate) enum Shape {
    /// One piece: address and length.
    Piece(*const u8, usize),
    /// Several pieces, as `sendmsg` takes them.
    Message(*const libc::msghdr),
}

impl Outgoing {
    pub(crate) fn new() -> Box<Outgoing> {
        // SAFETY: all zeros is an empty message: null pointers with zero lengths.
        let message = unsafe { std::mem::zeroed() };
        Box::new(Outgoing {
            chunks: VecDeque::new(),
            bytes: 0,
            vectors: Vec::new(),
            message,
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
    pub(crate) fn describe(&mut self) -> Shape {
        assert!(self.bytes > 0, "an empty send was never asked for");
        if self.chunks.len() == 1 {
            let chunk = &self.chunks[0];
            return Shape::Piece(chunk.as_ptr(), chunk.len());
        }
        self.vectors.clear();
        self.vectors.extend(
            self.chunks
                .iter()
                .take(PIECES_MAX)
                .map(|chunk| libc::iovec {
                    iov_base: chunk.as_ptr().cast_mut().cast(),
                    iov_len: chunk.len(),
                }),
        );
        self.message.msg_iov = self.vectors.as_mut_ptr();
        self.message.msg_iovlen = self.vectors.len();
        Shape::Message(&raw const self.message)
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
