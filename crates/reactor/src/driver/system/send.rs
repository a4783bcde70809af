//! Buffers of a send, as the kernel takes them.

use std::os::fd::RawFd;

use crate::buffer::Chunk;

/// Most buffers of one send; the rest goes with the next.
const BUFFERS_MAX: usize = 64;

/// The buffers of one send: pointers into the send queue, valid until the send is reported.
#[derive(Clone, Copy)]
pub(crate) enum SendBuffers {
    /// One buffer, for `send`: address and length.
    One(*const u8, usize),
    /// Several buffers, for `sendmsg`.
    Message(*const libc::msghdr),
}

/// Memory for the message of a send. Its owner must not move between [`SendVectors::describe`] and the
/// report of the send.
pub(crate) struct SendVectors {
    vectors: Vec<libc::iovec>,
    message: libc::msghdr,
}

impl SendVectors {
    pub(crate) fn new() -> SendVectors {
        // SAFETY: all zeros is an empty message: null pointers with zero lengths.
        let message = unsafe { std::mem::zeroed() };
        SendVectors {
            vectors: Vec::new(),
            message,
        }
    }

    /// Describes these chunks to the kernel. The pointers stay valid until the next call, for as long as
    /// the chunks keep their bytes.
    pub(crate) fn describe<'a>(&mut self, chunks: impl Iterator<Item = &'a Chunk>) -> SendBuffers {
        self.vectors.clear();
        self.vectors
            .extend(chunks.take(BUFFERS_MAX).map(|chunk| libc::iovec {
                iov_base: chunk.as_ptr().cast_mut().cast(),
                iov_len: chunk.len(),
            }));
        self.message.msg_iov = self.vectors.as_mut_ptr();
        self.message.msg_iovlen = self.vectors.len();
        SendBuffers::Message(&raw const self.message)
    }
}

/// Sends without waiting; `None` if the kernel takes no byte.
pub(crate) fn send_now(fd: RawFd, buffers: &SendBuffers) -> Option<usize> {
    send_with(fd, buffers, 0)
}

/// As [`send_now`], of bytes that those of a file follow at once, in the same packets.
pub(crate) fn send_before_file(fd: RawFd, buffers: &SendBuffers) -> Option<usize> {
    send_with(fd, buffers, libc::MSG_MORE)
}

fn send_with(fd: RawFd, buffers: &SendBuffers, flags: libc::c_int) -> Option<usize> {
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT | flags;
    // SAFETY: the caller keeps the buffers for the call.
    let n = unsafe {
        match *buffers {
            SendBuffers::One(bytes, len) => libc::send(fd, bytes.cast(), len, flags),
            SendBuffers::Message(message) => libc::sendmsg(fd, message, flags),
        }
    };
    // Errors are reported by a send of the turn.
    usize::try_from(n).ok().filter(|&n| n > 0)
}
