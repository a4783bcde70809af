//! All sockets of a core.

use std::collections::VecDeque;
use std::time::Instant;

use super::SocketKey;
use super::datagram_table::DatagramTable;
use super::entry::SocketEntry;
use super::eviction::Eviction;
use super::lingering::LingeringSockets;
use super::listeners::Listeners;
use super::outgoing::Outgoing;
use super::slab::Slab;
use super::waiting_connects::WaitingConnects;
use crate::buffer::Chunk;
use crate::driver::Driver;

/// Most empty send queues that a core keeps for later sends.
const QUEUES_KEPT_MAX: usize = 1024;

/// Empty send queues. Boxed, because the kernel has pointers into those in use.
#[allow(
    clippy::vec_box,
    reason = "a box moves from here to its socket and back"
)]
type FreeQueues = Vec<Box<Outgoing>>;

/// Resumed sockets per turn that have to wait; others are held back. Measured with 1,000 connections from
/// HTTP/1.1 to HTTP/1.1: 32 took 2 % more CPU, 128 took 15 % more, and no bound 25 % more.
const RESUMES_PER_TURN: usize = 16;

/// The sockets, listeners and driver of one core.
pub(crate) struct SocketTable {
    pub(crate) driver: Driver,
    pub(super) listeners: Listeners,
    pub(super) slab: Slab<SocketEntry>,
    /// Sockets whose sends start at the end of the turn.
    pub(super) to_send: Vec<SocketKey>,
    /// Sockets with large sends, in order.
    pub(super) large_sends: VecDeque<SocketKey>,
    /// Parked sockets that are readable, in order: they were when they were parked, or are held back.
    pub(super) to_resume: VecDeque<SocketKey>,
    /// How many more resumed sockets may have to wait in this turn.
    pub(super) resumes_left: usize,
    /// Sockets that wait for receive buffers, in order (rule 2).
    pub(super) starved: VecDeque<SocketKey>,
    /// Parked sockets that wait for receive buffers, in order.
    pub(super) starved_idle: VecDeque<SocketKey>,
    pub(super) starved_since: Option<Instant>,
    /// Receives of some were started in this turn.
    pub(super) starved_were_resumed: bool,
    pub(super) queues: FreeQueues,
    /// Bytes that may still be received and sent outside of the turn until the next one.
    pub(super) at_once_left: usize,
    /// Sent chunks whose drop may run code of other crates, which may borrow the table.
    pub(crate) to_drop: Vec<Chunk>,
    pub(super) activity: Activity,
    pub(super) lingering: LingeringSockets,
    pub(super) eviction: Eviction,
    pub(super) connects: WaitingConnects,
    pub(super) datagrams: DatagramTable,
}

/// The number of sockets that receive, by millisecond, for the driver's wait policy.
#[derive(Default)]
pub(super) struct Activity {
    tick: u64,
    this_tick: usize,
    last_tick: usize,
}

impl Activity {
    /// Records that a socket has received, whose previous receive was in `active_tick`.
    pub(super) fn note(&mut self, active_tick: &mut u64, tick: u64) {
        if self.tick != tick {
            self.last_tick = if self.tick + 1 == tick {
                self.this_tick
            } else {
                0
            };
            (self.tick, self.this_tick) = (tick, 0);
        }
        if *active_tick != tick {
            *active_tick = tick;
            self.this_tick += 1;
        }
    }

    /// The number of busy sockets, estimated from the last whole millisecond.
    fn busy(&self, tick: u64) -> usize {
        if self.tick == tick {
            self.last_tick.max(self.this_tick)
        } else {
            self.this_tick
        }
    }
}

impl SocketTable {
    pub(crate) fn new(driver: Driver) -> SocketTable {
        SocketTable {
            driver,
            listeners: Listeners::default(),
            slab: Slab::default(),
            to_send: Vec::new(),
            large_sends: VecDeque::new(),
            to_resume: VecDeque::new(),
            resumes_left: 0,
            starved: VecDeque::new(),
            starved_idle: VecDeque::new(),
            starved_since: None,
            starved_were_resumed: false,
            queues: Vec::new(),
            at_once_left: 0,
            to_drop: Vec::new(),
            activity: Activity::default(),
            lingering: LingeringSockets::default(),
            eviction: Eviction::default(),
            connects: WaitingConnects::default(),
            datagrams: DatagramTable::default(),
        }
    }

    /// The number of open sockets.
    pub(crate) fn len(&self) -> usize {
        self.slab.len()
    }

    /// The number of open UDP sockets.
    #[cfg(feature = "simulation")]
    pub(crate) fn datagram_sockets(&self) -> usize {
        self.datagrams.len()
    }

    /// The number of sockets that have received in about the last millisecond.
    pub(crate) fn busy(&self, tick: u64) -> usize {
        self.activity.busy(tick)
    }

    /// The number of parked sockets that are readable.
    pub(crate) fn resumes_waiting(&self) -> usize {
        self.to_resume.len()
    }

    /// Renews the bound on resumed sockets that have to wait, at the start of a turn.
    pub(crate) fn renew_resumes(&mut self) {
        self.resumes_left = RESUMES_PER_TURN;
    }

    /// Counts a resumed socket that has to wait.
    pub(crate) fn consume_resume(&mut self) {
        self.resumes_left = self.resumes_left.saturating_sub(1);
    }

    /// Whether the core is at its limit of sockets, or was recently.
    pub(crate) fn is_evicting(&self) -> bool {
        self.eviction.is_tracking
    }

    /// Whether the next turn has to evict idle sockets.
    pub(crate) fn is_eviction_due(&self) -> bool {
        self.eviction.is_due()
    }

    /// Whether the loop has work before it may wait.
    pub(crate) fn is_busy(&self) -> bool {
        !self.to_send.is_empty()
            || !self.large_sends.is_empty()
            || !self.to_resume.is_empty()
            || self.datagrams.is_busy()
            || self.eviction.is_due()
    }

    pub(super) fn entry(&mut self, key: SocketKey) -> &mut SocketEntry {
        self.slab
            .get_mut(key)
            .expect("a handle refers to a live socket")
    }
}

impl Drop for SocketTable {
    /// Normally everything is closed already. After a failure or a panic the descriptors must not stay
    /// open: the kernel would still assign connections to a listener.
    fn drop(&mut self) {
        for key in self.slab.keys() {
            if let Some(entry) = self.slab.remove(key) {
                self.driver.close(entry.handle);
            }
        }
        self.listeners.close_all(&mut self.driver);
        self.datagrams.close_all(&mut self.driver);
    }
}

/// Keeps an empty queue for later sends.
pub(super) fn keep(queues: &mut FreeQueues, queue: Box<Outgoing>) {
    assert_eq!(queue.bytes(), 0, "only an empty queue is reused");
    if queues.len() < QUEUES_KEPT_MAX {
        queues.push(queue);
    }
}
