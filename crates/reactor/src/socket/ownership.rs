//! The owner of a stream socket: a handle, or the handler that gets a parked socket back.
//!
//! The methods of these types are in [`socket`](super), because the table of sockets needs the types alone.

use std::marker::PhantomData;
use std::rc::Rc;

use super::SocketKey;
use crate::buffer::Slice;

/// One stream socket of this core. Dropping it cancels pending operations and closes immediately,
/// without sending the queue; [`Socket::finish`] closes gracefully.
#[derive(Debug)]
pub struct Socket {
    pub(super) key: SocketKey,
    local: PhantomData<Rc<()>>,
}

impl Socket {
    pub(super) fn new(key: SocketKey) -> Socket {
        Socket {
            key,
            local: PhantomData,
        }
    }
}

/// The handler of a parked socket.
pub trait Resume {
    /// Called on the socket's core with the tag that was passed to [`Socket::park`].
    fn resume(self: Rc<Self>, socket: Socket, tag: u64, cause: Cause);
}

/// Why a parked socket is resumed.
#[derive(Debug)]
pub enum Cause {
    /// The next received bytes.
    Received(Slice),
    /// [`Socket::recv`] will return FIN or an error.
    Ended,
    /// The deadline has passed.
    Expired,
    /// The core needs the socket's descriptor: the handler closes it (rule 20).
    Evicted,
}

/// The key of a parked socket. Dropping the key does not affect the socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Parked(pub(super) SocketKey);

/// The handler of a parked socket, and its tag.
pub(crate) struct Parking {
    pub(super) resume: Rc<dyn Resume>,
    pub(super) tag: u64,
}
