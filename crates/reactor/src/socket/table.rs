//! All sockets of a core, and the functions that commands, events and shortage share.

use std::collections::VecDeque;
use std::rc::Rc;
use std::task::Waker;
use std::time::{Duration, Instant};

use super::datagram_table::DatagramTable;
use super::entry::{Parking, Role, SocketEntry};
use super::eviction::Eviction;
use super::lingering::LingeringSockets;
use super::listener::Listeners;
use super::outgoing::Outgoing;
use super::slab::Slab;
use super::waiting_connects::WaitingConnects;
use super::{Resume, SocketKey};
use crate::buffer::{Chunk, LARGE_BYTES};
use crate::core::Core;
use crate::driver::{Driver, Handle, Pending};
use crate::timer::{TimerTarget, ticks_up};

/// How long a closing socket may take to send its queue before a reset.
pub(super) const RESET_TIME: Duration = Duration::from_secs(2);

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

/// The table, borrowed for one command, and its core.
pub(crate) struct Sockets<'a> {
    pub(crate) table: std::cell::RefMut<'a, SocketTable>,
    pub(crate) core: &'a Core,
}

/// Shared by commands and events.
impl Sockets<'_> {
    /// Adds an accepted or connecting socket.
    pub(super) fn adopt(&mut self, handle: Handle) -> SocketKey {
        let clock = &self.core.clock;
        let entry = SocketEntry::new(handle, clock.now(), clock.tick());
        let key = self.table.slab.insert(entry);
        self.table.driver.register(key, handle);
        key
    }

    /// The tick at which the time `within` will have passed.
    #[inline]
    pub(super) fn deadline(&self, within: Duration) -> u64 {
        // Plus one, because the current tick has partly passed.
        self.core.clock.tick() + ticks_up(within) + 1
    }

    /// Sets the deadline of a socket; only an earlier one changes the timer wheel.
    pub(super) fn set_deadline(&mut self, key: SocketKey, within: Duration) {
        let deadline = self.deadline(within);
        let entry = self.table.entry(key);
        entry.deadline = deadline;
        if !entry.is_scheduled() {
            self.schedule_deadline(key);
        }
    }

    #[cold]
    pub(super) fn schedule_deadline(&mut self, key: SocketKey) {
        let entry = self.table.entry(key);
        let mut wheel = self.core.wheel.borrow_mut();
        if let Some((timer, _)) = entry.timer {
            wheel.cancel(timer);
        }
        let timer = wheel.insert(entry.deadline, TimerTarget::Socket(key));
        entry.timer = Some((timer, entry.deadline));
    }

    pub(super) fn take_parking(&mut self, key: SocketKey) -> Option<Parking> {
        let entry = self.table.slab.get_mut(key)?;
        match std::mem::replace(&mut entry.role, Role::Owned) {
            Role::Parked(parking) => Some(parking),
            other => {
                entry.role = other;
                None
            }
        }
    }

    pub(super) fn reset(&mut self, key: SocketKey) {
        let handle = self.table.entry(key).handle;
        self.table.driver.reset_on_close(handle);
        self.close(key);
    }

    /// Cancels the pending operations and closes the socket after their last completions.
    pub(super) fn close(&mut self, key: SocketKey) {
        let table = &mut *self.table;
        let Some(entry) = table.slab.get_mut(key) else {
            return;
        };
        if let Some((timer, _)) = entry.timer.take() {
            self.core.wheel.borrow_mut().cancel(timer);
        }
        let role = std::mem::replace(&mut entry.role, Role::Closing);
        if matches!(role, Role::Lingering { .. }) {
            table.lingering.closed();
        }
        entry.receiving.waker = None;
        wake(&mut entry.sending.waker);
        entry.receiving.discard();
        if entry.pending.is_empty() {
            return self.remove(key);
        }
        // The send queue stays until the last completion, because the kernel may still read it.
        for operation in [Pending::RECEIVE, Pending::SEND, Pending::CONNECT] {
            if entry.pending.has(operation) {
                table.driver.cancel(key, entry.handle, operation);
            }
        }
    }

    pub(super) fn remove(&mut self, key: SocketKey) {
        let table = &mut *self.table;
        let Some(mut entry) = table.slab.remove(key) else {
            return;
        };
        if let Some(mut queue) = entry.sending.queue.take() {
            queue.clear(&mut table.to_drop);
            keep(&mut table.queues, queue);
        }
        table.driver.close(entry.handle);
        if table.eviction.is_tracking {
            self.note_closed(entry.is_evicted);
        }
    }

    pub(super) fn list_for_sending(&mut self, key: SocketKey) {
        let table = &mut *self.table;
        let entry = table
            .slab
            .get_mut(key)
            .expect("a handle refers to a live socket");
        if !entry.sending.listed && !entry.pending.has(Pending::SEND) {
            entry.sending.listed = true;
            table.to_send.push(key);
        }
    }

    /// Starts a receive, if the window has room and none is pending.
    pub(super) fn arm_receive(&mut self, key: SocketKey) {
        let table = &mut *self.table;
        let Some(entry) = table.slab.get_mut(key) else {
            return;
        };
        let room = entry.receiving.room(self.core.pool.fair_share());
        let busy = entry.pending.has(Pending::RECEIVE) || entry.pending.has(Pending::CONNECT);
        if room > 0 && !busy && !matches!(entry.role, Role::Closing) {
            entry.pending.add(Pending::RECEIVE);
            let is_large = entry.receiving.wants_large() && !self.core.pool.is_scarce();
            entry.receiving.is_large = is_large;
            match is_large {
                true => {
                    let limit = entry.receiving.window.min(LARGE_BYTES);
                    table.driver.receive_large(key, entry.handle, limit);
                }
                false => table.driver.receive(key, entry.handle, room),
            }
        }
    }

    pub(super) fn remove_if_done(&mut self, key: SocketKey) {
        let entry = self.table.entry(key);
        if matches!(entry.role, Role::Closing) && entry.pending.is_empty() {
            self.remove(key);
        }
    }

    /// Whether completions are outstanding.
    pub(crate) fn anything_pending(&self) -> bool {
        self.table.len() > 0 || self.listeners_pending() || self.table.datagrams.len() > 0
    }

    /// Closes every socket. Returns the handlers of parked sockets, to be dropped outside the borrow.
    pub(crate) fn close_all(&mut self) -> Vec<Rc<dyn Resume>> {
        let mut handlers = Vec::new();
        for key in self.table.slab.keys() {
            if let Some(parking) = self.take_parking(key) {
                handlers.push(parking.resume);
            }
            let closing = self
                .table
                .slab
                .get(key)
                .is_some_and(|e| matches!(e.role, Role::Closing));
            if !closing {
                self.close(key);
            }
        }
        handlers
    }
}

/// Keeps an empty queue for later sends.
pub(super) fn keep(queues: &mut FreeQueues, queue: Box<Outgoing>) {
    assert_eq!(queue.bytes(), 0, "only an empty queue is reused");
    if queues.len() < QUEUES_KEPT_MAX {
        queues.push(queue);
    }
}

/// Wakes a task. Allowed while the table is borrowed, because waking only queues the task.
pub(super) fn wake(waker: &mut Option<Waker>) {
    if let Some(waker) = waker.take() {
        waker.wake();
    }
}
