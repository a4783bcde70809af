//! The reports of operations.

use super::Handle;
use crate::buffer::{DatagramBuffer, Slice};
use crate::socket::SocketKey;

/// The report of an operation.
pub(crate) enum Completion {
    Accepted {
        listener: u32,
        result: Result<Handle, i32>,
        more: bool,
    },
    Connected {
        socket: SocketKey,
        error: i32,
    },
    Received {
        socket: SocketKey,
        received: ReceiveOutcome,
        more: bool,
    },
    Sent {
        socket: SocketKey,
        result: Result<usize, i32>,
    },
    /// The kernel takes more bytes of a socket, or sending fails.
    HasRoom {
        socket: SocketKey,
    },
    /// Of a UDP socket.
    TrainReceived {
        socket: SocketKey,
        received: ReceivedTrain,
        more: bool,
    },
    /// Of the batch that was sent with this slot.
    TrainSent {
        slot: u32,
        result: Result<usize, i32>,
    },
}

/// The result of a receive of datagrams.
pub(crate) enum ReceivedTrain {
    /// A batch behind what [`parse_train`](super::parse_train) reads.
    Train(DatagramBuffer),
    /// Nothing was received: the operation was cancelled, no buffer was free, or the socket had an error,
    /// which does not end it.
    Nothing,
}

/// The result of a receive.
pub(crate) enum ReceiveOutcome {
    Bytes(Slice),
    /// FIN.
    End,
    /// The pool had no free buffer (rule 2).
    NoBuffers,
    /// The operation ended without a result: it was cancelled, or its limit was reached.
    Nothing,
    Failed(i32),
}
