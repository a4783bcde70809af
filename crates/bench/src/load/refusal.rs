//! Whether anything listens at a UDP port, for a message that says more than that nothing came.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use blitz_http::sleep;

/// A datagram that no version of QUIC has: its fixed bit is not set (RFC 9000, section 17), so servers drop it.
const NO_PACKET: [u8; 1] = [0];

const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Looks after which another datagram is sent, since one may be lost.
const LOOKS_OF_A_DATAGRAM: u32 = 40;

/// The longest time for a connection over TCP.
const TCP_WITHIN: Duration = Duration::from_secs(2);

/// Returns when the host of the address has refused a datagram. A socket of its own asks, because the kernel tells
/// only connected ones, and the connection of QUIC may have to move.
pub(super) async fn refused(address: SocketAddr) {
    let Ok(socket) = connected(address) else {
        return std::future::pending().await;
    };
    loop {
        let mut is_refused = is_refused(socket.send(&NO_PACKET).map(drop));
        for _ in 0..LOOKS_OF_A_DATAGRAM {
            if is_refused {
                return;
            }
            sleep(LOOK_EVERY).await;
            is_refused = self::is_refused(socket.recv(&mut [0; 64]).map(drop));
        }
    }
}

fn connected(address: SocketAddr) -> io::Result<UdpSocket> {
    let any: SocketAddr = match address {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(any)?;
    socket.connect(address)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

fn is_refused(result: io::Result<()>) -> bool {
    result.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

/// The behaviour over TCP of a server without a reply over UDP, and the remedy.
pub(super) fn over_tcp(address: SocketAddr) -> String {
    match TcpStream::connect_timeout(&address, TCP_WITHIN) {
        Ok(_) => {
            "TCP answers at this port: start the server with HTTP/3, or write --http 2".to_owned()
        }
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
            "TCP is refused at this port as well: is the server running?".to_owned()
        }
        Err(error) => format!("TCP does not answer at this port either ({error})"),
    }
}
