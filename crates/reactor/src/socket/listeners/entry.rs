//! The state of listeners.

use std::collections::VecDeque;
use std::task::Waker;

use crate::driver::{Driver, Handle, Listening};
use crate::socket::Address;

/// The listeners of a core. They are few, so their indexes are not reused.
#[derive(Default)]
pub(crate) struct Listeners(pub(super) Vec<ListenerEntry>);

pub(super) struct ListenerEntry {
    pub(super) address: Address,
    /// `None` once it is closed.
    pub(super) handle: Option<Handle>,
    /// An accept is pending.
    pub(super) armed: bool,
    pub(super) closing: bool,
    /// Other cores may have closed theirs already, so that they get no connection of this one.
    pub(super) refusing: bool,
    /// The accept was cancelled; its last report is outstanding.
    pub(super) stopping: bool,
    /// Accepted ahead of the task.
    pub(super) ahead: VecDeque<Result<Handle, i32>>,
    pub(super) waker: Option<Waker>,
}

impl Listeners {
    pub(super) fn insert(&mut self, listening: &Listening) -> u32 {
        self.0.push(ListenerEntry {
            address: listening.address.clone(),
            handle: Some(listening.handle),
            armed: false,
            closing: false,
            refusing: false,
            stopping: false,
            ahead: VecDeque::new(),
            waker: None,
        });
        (self.0.len() - 1) as u32
    }

    /// Closes all listeners after a failure.
    pub(crate) fn close_all(&mut self, driver: &mut Driver) {
        for entry in &mut self.0 {
            let ahead = entry.ahead.drain(..).flatten();
            ahead
                .chain(entry.handle.take())
                .for_each(|handle| driver.close(handle));
        }
    }
}
