//! Checks of this machine for `blitz doctor`.

use std::net::SocketAddr;
use std::os::fd::AsRawFd;

use super::{epoll, system, uring};
use crate::socket::Address;

/// The supported features of io_uring, as a list for people.
///
/// # Errors
/// The reason why it cannot be used, and the remedy.
pub fn io_uring() -> Result<String, String> {
    uring::probe()
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

/// Whether the kernel can segment UDP sends (GSO), which QUIC benefits from.
///
/// # Errors
/// The error of `setsockopt(2)`.
pub fn udp_gso() -> Result<(), String> {
    let socket = std::net::UdpSocket::bind(("127.0.0.1", 0)).map_err(|error| error.to_string())?;
    system::set_option(&socket, libc::SOL_UDP, libc::UDP_SEGMENT, 1_200)
        .map_err(|error| error.to_string())
}
