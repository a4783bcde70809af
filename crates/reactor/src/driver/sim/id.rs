//! The sockets of the network, and their holders.

/// A socket: its number, and a serial that is never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Id {
    pub(crate) number: usize,
    pub(super) serial: u64,
}

/// The holder of a socket or listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    Core(usize),
    Peer,
    /// It is closed; bytes that were written may still be in flight.
    Closed,
}
