//! The UDP sockets of a core, and the trains that they send.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll, Waker};

use super::SocketKey;
use super::datagrams::{Datagrams, Forwarded, Train};
use super::slab::Slab;
use super::table::{Sockets, wake};
use crate::core::Core;
use crate::driver::{
    Bound, Destination, Driver, Handle, ReceivedTrain, SentTrain, is_train_refused,
};

/// Most sent trains whose memory is kept for later ones.
const FREE_MAX: usize = 256;

/// Most content buffers that are kept, and their capacity.
const CONTENTS_MAX: usize = 64;
const CONTENT_BYTES_MAX: usize = 64 * 1024;

/// Most forwarded trains that wait for their task.
const FORWARDED_MAX: usize = 256;

/// The UDP sockets of one core.
#[derive(Default)]
pub(crate) struct DatagramTable {
    slab: Slab<DatagramEntry>,
    /// Sockets without a pending receive.
    to_receive: Vec<SocketKey>,
    /// Trains whose sends start at the end of the turn.
    to_send: Vec<(SocketKey, Box<SentTrain>)>,
    /// Trains that the driver sends, by slot.
    sending: Vec<Option<(SocketKey, Box<SentTrain>)>>,
    vacant: Vec<u32>,
    /// Memory of sent trains. Boxed, because the kernel has pointers into those in use.
    #[allow(
        clippy::vec_box,
        reason = "a box moves from here to a train that is sent and back"
    )]
    free: Vec<Box<SentTrain>>,
    /// Buffers of sent content.
    contents: Vec<Vec<u8>>,
}

struct DatagramEntry {
    handle: Handle,
    local: SocketAddr,
    received: VecDeque<Train>,
    reader: Option<Waker>,
    is_receiving: bool,
    /// What the kernel had dropped at the last receive.
    dropped: u32,
    /// Trains that are queued or being sent, and their bytes.
    unsent: usize,
    unsent_bytes: usize,
    writer: Option<Waker>,
    wake_at: usize,
    /// Whether the kernel takes trains.
    sends_trains: bool,
    /// The handle was dropped.
    is_closing: bool,
}

impl DatagramTable {
    /// Whether the loop has work before it may wait.
    #[inline]
    pub(crate) fn is_busy(&self) -> bool {
        !self.to_send.is_empty()
    }

    /// Whether sockets are open or operations pending.
    pub(crate) fn is_empty(&self) -> bool {
        self.slab.len() == 0
    }

    /// Closes what is left after a failure or a panic.
    pub(crate) fn close_all(&mut self, driver: &mut Driver) {
        for key in self.slab.keys() {
            if let Some(entry) = self.slab.remove(key) {
                driver.close_datagrams(entry.handle);
            }
        }
    }

    fn entry(&mut self, key: SocketKey) -> &mut DatagramEntry {
        self.slab
            .get_mut(key)
            .expect("a handle refers to a live socket")
    }

    /// Queues a train, in memory of an earlier one.
    fn queue(&mut self, key: SocketKey, destination: Destination, content: Vec<u8>) {
        let train = match self.free.pop() {
            Some(mut train) => {
                train.destination = destination;
                train.content = content;
                train
            }
            None => Box::new(SentTrain::new(destination, content)),
        };
        self.to_send.push((key, train));
    }

    /// Keeps the memory of a train.
    fn recycle(&mut self, mut train: Box<SentTrain>) {
        let mut content = std::mem::take(&mut train.content);
        if self.contents.len() < CONTENTS_MAX && content.capacity() <= CONTENT_BYTES_MAX {
            content.clear();
            self.contents.push(content);
        }
        if self.free.len() < FREE_MAX {
            self.free.push(train);
        }
    }
}

