//! The contents of `user_data`, and the one submission that the `io-uring` crate does not support.

use std::os::fd::RawFd;

use io_uring::types::Fd;
use io_uring::{opcode, squeue};

use crate::socket::SocketKey;

/// The operation of a completion. Eight bits are the kind; the rest is the socket with its generation,
/// the listener or the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    Receive(SocketKey),
    Send(SocketKey),
    Connect(SocketKey),
    AwaitRoom(SocketKey),
    Accept(u32),
    ReceiveTrains(SocketKey),
    /// By the slot of the batch.
    SendTrain(u32),
    /// The mailbox's eventfd is readable.
    NotifierReadable,
    /// Another ring has sent us a message.
    Notified,
    /// Our message to another ring has failed.
    Message(RawFd),
    /// The completion is ignored.
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
            Operation::AwaitRoom(key) => socket(10, key),
            Operation::ReceiveTrains(key) => socket(8, key),
            Operation::SendTrain(slot) => 9 << 56 | u64::from(slot),
            Operation::NotifierReadable => 5 << 56,
            Operation::Notified => 6 << 56,
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
            5 => Operation::NotifierReadable,
            6 => Operation::Notified,
            7 => Operation::Message(data as u32 as RawFd),
            8 => Operation::ReceiveTrains(key),
            9 => Operation::SendTrain(data as u32),
            10 => Operation::AwaitRoom(key),
            _ => Operation::Ignored,
        }
    }
}

/// The offset of `optlen` in a submission (`struct io_uring_sqe`, the union behind `file_index`).
const OPTLEN_OFFSET: usize = 44;

/// The smallest limit of a single receive, unless the total is smaller.
const PIECE_MIN: u32 = 2_048;

/// A multishot receive of at most `limit` bytes in total, which must not be 0.
///
/// The kernel checks the total (`optlen`) only after each receive, so it can be exceeded by one receive
/// less a byte. So each receive is limited as well (`len`), and the requested total is lower by as much.
pub(super) fn capped_multishot_receive(fd: RawFd, group: u16, limit: u32) -> squeue::Entry {
    let piece = (limit / 4).max(limit.min(PIECE_MIN));
    let total = limit - piece + 1;
    let mut entry = opcode::RecvMulti::new(Fd(fd), group).len(piece).build();
    const { assert!(size_of::<squeue::Entry>() == 64) };
    // SAFETY: an entry is the kernel's 64-byte submission (asserted above), any bytes are valid in it,
    // and the field is inside it.
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
            Operation::AwaitRoom(key),
            Operation::Accept(3),
            Operation::ReceiveTrains(key),
            Operation::SendTrain(5),
            Operation::NotifierReadable,
            Operation::Notified,
            Operation::Message(17),
            Operation::Ignored,
        ] {
            assert_eq!(Operation::unpack(operation.pack()), operation);
        }
    }
}
