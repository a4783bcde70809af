//! All sockets of a core: the commands of their handles, and what the driver reports.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::IntoRawFd;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use super::entry::{End, Entry, Fin, Outcome, Parking, Pending, Role};
use super::listener::Listeners;
use super::outgoing::Outgoing;
use super::slab::Slab;
use super::{Address, Cause, RawAddress, Resume, SocketKey};
use crate::buffer::{Chunk, Slice};
use crate::core::Core;
use crate::driver::{Driver, Event, Received};
use crate::sys;
use crate::timer::Target;

/// Input that a closing socket discards (rule 16).
const DISCARD_MAX: usize = 64 * 1024;

/// How long it discards.
const DISCARD_TIME: Duration = Duration::from_secs(2);

/// How long a closing socket may take to send the rest.
const FINISH_TIME: Duration = Duration::from_secs(60);

/// Send queues that a core keeps for the next sends.
const QUEUES_KEPT_MAX: usize = 256;

/// A core that has no buffer for this long sheds its largest holder (rule 4).
const STARVED_TIME: Duration = Duration::from_secs(1);

/// How long it waits for the effect before it sheds the next.
const SHED_PAUSE: Duration = Duration::from_millis(20);

/// Queues without content. The kernel holds pointers into the boxes of those in use.
#[allow(
    clippy::vec_box,
    reason = "a box moves from here to its socket and back"
)]
type SpareQueues = Vec<Box<Outgoing>>;

/// The sockets, listeners and driver of one core.
pub(crate) struct SocketTable {
    pub(crate) driver: Driver,
    pub(super) listeners: Listeners,
    slab: Slab,
    /// Sockets with something to send at the end of the turn.
    to_send: Vec<SocketKey>,
    /// Parked sockets that had news when they were parked.
    to_resume: VecDeque<SocketKey>,
    /// Sockets that wait for receive buffers, in order (rule 2).
    starved: VecDeque<SocketKey>,
    starved_idle: VecDeque<SocketKey>,
    starved_since: Option<Instant>,
    queues: SpareQueues,
    activity: Activity,
}

/// How many sockets receive, by the millisecond: what the driver's patience is chosen by.
#[derive(Default)]
struct Activity {
    tick: u64,
    this_tick: usize,
    last_tick: usize,
}

impl Activity {
    /// Notes that a socket has received, whose last receive was in `active_tick`.
    fn note(&mut self, active_tick: &mut u64, tick: u64) {
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

    /// Sockets that are busy, as far as can be told from the last whole millisecond.
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
            to_resume: VecDeque::new(),
            starved: VecDeque::new(),
            starved_idle: VecDeque::new(),
            starved_since: None,
            queues: Vec::new(),
            activity: Activity::default(),
        }
    }

    /// Sockets that are open.
    pub(crate) fn len(&self) -> usize {
        self.slab.len()
    }

    /// Sockets that have received in the last millisecond or so.
    pub(crate) fn busy(&self, tick: u64) -> usize {
        self.activity.busy(tick)
    }

    /// Parked sockets that had news when they were parked.
    pub(crate) fn resumes_waiting(&self) -> usize {
        self.to_resume.len()
    }

    /// Whether the loop has work before it may wait.
    pub(crate) fn is_busy(&self) -> bool {
        !self.to_send.is_empty() || !self.to_resume.is_empty()
    }

    fn entry(&mut self, key: SocketKey) -> &mut Entry {
        self.slab
            .get_mut(key)
            .expect("a handle names a live socket")
    }
}

/// The table together with the rest of the core, for the length of one command.
pub(crate) struct Sockets<'a> {
    pub(crate) table: std::cell::RefMut<'a, SocketTable>,
    pub(crate) core: &'a Core,
}

