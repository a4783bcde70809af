//! Open sockets and listeners.

use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd, RawFd};

/// A socket or listener that a driver has open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Handle(RawFd);

impl Handle {
    pub(super) fn of(fd: RawFd) -> Handle {
        Handle(fd)
    }

    pub(super) fn fd(self) -> RawFd {
        self.0
    }
}

/// A socket of no core: a new connection on its way to another core, or one that keeps an address. It is closed when it
/// is dropped.
#[derive(Debug)]
pub(crate) struct OwnedHandle(OwnedFd);

impl OwnedHandle {
    /// Of a socket that no driver has an operation on.
    pub(super) fn of(handle: Handle) -> OwnedHandle {
        // SAFETY: the descriptor is open, and its only owner gives it up.
        OwnedHandle(unsafe { OwnedFd::from_raw_fd(handle.0) })
    }

    /// For the driver of the core that received it.
    pub(crate) fn into_handle(self) -> Handle {
        Handle(self.0.into_raw_fd())
    }
}
