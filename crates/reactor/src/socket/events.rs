//! Reports of the driver and the timers, and the sends that start at the end of a turn.

use super::SocketKey;
use super::entry::{Fin, InputEnd, SendOrder, SocketAction, SocketState};
use super::ownership::Cause;
use super::sockets::{Sockets, wake};
use super::table::keep;
use crate::driver::{Completion, Driver, Pending, ReceiveOutcome};

/// Sends larger than this start after the smaller ones.
const LARGE_SEND: usize = 16 * 1024;

/// Bytes that all large sends may start in one turn. The kernel takes 0.2 ms for that, or 0.7 ms if it
/// has to allocate memory.
const LARGE_SENDS_BYTES: usize = 512 * 1024;

/// Bytes that may be received and sent outside of a turn until the next one. The other sockets wait
/// meanwhile, for about 0.2 ms.
const AT_ONCE_BYTES: usize = 2 * 1024 * 1024;

/// The turn of the loop.
impl Sockets<'_> {
    /// Starts the sends of this turn.
    pub(crate) fn start_sends(&mut self) {
        self.table.at_once_left = AT_ONCE_BYTES;
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

    /// The number of large sends that have not started.
    pub(crate) fn large_sends(&self) -> usize {
        self.table.large_sends.len()
    }

    /// Sends the queue or, after the last byte, FIN; unless a send is pending or has failed.
    pub(super) fn continue_sending(&mut self, key: SocketKey) {
        self.continue_with(key, LARGE_SEND);
    }

    /// As [`Sockets::continue_sending`]; a queue larger than `at_once_max` is listed as a large send.
    fn continue_with(&mut self, key: SocketKey, at_once_max: usize) {
        let table = &mut *self.table;
        let Some(entry) = table.slab.get_mut(key) else {
            return;
        };
        if entry.pending.has(Pending::SEND)
            || entry.sending.failed != 0
            || matches!(entry.state, SocketState::Closing)
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
        if matches!(entry.state, SocketState::Resetting) {
            return self.reset(key);
        }
        if entry.sending.fin == Fin::Wanted {
            entry.sending.fin = Fin::Sent;
            table.driver.shutdown_write(entry.handle);
        }
        if let SocketState::Finishing { .. } = entry.state {
            match entry.receiving.end {
                InputEnd::Open if !self.core.lingering.time.is_zero() && !entry.is_evicted => {
                    self.linger(key);
                }
                _ => self.close(key),
            }
        }
    }

    /// The next parked socket that is readable, if another may be resumed in this turn.
    pub(crate) fn next_parked_readable(&mut self) -> SocketAction {
        while self.table.resumes_left > 0
            && let Some(key) = self.table.to_resume.pop_front()
        {
            let entry = self.table.slab.get(key);
            if entry.is_some_and(|entry| entry.receiving.is_readable())
                && let Some(parking) = self.take_parking(key)
            {
                return SocketAction::Resume(parking, key, self.take_cause(key));
            }
        }
        SocketAction::None
    }

    /// Why a readable socket is resumed.
    fn take_cause(&mut self, key: SocketKey) -> Cause {
        let slice = self.table.entry(key).receiving.pop();
        slice.map_or(Cause::Ended, Cause::Received)
    }

    /// Handles the timer of a socket.
    pub(crate) fn expired(&mut self, key: SocketKey) -> SocketAction {
        let Some(entry) = self.table.slab.get_mut(key) else {
            return SocketAction::None;
        };
        entry.timer = None;
        match entry.state {
            SocketState::Owned | SocketState::Closing => {}
            _ if entry.deadline > self.core.clock.tick() => self.schedule_deadline(key),
            SocketState::Finishing { .. } | SocketState::Lingering { .. } => self.close(key),
            SocketState::Resetting => self.reset(key),
            // It is held back, and resumed with what it received.
            SocketState::Parked(_) if entry.receiving.is_readable() => {}
            SocketState::Parked(_) => {
                if let Some(parking) = self.take_parking(key) {
                    return SocketAction::Resume(parking, key, Cause::Expired);
                }
            }
        }
        SocketAction::None
    }

    /// Handles reports of the driver until one causes an action that needs the table not to be borrowed.
    /// Most reports cause none.
    #[inline(always)]
    pub(crate) fn next_action(&mut self) -> SocketAction {
        loop {
            // One arm for each driver, so that the compiler can inline from the decoding of a completion
            // to its handling.
            let action = match &mut self.table.driver {
                Driver::Uring(uring) => uring
                    .next(&self.core.pool)
                    .map(|completion| self.handle(completion)),
                Driver::Epoll(epoll) => epoll
                    .next(&self.core.pool)
                    .map(|completion| self.handle(completion)),
                #[cfg(feature = "simulation")]
                Driver::Sim(sim) => sim.next().map(|completion| self.handle(completion)),
            };
            match action {
                Some(SocketAction::None) => {}
                Some(action) => return action,
                None => return SocketAction::None,
            }
        }
    }

    #[inline(always)]
    fn handle(&mut self, completion: Completion) -> SocketAction {
        match completion {
            Completion::Accepted {
                listener,
                result,
                more,
            } => self.accepted(listener, result, more),
            Completion::Connected { socket, error } => self.connected(socket, error),
            Completion::Received {
                socket,
                received,
                more,
            } => {
                return self.received(socket, received, more);
            }
            Completion::Sent { socket, result } => self.sent(socket, result),
            Completion::HasRoom { socket } => self.has_room(socket),
            Completion::TrainReceived {
                socket,
                received,
                more,
            } => self.train_received(socket, received, more),
            Completion::TrainSent { slot, result } => self.train_sent(slot, result),
        }
        SocketAction::None
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
    fn received(&mut self, key: SocketKey, received: ReceiveOutcome, more: bool) -> SocketAction {
        let table = &mut *self.table;
        let entry = table
            .slab
            .get_mut(key)
            .expect("a pending receive keeps its socket");
        if !more {
            entry.pending.remove(Pending::RECEIVE);
        }
        match received {
            ReceiveOutcome::Bytes(mut slice) => {
                self.core.counters.receives.add(1);
                self.core.counters.received_bytes.add(slice.len() as u64);
                if entry.order == SendOrder::SendFirst {
                    entry.order = SendOrder::ReceivedFirst;
                }
                table
                    .activity
                    .note(&mut entry.active_tick, self.core.clock.tick());
                entry.receiving.note(slice.len());
                match &mut entry.state {
                    // The usual case: the first bytes of a request.
                    SocketState::Parked(_) if !entry.receiving.is_readable() => {
                        if table.resumes_left == 0 || !table.to_resume.is_empty() {
                            entry.receiving.push(slice);
                            table.to_resume.push_back(key);
                            self.core.counters.held_back.add(1);
                            return self.after_receive(key, more);
                        }
                        let state = std::mem::replace(&mut entry.state, SocketState::Owned);
                        let SocketState::Parked(parking) = state else {
                            unreachable!("the state was matched above")
                        };
                        slice.copy_if_scarce();
                        return SocketAction::Resume(parking, key, Cause::Received(slice));
                    }
                    SocketState::Closing | SocketState::Resetting => {}
                    SocketState::Finishing { discard_left } => {
                        *discard_left = discard_left.saturating_sub(slice.len());
                    }
                    SocketState::Lingering { .. } => self.linger_on(key),
                    SocketState::Owned | SocketState::Parked(_) if entry.receiving.is_open() => {
                        entry.receiving.push(slice);
                    }
                    // Shed: later bytes must not be delivered, because earlier ones were dropped.
                    SocketState::Owned | SocketState::Parked(_) => {}
                }
            }
            ReceiveOutcome::End if entry.receiving.is_open() => entry.receiving.end = InputEnd::Fin,
            ReceiveOutcome::End => {}
            // The next receive is not large.
            ReceiveOutcome::NoBuffers if entry.receiving.is_large => entry.receiving.recent = 0,
            ReceiveOutcome::NoBuffers => {
                self.core.counters.no_buffers.add(1);
                entry.receiving.starved = true;
                // Parked sockets hold no memory and come first.
                if matches!(entry.state, SocketState::Parked(_)) {
                    table.starved_idle.push_back(key);
                } else {
                    table.starved.push_back(key);
                }
            }
            ReceiveOutcome::Nothing => {}
            ReceiveOutcome::Failed(error) if entry.receiving.is_open() => {
                entry.receiving.end = InputEnd::Failed(error);
            }
            ReceiveOutcome::Failed(_) => {}
        }
        self.after_receive(key, more)
    }

    /// Wakes the owner, and receives more.
    fn after_receive(&mut self, key: SocketKey, more: bool) -> SocketAction {
        let entry = self.table.entry(key);
        let is_readable = entry.receiving.is_readable();
        let is_held_back = entry.receiving.unread > 0;
        if is_readable && !is_held_back && matches!(entry.state, SocketState::Parked(_)) {
            let state = std::mem::replace(&mut entry.state, SocketState::Owned);
            let SocketState::Parked(parking) = state else {
                unreachable!("the state was matched above")
            };
            return SocketAction::Resume(parking, key, Cause::Ended);
        }
        match &entry.state {
            SocketState::Closing => self.remove_if_done(key),
            SocketState::Resetting => {}
            SocketState::Finishing { discard_left } => {
                let over = *discard_left == 0 || !entry.receiving.is_open();
                if !more && !over {
                    self.arm_receive(key);
                }
            }
            SocketState::Lingering { .. } if !entry.receiving.is_open() => self.close(key),
            SocketState::Lingering { .. } => {
                if !more {
                    self.arm_receive(key);
                }
            }
            SocketState::Owned | SocketState::Parked(_) => {
                if is_readable {
                    wake(&mut entry.receiving.waker);
                }
                if !more {
                    self.arm_receive(key);
                }
            }
        }
        SocketAction::None
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
                self.core.counters.sends.add(1);
                self.core.counters.sent_bytes.add(n as u64);
                queue.sent(n, &mut table.to_drop);
                sending.progress = now;
                if entry.order == SendOrder::SendFirst {
                    entry.order = SendOrder::Any;
                }
            }
            Err(error) => {
                queue.clear(&mut table.to_drop);
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
        match entry.state {
            SocketState::Closing => self.remove_if_done(key),
            SocketState::Finishing { .. } | SocketState::Resetting if entry.sending.failed != 0 => {
                self.close(key);
            }
            _ if entry.sending.failed != 0 => {}
            // The usual case: all bytes are sent.
            SocketState::Owned | SocketState::Parked(_)
                if entry.sending.queue.is_none() && entry.sending.fin != Fin::Wanted => {}
            _ => self.continue_sending(key),
        }
    }
}
