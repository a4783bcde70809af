//! The reports of operations.

use super::Handle;
use crate::buffer::Slice;
use crate::socket::SocketKey;

/// The report of an operation.
pub(crate) enum Event {
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
        received: Received,
        more: bool,
    },
    Sent {
        socket: SocketKey,
        result: Result<usize, i32>,
    },
}

/// The result of a receive.
pub(crate) enum Received {
    Bytes(Slice),
    /// FIN.
    End,
    /// The pool had no free buffer (rule 2).
    NoBuffers,
    /// The operation ended without a result: it was cancelled, or its limit was reached.
    Nothing,
    Failed(i32),
}
