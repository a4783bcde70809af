//! The commands and the turns of UDP sockets.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll};
use std::time::Duration;

use super::SocketKey;
use super::datagram_table::{DatagramEntry, IN_FLIGHT_MAX, OutgoingTrain};
use super::sockets::{Sockets, wake};
use super::train::{Datagrams, Forwarded, Train};
use crate::driver::{Bound, BoundGroup, Destination, ReceivedTrain, is_train_refused};

/// Datagrams of one batch that every kernel takes, and bytes that fit into a packet of each family.
const SEGMENTS_MAX: usize = 64;
const TRAIN_BYTES_MAX: usize = 65_487;

/// How long datagrams are sent singly after the kernel has refused a batch and taken its parts.
const SINGLY_TIME: Duration = Duration::from_secs(10);

/// Batches that a socket holds in the core's buffers. Further ones are copied, so that a socket that nobody
/// reads leaves buffers to others; a turn later it stops receiving, until fewer than [`RESUME_BELOW`] are left.
const UNREAD_MAX: usize = 48;
const RESUME_BELOW: usize = 24;

/// Most batches that wait for their reader when another core forwards one.
const FORWARDED_MAX: usize = 64;

/// Commands.
impl Sockets<'_> {
    pub(super) fn bind_datagrams(
        &mut self,
        address: SocketAddr,
    ) -> io::Result<(SocketKey, SocketAddr)> {
        let bound = self.table.driver.bind_datagrams(address)?;
        self.add_datagrams(bound)
    }

    /// Opens this core's socket of a group.
    pub(super) fn join_datagrams(
        &mut self,
        group: &BoundGroup,
    ) -> io::Result<(SocketKey, SocketAddr)> {
        let bound = self.table.driver.join_datagrams(group, self.core.index)?;
        self.add_datagrams(bound)
    }

    fn add_datagrams(
        &mut self,
        Bound { handle, address }: Bound,
    ) -> io::Result<(SocketKey, SocketAddr)> {
        let table = &mut *self.table;
        let key = table.datagrams.slab.insert(DatagramEntry {
            handle,
            local: address,
            received: VecDeque::new(),
            reader: None,
            is_receiving: false,
            is_paused: false,
            dropped: 0,
            waiting: VecDeque::new(),
            is_listed: false,
            in_flight: 0,
            unsent_bytes: 0,
            writer: None,
            wake_at: 0,
            singly_until: None,
            is_closing: false,
        });
        if let Err(error) = table.driver.register_datagrams(key, handle) {
            table.datagrams.slab.remove(key);
            table.driver.close_datagrams(handle);
            return Err(error);
        }
        table.datagrams.to_receive.push(key);
        Ok((key, address))
    }

    pub(super) fn poll_receive_train(
        &mut self,
        key: SocketKey,
        cx: Option<&mut Context<'_>>,
    ) -> Poll<Train> {
        let datagrams = &mut self.table.datagrams;
        let entry = datagrams.entry(key);
        let train = entry.received.pop_front();
        // While its receive is being cancelled, the last report continues.
        if entry.is_paused && !entry.is_receiving && entry.received.len() < RESUME_BELOW {
            entry.is_paused = false;
            datagrams.to_receive.push(key);
        }
        if let Some(train) = train {
            return Poll::Ready(train);
        }
        if let Some(cx) = cx {
            datagrams.entry(key).reader = Some(cx.waker().clone());
        }
        Poll::Pending
    }

    pub(super) fn send_datagrams(&mut self, key: SocketKey, sent: Datagrams) {
        let Datagrams {
            to,
            from,
            ecn,
            content,
            segment_bytes,
        } = sent;
        let now = self.core.clock.now();
        let datagrams = &mut self.table.datagrams;
        let entry = datagrams.entry(key);
        let to = match to.ip().to_canonical() {
            ip if ip == to.ip() => to,
            ip => SocketAddr::new(ip, to.port()),
        };
        let segment_bytes =
            segment_bytes.filter(|&bytes| bytes > 0 && content.len() > usize::from(bytes));
        let destination = Destination {
            to,
            from,
            ecn: ecn.map_or(0, |ecn| ecn as u8),
            segment_bytes,
            is_ipv6: entry.local.is_ipv6(),
        };
        let is_singly = entry.singly_until.is_some_and(|until| now < until);
        let piece = match segment_bytes.map(usize::from) {
            None => usize::MAX,
            Some(segment) if is_singly => segment,
            Some(segment) => segment * (TRAIN_BYTES_MAX / segment).clamp(1, SEGMENTS_MAX),
        };
        if content.len() <= piece {
            return datagrams.queue(key, destination, content);
        }
        for part in content.chunks(piece) {
            let destination = Destination {
                segment_bytes: segment_bytes.filter(|&bytes| part.len() > usize::from(bytes)),
                ..destination
            };
            let part = datagrams.copy(part);
            datagrams.queue(key, destination, part);
        }
        datagrams.keep(content);
    }

    pub(super) fn take_content_buffer(&mut self) -> Vec<u8> {
        self.table.datagrams.contents.pop().unwrap_or_default()
    }

    pub(super) fn unsent_datagram_bytes(&mut self, key: SocketKey) -> usize {
        self.table.datagrams.entry(key).unsent_bytes
    }

    pub(super) fn poll_datagram_room(
        &mut self,
        key: SocketKey,
        cx: &mut Context<'_>,
        below: usize,
    ) -> Poll<()> {
        let entry = self.table.datagrams.entry(key);
        if entry.has_room(below) {
            return Poll::Ready(());
        }
        entry.writer = Some(cx.waker().clone());
        entry.wake_at = below;
        Poll::Pending
    }

    pub(super) fn close_datagrams(&mut self, key: SocketKey) {
        let table = &mut *self.table;
        let Some(entry) = table.datagrams.slab.get_mut(key) else {
            return;
        };
        entry.is_closing = true;
        entry.reader = None;
        entry.writer = None;
        entry.received.clear();
        if entry.is_receiving {
            table.driver.cancel_datagrams(key);
        }
        self.remove_datagrams_if_done(key);
    }

    /// Closes all UDP sockets, when the core ends. Waiting datagrams are not sent any more.
    pub(crate) fn close_all_datagrams(&mut self) {
        let table = &mut *self.table;
        for (slot, sending) in table.datagrams.sending.iter().enumerate() {
            if sending.is_some() {
                table.driver.cancel_train(slot as u32);
            }
        }
        for key in table.datagrams.slab.keys() {
            self.table.datagrams.entry(key).waiting.clear();
            self.close_datagrams(key);
        }
    }

    fn remove_datagrams_if_done(&mut self, key: SocketKey) {
        let table = &mut *self.table;
        let entry = table.datagrams.entry(key);
        let is_done = !entry.is_receiving && entry.in_flight == 0 && entry.waiting.is_empty();
        if entry.is_closing && is_done {
            let handle = entry.handle;
            table.datagrams.slab.remove(key);
            table.driver.close_datagrams(handle);
        }
    }
}

