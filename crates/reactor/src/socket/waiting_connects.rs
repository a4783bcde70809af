//! Sockets to connect that wait for a descriptor, in order (rule 20).
//!
//! Each socket that closes wakes the first of them. It opens sockets for all, in order, until no
//! descriptor is left: one per turn of the core would be slower than new ones may come. The callers bound
//! the queue, by their limit of connections per upstream.

mod queue;

use std::io;
use std::task::{Context, Poll};

use self::queue::Waiter;
use super::sockets::{Sockets, wake};
use super::{Address, SocketKey};
use crate::driver;

pub(super) use self::queue::{WaitKey, WaitingConnects};

impl Sockets<'_> {
    /// Adds a connection behind all that wait.
    pub(super) fn wait_to_connect(&mut self, address: &Address) -> WaitKey {
        let connects = &mut self.table.connects;
        let key = connects.next;
        connects.next += 1;
        let waiter = Waiter {
            address: address.clone(),
            waker: None,
            is_woken: false,
        };
        connects.waiting.insert(key, waiter);
        key
    }

    /// As [`Sockets::connect_if_possible`], behind those that wait: if descriptors still lack, the first
    /// of them requests room for this one too.
    pub(super) fn connect_unless_others_wait(
        &mut self,
        address: &Address,
    ) -> Option<io::Result<SocketKey>> {
        if self.table.connects.waiting() > 0 {
            return None;
        }
        self.connect_if_possible(address, 1)
    }

    /// `None` if no descriptor is left. Then idle sockets are evicted for all that wait, and at the limit
    /// for this one; `more` is 1 for a connection that is not among those that wait.
    ///
    /// Beyond the limit of sockets it uses the rest of the core's share: the request that needs the
    /// connection runs, and if all sockets at the limit are of such requests, none would ever close.
    /// The process needs what is beyond the share, such as for those that ask why it is slow.
    fn connect_if_possible(
        &mut self,
        address: &Address,
        more: usize,
    ) -> Option<io::Result<SocketKey>> {
        if self.at_limit() {
            self.request_room_to_connect(1);
        }
        let opened = match self.table.len() < self.core.sockets.connecting_max {
            true => self.connect(address),
            false => Err(driver::out_of_descriptors()),
        };
        match opened {
            Err(error)
                if error
                    .raw_os_error()
                    .is_some_and(driver::is_out_of_descriptors) =>
            {
                self.request_room_to_connect(self.table.connects.waiting() + more);
                None
            }
            result => {
                // Room that nobody lacks any more must not cost the next socket that becomes idle.
                self.table.eviction.end_unmet_demand();
                Some(result)
            }
        }
    }

    /// Opens the sockets of those that wait, in order, until no descriptor is left.
    pub(super) fn open_waiting(&mut self) {
        let before = self.table.connects.waiting();
        while let Some(first) = self.table.connects.waiting.first_entry() {
            let address = first.get().address.clone();
            let Some(opened) = self.connect_if_possible(&address, 0) else {
                break;
            };
            let connects = &mut self.table.connects;
            if let Some((place, mut waiter)) = connects.waiting.pop_first() {
                connects.opened.insert(place, opened);
                wake(&mut waiter.waker);
            }
        }
        // Another one is the first now, and pauses.
        if self.table.connects.waiting() < before {
            self.table.connects.wake_first();
        }
    }

    pub(super) fn take_opened(&mut self, place: WaitKey) -> Option<io::Result<SocketKey>> {
        self.table.connects.opened.remove(&place)
    }

    pub(super) fn leave(&mut self, place: WaitKey) {
        let was_first = self.is_first(place);
        let connects = &mut self.table.connects;
        connects.waiting.remove(&place);
        if was_first {
            connects.wake_first();
        }
        if let Some(Ok(key)) = connects.opened.remove(&place) {
            self.close(key);
        }
    }

    pub(super) fn is_first(&self, place: WaitKey) -> bool {
        let first = self.table.connects.waiting.first_key_value();
        first.is_some_and(|(first, _)| *first == place)
    }

    pub(super) fn poll_woken(&mut self, place: WaitKey, cx: &Context<'_>) -> Poll<()> {
        let Some(waiter) = self.table.connects.waiting.get_mut(&place) else {
            return Poll::Ready(());
        };
        if std::mem::take(&mut waiter.is_woken) {
            return Poll::Ready(());
        }
        waiter.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}
