//! The scheduled events of the network, in order of time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::SocketAddr;
use std::task::Waker;
use std::time::Duration;

use super::id::Id;

/// Scheduled events. Those of the same time happen in the order of their scheduling.
#[derive(Default)]
pub(super) struct Events {
    heap: BinaryHeap<Reverse<Scheduled>>,
    count: u64,
}

pub(super) enum EventKind {
    /// A segment of this end's outbox arrives at the other end.
    Deliver(Id),
    /// The SYN of a connecting end arrives.
    Syn(Id),
    /// The reply to its SYN arrives: connected, or the error.
    Connected(Id, i32),
    /// A reset arrives at this end.
    Reset(Id),
    /// An end that has sent a reset is removed.
    Remove(Id),
    /// A core tries the operations of a socket again.
    Recheck(Id),
    /// A datagram arrives.
    Datagram(Box<Datagram>),
    Wake(Waker),
}

/// A datagram on its way, or one that has arrived.
#[derive(Clone)]
pub(crate) struct Datagram {
    pub(crate) from: SocketAddr,
    pub(crate) to: SocketAddr,
    pub(crate) ecn: u8,
    pub(crate) content: Vec<u8>,
}

struct Scheduled {
    at: Duration,
    order: u64,
    kind: EventKind,
}

impl Events {
    pub(super) fn push(&mut self, at: Duration, kind: EventKind) {
        self.count += 1;
        let order = self.count;
        self.heap.push(Reverse(Scheduled { at, order, kind }));
    }

    /// The next event, unless it is later than `now`.
    pub(super) fn pop(&mut self, now: Duration) -> Option<EventKind> {
        let is_due = self.next_at().is_some_and(|at| at <= now);
        is_due
            .then(|| self.heap.pop().map(|Reverse(event)| event.kind))
            .flatten()
    }

    /// When the next event happens.
    pub(super) fn next_at(&self) -> Option<Duration> {
        self.heap.peek().map(|Reverse(event)| event.at)
    }
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Scheduled) -> bool {
        self.order == other.order
    }
}

impl Eq for Scheduled {}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Scheduled) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Scheduled {
    fn cmp(&self, other: &Scheduled) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}
