//! The commands of socket handles.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use super::entry::{Fin, InputEnd, LARGE_AFTER, SendOrder, SocketState};
use super::outgoing::Outgoing;
use super::ownership::{Parking, Resume};
use super::sockets::{RESET_TIME, Sockets, wake};
use super::table::keep;
use super::{Address, SocketKey};
use crate::buffer::{Chunk, LARGE_BYTES, Slice};
use crate::driver::{Pending, ReceiveOutcome};

/// Most input that a closing socket discards before its queue is sent (rule 16), and its window.
const DISCARD_MAX: usize = 64 * 1024;

/// Queues of at least this many bytes may be sent outside of the turn.
const SEND_NOW_MIN: usize = 48 * 1024;

/// How long a closing socket may take to send its queue.
const FINISH_TIME: Duration = Duration::from_secs(60);

/// The methods of [`Socket`](super::Socket) are documented there.
impl Sockets<'_> {
    pub(super) fn connect(&mut self, address: &Address) -> io::Result<SocketKey> {
        let handle = self.table.driver.open_socket(address)?;
        let key = self.adopt(handle);
        self.table.entry(key).pending.add(Pending::CONNECT);
        self.table.driver.connect(key, handle, address);
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
            return self.read_peer(key);
        }
        entry.peer
    }

    #[cold]
    fn read_peer(&mut self, key: SocketKey) -> Option<SocketAddr> {
        let table = &mut *self.table;
        let entry = table.slab.get_mut(key)?;
        entry.peer = table.driver.peer(entry.handle);
        entry.peer
    }

    pub(super) fn set_peer(&mut self, key: SocketKey, address: SocketAddr) {
        self.table.entry(key).peer = Some(address);
    }

    pub(super) fn local(&mut self, key: SocketKey) -> Option<SocketAddr> {
        let handle = self.table.entry(key).handle;
        self.table.driver.local(handle)
    }

    pub(super) fn set_window(&mut self, key: SocketKey, bytes: usize) {
        let receiving = &mut self.table.entry(key).receiving;
        // A wider window expects much; the next receives show whether it comes.
        if bytes > receiving.window {
            receiving.recent = receiving.recent.max(LARGE_AFTER);
        }
        receiving.window = bytes;
        self.arm_receive(key);
    }

    pub(super) fn poll_receive(
        &mut self,
        key: SocketKey,
        cx: Option<&mut Context<'_>>,
    ) -> Poll<io::Result<Option<Slice>>> {
        let entry = self.table.entry(key);
        let receiving = &mut entry.receiving;
        if let Some(slice) = receiving.pop() {
            entry.awaits_request = false;
            // A large receive is started when its owner waits, and has set the window for it.
            if !entry.pending.has(Pending::RECEIVE) && !receiving.wants_large() {
                self.arm_receive(key);
            }
            return Poll::Ready(Ok(Some(slice)));
        }
        match receiving.end {
            InputEnd::Fin => Poll::Ready(Ok(None)),
            InputEnd::Failed(error) => Poll::Ready(Err(io::Error::from_raw_os_error(error))),
            InputEnd::Open => {
                let is_pending = entry.pending.has(Pending::RECEIVE);
                if !is_pending && receiving.is_more_likely() && receiving.wants_large() {
                    self.receive_now(key);
                    let receiving = &self.table.entry(key).receiving;
                    // The next call finds the received bytes, or the end; not more than once.
                    if receiving.is_readable() {
                        return self.poll_receive(key, cx);
                    }
                }
                if let Some(cx) = cx {
                    self.table.entry(key).receiving.waker = Some(cx.waker().clone());
                }
                if !is_pending {
                    self.arm_receive(key);
                }
                Poll::Pending
            }
        }
    }

    /// Receives outside of the turn, where more has probably arrived: the bytes can then be sent while
    /// they are in the cache. Not if too much was moved outside of the turn already.
    fn receive_now(&mut self, key: SocketKey) {
        let table = &mut *self.table;
        let Some(entry) = table.slab.get_mut(key) else {
            return;
        };
        let limit = entry.receiving.window.min(LARGE_BYTES);
        if table.at_once_left < limit {
            return;
        }
        // Unless it is full, the next receive waits for the turn.
        entry.receiving.last = 0;
        let (handle, pool) = (entry.handle, &self.core.pool);
        let received = table.driver.receive_now(key, handle, limit, pool);
        match received {
            Some(ReceiveOutcome::Bytes(slice)) => {
                table.at_once_left -= slice.len();
                self.core.counters.receives.add(1);
                self.core.counters.received_bytes.add(slice.len() as u64);
                let tick = self.core.clock.tick();
                table.activity.note(&mut entry.active_tick, tick);
                if entry.order == SendOrder::SendFirst {
                    entry.order = SendOrder::ReceivedFirst;
                }
                entry.receiving.note(slice.len());
                entry.receiving.push(slice);
            }
            Some(ReceiveOutcome::End) => entry.receiving.end = InputEnd::Fin,
            Some(ReceiveOutcome::Failed(error)) => entry.receiving.end = InputEnd::Failed(error),
            Some(ReceiveOutcome::Nothing | ReceiveOutcome::NoBuffers) | None => {}
        }
    }

    pub(super) fn unread(&mut self, key: SocketKey, slice: Slice) {
        self.table.entry(key).receiving.push_front(slice);
    }

    pub(super) fn unread_bytes(&mut self, key: SocketKey) -> usize {
        self.table.entry(key).receiving.unread
    }

    /// Queues a chunk, unless sending has failed.
    #[inline]
    pub(super) fn send(&mut self, key: SocketKey, chunk: Chunk) {
        let now = self.core.clock.now();
        let table = &mut *self.table;
        let entry = table
            .slab
            .get_mut(key)
            .expect("a handle refers to a live socket");
        assert!(entry.sending.fin == Fin::No, "nothing is sent after FIN");
        if entry.sending.failed != 0 {
            // Dropping it may run code of another crate, which may borrow the table.
            return table.to_drop.push(chunk);
        }
        if entry.sending.queue.is_none() {
            entry.sending.progress = now;
        }
        let queue = &mut entry.sending.queue;
        let free = &mut table.queues;
        queue
            .get_or_insert_with(|| free.pop().unwrap_or_else(Outgoing::new))
            .push(chunk);
        if !entry.sending.listed && !entry.pending.has(Pending::SEND) {
            entry.sending.listed = true;
            table.to_send.push(key);
        }
    }

    /// Sends a large queue outside of the turn, as [`Sockets::receive_now`] receives.
    pub(super) fn send_now(&mut self, key: SocketKey) {
        let now = self.core.clock.now();
        let table = &mut *self.table;
        let entry = table
            .slab
            .get_mut(key)
            .expect("a handle refers to a live socket");
        let Some(queue) = &mut entry.sending.queue else {
            return;
        };
        let bytes = queue.bytes();
        // Without the bound, a task whose peer reads as fast as it writes would not end its turn.
        if bytes < SEND_NOW_MIN || entry.pending.has(Pending::SEND) || table.at_once_left < bytes {
            return;
        }
        if let Some(n) = table.driver.send_now(entry.handle, &queue.describe()) {
            table.at_once_left -= n;
            self.core.counters.sends.add(1);
            self.core.counters.sent_bytes.add(n as u64);
            queue.sent(n, &mut table.to_drop);
            entry.sending.progress = now;
            if entry.order == SendOrder::SendFirst {
                entry.order = SendOrder::Any;
            }
            if queue.bytes() == 0
                && let Some(queue) = entry.sending.queue.take()
            {
                keep(&mut table.queues, queue);
            }
        }
    }

    #[inline(always)]
    pub(super) fn queued(&mut self, key: SocketKey) -> usize {
        let entry = self.table.entry(key);
        match &entry.sending.queue {
            Some(queue) => queue.bytes(),
            // Bytes of a file that wait for room are not queued; one counts, so that deadlines of sending apply.
            None => usize::from(entry.pending.has(Pending::ROOM)),
        }
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

    pub(super) fn expect_to_send_first(&mut self, key: SocketKey) {
        let entry = self.table.entry(key);
        entry.order = match entry.receiving.unread {
            0 => SendOrder::SendFirst,
            _ => SendOrder::ReceivedFirst,
        };
    }

    pub(super) fn has_received_first(&mut self, key: SocketKey) -> bool {
        self.table.entry(key).order == SendOrder::ReceivedFirst
    }

    /// The outcome of a pending send is not known.
    pub(super) fn has_sent_nothing(&mut self, key: SocketKey) -> bool {
        let entry = self.table.entry(key);
        entry.order == SendOrder::SendFirst && !entry.pending.has(Pending::SEND)
    }

    pub(super) fn note_held(&mut self, key: SocketKey, bytes: usize) {
        self.table.entry(key).held = bytes;
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

    #[inline]
    pub(super) fn park(
        &mut self,
        key: SocketKey,
        resume: Rc<dyn Resume>,
        tag: u64,
        within: Duration,
    ) {
        let deadline = self.deadline(within);
        let idle_since = self.core.clock.tick();
        let entry = self.table.entry(key);
        entry.deadline = deadline;
        entry.idle_since = idle_since;
        self.park_until_deadline(key, resume, tag);
    }

    pub(super) fn park_idle(
        &mut self,
        key: SocketKey,
        resume: Rc<dyn Resume>,
        tag: u64,
        within: Duration,
    ) {
        self.table.entry(key).deadline = self.deadline(within);
        self.park_until_deadline(key, resume, tag);
    }

    /// The previous deadline may have passed while the socket was in use.
    pub(super) fn park_again(
        &mut self,
        key: SocketKey,
        resume: Rc<dyn Resume>,
        tag: u64,
        within: Duration,
    ) {
        let next = self.core.clock.tick() + 1;
        let deadline = self.deadline(within);
        let entry = self.table.entry(key);
        entry.deadline = entry.deadline.max(next).min(deadline);
        self.park_until_deadline(key, resume, tag);
    }

    #[inline]
    fn park_until_deadline(&mut self, key: SocketKey, resume: Rc<dyn Resume>, tag: u64) {
        let entry = self.table.entry(key);
        entry.held = 0;
        entry.awaits_request = false;
        entry.receiving.waker = None;
        entry.sending.waker = None;
        entry.state = SocketState::Parked(Parking { resume, tag });
        let is_scheduled = entry.is_scheduled();
        let is_armed = entry.pending.has(Pending::RECEIVE);
        if entry.receiving.is_readable() {
            self.table.to_resume.push_back(key);
        }
        if !is_scheduled {
            self.schedule_deadline(key);
        }
        if !is_armed {
            self.arm_receive(key);
        }
        if self.table.eviction.is_tracking {
            self.note_idle(key);
        }
    }

    pub(super) fn await_request(&mut self, key: SocketKey, is_next: bool) {
        let now = self.core.clock.tick();
        let entry = self.table.entry(key);
        entry.awaits_request = true;
        if is_next {
            entry.idle_since = now;
        }
        if self.table.eviction.is_tracking {
            self.note_idle(key);
        }
    }

    pub(super) fn unpark(&mut self, key: SocketKey) -> Option<Rc<dyn Resume>> {
        let entry = self.table.slab.get_mut(key)?;
        if entry.receiving.is_readable() {
            return None;
        }
        self.take_parking(key).map(|parking| parking.resume)
    }

    pub(super) fn finish(&mut self, key: SocketKey) {
        let entry = self.table.entry(key);
        if entry.sending.failed != 0 || matches!(entry.receiving.end, InputEnd::Failed(_)) {
            return self.close(key);
        }
        entry.receiving.waker = None;
        wake(&mut entry.sending.waker);
        let discarded = entry.receiving.discard();
        entry.receiving.window = DISCARD_MAX;
        if entry.sending.fin == Fin::No {
            entry.sending.fin = Fin::Wanted;
        }
        let discard_left = DISCARD_MAX.saturating_sub(discarded);
        entry.state = SocketState::Finishing { discard_left };
        let within = match entry.is_evicted {
            true => RESET_TIME,
            false => FINISH_TIME,
        };
        self.set_deadline(key, within);
        self.list_for_sending(key);
    }

    pub(super) fn abort(&mut self, key: SocketKey) {
        let entry = self.table.entry(key);
        if entry.sending.queue.is_none() || entry.sending.failed != 0 {
            return self.reset(key);
        }
        entry.receiving.waker = None;
        wake(&mut entry.sending.waker);
        entry.receiving.discard();
        entry.state = SocketState::Resetting;
        self.set_deadline(key, RESET_TIME);
    }
}
