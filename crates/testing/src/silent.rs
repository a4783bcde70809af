use std::mem;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use socket2::{Domain, Socket, Type};

/// How long a connection on loopback may take.
const PATIENCE: Duration = Duration::from_millis(100);

/// A loopback address that neither accepts nor refuses connections until the process ends.
///
/// The queue of its listener is full, so that the kernel drops every SYN.
///
/// # Panics
/// When no port is free.
pub fn silent_address() -> SocketAddr {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    socket.bind(&any_port.into()).expect("a port is free");
    socket.listen(0).expect("it is bound");
    let address = socket.local_addr().expect("it is bound").as_socket();
    let address = address.expect("an IP address");
    while let Ok(waiting) = TcpStream::connect_timeout(&address, PATIENCE) {
        mem::forget(waiting);
    }
    mem::forget(socket);
    address
}
