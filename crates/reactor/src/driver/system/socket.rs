//! The calls on sockets that the other files of this folder build on.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use super::RawAddress;
use crate::socket::Address;

/// Connections that may wait to be accepted; the kernel lowers it to `somaxconn`.
const BACKLOG: libc::c_int = 65_535;

/// The result of a system call, or its error.
pub(crate) fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// Opens a stream socket of this address family.
pub(crate) fn stream_socket(family: libc::c_int, nonblocking: bool) -> io::Result<OwnedFd> {
    let flags = libc::SOCK_CLOEXEC | if nonblocking { libc::SOCK_NONBLOCK } else { 0 };
    // SAFETY: a plain system call; the descriptor it returns is ours alone.
    unsafe {
        let fd = check(libc::socket(family, libc::SOCK_STREAM | flags, 0))?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// Listens on a bound socket.
pub(super) fn start_listening(fd: &OwnedFd) -> io::Result<()> {
    // SAFETY: a plain system call on a descriptor of ours.
    check(unsafe { libc::listen(fd.as_raw_fd(), BACKLOG) }).map(drop)
}

/// Binds a socket.
pub(super) fn bind(fd: &OwnedFd, address: &RawAddress) -> io::Result<()> {
    // SAFETY: the address is live, and its length is right.
    check(unsafe { libc::bind(fd.as_raw_fd(), address.as_ptr(), address.len()) }).map(drop)
}

/// The local IP address; `None` on a unix socket.
pub(crate) fn local(fd: RawFd) -> io::Result<Option<SocketAddr>> {
    RawAddress::of_socket(fd, libc::getsockname).map(|raw| raw.to_ip())
}

/// Whether `address` accepts a connection immediately. If the connection has to wait, the error is
/// `WouldBlock`.
pub(crate) fn try_connect(address: &Address) -> io::Result<()> {
    let raw = RawAddress::new(address)?;
    let fd = stream_socket(raw.family(), true)?;
    // SAFETY: the address is live, and its length is right.
    check(unsafe { libc::connect(fd.as_raw_fd(), raw.as_ptr(), raw.len()) }).map(drop)
}

/// Sets whether calls on `fd`, and on its duplicates, block.
pub(crate) fn set_nonblocking(fd: &impl AsRawFd, nonblocking: bool) -> io::Result<()> {
    // SAFETY: plain system calls on a descriptor of ours.
    unsafe {
        let flags = check(libc::fcntl(fd.as_raw_fd(), libc::F_GETFL))? & !libc::O_NONBLOCK;
        let wanted = if nonblocking { libc::O_NONBLOCK } else { 0 };
        check(libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags | wanted)).map(drop)
    }
}

/// Has `sendfile` to a socket return instead of waiting for room. Operations of io_uring on sockets wait nevertheless.
pub(crate) fn allow_send_file(fd: RawFd) -> io::Result<()> {
    let on: libc::c_int = 1;
    // SAFETY: the value is live; a bad descriptor is an error, not a fault.
    check(unsafe { libc::ioctl(fd, libc::FIONBIO, &raw const on) }).map(drop)
}

/// Sets a socket option, whose value is an integer unless `socket(7)` names another type.
pub(crate) fn set_option<T: Copy>(
    fd: &impl AsRawFd,
    level: libc::c_int,
    name: libc::c_int,
    value: T,
) -> io::Result<()> {
    let len = size_of::<T>() as libc::socklen_t;
    // SAFETY: the value is live, and its length is right.
    let set =
        unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const value).cast(), len) };
    check(set).map(drop)
}

/// Reads a socket option that is an integer.
pub(crate) fn get_option(
    fd: RawFd,
    level: libc::c_int,
    name: libc::c_int,
) -> io::Result<libc::c_int> {
    let mut value: libc::c_int = 0;
    let mut len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: value and length are live and belong together.
    let got = unsafe { libc::getsockopt(fd, level, name, (&raw mut value).cast(), &raw mut len) };
    check(got).map(|_| value)
}

/// Reads and clears the pending error of a socket.
pub(crate) fn take_error(fd: RawFd) -> i32 {
    get_option(fd, libc::SOL_SOCKET, libc::SO_ERROR).unwrap_or(libc::EBADF)
}
