//! What `user_data` says, and the one submission that the crate has no words for.

use std::os::fd::RawFd;

use io_uring::types::Fd;
use io_uring::{opcode, squeue};

use crate::socket::SocketKey;

/// Who a completion belongs to. Eight bits say what, the rest names the socket with its
/// generation, the listener or the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    Receive(SocketKey),
    Send(SocketKey),
    Connect(SocketKey),
    Accept(u32),
    /// The mailbox's event descriptor is readable.
    MailEvent,
    /// Another ring sent us a message.
    Mail,
    /// Our message to another ring failed.
    Message(RawFd),
    /// Nobody waits for it.
    Ignored,
}

impl Operation {
    pub(super) fn pack(self) -> u64 {
        let socket = |kind: u64, key: SocketKey| {
            kind << 56 | u64::from(key.generation()) << 32 | u64::from(key.index())
        };
        match self {
            Operation::Receive(key) => socket(1, key),
            Operation::Send(key) => socket(2, key),
            Operation::Connect(key) => socket(3, key),
            Operation::Accept(listener) => 4 << 56 | u64::from(listener),
            Operation::MailEvent => 5 << 56,
            Operation::Mail => 6 << 56,
            Operation::Message(ring) => 7 << 56 | u64::from(ring as u32),
            Operation::Ignored => 0,
        }
    }

    pub(super) fn unpack(data: u64) -> Operation {
        let key = SocketKey::from_parts(data as u32, (data >> 32) as u32);
        match data >> 56 {
            1 => Operation::Receive(key),
            2 => Operation::Send(key),
            3 => Operation::Connect(key),
            4 => Operation::Accept(data as u32),
            5 => Operation::MailEvent,
            6 => Operation::Mail,
            7 => Operation::Message(data as u32 as RawFd),
            _ => Operation::Ignored,
        }
    }
}

/// Where `optlen` lies in a submission (`struct io_uring_sqe`, the union behind `file_index`).
const OPTLEN_OFFSET: usize = 44;

/// A single receive of less than this is not split further.
const PIECE_MIN: u32 = 2_048;

/// A multishot receive that takes at most `limit` bytes in all, which must not be 0.
///
/// The kernel looks at the total (`optlen`) only after a receive, so it can be exceeded by one
/// receive less a byte; each receive is capped as well (`len`), and the total asked for is lower
/// by as much.
pub(super) fn capped_multishot_receive(fd: RawFd, group: u16, limit: u32) -> squeue::Entry {
    let piece = (limit / 4).max(limit.min(PIECE_MIN));
    let total = limit - piece + 1;
    let mut entry = opcode::RecvMulti::new(Fd(fd), group).len(piece).build();
    const { assert!(size_of::<squeue::Entry>() == 64) };
    // SAFETY: an entry is the kernel's 64-byte submission (asserted above), any bytes are valid
    // in it, and the field lies inside.
    // JUSTIFICATION: the crate has no setter for `optlen` yet.
    unsafe {
        (&raw mut entry)
            .cast::<u8>()
            .add(OPTLEN_OFFSET)
            .cast::<u32>()
            .write_unaligned(total);
    }
    entry
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_data_survives_packing() {
        let key = SocketKey::from_parts(123_456, 0xAB_CDEF);
        for operation in [
            Operation::Receive(key),
            Operation::Send(key),
            Operation::Connect(key),
            Operation::Accept(3),
            Operation::MailEvent,
            Operation::Mail,
            Operation::Message(17),
            Operation::Ignored,
        ] {
            assert_eq!(Operation::unpack(operation.pack()), operation);
        }
    }
}
