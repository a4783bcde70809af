//! The UDP sockets of a core, and the batches that they send.

use std::collections::VecDeque;
use std::mem;
use std::net::SocketAddr;
use std::task::Waker;
use std::time::Instant;

use super::SocketKey;
use super::slab::Slab;
use super::train::Train;
use crate::driver::{Destination, Driver, Handle, SentTrain};

/// Most sent batches whose memory is kept for later ones.
const FREE_MAX: usize = 256;

/// Most content buffers that are kept, and their capacity.
const CONTENTS_MAX: usize = 64;
const CONTENT_BYTES_MAX: usize = 64 * 1024;

/// Batches that one socket sends at a time; the others wait in the socket, and for the next turn.
pub(super) const IN_FLIGHT_MAX: usize = 64;

/// The UDP sockets of one core.
#[derive(Default)]
pub(crate) struct DatagramTable {
    pub(super) slab: Slab<DatagramEntry>,
    /// Sockets without a pending receive.
    pub(super) to_receive: Vec<SocketKey>,
    /// Sockets that had too many unread batches at a receive of the last turn.
    pub(super) unread: Vec<SocketKey>,
    /// Sockets whose waiting batches start to be sent at the end of the turn.
    pub(super) to_send: Vec<SocketKey>,
    /// Batches that the driver sends, by slot.
    pub(super) sending: Vec<Option<(SocketKey, OutgoingTrain)>>,
    pub(super) vacant: Vec<u32>,
    /// Memory of sent batches. Boxed, because the kernel has pointers into those in use.
    #[allow(
        clippy::vec_box,
        reason = "a box moves from here to a train that is sent and back"
    )]
    pub(super) free: Vec<Box<SentTrain>>,
    /// Buffers of sent content.
    pub(super) contents: Vec<Vec<u8>>,
}

/// A batch that waits or is being sent.
pub(super) struct OutgoingTrain {
    pub(super) train: Box<SentTrain>,
    /// It is a part of a batch that the kernel has refused.
    pub(super) was_refused: bool,
}

pub(super) struct DatagramEntry {
    pub(super) handle: Handle,
    pub(super) local: SocketAddr,
    pub(super) received: VecDeque<Train>,
    pub(super) reader: Option<Waker>,
    pub(super) is_receiving: bool,
    /// It receives nothing until its reader has read.
    pub(super) is_paused: bool,
    /// The number of datagrams that the kernel had dropped at the last receive.
    pub(super) dropped: u32,
    pub(super) waiting: VecDeque<OutgoingTrain>,
    /// It is in the list of sockets to send.
    pub(super) is_listed: bool,
    pub(super) in_flight: usize,
    /// Bytes that wait or are being sent.
    pub(super) unsent_bytes: usize,
    pub(super) writer: Option<Waker>,
    pub(super) wake_at: usize,
    /// Until then, batches are sent singly.
    pub(super) singly_until: Option<Instant>,
    /// The handle was dropped.
    pub(super) is_closing: bool,
}

impl DatagramEntry {
    /// Whether at most `below` bytes are left to be sent; for 0, also nothing that is empty.
    pub(super) fn has_room(&self, below: usize) -> bool {
        self.unsent_bytes <= below && (below > 0 || self.waiting.is_empty())
    }
}

impl DatagramTable {
    /// Whether the loop has work before it may wait.
    #[inline]
    pub(crate) fn is_busy(&self) -> bool {
        !self.to_send.is_empty()
    }

    /// The number of sockets that are open or have pending operations.
    pub(crate) fn len(&self) -> usize {
        self.slab.len()
    }

    /// Closes what is left after a failure or a panic.
    pub(crate) fn close_all(&mut self, driver: &mut Driver) {
        for key in self.slab.keys() {
            if let Some(entry) = self.slab.remove(key) {
                driver.close_datagrams(entry.handle);
            }
        }
    }

    pub(super) fn entry(&mut self, key: SocketKey) -> &mut DatagramEntry {
        self.slab
            .get_mut(key)
            .expect("a handle refers to a live socket")
    }

    /// A batch, in the memory of an earlier one.
    fn train(&mut self, destination: Destination, content: Vec<u8>) -> Box<SentTrain> {
        match self.free.pop() {
            Some(mut train) => {
                train.destination = destination;
                train.content = content;
                train
            }
            None => Box::new(SentTrain::new(destination, content)),
        }
    }

    pub(super) fn copy(&mut self, content: &[u8]) -> Vec<u8> {
        let mut copy = self.contents.pop().unwrap_or_default();
        copy.extend_from_slice(content);
        copy
    }

    /// Adds a batch to those that wait.
    pub(super) fn queue(&mut self, key: SocketKey, destination: Destination, content: Vec<u8>) {
        let train = self.train(destination, content);
        let entry = self.entry(key);
        entry.unsent_bytes += train.content.len();
        entry.waiting.push_back(OutgoingTrain {
            train,
            was_refused: false,
        });
        self.list(key);
    }

    /// Puts the datagrams of a batch that the kernel has refused before all that wait.
    pub(super) fn queue_singly(&mut self, key: SocketKey, refused: Box<SentTrain>) {
        let destination = Destination {
            segment_bytes: None,
            ..refused.destination
        };
        let datagrams: Vec<&[u8]> = refused.datagrams().collect();
        for content in datagrams.into_iter().rev() {
            let content = self.copy(content);
            let train = self.train(destination, content);
            self.entry(key).waiting.push_front(OutgoingTrain {
                train,
                was_refused: true,
            });
        }
        self.recycle(refused);
        self.list(key);
    }

    /// Lists a socket that has batches to send, unless as many are in flight as may be.
    pub(super) fn list(&mut self, key: SocketKey) {
        let entry = self.entry(key);
        let may_send = !entry.waiting.is_empty() && entry.in_flight < IN_FLIGHT_MAX;
        if may_send && !mem::replace(&mut entry.is_listed, true) {
            self.to_send.push(key);
        }
    }

    /// Keeps the memory of a batch.
    pub(super) fn recycle(&mut self, mut train: Box<SentTrain>) {
        self.keep(mem::take(&mut train.content));
        if self.free.len() < FREE_MAX {
            self.free.push(train);
        }
    }

    pub(super) fn keep(&mut self, mut content: Vec<u8>) {
        if self.contents.len() < CONTENTS_MAX && content.capacity() <= CONTENT_BYTES_MAX {
            content.clear();
            self.contents.push(content);
        }
    }
}