/// Commands.
impl Sockets<'_> {
    /// Adds an accepted or connecting descriptor.
    pub(super) fn adopt(&mut self, fd: std::os::fd::RawFd) -> SocketKey {
        let key = self
            .table
            .slab
            .insert(Entry::new(fd, self.core.clock.now()));
        self.table.driver.register(key, fd);
        key
    }

    pub(super) fn connect(&mut self, address: &Address) -> io::Result<SocketKey> {
        let raw = RawAddress::new(address)?;
        let fd = sys::stream_socket(raw.family(), self.table.driver.nonblocking())?;
        if matches!(address, Address::Tcp(_)) {
            sys::set_option(&fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1)?;
        }
        let fd = fd.into_raw_fd();
        let key = self.adopt(fd);
        self.table.entry(key).pending.add(Pending::CONNECT);
        self.table.driver.connect(key, fd, raw);
        Ok(key)
    }

    pub(super) fn poll_connected(
        &mut self,
        key: SocketKey,
        cx: &Context<'_>,
    ) -> Poll<io::Result<()>> {
        let entry = self.table.entry(key);
        if entry.pending.has(Pending::CONNECT) {
            entry.sending.waker = Some(cx.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(match entry.sending.failed {
            0 => {
                self.arm_receive(key);
                Ok(())
            }
            error => Err(io::Error::from_raw_os_error(error)),
        })
    }

    pub(super) fn peer(&mut self, key: SocketKey) -> Option<SocketAddr> {
        let entry = self.table.entry(key);
        if entry.peer.is_none() {
            let peer = RawAddress::ask(entry.fd, libc::getpeername).ok();
            entry.peer = peer.and_then(|raw| raw.to_ip());
        }
        entry.peer
    }

    pub(super) fn local(&mut self, key: SocketKey) -> Option<SocketAddr> {
        let fd = self.table.entry(key).fd;
        RawAddress::ask(fd, libc::getsockname).ok()?.to_ip()
    }

    pub(super) fn set_window(&mut self, key: SocketKey, bytes: usize) {
        self.table.entry(key).receiving.window = bytes;
        self.arm_receive(key);
    }

    pub(super) fn poll_receive(
        &mut self,
        key: SocketKey,
        cx: Option<&mut Context<'_>>,
    ) -> Poll<io::Result<Option<Slice>>> {
        let receiving = &mut self.table.entry(key).receiving;
        if let Some(slice) = receiving.pop() {
            self.arm_receive(key);
            return Poll::Ready(Ok(Some(slice.spare_the_pool())));
        }
        match receiving.end {
            End::Fin => Poll::Ready(Ok(None)),
            End::Failed(error) => Poll::Ready(Err(io::Error::from_raw_os_error(error))),
            End::Open => {
                receiving.waker = cx.map(|cx| cx.waker().clone());
                Poll::Pending
            }
        }
    }

    pub(super) fn unread(&mut self, key: SocketKey, slice: Slice) {
        self.table.entry(key).receiving.push_front(slice);
    }

    pub(super) fn unread_bytes(&mut self, key: SocketKey) -> usize {
        self.table.entry(key).receiving.unread
    }

    pub(super) fn send(&mut self, key: SocketKey, chunk: Chunk) {
        let now = self.core.clock.now();
        let table = &mut *self.table;
        let entry = table
            .slab
            .get_mut(key)
            .expect("a handle names a live socket");
        assert!(entry.sending.fin == Fin::No, "nothing is sent after FIN");
        if entry.sending.failed != 0 || chunk.is_empty() {
            return;
        }
        if entry.sending.queue.is_none() {
            entry.sending.progress = now;
        }
        let queue = &mut entry.sending.queue;
        let spare = &mut table.queues;
        queue
            .get_or_insert_with(|| spare.pop().unwrap_or_else(Outgoing::new))
            .push(chunk);
        self.list_for_sending(key);
    }

    pub(super) fn queued(&mut self, key: SocketKey) -> usize {
        self.table.entry(key).sending.queued()
    }

    pub(super) fn poll_send_room(
        &mut self,
        key: SocketKey,
        cx: &Context<'_>,
        below: usize,
    ) -> Poll<io::Result<()>> {
        let sending = &mut self.table.entry(key).sending;
        if sending.failed != 0 {
            return Poll::Ready(Err(io::Error::from_raw_os_error(sending.failed)));
        }
        if sending.queued() <= below {
            return Poll::Ready(Ok(()));
        }
        sending.waker = Some(cx.waker().clone());
        sending.wake_at = below;
        Poll::Pending
    }

    pub(super) fn send_progress(&mut self, key: SocketKey) -> Instant {
        self.table.entry(key).sending.progress
    }

    pub(super) fn shutdown_write(&mut self, key: SocketKey) {
        let sending = &mut self.table.entry(key).sending;
        if sending.fin == Fin::No {
            sending.fin = Fin::Wanted;
            self.list_for_sending(key);
        }
    }

    pub(super) fn park(
        &mut self,
        key: SocketKey,
        resume: Rc<dyn Resume>,
        tag: u64,
        deadline: Instant,
    ) {
        self.set_deadline(key, deadline);
        let entry = self.table.entry(key);
        entry.receiving.waker = None;
        entry.sending.waker = None;
        entry.role = Role::Parked(Parking { resume, tag });
        if entry.receiving.has_news() {
            self.table.to_resume.push_back(key);
        }
        self.arm_receive(key);
    }

    pub(super) fn unpark(&mut self, key: SocketKey) -> Option<Rc<dyn Resume>> {
        let entry = self.table.slab.get_mut(key)?;
        if entry.receiving.has_news() {
            return None;
        }
        self.take_parking(key).map(|parking| parking.resume)
    }

    /// Moves the one timer of a socket.
    fn set_deadline(&mut self, key: SocketKey, deadline: Instant) {
        let tick = self.core.clock.tick_after(deadline);
        let mut wheel = self.core.wheel.borrow_mut();
        let timer = &mut self.table.entry(key).timer;
        if !timer.is_some_and(|timer| wheel.reset(timer, tick)) {
            *timer = Some(wheel.insert(tick, Target::Socket(key)));
        }
    }

    fn take_parking(&mut self, key: SocketKey) -> Option<Parking> {
        let entry = self.table.slab.get_mut(key)?;
        match std::mem::replace(&mut entry.role, Role::Owned) {
            Role::Parked(parking) => Some(parking),
            other => {
                entry.role = other;
                None
            }
        }
    }

    pub(super) fn finish(&mut self, key: SocketKey) {
        let entry = self.table.entry(key);
        if entry.sending.failed != 0 || matches!(entry.receiving.end, End::Failed(_)) {
            return self.close(key);
        }
        entry.receiving.waker = None;
        entry.sending.waker = None;
        let discarded = entry.receiving.discard();
        entry.receiving.window = DISCARD_MAX;
        if entry.sending.fin == Fin::No {
            entry.sending.fin = Fin::Wanted;
        }
        let discard_left = DISCARD_MAX.saturating_sub(discarded);
        entry.role = Role::Finishing { discard_left };
        self.set_deadline(key, self.core.clock.now() + FINISH_TIME);
        self.list_for_sending(key);
    }

    pub(super) fn abort(&mut self, key: SocketKey) {
        let entry = self.table.entry(key);
        if entry.sending.queue.is_none() || entry.sending.failed != 0 {
            return self.reset(key);
        }
        entry.receiving.waker = None;
        entry.sending.waker = None;
        entry.receiving.discard();
        entry.role = Role::Resetting;
        self.set_deadline(key, self.core.clock.now() + DISCARD_TIME);
    }

    fn reset(&mut self, key: SocketKey) {
        sys::linger_zero(self.table.entry(key).fd);
        self.close(key);
    }

    /// Cancels what is pending and closes after its last completion.
    pub(super) fn close(&mut self, key: SocketKey) {
        let table = &mut *self.table;
        let Some(entry) = table.slab.get_mut(key) else {
            return;
        };
        if let Some(timer) = entry.timer.take() {
            self.core.wheel.borrow_mut().cancel(timer);
        }
        entry.role = Role::Closing;
        entry.receiving.waker = None;
        entry.sending.waker = None;
        entry.receiving.discard();
        if entry.pending.is_empty() {
            return self.remove(key);
        }
        // The kernel may still read what a pending send was given; the rest is dropped.
        for operation in [Pending::RECEIVE, Pending::SEND, Pending::CONNECT] {
            if entry.pending.has(operation) {
                table.driver.cancel(key, entry.fd, operation);
            }
        }
    }

    fn remove(&mut self, key: SocketKey) {
        let table = &mut *self.table;
        let Some(mut entry) = table.slab.remove(key) else {
            return;
        };
        if let Some(queue) = entry.sending.queue.take() {
            keep(&mut table.queues, queue);
        }
        table.driver.forget(entry.fd);
        sys::close(entry.fd);
    }

    fn list_for_sending(&mut self, key: SocketKey) {
        let table = &mut *self.table;
        let entry = table
            .slab
            .get_mut(key)
            .expect("a handle names a live socket");
        if !entry.sending.listed && !entry.pending.has(Pending::SEND) {
            entry.sending.listed = true;
            table.to_send.push(key);
        }
    }

    /// Asks the kernel for input, if there is room and no receive is under way.
    pub(super) fn arm_receive(&mut self, key: SocketKey) {
        let table = &mut *self.table;
        let Some(entry) = table.slab.get_mut(key) else {
            return;
        };
        let room = entry.receiving.room(self.core.pool.fair_share());
        let busy = entry.pending.has(Pending::RECEIVE) || entry.pending.has(Pending::CONNECT);
        if room > 0 && !busy && !matches!(entry.role, Role::Closing) {
            entry.pending.add(Pending::RECEIVE);
            table.driver.receive(key, entry.fd, room);
        }
    }
}

/// The turn of the loop.
impl Sockets<'_> {
    /// Starts the sends of this turn.
    pub(crate) fn start_sends(&mut self) {
        let mut listed = std::mem::take(&mut self.table.to_send);
        for key in listed.drain(..) {
            let Some(entry) = self.table.slab.get_mut(key) else {
                continue;
            };
            entry.sending.listed = false;
            let ended = entry.sending.failed != 0 || matches!(entry.role, Role::Closing);
            if !entry.pending.has(Pending::SEND) && !ended {
                self.continue_sending(key);
            }
        }
        self.table.to_send = listed;
    }

    /// Sends what is queued or, after the last byte, FIN.
    fn continue_sending(&mut self, key: SocketKey) {
        let table = &mut *self.table;
        let Some(entry) = table.slab.get_mut(key) else {
            return;
        };
        if let Some(queue) = &mut entry.sending.queue {
            entry.pending.add(Pending::SEND);
            table.driver.send(key, entry.fd, queue.describe());
            return;
        }
        if matches!(entry.role, Role::Resetting) {
            return self.reset(key);
        }
        if entry.sending.fin == Fin::Wanted {
            entry.sending.fin = Fin::Sent;
            sys::shutdown_write(entry.fd);
        }
        if let Role::Finishing { discard_left } = entry.role {
            if entry.receiving.end != End::Open || discard_left == 0 {
                return self.close(key);
            }
            self.set_deadline(key, self.core.clock.now() + DISCARD_TIME);
            self.arm_receive(key);
        }
    }

    /// Gives buffers that have come back to those who wait for them, first come first served
    /// (rule 2). While none come back, the largest holder is shed (rule 4).
    pub(crate) fn feed_starved(&mut self) {
        if self.table.starved.is_empty() && self.table.starved_idle.is_empty() {
            self.table.starved_since = None;
            return;
        }
        let now = self.core.clock.now();
        let free = self.table.driver.buffers_ready(&self.core.pool);
        if free == 0 {
            let since = *self.table.starved_since.get_or_insert(now);
            if now - since >= STARVED_TIME {
                self.table.starved_since = Some(now + SHED_PAUSE - STARVED_TIME);
                self.shed_largest();
            }
            return;
        }
        self.table.starved_since = None;
        for _ in 0..free {
            let table = &mut *self.table;
            let next = table
                .starved_idle
                .pop_front()
                .or_else(|| table.starved.pop_front());
            let Some(key) = next else { break };
            if let Some(entry) = self.table.slab.get_mut(key) {
                entry.receiving.starved = false;
                self.arm_receive(key);
            }
        }
    }

    /// When [`Sockets::feed_starved`] must look again even if nothing happens.
    pub(crate) fn starved_wait(&self) -> Option<Duration> {
        let none = self.table.starved.is_empty() && self.table.starved_idle.is_empty();
        (!none).then_some(SHED_PAUSE)
    }

    fn shed_largest(&mut self) {
        let held = |entry: &Entry| entry.receiving.unread + entry.sending.queued();
        let keys = self.table.slab.keys();
        let slab = &self.table.slab;
        let largest = keys.into_iter().max_by_key(|&key| slab.get(key).map(held));
        let Some(key) = largest else { return };
        self.core.counters.shed.add(1);
        self.fail(key, libc::ENOBUFS);
    }

    /// Ends a socket under its owner, who learns of it from the next call.
    fn fail(&mut self, key: SocketKey, error: i32) {
        let table = &mut *self.table;
        let Some(entry) = table.slab.get_mut(key) else {
            return;
        };
        entry.receiving.discard();
        entry.receiving.end = End::Failed(error);
        entry.sending.failed = error;
        for operation in [Pending::RECEIVE, Pending::SEND] {
            if entry.pending.has(operation) {
                table.driver.cancel(key, entry.fd, operation);
            }
        }
        wake(&mut entry.receiving.waker);
        wake(&mut entry.sending.waker);
    }

    /// The next socket that was parked although it had news.
    pub(crate) fn next_to_resume(&mut self) -> Outcome {
        while let Some(key) = self.table.to_resume.pop_front() {
            if let Some(parking) = self.take_parking(key) {
                return Outcome::Resume(parking.resume, key, parking.tag, Cause::Readable);
            }
        }
        Outcome::Nothing
    }

    /// A timer of a socket has fired.
    pub(crate) fn expired(&mut self, key: SocketKey) -> Outcome {
        let Some(entry) = self.table.slab.get_mut(key) else {
            return Outcome::Nothing;
        };
        match entry.role {
            Role::Finishing { .. } => self.close(key),
            Role::Resetting => self.reset(key),
            Role::Parked(_) => {
                if let Some(parking) = self.take_parking(key) {
                    return Outcome::Resume(parking.resume, key, parking.tag, Cause::Expired);
                }
            }
            Role::Owned | Role::Closing => {}
        }
        Outcome::Nothing
    }

    /// Takes in what the driver reports.
    pub(crate) fn handle(&mut self, event: Event) -> Outcome {
        match event {
            Event::Accepted {
                listener,
                result,
                more,
            } => {
                self.table.listeners.accepted(listener, result, more);
            }
            Event::Connected { socket, error } => self.connected(socket, error),
            Event::Received {
                socket,
                received,
                more,
            } => {
                return self.received(socket, received, more);
            }
            Event::Sent { socket, result } => self.sent(socket, result),
        }
        Outcome::Nothing
    }

    fn connected(&mut self, key: SocketKey, error: i32) {
        let entry = self.table.entry(key);
        entry.pending.remove(Pending::CONNECT);
        entry.sending.failed = error;
        wake(&mut entry.sending.waker);
        self.remove_if_done(key);
    }

    fn received(&mut self, key: SocketKey, received: Received, more: bool) -> Outcome {
        let table = &mut *self.table;
        let entry = table
            .slab
            .get_mut(key)
            .expect("a pending receive keeps its socket");
        if !more {
            entry.pending.remove(Pending::RECEIVE);
        }
        match received {
            Received::Bytes(slice) => {
                self.core.counters.received_bytes.add(slice.len() as u64);
                table
                    .activity
                    .note(&mut entry.active_tick, self.core.clock.tick());
                match &mut entry.role {
                    Role::Closing | Role::Resetting => {}
                    Role::Finishing { discard_left } => {
                        *discard_left = discard_left.saturating_sub(slice.len());
                    }
                    Role::Owned | Role::Parked(_) => entry.receiving.push(slice),
                }
            }
            Received::End => entry.receiving.end = End::Fin,
            Received::NoBuffers => {
                self.core.counters.no_buffers.add(1);
                entry.receiving.starved = true;
                // Who waits for a request holds nothing and comes first.
                if matches!(entry.role, Role::Parked(_)) {
                    table.starved_idle.push_back(key);
                } else {
                    table.starved.push_back(key);
                }
            }
            Received::Nothing => {}
            Received::Failed(error) if entry.receiving.end == End::Open => {
                entry.receiving.end = End::Failed(error);
            }
            Received::Failed(_) => {}
        }
        self.after_receive(key, more)
    }

    /// Tells whoever has the socket, and goes on receiving.
    fn after_receive(&mut self, key: SocketKey, more: bool) -> Outcome {
        let entry = self.table.entry(key);
        let news = entry.receiving.has_news();
        match &entry.role {
            Role::Closing => self.remove_if_done(key),
            Role::Resetting => {}
            Role::Finishing { discard_left } => {
                let over = *discard_left == 0 || entry.receiving.end != End::Open;
                if over && entry.sending.fin == Fin::Sent {
                    self.close(key);
                } else if !more {
                    self.arm_receive(key);
                }
            }
            Role::Parked(_) if news => {
                if let Some(parking) = self.take_parking(key) {
                    return Outcome::Resume(parking.resume, key, parking.tag, Cause::Readable);
                }
            }
            Role::Owned | Role::Parked(_) => {
                if news {
                    wake(&mut entry.receiving.waker);
                }
                if !more {
                    self.arm_receive(key);
                }
            }
        }
        Outcome::Nothing
    }

    fn sent(&mut self, key: SocketKey, result: Result<usize, i32>) {
        let now = self.core.clock.now();
        let table = &mut *self.table;
        let entry = table
            .slab
            .get_mut(key)
            .expect("a pending send keeps its socket");
        entry.pending.remove(Pending::SEND);
        let sending = &mut entry.sending;
        let queue = sending
            .queue
            .as_mut()
            .expect("a pending send keeps its queue");
        match result {
            Ok(n) => {
                self.core.counters.sent_bytes.add(n as u64);
                queue.sent(n);
                sending.progress = now;
            }
            Err(error) => {
                queue.clear();
                sending.failed = error;
            }
        }
        if queue.bytes() == 0
            && let Some(queue) = sending.queue.take()
        {
            keep(&mut table.queues, queue);
        }
        if sending.failed != 0 || sending.queued() <= sending.wake_at {
            wake(&mut sending.waker);
        }
        match entry.role {
            Role::Closing => self.remove_if_done(key),
            Role::Finishing { .. } | Role::Resetting if entry.sending.failed != 0 => {
                self.close(key);
            }
            _ if entry.sending.failed != 0 => {}
            _ => self.continue_sending(key),
        }
    }

    fn remove_if_done(&mut self, key: SocketKey) {
        let entry = self.table.entry(key);
        if matches!(entry.role, Role::Closing) && entry.pending.is_empty() {
            self.remove(key);
        }
    }
}

/// The end of the core.
impl Sockets<'_> {
    /// Whether completions are still to come.
    pub(crate) fn anything_pending(&self) -> bool {
        self.table.len() > 0 || self.listeners_pending()
    }

    /// Closes every socket and listener. Parked handlers are returned to be dropped outside.
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

fn keep(queues: &mut SpareQueues, mut queue: Box<Outgoing>) {
    queue.clear();
    if queues.len() < QUEUES_KEPT_MAX {
        queues.push(queue);
    }
}

/// Waking only lists the task, so it is allowed while the table is borrowed.
fn wake(waker: &mut Option<std::task::Waker>) {
    if let Some(waker) = waker.take() {
        waker.wake();
    }
}
