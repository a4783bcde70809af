//! The key of a socket.

/// The key of a socket of this core; stale once the socket is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct SocketKey {
    pub(super) index: u32,
    pub(super) generation: u32,
}

impl SocketKey {
    /// The bits of a generation that an operation's `user_data` contains.
    pub(crate) const GENERATION_MASK: u32 = (1 << 24) - 1;

    pub(crate) fn from_parts(index: u32, generation: u32) -> SocketKey {
        SocketKey {
            index,
            generation: generation & SocketKey::GENERATION_MASK,
        }
    }

    pub(crate) fn index(self) -> u32 {
        self.index
    }

    pub(crate) fn generation(self) -> u32 {
        self.generation
    }
}
