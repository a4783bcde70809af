//! What the driver and the timers report, and the sends that start at the end of a turn.

use super::entry::{End, Fin, Order, Outcome, Pending, Role};
use super::table::{DISCARD_TIME, Sockets, keep, wake};
use super::{Cause, SocketKey};
use crate::driver::{Driver, Event, Received};

/// Who has more to send than this gives way to those who have less.
const LARGE_SEND: usize = 16 * 1024;

/// What they may send in a turn, all together. The kernel takes 0.2 ms for that, or 0.7 where it has
/// to find memory for it first.
const LARGE_SENDS_BYTES: usize = 512 * 1024;

/// The turn of the loop.
impl Sockets<'_> {
    /// Starts the sends of this turn.
    pub(crate) fn start_sends(&mut self) {
        let mut listed = std::mem::take(&mut self.table.to_send);
        for key in listed.drain(..) {
            if let Some(entry) = self.table.slab.get_mut(key) {
                entry.sending.listed = false;
                self.continue_sending(key);
            }
        }
        self.table.to_send = listed;
        let mut left = LARGE_SENDS_BYTES;
        while left > 0
            && let Some(key) = self.table.large_sends.pop_front()
        {
            if let Some(entry) = self.table.slab.get_mut(key) {
                entry.sending.listed = false;
                left = left.saturating_sub(entry.sending.queued());
                self.continue_with(key, usize::MAX);
            }
        }
    }

    /// Sockets with much to send that wait for their turn.
    pub(crate) fn large_sends(&self) -> usize {
        self.table.large_sends.len()
    }

    /// Sends what is queued or, after the last byte, FIN; unless it is sending or has failed.
    pub(super) fn continue_sending(&mut self, key: SocketKey) {
        self.continue_with(key, LARGE_SEND);
    }

    /// As [`Sockets::continue_sending`]; what is larger than this waits for its turn.
    fn continue_with(&mut self, key: SocketKey, at_once_max: usize) {
        let table = &mut *self.table;
        let Some(entry) = table.slab.get_mut(key) else {
            return;
        };
        if entry.pending.has(Pending::SEND)
            || entry.sending.failed != 0
            || matches!(entry.role, Role::Closing)
        {
            return;
        }
        if let Some(queue) = &mut entry.sending.queue {
            if queue.bytes() > at_once_max {
                if !std::mem::replace(&mut entry.sending.listed, true) {
                    table.large_sends.push_back(key);
                }
                return;
            }
            entry.pending.add(Pending::SEND);
            table.driver.send(key, entry.handle, queue.describe());
            return;
        }
        if matches!(entry.role, Role::Resetting) {
            return self.reset(key);
        }
        if entry.sending.fin == Fin::Wanted {
            entry.sending.fin = Fin::Sent;
            table.driver.shutdown_write(entry.handle);
        }
        if let Role::Finishing { discard_left } = entry.role {
            if entry.receiving.end != End::Open || discard_left == 0 {
                return self.close(key);
            }
            self.set_deadline(key, DISCARD_TIME);
            self.arm_receive(key);
        }
    }

    /// The next socket that was parked although it had news.
    pub(crate) fn next_to_resume(&mut self) -> Outcome {
        while let Some(key) = self.table.to_resume.pop_front() {
            if let Some(parking) = self.take_parking(key) {
                return Outcome::Resume(parking, key, self.news(key));
            }
        }
        Outcome::Nothing
    }

    /// What a socket has to say that is no longer parked.
    fn news(&mut self, key: SocketKey) -> Cause {
        let slice = self.table.entry(key).receiving.pop();
        slice.map_or(Cause::Ended, Cause::Received)
    }

    /// A timer of a socket has fired.
    pub(crate) fn expired(&mut self, key: SocketKey) -> Outcome {
        let Some(entry) = self.table.slab.get_mut(key) else {
            return Outcome::Nothing;
        };
        entry.timer = None;
        match entry.role {
            Role::Owned | Role::Closing => {}
            _ if entry.deadline > self.core.clock.tick() => self.file_deadline(key),
            Role::Finishing { .. } => self.close(key),
            Role::Resetting => self.reset(key),
            Role::Parked(_) => {
                if let Some(parking) = self.take_parking(key) {
                    return Outcome::Resume(parking, key, Cause::Expired);
                }
            }
        }
        Outcome::Nothing
    }

    /// Takes in what the driver reports, until there is something to do about it that needs the
    /// tables to be free. Most reports lead to nothing of the kind.
    #[inline]
    pub(crate) fn next_outcome(&mut self) -> Outcome {
        loop {
            // An arm for each driver, so that the compiler sees through from what a completion
            // says to what is done about it.
            let outcome = match &mut self.table.driver {
                Driver::Uring(uring) => uring.next(&self.core.pool).map(|event| self.handle(event)),
                Driver::Epoll(epoll) => epoll.next(&self.core.pool).map(|event| self.handle(event)),
                #[cfg(feature = "simulation")]
                Driver::Sim(sim) => sim.next().map(|event| self.handle(event)),
            };
            match outcome {
                Some(Outcome::Nothing) => {}
                Some(outcome) => return outcome,
                None => return Outcome::Nothing,
            }
        }
    }

    #[inline(always)]
    fn handle(&mut self, event: Event) -> Outcome {
        match event {
            Event::Accepted {
                listener,
                result,
                more,
            } => self.accepted(listener, result, more),
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

    #[cold]
    fn connected(&mut self, key: SocketKey, error: i32) {
        let entry = self.table.entry(key);
        entry.pending.remove(Pending::CONNECT);
        entry.sending.failed = error;
        wake(&mut entry.sending.waker);
        self.remove_if_done(key);
    }

    #[inline(always)]
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
            Received::Bytes(mut slice) => {
                self.core.counters.received_bytes.add(slice.len() as u64);
                if entry.order == Order::SendFirst {
                    entry.order = Order::ReceivedFirst;
                }
                table
                    .activity
                    .note(&mut entry.active_tick, self.core.clock.tick());
                match &mut entry.role {
                    // The usual case: the first bytes of a request.
                    Role::Parked(_) if entry.receiving.is_clear() => {
                        let role = std::mem::replace(&mut entry.role, Role::Owned);
                        let Role::Parked(parking) = role else {
                            unreachable!("just looked at")
                        };
                        slice.spare_the_pool();
                        return Outcome::Resume(parking, key, Cause::Received(slice));
                    }
                    Role::Closing | Role::Resetting => {}
                    Role::Finishing { discard_left } => {
                        *discard_left = discard_left.saturating_sub(slice.len());
                    }
                    Role::Owned | Role::Parked(_) if entry.receiving.end == End::Open => {
                        entry.receiving.push(slice);
                    }
                    // Shed: what still comes must not look like a stream without a hole.
                    Role::Owned | Role::Parked(_) => {}
                }
            }
            Received::End if entry.receiving.end == End::Open => entry.receiving.end = End::Fin,
            Received::End => {}
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
        if news && matches!(entry.role, Role::Parked(_)) {
            let role = std::mem::replace(&mut entry.role, Role::Owned);
            let Role::Parked(parking) = role else {
                unreachable!("just looked at")
            };
            return Outcome::Resume(parking, key, self.news(key));
        }
        match &entry.role {
            Role::Closing => self.remove_if_done(key),
            Role::Resetting => {}
            Role::Finishing { discard_left } => {
                let over = *discard_left == 0 || entry.receiving.end != End::Open;
                if over && entry.sending.fin == Fin::Sent {
                    self.close(key);
                } else if !more && !over {
                    self.arm_receive(key);
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

    #[inline(always)]
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
                queue.sent(n, &mut table.dead);
                sending.progress = now;
                if entry.order == Order::SendFirst {
                    entry.order = Order::Any;
                }
            }
            Err(error) => {
                queue.clear(&mut table.dead);
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
            // The usual case: all is sent.
            Role::Owned | Role::Parked(_)
                if entry.sending.queue.is_none() && entry.sending.fin != Fin::Wanted => {}
            _ => self.continue_sending(key),
        }
    }
}
