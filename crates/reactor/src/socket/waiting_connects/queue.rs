//! The queue of sockets that wait for a descriptor.

use std::collections::BTreeMap;
use std::io;
use std::task::Waker;

use crate::socket::{Address, SocketKey};

/// The position of a connection in the queue. Positions are not reused.
pub(crate) type WaitKey = u64;

/// The connections that wait, by the order in which they began to.
#[derive(Default)]
pub(crate) struct WaitingConnects {
    pub(super) next: WaitKey,
    pub(super) waiting: BTreeMap<WaitKey, Waiter>,
    /// The sockets of those that wait no more, until they take them.
    pub(super) opened: BTreeMap<WaitKey, io::Result<SocketKey>>,
}

pub(super) struct Waiter {
    pub(super) address: Address,
    pub(super) waker: Option<Waker>,
    pub(super) is_woken: bool,
}

impl WaitingConnects {
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn wake_first(&mut self) {
        if let Some(mut first) = self.waiting.first_entry() {
            let first = first.get_mut();
            first.is_woken = true;
            if let Some(waker) = first.waker.take() {
                waker.wake();
            }
        }
    }
}
