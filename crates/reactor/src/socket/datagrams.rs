//! UDP sockets.

use std::future::poll_fn;
use std::io;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::SocketKey;
use super::train::{Datagrams, Train};
use crate::driver::{BoundGroup, Steering};
use crate::{core, messages};

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
        messages::forward(core, self.local, train, datagrams)
    }
}

impl Drop for DatagramSocket {
    fn drop(&mut self) {
        // A core that has ended has closed its sockets.
        core::try_with(|core| core.sockets().close_datagrams(self.key));
    }
}
