//! UDP sockets: batches of datagrams, received and sent.
//!
//! A batch ([`Train`]) is the unit that the kernel moves at once: datagrams of one sender (GRO) or to one receiver
//! (GSO), all of the same size except the last, which may be shorter.

use std::future::poll_fn;
use std::io;
use std::marker::PhantomData;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::SocketKey;
use crate::buffer::DatagramBuffer;
use crate::core;
use crate::driver::{BoundGroup, Steering, TrainHead, parse_train};

/// One UDP socket of this core. Dropping it closes it; what was queued is still sent.
///
/// Datagrams may be lost, doubled and reordered, so no failure of sending or receiving ends the socket: it is
/// counted ([`Counters`](crate::Counters)). The kernel drops empty datagrams, which would cost most.
#[derive(Debug)]
pub struct DatagramSocket {
    key: SocketKey,
    local: SocketAddr,
    /// Keeps the numbers of the group's sockets.
    _group: Option<Arc<BoundGroup>>,
    not_send: PhantomData<Rc<()>>,
}

/// The UDP sockets of one address, one for each core, bound before the cores start.
///
/// The kernel gives packets of QUIC with a short header to the core that their connection ID names
/// ([`Steering`]), and all other datagrams to a core that it chooses by the addresses. Where it refuses the
/// program, and where GRO joins datagrams of one address for several cores, [`DatagramSocket::forward`] gives
/// them to the right one.
#[derive(Clone)]
pub struct DatagramGroup(Arc<BoundGroup>);

impl DatagramGroup {
    /// Binds a socket for each of `cores`. Port 0 takes a free one.
    ///
    /// # Errors
    /// The error of `bind(2)`: `AddrInUse` also if another process shares the address.
    pub fn bind(
        address: SocketAddr,
        cores: usize,
        steering: &Steering,
    ) -> io::Result<DatagramGroup> {
        let group = BoundGroup::bind(address, cores, steering, false)?;
        Ok(DatagramGroup(Arc::new(group)))
    }

    /// [`DatagramGroup::bind`] beside sockets of this process at the same port of another address, one of which includes
    /// the other.
    ///
    /// # Errors
    /// The error of `bind(2)`.
    pub fn bind_beside(
        address: SocketAddr,
        cores: usize,
        steering: &Steering,
    ) -> io::Result<DatagramGroup> {
        let group = BoundGroup::bind(address, cores, steering, true)?;
        Ok(DatagramGroup(Arc::new(group)))
    }

    /// The bound address, with the actual port.
    #[must_use]
    pub fn local(&self) -> SocketAddr {
        self.0.address()
    }

    /// Whether the kernel finds the core by the connection ID.
    #[must_use]
    pub fn is_steered(&self) -> bool {
        self.0.is_steered()
    }

