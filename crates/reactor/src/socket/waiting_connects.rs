//! Sockets to connect that wait for a descriptor, in order (rule 20).
//!
//! Each socket that closes wakes the first of them. It opens sockets for all, in order, until no
//! descriptor is left: one per turn of the core would be slower than new ones may come. The callers bound
//! the queue, by their limit of connections per upstream.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::table::{Sockets, wake};
use super::{Address, Socket, SocketKey};
use crate::core;
use crate::driver;
use crate::timer::timeout;

/// The time between two attempts of the first one: the process may also have closed other descriptors.
const RETRY_PAUSE: Duration = Duration::from_millis(20);

/// Opens a socket and starts to connect it. While no descriptor is left, waits for one.
///
/// # Errors
/// Another error of `socket(2)`.
pub(super) async fn open(address: &Address) -> io::Result<Socket> {
    let opened = match core::with(|core| core.sockets().connect_unless_others_wait(address)) {
        Some(opened) => opened,
        // Allocated separately, since this is rare and large.
        None => Box::pin(wait_and_open(address)).await,
    };
    opened.map(Socket::new)
}

async fn wait_and_open(address: &Address) -> io::Result<SocketKey> {
    let place = Place::last(address);
    loop {
        let woken = poll_fn(|cx| core::with(|core| core.sockets().poll_woken(&place, cx)));
        if core::with(|core| core.sockets().is_first(&place)) {
            // If no socket closes in time, it tries again.
            let _ = timeout(RETRY_PAUSE, woken).await;
            core::with(|core| core.sockets().open_waiting());
        } else {
            woken.await;
        }
        if let Some(opened) = core::with(|core| core.sockets().take_opened(&place)) {
            return opened;
        }
    }
}

/// The connections that wait, by the order in which they began to.
#[derive(Default)]
pub(super) struct WaitingConnects {
    next: u64,
    waiting: BTreeMap<u64, Waiter>,
    /// The sockets of those that wait no more, until they take them.
    opened: BTreeMap<u64, io::Result<SocketKey>>,
}

struct Waiter {
    address: Address,
    waker: Option<Waker>,
    is_woken: bool,
}

impl WaitingConnects {
    fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn wake_first(&mut self) {
        if let Some(mut first) = self.waiting.first_entry() {
            let first = first.get_mut();
            first.is_woken = true;
            wake(&mut first.waker);
        }
    }
}

/// An entry in the queue of those that wait. Dropping it leaves the queue.
struct Place(u64);

impl Place {
    fn last(address: &Address) -> Place {
        core::with(|core| {
            let mut sockets = core.sockets();
            let connects = &mut sockets.table.connects;
            let place = connects.next;
            connects.next += 1;
            let waiter = Waiter {
                address: address.clone(),
                waker: None,
                is_woken: false,
            };
            connects.waiting.insert(place, waiter);
            Place(place)
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        core::try_with(|core| core.sockets().leave(self));
    }
}

impl Sockets<'_> {
    /// As [`Sockets::connect_if_possible`], behind those that wait: if descriptors still lack, the first
    /// of them requests room for this one too.
    fn connect_unless_others_wait(&mut self, address: &Address) -> Option<io::Result<SocketKey>> {
        if self.table.connects.waiting() > 0 {
            return None;
        }
        self.connect_if_possible(address, 1)
    }

    /// `None` if no descriptor is left. Then idle sockets are evicted for all that wait, and at the limit
    /// for this one; `more` is 1 for a connection that is not among those that wait.
    ///
    /// Beyond the limit of sockets it uses the rest of the descriptors: the request that needs the
    /// connection runs, and if all sockets at the limit are of such requests, none would ever close.
    fn connect_if_possible(
        &mut self,
        address: &Address,
        more: usize,
    ) -> Option<io::Result<SocketKey>> {
        if self.at_limit() {
            self.request_room_to_connect(1);
        }
        match self.connect(address) {
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
    fn open_waiting(&mut self) {
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

    fn take_opened(&mut self, place: &Place) -> Option<io::Result<SocketKey>> {
        self.table.connects.opened.remove(&place.0)
    }

    fn leave(&mut self, place: &Place) {
        let was_first = self.is_first(place);
        let connects = &mut self.table.connects;
        connects.waiting.remove(&place.0);
        if was_first {
            connects.wake_first();
        }
        if let Some(Ok(key)) = connects.opened.remove(&place.0) {
            self.close(key);
        }
    }

    fn is_first(&self, place: &Place) -> bool {
        let first = self.table.connects.waiting.first_key_value();
        first.is_some_and(|(first, _)| *first == place.0)
    }

    fn poll_woken(&mut self, place: &Place, cx: &Context<'_>) -> Poll<()> {
        let Some(waiter) = self.table.connects.waiting.get_mut(&place.0) else {
            return Poll::Ready(());
        };
        if std::mem::take(&mut waiter.is_woken) {
            return Poll::Ready(());
        }
        waiter.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}
