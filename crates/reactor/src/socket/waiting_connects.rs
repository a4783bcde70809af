//! Sockets to connect that wait for a descriptor, in order (rule 20).
//!
//! Each socket that closes wakes the first of them, and each that gets its descriptor wakes the next, which
//! tries at once: as long as there are descriptors, the queue shrinks within the turn.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::table::{Sockets, wake};
use super::{Address, Socket};
use crate::core;
use crate::driver;
use crate::timer::timeout;

/// The time between two attempts of the first one: the process may also have closed other descriptors.
const RETRY_PAUSE: Duration = Duration::from_millis(20);

/// Opens a socket and starts to connect it. While no descriptor is left, waits for one, for at most
/// `within`.
///
/// # Errors
/// EMFILE if there was none in this time, or another error of `socket(2)`.
pub(super) async fn open(address: &Address, within: Duration) -> io::Result<Socket> {
    match core::with(|core| core.sockets().connect_unless_others_wait(address)) {
        Some(opened) => opened,
        // Allocated separately, since this is rare and large.
        None => Box::pin(timeout(within, wait_and_open(address)))
            .await
            .unwrap_or_else(|_| Err(driver::out_of_descriptors())),
    }
}

async fn wait_and_open(address: &Address) -> io::Result<Socket> {
    let place = Place::last();
    loop {
        let is_first = core::with(|core| core.sockets().is_first(&place));
        if is_first
            && let Some(opened) = core::with(|core| core.sockets().connect_if_possible(address, 0))
        {
            return opened;
        }
        let woken = poll_fn(|cx| core::with(|core| core.sockets().poll_woken(&place, cx)));
        match is_first {
            // If no socket closes in time, it tries again.
            true => drop(timeout(RETRY_PAUSE, woken).await),
            false => woken.await,
        }
    }
}

/// The connections that wait, by the order in which they began to.
#[derive(Default)]
pub(super) struct WaitingConnects {
    next: u64,
    waiting: BTreeMap<u64, Waiter>,
}

#[derive(Default)]
struct Waiter {
    waker: Option<Waker>,
    is_woken: bool,
}

impl WaitingConnects {
    pub(super) fn waiting(&self) -> usize {
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

/// A place among those that wait. Dropping it wakes the next one.
struct Place(u64);

impl Place {
    fn last() -> Place {
        core::with(|core| {
            let mut sockets = core.sockets();
            let connects = &mut sockets.table.connects;
            let place = connects.next;
            connects.next += 1;
            connects.waiting.insert(place, Waiter::default());
            Place(place)
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        core::try_with(|core| {
            let mut sockets = core.sockets();
            let connects = &mut sockets.table.connects;
            connects.waiting.remove(&self.0);
            connects.wake_first();
        });
    }
}

impl Sockets<'_> {
    /// As [`Sockets::connect_if_possible`], behind those that wait.
    fn connect_unless_others_wait(&mut self, address: &Address) -> Option<io::Result<Socket>> {
        if self.table.connects.waiting() > 0 {
            self.request_room_to_connect(1);
            return None;
        }
        self.connect_if_possible(address, 1)
    }

    /// `None` if no descriptor is left. Then, and at the limit, idle sockets are evicted; `more` is 1 for a
    /// connection that is not among those that wait.
    ///
    /// Beyond the limit of sockets it uses the rest of the descriptors: the request that needs the
    /// connection runs, and if all sockets at the limit are of such requests, none would ever close.
    fn connect_if_possible(
        &mut self,
        address: &Address,
        more: usize,
    ) -> Option<io::Result<Socket>> {
        if self.at_limit() {
            self.request_room_to_connect(more);
        }
        match self.connect(address) {
            Err(error)
                if error
                    .raw_os_error()
                    .is_some_and(driver::is_out_of_descriptors) =>
            {
                self.request_room_to_connect(more);
                None
            }
            result => Some(result.map(Socket::new)),
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