/// The turn of the loop.
impl Sockets<'_> {
    /// Starts the receives and sends of this turn.
    #[inline]
    pub(crate) fn start_datagrams(&mut self) {
        let datagrams = &self.table.datagrams;
        if !datagrams.unread.is_empty() {
            self.pause_unread();
        }
        if !self.table.datagrams.to_receive.is_empty() {
            self.start_receives_of_datagrams();
        }
        if !self.table.datagrams.to_send.is_empty() {
            self.start_sends_of_datagrams();
        }
    }

    /// Stops receiving for those sockets whose readers have not read what they had a turn ago.
    #[cold]
    fn pause_unread(&mut self) {
        let table = &mut *self.table;
        for key in table.datagrams.unread.drain(..) {
            if let Some(entry) = table.datagrams.slab.get_mut(key)
                && entry.received.len() >= UNREAD_MAX
                && entry.is_receiving
                && !entry.is_paused
                && !entry.is_closing
            {
                entry.is_paused = true;
                self.core.counters.trains_paused.add(1);
                table.driver.cancel_datagrams(key);
            }
        }
    }

    fn start_receives_of_datagrams(&mut self) {
        let table = &mut *self.table;
        // Without a buffer they wait until a batch is dropped, which happens within a turn.
        if !table.driver.has_datagram_buffers() {
            return;
        }
        for key in table.datagrams.to_receive.drain(..) {
            let Some(entry) = table.datagrams.slab.get_mut(key) else {
                continue;
            };
            if entry.is_closing {
                continue;
            }
            // The receive that ended by itself has not been stopped.
            if entry.received.len() >= UNREAD_MAX {
                entry.is_paused = true;
                self.core.counters.trains_paused.add(1);
                continue;
            }
            entry.is_receiving = true;
            table.driver.receive_datagrams(key, entry.handle);
        }
    }

    fn start_sends_of_datagrams(&mut self) {
        let table = &mut *self.table;
        let datagrams = &mut table.datagrams;
        for key in datagrams.to_send.drain(..) {
            let Some(entry) = datagrams.slab.get_mut(key) else {
                continue;
            };
            entry.is_listed = false;
            while entry.in_flight < IN_FLIGHT_MAX
                && let Some(outgoing) = entry.waiting.pop_front()
            {
                entry.in_flight += 1;
                let slot = datagrams.vacant.pop().unwrap_or_else(|| {
                    datagrams.sending.push(None);
                    (datagrams.sending.len() - 1) as u32
                });
                let (_, outgoing) = datagrams.sending[slot as usize].insert((key, outgoing));
                table
                    .driver
                    .send_datagrams(key, entry.handle, slot, &mut outgoing.train);
            }
        }
    }

    /// Handles the report of a receive.
    pub(super) fn train_received(&mut self, key: SocketKey, received: ReceivedTrain, more: bool) {
        let datagrams = &mut self.table.datagrams;
        let entry = datagrams.slab.get_mut(key);
        let entry = entry.expect("a pending receive keeps its socket");
        entry.is_receiving = more;
        let train = match received {
            ReceivedTrain::Train(buffer) => {
                let train = Train::read(buffer);
                self.core
                    .counters
                    .trains_unusable
                    .add(u64::from(train.is_none()));
                train
            }
            ReceivedTrain::Nothing => None,
        };
        if let Some((train, dropped)) = train {
            let counters = &self.core.counters;
            counters.trains_received.add(1);
            counters.datagrams_received.add(train.count());
            counters.received_bytes.add(train.bytes().len() as u64);
            // The kernel counts modulo 2^32, and only writes the number if it is not 0.
            let news = dropped.wrapping_sub(entry.dropped);
            if dropped != 0 && news < u32::MAX / 2 {
                counters.datagrams_dropped.add(u64::from(news));
                entry.dropped = dropped;
            }
            if !entry.is_closing {
                let is_unread = entry.received.len() >= UNREAD_MAX;
                entry.received.push_back(match is_unread {
                    true => train.into_copied(),
                    false => train,
                });
                let is_to_pause = entry.received.len() >= UNREAD_MAX && !entry.is_paused;
                if is_to_pause && datagrams.unread.last() != Some(&key) {
                    datagrams.unread.push(key);
                }
                wake(&mut entry.reader);
            }
        }
        if more {
            return;
        }
        if entry.is_closing {
            return self.remove_datagrams_if_done(key);
        }
        if !entry.is_paused || entry.received.len() < RESUME_BELOW {
            entry.is_paused = false;
            datagrams.to_receive.push(key);
        }
    }

    /// Handles the report of a send.
    pub(super) fn train_sent(&mut self, slot: u32, result: Result<usize, i32>) {
        let datagrams = &mut self.table.datagrams;
        let sent = datagrams.sending[slot as usize].take();
        let (key, outgoing) = sent.expect("a report belongs to a send");
        datagrams.vacant.push(slot);
        let entry = datagrams.slab.get_mut(key);
        let entry = entry.expect("a pending send keeps its socket");
        entry.in_flight -= 1;
        let OutgoingTrain { train, was_refused } = outgoing;
        let is_train = train.destination.segment_bytes.is_some();
        let count = train.datagrams().count() as u64;
        let counters = &self.core.counters;
        match result {
            Ok(bytes) => {
                counters.trains_sent.add(1);
                counters.datagrams_sent.add(count);
                counters.sent_bytes.add(bytes as u64);
                // So the batch was refused for being one, and not for its addresses.
                if was_refused {
                    entry.singly_until = Some(self.core.clock.now() + SINGLY_TIME);
                }
            }
            Err(error) if is_train && is_train_refused(error) => {
                return datagrams.queue_singly(key, train);
            }
            Err(_) => counters.datagrams_unsent.add(count),
        }
        entry.unsent_bytes -= train.content.len();
        if entry.has_room(entry.wake_at) {
            wake(&mut entry.writer);
        }
        datagrams.recycle(train);
        datagrams.list(key);
        self.remove_datagrams_if_done(key);
    }

    /// Takes a batch that another core has received.
    pub(crate) fn take_forwarded(&mut self, forwarded: Forwarded) {
        let (local, train) = forwarded.into_train();
        let datagrams = &mut self.table.datagrams;
        let is_meant = |entry: &DatagramEntry| entry.local == local && !entry.is_closing;
        let key = datagrams.slab.find(is_meant);
        match key.map(|key| datagrams.entry(key)) {
            Some(entry) if entry.received.len() < FORWARDED_MAX => {
                entry.received.push_back(train);
                wake(&mut entry.reader);
            }
            _ => self
                .core
                .counters
                .datagrams_not_forwarded
                .add(train.count()),
        }
    }
}
