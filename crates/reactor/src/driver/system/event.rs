//! An eventfd: a counter that wakes a thread which waits for its descriptor.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use super::socket::check;

/// An eventfd that never blocks its callers.
pub(crate) struct EventFd(OwnedFd);

impl EventFd {
    pub(crate) fn open() -> io::Result<EventFd> {
        // SAFETY: a plain system call; the descriptor it returns is ours alone.
        unsafe {
            let fd = check(libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK))?;
            Ok(EventFd(OwnedFd::from_raw_fd(fd)))
        }
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Makes the descriptor readable.
    pub(crate) fn signal(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: eight bytes are written from a live array; a full counter is readable already.
        unsafe { libc::write(self.fd(), one.as_ptr().cast(), one.len()) };
    }

    /// Makes the descriptor unreadable until the next signal.
    pub(crate) fn clear(&self) {
        let mut counter = [0u8; 8];
        // SAFETY: eight bytes are read into a live array; the descriptor does not block.
        unsafe { libc::read(self.fd(), counter.as_mut_ptr().cast(), counter.len()) };
    }
}
