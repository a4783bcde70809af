//! The sockets of peers: streams, and listeners that accept them.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll};

use crate::driver::sim::{Id, Network, Owner, SharedNetwork, Transfer};
use crate::socket::Address;

/// One end of a connection, held by a peer. Dropping it closes it.
pub struct Stream {
    network: SharedNetwork,
    id: Id,
}

/// A listener of a peer. Dropping it closes it.
pub struct Acceptor {
    network: SharedNetwork,
    number: usize,
    address: Address,
}

impl Stream {
    pub(super) async fn connect(network: &SharedNetwork, address: &Address) -> io::Result<Stream> {
        let id = network.borrow_mut().open(Owner::Peer, address);
        let stream = Stream {
            network: Rc::clone(network),
            id,
        };
        network.borrow_mut().connect(id.number);
        let error = poll_fn(|cx| {
            let mut network = network.borrow_mut();
            match network.connect_result(id.number) {
                Some(error) => Poll::Ready(error),
                None => {
                    network.await_room(id.number, cx.waker());
                    Poll::Pending
                }
            }
        })
        .await;
        match error {
            0 => Ok(stream),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }

    /// The address of this end.
    #[must_use]
    pub fn local(&self) -> Option<SocketAddr> {
        self.network.borrow().local(self.id.number)
    }

    /// Reads what has arrived; 0 bytes are FIN.
    pub fn poll_read(&self, cx: &Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut network = self.network.borrow_mut();
        match network.read(self.id.number, buffer) {
            Transfer::Bytes(n) => Poll::Ready(Ok(n)),
            Transfer::Fin => Poll::Ready(Ok(0)),
            Transfer::Failed(error) => Poll::Ready(Err(io::Error::from_raw_os_error(error))),
            Transfer::WouldBlock => {
                network.await_input(self.id.number, cx.waker());
                Poll::Pending
            }
        }
    }

    /// Writes what there is room for.
    pub fn poll_write(&self, cx: &Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let mut network = self.network.borrow_mut();
        match network.write(self.id.number, bytes) {
            Transfer::Bytes(n) => Poll::Ready(Ok(n)),
            Transfer::Failed(error) => Poll::Ready(Err(io::Error::from_raw_os_error(error))),
            Transfer::Fin | Transfer::WouldBlock => {
                network.await_room(self.id.number, cx.waker());
                Poll::Pending
            }
        }
    }

    /// Sends FIN behind what was written.
    pub fn shutdown_write(&self) {
        self.network.borrow_mut().shutdown_write(self.id.number);
    }

    /// Makes the coming close reset the connection.
    pub fn reset_on_close(&self) {
        self.network.borrow_mut().reset_on_close(self.id.number);
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.network.borrow_mut().close(self.id.number);
    }
}

impl Acceptor {
    pub(super) fn listen(network: &SharedNetwork, address: &Address) -> io::Result<Acceptor> {
        let listening = network.borrow_mut().listen(Owner::Peer, address);
        let (number, address) = listening.map_err(io::Error::from_raw_os_error)?;
        Ok(Acceptor {
            network: Rc::clone(network),
            number,
            address,
        })
    }

    /// Where it listens, with the port that was settled.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// The next connection.
    pub async fn accept(&self) -> Stream {
        let id = poll_fn(|cx| {
            let accepted = self.network.borrow_mut().accept(self.number, Some(cx));
            accepted.map_or(Poll::Pending, Poll::Ready)
        })
        .await;
        Stream {
            network: Rc::clone(&self.network),
            id,
        }
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        Network::close_listener(&mut self.network.borrow_mut(), self.number);
    }
}
