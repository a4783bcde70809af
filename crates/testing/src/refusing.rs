use std::io;
use std::mem;
use std::net::{Ipv4Addr, SocketAddr};

use socket2::{Domain, Socket, Type};

/// A loopback address that refuses connections until the process ends.
///
/// The port of a listener that was closed would do so only until another test gets the same port.
pub fn refusing_address() -> SocketAddr {
    refuse_connections_at((Ipv4Addr::LOCALHOST, 0).into()).expect("a port is free")
}

/// Binds `address` until the process ends and does not listen there; returns it with its port.
///
/// # Errors
///
/// The port is in use.
pub fn refuse_connections_at(address: SocketAddr) -> io::Result<SocketAddr> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.bind(&address.into())?;
    let bound = socket.local_addr()?.as_socket();
    mem::forget(socket);
    Ok(bound.expect("an IP address"))
}
