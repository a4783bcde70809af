//! Batches of datagrams, received and sent.
//!
//! A batch ([`Train`]) is the unit that the kernel moves at once: datagrams of one sender (GRO) or to one receiver
//! (GSO), all of the same size except the last, which may be shorter.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

use crate::buffer::DatagramBuffer;
use crate::driver::{TrainHead, parse_train};

/// Explicit congestion notification in the IP header (RFC 3168, section 5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ecn {
    /// ECT(1).
    Ect1 = 1,
    /// ECT(0).
    Ect0 = 2,
    /// Congestion was experienced.
    Ce = 3,
}

impl Ecn {
    /// From the two bits of the header; `None` for a sender without ECN.
    fn from_bits(bits: u8) -> Option<Ecn> {
        match bits {
            1 => Some(Ecn::Ect1),
            2 => Some(Ecn::Ect0),
            3 => Some(Ecn::Ce),
            _ => None,
        }
    }
}

/// Received datagrams of one sender.
///
/// It occupies one of the core's receive buffers until it is dropped; without a free buffer, datagrams wait in
/// the kernel.
#[derive(Debug)]
pub struct Train {
    content: TrainBytes,
    /// The sender.
    pub from: SocketAddr,
    /// The local address that the datagrams were sent to, if the kernel says so.
    pub to: Option<IpAddr>,
    /// The ECN bits of all datagrams.
    pub ecn: Option<Ecn>,
    /// Bytes of each datagram but the last; of a single one if there is only one.
    pub segment_bytes: usize,
}

#[derive(Debug)]
enum TrainBytes {
    Received(DatagramBuffer, Range<usize>),
    /// Another core received it, or too many are unread.
    Copied(Box<[u8]>),
}

impl Train {
    /// Reads what the driver has written; `None` if it is unusable. Also returns the number of datagrams that
    /// the kernel has dropped so far.
    pub(super) fn read(buffer: DatagramBuffer) -> Option<(Train, u32)> {
        let TrainHead {
            from,
            to,
            ecn,
            segment_bytes,
            dropped,
            content,
        } = parse_train(buffer.bytes())?;
        let train = Train {
            segment_bytes: segment_bytes
                .filter(|&bytes| bytes > 0)
                .unwrap_or(content.len()),
            content: TrainBytes::Received(buffer, content),
            from,
            to,
            ecn: Ecn::from_bits(ecn),
        };
        Some((train, dropped))
    }

    /// All datagrams, one behind the other.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match &self.content {
            TrainBytes::Received(buffer, range) => &buffer.bytes()[range.clone()],
            TrainBytes::Copied(bytes) => bytes,
        }
    }

    /// The datagrams one by one; a batch without bytes is one empty datagram.
    pub fn datagrams(&self) -> impl Iterator<Item = &[u8]> {
        let bytes = self.bytes();
        let empty = bytes.is_empty().then_some(&[][..]);
        bytes.chunks(self.segment_bytes.max(1)).chain(empty)
    }

    /// The bytes of some datagrams.
    pub(crate) fn part(&self, datagrams: Range<usize>) -> &[u8] {
        let bytes = self.bytes();
        let end_of = |number: usize| (number * self.segment_bytes).min(bytes.len());
        &bytes[end_of(datagrams.start)..end_of(datagrams.end)]
    }

    /// The same in memory of its own, so that the buffer is free.
    pub(super) fn into_copied(mut self) -> Train {
        if matches!(self.content, TrainBytes::Received(..)) {
            self.content = TrainBytes::Copied(self.bytes().into());
        }
        self
    }

    /// The number of datagrams.
    pub(super) fn count(&self) -> u64 {
        self.bytes()
            .len()
            .div_ceil(self.segment_bytes.max(1))
            .max(1) as u64
    }
}

/// Datagrams to be sent to one receiver.
#[derive(Debug, Clone)]
pub struct Datagrams {
    /// The receiver.
    pub to: SocketAddr,
    /// The local address to send from; `None` leaves the choice to the kernel.
    pub from: Option<IpAddr>,
    /// The ECN bits of all datagrams.
    pub ecn: Option<Ecn>,
    /// All datagrams, one behind the other. The kernel sends at most 64 of them, and 65,487 bytes, at once;
    /// more are sent as several batches.
    pub content: Vec<u8>,
    /// Bytes of each datagram but the last; `None` for a single datagram.
    pub segment_bytes: Option<u16>,
}

/// A batch on its way to another core.
pub(crate) struct Forwarded {
    /// Of the socket.
    local: SocketAddr,
    train: ForwardedTrain,
}

struct ForwardedTrain {
    content: Box<[u8]>,
    from: SocketAddr,
    to: Option<IpAddr>,
    ecn: Option<Ecn>,
    segment_bytes: usize,
}

impl Forwarded {
    /// With some bytes of a batch.
    pub(crate) fn new(local: SocketAddr, train: &Train, content: &[u8]) -> Forwarded {
        Forwarded {
            local,
            train: ForwardedTrain {
                content: content.into(),
                from: train.from,
                to: train.to,
                ecn: train.ecn,
                segment_bytes: train.segment_bytes,
            },
        }
    }

    /// Bytes of the datagrams.
    pub(crate) fn bytes(&self) -> usize {
        self.train.content.len()
    }

    /// The address of the socket, and the batch.
    pub(super) fn into_train(self) -> (SocketAddr, Train) {
        let ForwardedTrain {
            content,
            from,
            to,
            ecn,
            segment_bytes,
        } = self.train;
        let train = Train {
            content: TrainBytes::Copied(content),
            from,
            to,
            ecn,
            segment_bytes,
        };
        (self.local, train)
    }
}