    /// The socket of the calling core. For each core once.
    ///
    /// # Errors
    /// If no descriptor is free.
    ///
    /// # Panics
    /// If the group has no socket for this core.
    pub fn socket(&self) -> io::Result<DatagramSocket> {
        let (key, local) = core::with(|core| core.sockets().join_datagrams(&self.0))?;
        Ok(DatagramSocket {
            key,
            local,
            _group: Some(Arc::clone(&self.0)),
            not_send: PhantomData,
        })
    }
}

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
    content: Content,
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
enum Content {
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
            content: Content::Received(buffer, content),
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
            Content::Received(buffer, range) => &buffer.bytes()[range.clone()],
            Content::Copied(bytes) => bytes,
        }
    }

    /// The datagrams one by one; a batch without bytes is one empty datagram.
    pub fn datagrams(&self) -> impl Iterator<Item = &[u8]> {
        let bytes = self.bytes();
        let empty = bytes.is_empty().then_some(&[][..]);
        bytes.chunks(self.segment_bytes.max(1)).chain(empty)
    }

    /// The bytes of some datagrams.
    pub(super) fn part(&self, datagrams: Range<usize>) -> &[u8] {
        let bytes = self.bytes();
        let end_of = |number: usize| (number * self.segment_bytes).min(bytes.len());
        &bytes[end_of(datagrams.start)..end_of(datagrams.end)]
    }

    /// The same in memory of its own, so that the buffer is free.
    pub(super) fn into_copied(mut self) -> Train {
        if matches!(self.content, Content::Received(..)) {
            self.content = Content::Copied(self.bytes().into());
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

impl DatagramSocket {
    /// Binds; an address can be shared with other cores (`SO_REUSEPORT`). Port 0 takes a free one, which is not
    /// shared. An IPv6 address that is unspecified is for IPv4 as well.
    ///
    /// # Errors
    /// The error of `bind(2)`.
    pub fn bind(address: SocketAddr) -> io::Result<DatagramSocket> {
        let (key, local) = core::with(|core| core.sockets().bind_datagrams(address))?;
        Ok(DatagramSocket {
            key,
            local,
            _group: None,
            not_send: PhantomData,
        })
    }

    /// The bound address, with the actual port.
    #[must_use]
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// The next batch. For one task at a time.
    pub fn poll_recv(&self, cx: &mut Context<'_>) -> Poll<Train> {
        core::with(|core| core.sockets().poll_receive_train(self.key, Some(cx)))
    }

    /// As [`DatagramSocket::poll_recv`].
    pub async fn recv(&self) -> Train {
        poll_fn(|cx| self.poll_recv(cx)).await
    }

    /// As [`DatagramSocket::recv`], without waiting; `None` if nothing was received.
    #[must_use]
    pub fn try_recv(&self) -> Option<Train> {
        let polled = core::with(|core| core.sockets().poll_receive_train(self.key, None));
        match polled {
            Poll::Ready(train) => Some(train),
            Poll::Pending => None,
        }
    }

    /// Queues datagrams, which are sent at the end of the turn. Those that the kernel refuses count as lost; a
    /// batch that it refuses is sent singly, and for a while later ones as well.
    pub fn send(&self, datagrams: Datagrams) {
        core::with(|core| core.sockets().send_datagrams(self.key, datagrams));
    }

    /// An empty buffer for [`Datagrams::content`], with the capacity of one that was sent.
    #[must_use]
    pub fn buffer(&self) -> Vec<u8> {
        core::with(|core| core.sockets().take_content_buffer())
    }

    /// Bytes of content that the kernel has not taken.
    #[must_use]
    pub fn unsent_bytes(&self) -> usize {
        core::with(|core| core.sockets().unsent_datagram_bytes(self.key))
    }

    /// Ready when at most `below` bytes of content are left that the kernel has not taken.
    pub fn poll_send_room(&self, cx: &mut Context<'_>, below: usize) -> Poll<()> {
        core::with(|core| core.sockets().poll_datagram_room(self.key, cx, below))
    }

    /// As [`DatagramSocket::poll_send_room`].
    pub async fn send_room(&self, below: usize) {
        poll_fn(|cx| self.poll_send_room(cx, below)).await;
    }

    /// Gives datagrams of a batch, by their numbers, to the socket of another core that has the same local
    /// address. False if that core has ended or has many of them already: then they are lost. They are also
    /// lost if that core has no such socket, or its reader is slow.
    pub fn forward(&self, core: usize, train: &Train, datagrams: Range<usize>) -> bool {
        core::with(|this| this.forward_datagrams(core, self.local, train, datagrams))
    }
}

impl Drop for DatagramSocket {
    fn drop(&mut self) {
        // A core that has ended has closed its sockets.
        core::try_with(|core| core.sockets().close_datagrams(self.key));
    }
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
    pub(super) fn new(local: SocketAddr, train: &Train, content: &[u8]) -> Forwarded {
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
            content: Content::Copied(content),
            from,
            to,
            ecn,
            segment_bytes,
        };
        (self.local, train)
    }
}