/// Commands.
impl Sockets<'_> {
    pub(super) fn bind_datagrams(
        &mut self,
        address: SocketAddr,
    ) -> io::Result<(SocketKey, SocketAddr)> {
        let table = &mut *self.table;
        let Bound { handle, address } = table.driver.bind_datagrams(address)?;
        let key = table.datagrams.slab.insert(DatagramEntry {
            handle,
            local: address,
            received: VecDeque::new(),
            reader: None,
            is_receiving: false,
            dropped: 0,
            unsent: 0,
            unsent_bytes: 0,
            writer: None,
            wake_at: 0,
            sends_trains: true,
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
        let entry = self.table.datagrams.entry(key);
        if let Some(train) = entry.received.pop_front() {
            return Poll::Ready(train);
        }
        if let Some(cx) = cx {
            entry.reader = Some(cx.waker().clone());
        }
        Poll::Pending
    }

    pub(super) fn send_datagrams(&mut self, key: SocketKey, datagrams: Datagrams) {
        let Datagrams {
            to,
            from,
            ecn,
            content,
            segment_bytes,
        } = datagrams;
        let udp = &mut self.table.datagrams;
        let entry = udp.entry(key);
        let segment_bytes =
            segment_bytes.filter(|&bytes| bytes > 0 && content.len() > usize::from(bytes));
        let destination = Destination {
            to,
            from,
            ecn: ecn.map_or(0, |ecn| ecn as u8),
            segment_bytes,
            is_ipv6: entry.local.is_ipv6(),
        };
        entry.unsent_bytes += content.len();
        entry.unsent += 1;
        if segment_bytes.is_some() && !entry.sends_trains {
            let train = Box::new(SentTrain::new(destination, content));
            return self.queue_singly(key, train);
        }
        udp.queue(key, destination, content);
    }

    /// Queues the datagrams of an unsent train one by one.
    fn queue_singly(&mut self, key: SocketKey, train: Box<SentTrain>) {
        let udp = &mut self.table.datagrams;
        let destination = Destination {
            segment_bytes: None,
            ..train.destination
        };
        for content in train.datagrams() {
            let mut single = udp.contents.pop().unwrap_or_default();
            single.extend_from_slice(content);
            udp.queue(key, destination, single);
        }
        let count = train.datagrams().count();
        let entry = udp.entry(key);
        entry.unsent += count - 1;
        udp.recycle(train);
    }

    pub(super) fn take_content_buffer(&mut self) -> Vec<u8> {
        self.table.datagrams.contents.pop().unwrap_or_default()
    }

    pub(super) fn poll_datagram_room(
        &mut self,
        key: SocketKey,
        cx: &mut Context<'_>,
        below: usize,
    ) -> Poll<()> {
        let entry = self.table.datagrams.entry(key);
        if entry.unsent_bytes <= below {
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

    /// Closes all UDP sockets, when the core ends.
    pub(crate) fn close_all_datagrams(&mut self) {
        for key in self.table.datagrams.slab.keys() {
            self.close_datagrams(key);
        }
    }

    fn remove_datagrams_if_done(&mut self, key: SocketKey) {
        let table = &mut *self.table;
        let entry = table.datagrams.entry(key);
        if entry.is_closing && !entry.is_receiving && entry.unsent == 0 {
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
        if !self.table.datagrams.to_receive.is_empty() {
            self.start_receives_of_datagrams();
        }
        if !self.table.datagrams.to_send.is_empty() {
            self.start_sends_of_datagrams();
        }
    }

    fn start_receives_of_datagrams(&mut self) {
        let table = &mut *self.table;
        // Without a buffer they wait until a train is dropped, which happens within a turn.
        if !table.driver.has_datagram_buffers() {
            return;
        }
        for key in table.datagrams.to_receive.drain(..) {
            if let Some(entry) = table.datagrams.slab.get_mut(key)
                && !entry.is_closing
            {
                entry.is_receiving = true;
                table.driver.receive_datagrams(key, entry.handle);
            }
        }
    }

    fn start_sends_of_datagrams(&mut self) {
        let table = &mut *self.table;
        let udp = &mut table.datagrams;
        for (key, train) in udp.to_send.drain(..) {
            let Some(entry) = udp.slab.get(key) else {
                continue;
            };
            let slot = udp.vacant.pop().unwrap_or_else(|| {
                udp.sending.push(None);
                (udp.sending.len() - 1) as u32
            });
            let (_, train) = udp.sending[slot as usize].insert((key, train));
            table.driver.send_datagrams(key, entry.handle, slot, train);
        }
    }

    /// Handles the report of a receive.
    pub(crate) fn train_received(&mut self, key: SocketKey, received: ReceivedTrain, more: bool) {
        let udp = &mut self.table.datagrams;
        let entry = udp.slab.get_mut(key);
        let entry = entry.expect("a pending receive keeps its socket");
        entry.is_receiving = more;
        let train = match received {
            ReceivedTrain::Train(buffer) => Train::read(buffer),
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
                entry.received.push_back(train);
                wake(&mut entry.reader);
            }
        }
        if more {
            return;
        }
        match entry.is_closing {
            true => self.remove_datagrams_if_done(key),
            false => udp.to_receive.push(key),
        }
    }

    /// Handles the report of a send.
    pub(crate) fn train_sent(&mut self, slot: u32, result: Result<usize, i32>) {
        let udp = &mut self.table.datagrams;
        let sent = udp.sending[slot as usize].take();
        let (key, train) = sent.expect("a report belongs to a send");
        udp.vacant.push(slot);
        let entry = udp.slab.get_mut(key);
        let entry = entry.expect("a pending send keeps its socket");
        let is_train = train.destination.segment_bytes.is_some();
        let counters = &self.core.counters;
        match result {
            Ok(bytes) => {
                counters.trains_sent.add(1);
                counters
                    .datagrams_sent
                    .add(train.datagrams().count() as u64);
                counters.sent_bytes.add(bytes as u64);
            }
            Err(error) if is_train && is_train_refused(error) => {
                entry.sends_trains = false;
                return self.queue_singly(key, train);
            }
            Err(_) => counters
                .datagrams_unsent
                .add(train.datagrams().count() as u64),
        }
        entry.unsent -= 1;
        entry.unsent_bytes -= train.content.len();
        if entry.unsent_bytes <= entry.wake_at {
            wake(&mut entry.writer);
        }
        udp.recycle(train);
        self.remove_datagrams_if_done(key);
    }

    /// Takes a train that another core has received.
    pub(crate) fn take_forwarded(&mut self, forwarded: Forwarded) {
        let (local, train) = forwarded.into_train();
        let udp = &mut self.table.datagrams;
        let keys = udp.slab.keys();
        let key = keys.into_iter().find(|key| {
            udp.slab
                .get(*key)
                .is_some_and(|entry| entry.local == local && !entry.is_closing)
        });
        if let Some(key) = key {
            let entry = udp.entry(key);
            if entry.received.len() < FORWARDED_MAX {
                entry.received.push_back(train);
                wake(&mut entry.reader);
            }
        }
    }
}

impl Core {
    /// See [`DatagramSocket::forward`](super::DatagramSocket::forward).
    pub(super) fn forward_train(&self, core: usize, local: SocketAddr, train: &Train) -> bool {
        let forwarded = Forwarded::new(local, train);
        let is_forwarded =
            (self.load.mailbox(core)).is_some_and(|mailbox| mailbox.forward(forwarded));
        match is_forwarded {
            true => self.counters.datagrams_forwarded.add(train.count()),
            false => self.counters.datagrams_not_forwarded.add(train.count()),
        }
        is_forwarded
    }
}
