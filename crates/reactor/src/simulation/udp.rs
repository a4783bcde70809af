//! The UDP sockets of peers.

use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll};

use crate::driver::sim::{Datagram, Network, Owner, SharedNetwork};

/// A UDP socket of a peer. Dropping it closes it; what has not been received is lost.
pub struct PeerSocket {
    network: SharedNetwork,
    number: usize,
    local: SocketAddr,
}

/// A datagram that was received.
#[derive(Debug, Clone)]
pub struct PeerDatagram {
    /// The sender.
    pub from: SocketAddr,
    /// The two bits of ECN (RFC 3168, section 5).
    pub ecn: u8,
    /// Its bytes.
    pub content: Vec<u8>,
}

impl PeerSocket {
    pub(super) fn bind(network: &SharedNetwork, address: SocketAddr) -> PeerSocket {
        let (number, local) = network.borrow_mut().bind_datagrams(Owner::Peer, address);
        PeerSocket {
            network: Rc::clone(network),
            number,
            local,
        }
    }

    /// The address of this socket.
    #[must_use]
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// Sends a datagram.
    pub fn send(&self, to: SocketAddr, ecn: u8, content: Vec<u8>) {
        self.network.borrow_mut().send_datagram(&Datagram {
            from: self.local,
            to,
            ecn,
            content,
        });
    }

    /// The next datagram that has arrived.
    pub fn poll_recv(&self, cx: &Context<'_>) -> Poll<PeerDatagram> {
        let mut network = self.network.borrow_mut();
        let Some(datagram) = network.take_datagram(self.number) else {
            network.await_datagram(self.number, cx.waker());
            return Poll::Pending;
        };
        Poll::Ready(PeerDatagram {
            from: datagram.from,
            ecn: datagram.ecn,
            content: datagram.content,
        })
    }
}

impl Drop for PeerSocket {
    fn drop(&mut self) {
        Network::close_datagrams(&mut self.network.borrow_mut(), self.number);
    }
}
