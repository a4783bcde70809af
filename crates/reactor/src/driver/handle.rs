//! Open sockets and listeners.

use std::os::fd::RawFd;

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
