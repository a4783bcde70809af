use std::mem;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use socket2::{Domain, Socket, Type};

/// A loopback address that refuses connections until the process ends: it is bound, and nobody
/// listens there. The port of a closed listener could be given to another test.
pub fn refusing_address() -> SocketAddr {
    let late = LateListener::bind();
    let address = late.address();
    mem::forget(late);
    address
}

/// A loopback address that refuses connections until somebody listens there.
pub struct LateListener(Socket);

impl LateListener {
    /// Binds a free port.
    pub fn bind() -> LateListener {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        socket.bind(&any.into()).expect("a port is free");
        LateListener(socket)
    }

    /// Where it will listen.
    pub fn address(&self) -> SocketAddr {
        let address = self.0.local_addr().expect("it is bound").as_socket();
        address.expect("an IP address")
    }

    /// From now on connections are accepted.
    pub fn listen(self) -> TcpListener {
        self.0.listen(128).expect("it listens");
        self.0.into()
    }
}
