//! Lines to syslog, one message each: [RFC 5424](https://www.rfc-editor.org/rfc/rfc5424).

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process;
use std::time::Duration;

use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

use super::destination::SyslogAddress;
use super::sink::{Problem, Sink, first_line};

/// Facility `local0` (16), as most HAProxy files have it, and severity `info` (6). Some distributions send the default of
/// nginx, `local7`, to the log of the boot.
const PRIORITY: u8 = 16 * 8 + 6;

const APP_NAME: &str = "blitz";

/// Without a value.
const NIL: &str = "-";

/// HOSTNAME is no longer: section 6.
const HOSTNAME_BYTES_MAX: usize = 255;

/// How long a message may wait for a daemon that reads nothing, until the thread looks after other things.
const SEND_TIMEOUT: Duration = Duration::from_millis(100);

/// A daemon of syslog.
#[derive(Debug)]
pub(super) struct Syslog {
    address: SyslogAddress,
    socket: Socket,
    hostname: String,
    message: Vec<u8>,
}

#[derive(Debug)]
enum Socket {
    /// Messages have the path as address, so that a new daemon gets them as well.
    Unix(UnixDatagram, PathBuf),
    Udp(UdpSocket),
}

impl Syslog {
    /// # Errors
    /// The socket of a path is missing, or a name has no address.
    pub(super) fn open(address: &SyslogAddress) -> io::Result<Syslog> {
        let named = |error: io::Error| io::Error::new(error.kind(), format!("{address}: {error}"));
        Ok(Syslog {
            address: address.clone(),
            socket: Socket::open(address).map_err(named)?,
            hostname: hostname(),
            message: Vec::new(),
        })
    }

    fn compose(&mut self, line: &[u8]) {
        let mut timestamp = String::new();
        // RFC 3339 in UTC with microseconds, as section 6.2.3 demands. A string takes all.
        let _ = SystemTime.format_time(&mut Writer::new(&mut timestamp));
        self.message.clear();
        let _ = write!(
            self.message,
            "<{PRIORITY}>1 {timestamp} {} {APP_NAME} {} {NIL} {NIL} ",
            self.hostname,
            process::id()
        );
        self.message.extend_from_slice(line);
    }
}

impl Sink for Syslog {
    fn write(&mut self, lines: &[u8]) -> Result<usize, Problem> {
        let (line, length) = first_line(lines);
        self.compose(line);
        let sent = match &self.socket {
            Socket::Unix(socket, path) => socket.send_to(&self.message, path),
            Socket::Udp(socket) => socket.send(&self.message),
        };
        match sent {
            Ok(_) => Ok(length),
            Err(error) => Err(self.problem(error)),
        }
    }

    fn reopen(&mut self) -> io::Result<()> {
        *self = Syslog::open(&self.address)?;
        Ok(())
    }
}

impl Syslog {
    fn problem(&self, error: io::Error) -> Problem {
        let is_refused = error.kind() == ErrorKind::ConnectionRefused;
        match (Problem::of_message(error), &self.socket) {
            // ICMP has told that nobody has received the datagram before.
            (Problem::Absent { error, .. }, Socket::Udp(_)) if is_refused => {
                Problem::Absent { error, lost: 1 }
            }
            (problem, _) => problem,
        }
    }
}

impl Socket {
    fn open(address: &SyslogAddress) -> io::Result<Socket> {
        match address {
            SyslogAddress::Unix(path) => Ok(Socket::Unix(open_unix(path)?, path.clone())),
            SyslogAddress::Udp { host, port } => {
                let resolved = (host.as_str(), *port).to_socket_addrs()?.next();
                let address = resolved.ok_or(ErrorKind::NotFound)?;
                let any: SocketAddr = match address.is_ipv4() {
                    true => (Ipv4Addr::UNSPECIFIED, 0).into(),
                    false => (Ipv6Addr::UNSPECIFIED, 0).into(),
                };
                let socket = UdpSocket::bind(any)?;
                socket.connect(address)?;
                socket.set_write_timeout(Some(SEND_TIMEOUT))?;
                Ok(Socket::Udp(socket))
            }
        }
    }
}

/// A socket for messages to a daemon at this path, where one must listen.
pub(super) fn open_unix(path: &Path) -> io::Result<UnixDatagram> {
    UnixDatagram::unbound()?.connect(path)?;
    let socket = UnixDatagram::unbound()?;
    socket.set_write_timeout(Some(SEND_TIMEOUT))?;
    Ok(socket)
}

/// The name of this machine, in the characters that section 6 allows.
fn hostname() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim();
    let is_valid = !name.is_empty()
        && name.len() <= HOSTNAME_BYTES_MAX
        && name.bytes().all(|byte| byte.is_ascii_graphic());
    if is_valid { name.into() } else { NIL.into() }
}
