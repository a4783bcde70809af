//! Checks of this machine for `blitz doctor`.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::path::Path;

use super::system::BoundGroup;
use super::{Steering, epoll, system, uring};
use crate::socket::Address;

pub use super::system::{CorePlacement, DatagramBuffers, MemoryNode};

/// The supported features of io_uring, as a list for people.
///
/// # Errors
/// The reason why it cannot be used, and the remedy.
pub fn io_uring() -> Result<String, String> {
    uring::probe()
}

/// The nodes of memory below this root, which is `/`, with the processors that the process may run on, and the placement
/// of so many cores with [`Pinning::Numa`](crate::Pinning).
#[must_use]
pub fn memory_nodes(root: &Path, processors: &[usize], cores: usize) -> MemoryLayout {
    let nodes = MemoryNode::all(root, processors);
    let cores = MemoryNode::place(&nodes, cores);
    MemoryLayout { nodes, cores }
}

/// The processors that the process may run on.
#[must_use]
pub fn processors() -> Vec<usize> {
    system::processors()
}

/// Nodes of memory, and the placement of cores.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryLayout {
    /// Those with processors.
    pub nodes: Vec<MemoryNode>,
    /// One for each core.
    pub cores: Vec<CorePlacement>,
}

/// Whether epoll can be used.
///
/// # Errors
/// The error of `epoll_create1(2)`.
pub fn epoll() -> Result<(), String> {
    epoll::create().map(drop).map_err(|error| error.to_string())
}

/// Whether several sockets can listen on one port, one per core.
///
/// # Errors
/// The error of `bind(2)` for the second of them.
pub fn reuseport() -> Result<(), String> {
    let listen = |address: SocketAddr| system::listen(&Address::Tcp(address), true, true);
    let first = listen(SocketAddr::from(([127, 0, 0, 1], 0))).map_err(|e| e.to_string())?;
    let bound = system::local(first.as_raw_fd()).map_err(|error| error.to_string())?;
    let bound = bound.ok_or("the socket has no address")?;
    listen(bound).map(drop).map_err(|error| error.to_string())
}

/// The buffers that a UDP socket of Blitz gets. A socket is asked because containers do not see the kernel's
/// limits in `/proc`.
///
/// # Errors
/// The error of `bind(2)` or `getsockopt(2)`.
pub fn udp_buffers() -> Result<DatagramBuffers, String> {
    system::probe_buffers().map_err(|error| error.to_string())
}

/// Whether the kernel can segment UDP sends (GSO), which QUIC benefits from.
///
/// # Errors
/// The error of `setsockopt(2)`.
pub fn udp_gso() -> Result<(), String> {
    set_on_udp(libc::UDP_SEGMENT, 1_200)
}

/// Whether the kernel can join received datagrams (GRO), which QUIC benefits from.
///
/// # Errors
/// The error of `setsockopt(2)`.
pub fn udp_gro() -> Result<(), String> {
    set_on_udp(libc::UDP_GRO, 1)
}

fn set_on_udp(name: libc::c_int, value: libc::c_int) -> Result<(), String> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|error| error.to_string())?;
    system::set_option(&socket, libc::SOL_UDP, name, value).map_err(|error| error.to_string())
}

/// Whether the kernel can choose the UDP socket of a datagram by its connection ID ([`Steering`]).
///
/// # Errors
/// The error of `bind(2)`, or the kernel refuses the program.
pub fn steering() -> Result<(), String> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let group = BoundGroup::bind(address, 2, &Steering::new([0; 16], 0), false);
    match group.map_err(|error| error.to_string())?.is_steered() {
        true => Ok(()),
        false => Err("the kernel refuses the BPF program".to_owned()),
    }
}
