//! How other threads wake a core that waits in its driver.

use std::io;
use std::os::fd::RawFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering};

use super::system::EventFd;

/// A ring of this process, to which other rings can send messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RingHandle(pub(super) RawFd);

/// The two ways to wake one core: a message from ring to ring if both sides have one, else an eventfd. A
/// simulated core has neither; its driver looks into the mailbox.
#[derive(Default)]
pub(crate) struct Notifier {
    /// Opened by the first driver that needs it. It is never closed, because any thread may be writing
    /// to it.
    event: OnceLock<EventFd>,
    /// The descriptor of the core's ring plus one; 0 without a ring.
    ring: AtomicI32,
}

impl Notifier {
    /// Opens the eventfd, if that has not happened yet, and returns the descriptor to wait for. Only
    /// the core that the notifier wakes calls this.
    pub(super) fn open_event(&self) -> io::Result<RawFd> {
        if let Some(event) = self.event.get() {
            return Ok(event.fd());
        }
        let event = EventFd::open()?;
        Ok(self.event.get_or_init(|| event).fd())
    }

    /// From now on other rings wake this core through its ring.
    pub(super) fn set_ring(&self, ring: RawFd) {
        self.ring.store(ring + 1, Ordering::Release);
    }

    /// The core's ring is about to be closed.
    pub(crate) fn clear_ring(&self) {
        self.ring.store(0, Ordering::Release);
    }

    pub(crate) fn has_ring(&self, ring: RingHandle) -> bool {
        self.ring() == Some(ring)
    }

    /// The core's ring, if it has one.
    pub(crate) fn ring(&self) -> Option<RingHandle> {
        match self.ring.load(Ordering::Acquire) {
            0 => None,
            ring => Some(RingHandle(ring - 1)),
        }
    }

    /// Ends the core's wait without a message to its ring.
    pub(crate) fn notify_by_event(&self) {
        if let Some(event) = self.event.get() {
            event.signal();
        }
    }

    /// Takes the notification back, so that the next wait does not end at once.
    pub(crate) fn clear(&self) {
        if let Some(event) = self.event.get() {
            event.clear();
        }
    }
}
