//! The operations of a socket that have not ended.

/// A set of operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Pending(u8);

impl Pending {
    pub(crate) const RECEIVE: Pending = Pending(1);
    pub(crate) const SEND: Pending = Pending(2);
    pub(crate) const CONNECT: Pending = Pending(4);
    /// A wait until the kernel takes more bytes.
    pub(crate) const ROOM: Pending = Pending(8);

    pub(crate) fn has(self, operation: Pending) -> bool {
        self.0 & operation.0 != 0
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn add(&mut self, operation: Pending) {
        assert!(
            !self.has(operation),
            "one operation of a kind runs at a time"
        );
        self.0 |= operation.0;
    }

    pub(crate) fn remove(&mut self, operation: Pending) {
        assert!(self.has(operation), "a completion belongs to an operation");
        self.0 &= !operation.0;
    }
}
