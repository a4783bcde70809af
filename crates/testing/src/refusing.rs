use std::mem;
use std::net::{Ipv4Addr, SocketAddr};

use socket2::{Domain, Socket, Type};

/// A loopback address that refuses connections until the process ends: it is bound, and nobody
/// listens there. The port of a closed listener could be given to another test.
pub fn refusing_address() -> SocketAddr {
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.bind(&any.into()).expect("a port is free");
    let address = socket.local_addr().expect("it is bound").as_socket();
    mem::forget(socket);
    address.expect("an IP address")
}
