//! What this machine allows, for `blitz doctor`.

use std::net::SocketAddr;
use std::os::fd::AsRawFd;

use super::{epoll, system, uring};
use crate::socket::Address;

/// The features of io_uring in words.
///
/// # Errors
/// Why it cannot be used, and what to do.
pub fn io_uring() -> Result<String, String> {
    uring::probe()
}

/// Whether epoll can be used.
///
/// # Errors
/// What `epoll_create1(2)` reports.
pub fn epoll() -> Result<(), String> {
    epoll::create().map(drop).map_err(|error| error.to_string())
}

/// Whether several sockets can listen on one port, one per core.
///
/// # Errors
/// What `bind(2)` reports for the second of them.
pub fn reuseport() -> Result<(), String> {
    let listen = |address: SocketAddr| system::listen(&Address::Tcp(address), true, true);
    let first = listen(SocketAddr::from(([127, 0, 0, 1], 0))).map_err(|e| e.to_string())?;
    let bound = system::local(first.as_raw_fd()).map_err(|error| error.to_string())?;
    let bound = bound.ok_or("the socket has no address")?;
    listen(bound).map(drop).map_err(|error| error.to_string())
}

/// Whether UDP sends can be segmented by the kernel (GSO), which QUIC wants.
///
/// # Errors
/// What `setsockopt(2)` reports.
pub fn udp_gso() -> Result<(), String> {
    let socket = std::net::UdpSocket::bind(("127.0.0.1", 0)).map_err(|error| error.to_string())?;
    system::set_option(&socket, libc::SOL_UDP, libc::UDP_SEGMENT, 1_200)
        .map_err(|error| error.to_string())
}
