//! System calls that the io_uring and epoll drivers share.

mod address;
mod datagram;
mod event;
mod file;
mod file_send;
mod memory;
mod node;
mod process;
mod receive;
mod seccomp;
mod send;
mod socket;
mod steering;
mod tun;
mod unix;
mod workers;

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use self::socket::{bind, set_nonblocking, start_listening, stream_socket};
use self::steering::{attach, instruction};
use super::{Handle, OwnedHandle};
use crate::socket::Address;

pub(crate) use self::address::{RawAddress, interface_index};
pub use self::datagram::DatagramBuffers;
#[cfg(feature = "simulation")]
pub(super) use self::datagram::write_train;
pub(crate) use self::datagram::{
    Bound, BoundGroup, Destination, SentTrain, TrainHead, is_train_refused, parse_train,
    probe_buffers,
};
pub(super) use self::datagram::{bind_datagrams, receive_message, receive_train, send_train};
pub(crate) use self::event::EventFd;
pub use self::file::{EntryLimits, FileFacts, FolderEntry, SymbolicLinks};
pub(crate) use self::file::{OpenFolder, OpenKind, OpenPath, entries, is_no_path, is_shortage};
pub(crate) use self::file_send::FileSent;
pub(crate) use self::memory::Mapping;
pub use self::memory::trim_heap;
pub use self::node::{CorePlacement, MemoryNode};
pub(crate) use self::process::{
    ThreadTime, check_descriptors, enlarge_descriptor_table, open_descriptors, processors,
    raise_descriptor_limit,
};
pub use self::process::{prepare_descriptors, set_idle_priority, set_real_time};
pub(crate) use self::receive::receive_now;
pub(crate) use self::seccomp::survives_io_uring;
pub(crate) use self::send::{SendBuffers, SendVectors, send_before_file, send_now};
pub(crate) use self::socket::{allow_send_file, local, set_option};
pub(super) use self::socket::{check, take_error};
pub use self::steering::Steering;
pub use self::tun::open_tun;
pub(crate) use self::unix::UnixListener;
pub use self::workers::Share;
pub(crate) use self::workers::{Job, set_processors, submit, submit_shared};

/// Bytes of an accepted connection that the kernel buffers beyond the peer's receive window. Without
/// this limit the kernel buffers 4 MiB for a peer that does not read (`tcp_wmem`).
const UNSENT_MAX: libc::c_int = 256 * 1024;

/// The longest wait for an address in use. The kernel ends the operations of a ring after the process that
/// was killed, up to 0.2 s later, and its listeners stay open until then.
const RELEASE_WAIT_MAX: Duration = Duration::from_secs(1);
/// The time between two attempts to bind it.
const RELEASE_CHECK: Duration = Duration::from_millis(50);

/// A listener that a driver has opened.
pub(crate) struct Listening {
    pub(crate) handle: Handle,
    /// The bound address, with the actual port.
    pub(crate) address: Address,
    /// Removes the file of a unix socket when the last core drops it.
    pub(crate) unix: Option<Arc<UnixListener>>,
}

/// The error number of a socket that was shed for lack of receive buffers.
pub(crate) const NO_BUFFERS: i32 = libc::ENOBUFS;

/// The error of operations on a socket that was evicted.
pub(crate) const EVICTED: i32 = libc::ECONNABORTED;

/// Whether accepting failed because the peer closed the connection before it was accepted.
pub(crate) fn is_aborted_by_peer(error: i32) -> bool {
    matches!(error, libc::ECONNABORTED | libc::EINTR | libc::EPROTO)
}

/// Whether the process or the system has no descriptor left, so that closing one helps.
pub(crate) fn is_out_of_descriptors(error: i32) -> bool {
    matches!(error, libc::EMFILE | libc::ENFILE)
}

/// The error of a socket that found no descriptor in time.
pub(crate) fn out_of_descriptors() -> io::Error {
    io::Error::from_raw_os_error(libc::EMFILE)
}

/// A resource of this machine that a new connection lacked, so that the address may be healthy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LocalShortage {
    /// The process or the system has no descriptor left.
    Descriptors,
    /// All local ports are in use towards the address.
    Ports,
    /// The kernel has no memory for it.
    Memory,
}

impl LocalShortage {
    /// The resource that connecting to `address` lacked, if that was the error.
    pub fn of(error: &io::Error, address: &Address) -> Option<LocalShortage> {
        match (error.raw_os_error()?, address) {
            (libc::EMFILE | libc::ENFILE, _) => Some(LocalShortage::Descriptors),
            (libc::ENOBUFS | libc::ENOMEM, _) => Some(LocalShortage::Memory),
            // For an IPv6 address it mostly means that this machine has no IPv6.
            (libc::EADDRNOTAVAIL, Address::Tcp(to)) if to.is_ipv4() => Some(LocalShortage::Ports),
            _ => None,
        }
    }
}

/// Whether accepting ended because it was cancelled, or because no connection is waiting.
pub(crate) fn is_cancelled(error: i32) -> bool {
    matches!(error, libc::ECANCELED | libc::EAGAIN)
}

/// Binds and listens. With `shared` every core can bind the same address.
pub(crate) fn listen(address: &Address, shared: bool, nonblocking: bool) -> io::Result<OwnedFd> {
    let raw = RawAddress::new(address)?;
    let fd = stream_socket(raw.family(), nonblocking)?;
    if matches!(address, Address::Tcp(_)) {
        set_option(&fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
        // Accepted sockets inherit both options, which saves two system calls for each.
        set_option(&fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1)?;
        set_option(&fd, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, UNSENT_MAX)?;
        if shared {
            set_option(&fd, libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)?;
        }
    }
    accept_both_families(&fd, &raw)?;
    bind(&fd, &raw)?;
    start_listening(&fd)?;
    Ok(fd)
}

/// An IPv6 address means IPv4 as well.
fn accept_both_families(fd: &OwnedFd, address: &RawAddress) -> io::Result<()> {
    match address.family() {
        libc::AF_INET6 => set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 0),
        _ => Ok(()),
    }
}

/// Opens a socket for connecting to `address`.
pub(super) fn open(address: &Address, nonblocking: bool) -> io::Result<Handle> {
    let fd = stream_socket(RawAddress::new(address)?.family(), nonblocking)?;
    match address {
        Address::Tcp(_) => set_option(&fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1)?,
        Address::Unix(_) if !nonblocking => fail_if_queue_is_full(&fd)?,
        Address::Unix(_) => {}
    }
    Ok(Handle::of(fd.into_raw_fd()))
}

/// Binds and listens for one of several cores: with `SO_REUSEPORT`, or with a duplicate of the unix
/// socket.
pub(super) fn listen_for_core(address: &Address, nonblocking: bool) -> io::Result<Listening> {
    let (fd, unix) = match address {
        Address::Tcp(_) => (listen(address, true, nonblocking)?, None),
        Address::Unix(path) => {
            let unix = unix::shared(path)?;
            let fd = unix.fd.try_clone()?;
            set_nonblocking(&fd, nonblocking)?;
            (fd, Some(unix))
        }
    };
    let bound = local(fd.as_raw_fd())?;
    Ok(Listening {
        address: bound.map_or_else(|| address.clone(), Address::Tcp),
        handle: Handle::of(fd.into_raw_fd()),
        unix,
    })
}

/// [`try_reserve`], repeated for [`RELEASE_WAIT_MAX`] while the address is in use.
pub(crate) fn reserve(address: &Address) -> io::Result<Reserved> {
    let end = Instant::now() + RELEASE_WAIT_MAX;
    loop {
        match try_reserve(address) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < end => {
                thread::sleep(RELEASE_CHECK);
            }
            reserved => return reserved,
        }
    }
}

/// An address with the actual port, and what keeps it until the cores listen.
pub(crate) type Reserved = (Address, Keeper);

/// The holder of an address until the cores listen.
#[derive(Debug)]
pub(crate) enum Keeper {
    /// A socket with the port, which does not listen.
    Port { _socket: OwnedHandle },
    /// The listener that the cores will share.
    Path(Arc<UnixListener>),
}

/// Checks that no other socket listens on `address`, and replaces port 0 by a free one.
///
/// A listening socket finds out whether another one has the port, which one with `SO_REUSEPORT` does not.
/// A bound socket that does not listen then keeps the port: sockets with `SO_REUSEPORT` can bind it too,
/// the kernel gives it to nobody who asks for a free one, and no connection reaches it.
pub(crate) fn try_reserve(address: &Address) -> io::Result<Reserved> {
    if let Address::Unix(path) = address {
        return unix::bind(path, None).map(|listener| (address.clone(), Keeper::Path(listener)));
    }
    let exclusive = listen(address, false, true)?;
    let bound = local(exclusive.as_raw_fd())?;
    let address = bound.map_or_else(|| address.clone(), Address::Tcp);
    set_option(&exclusive, libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)?;
    reserve_shared(&address)
}

/// Keeps the path of a unix socket that only the user of this process can connect to.
pub(crate) fn try_reserve_private(path: &Arc<PathBuf>) -> io::Result<Reserved> {
    const MODE: u32 = 0o600;
    let listener = unix::bind(path, Some(MODE))?;
    Ok((Address::Unix(Arc::clone(path)), Keeper::Path(listener)))
}

/// Has a listening TCP socket drop SYN, with which connections begin; a client tries again after a second.
pub(super) fn refuse_new(fd: RawFd) {
    /// Where the flags of the TCP header are, and SYN among them (RFC 9293, section 3.1).
    const FLAGS: u32 = 13;
    const SYN: u32 = 0x02;
    let mut program = [
        instruction(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, 0, 0, FLAGS),
        instruction(libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K, 0, 1, SYN),
        instruction(libc::BPF_RET | libc::BPF_K, 0, 0, 0),
        instruction(libc::BPF_RET | libc::BPF_K, 0, 0, u32::MAX),
    ];
    // If the kernel refuses, those that connect in the last moment are reset.
    attach(&fd, libc::SO_ATTACH_FILTER, &mut program);
}

/// Keeps an address, which other sockets with `SO_REUSEPORT` may have.
pub(crate) fn reserve_shared(address: &Address) -> io::Result<Reserved> {
    let raw = RawAddress::new(address)?;
    let keeper = stream_socket(raw.family(), true)?;
    set_option(&keeper, libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)?;
    accept_both_families(&keeper, &raw)?;
    // Connections of a server that ran here before do not keep the address; without the option afterwards, nobody
    // else can bind it.
    set_option(&keeper, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
    bind(&keeper, &raw)?;
    set_option(&keeper, libc::SOL_SOCKET, libc::SO_REUSEADDR, 0)?;
    let socket = OwnedHandle::of(Handle::of(keeper.into_raw_fd()));
    Ok((address.clone(), Keeper::Port { _socket: socket }))
}

/// The peer's IP address; `None` on a unix socket. On a socket for both families an IPv4 address has the
/// form `::ffff:192.0.2.1`, which people and filters of logs do not expect.
pub(super) fn peer(fd: RawFd) -> io::Result<Option<SocketAddr>> {
    let address = RawAddress::of_socket(fd, libc::getpeername)?.to_ip();
    Ok(address.map(|address| SocketAddr::new(address.ip().to_canonical(), address.port())))
}

/// Whether bytes have arrived that were not received. FIN and errors are none.
pub(super) fn has_input(fd: RawFd) -> bool {
    let mut byte = 0_u8;
    let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
    // SAFETY: one byte into a live variable; a bad descriptor is an error, not a fault.
    unsafe { libc::recv(fd, (&raw mut byte).cast(), 1, flags) > 0 }
}

/// Eight random bytes from the operating system. If `getrandom` fails, the address of a local variable
/// still differs between processes, which suffices for jitter.
pub(super) fn entropy() -> u64 {
    let mut bytes = [0u8; 8];
    // SAFETY: eight bytes into a live array.
    unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    u64::from_ne_bytes(bytes) ^ (&raw const bytes).addr() as u64
}

/// Has connecting to a unix socket whose queue is full fail with EAGAIN, as in non-blocking mode.
/// Otherwise a worker of io_uring would wait for room. The timeout is a tick of the kernel's clock. It
/// does not concern sends, which io_uring starts without waiting.
fn fail_if_queue_is_full(fd: &impl AsRawFd) -> io::Result<()> {
    let shortest = libc::timeval {
        tv_sec: 0,
        tv_usec: 1,
    };
    set_option(fd, libc::SOL_SOCKET, libc::SO_SNDTIMEO, shortest)
}

/// Sends FIN. Errors are ignored, because receiving reports a broken connection.
pub(crate) fn shutdown_write(fd: RawFd) {
    // SAFETY: a plain system call; a bad descriptor is an error, not a fault.
    unsafe { libc::shutdown(fd, libc::SHUT_WR) };
}

/// Makes the next close send RST.
pub(crate) fn linger_zero(fd: RawFd) {
    let linger = libc::linger {
        l_onoff: 1,
        l_linger: 0,
    };
    let len = size_of::<libc::linger>() as libc::socklen_t;
    let value = (&raw const linger).cast();
    // SAFETY: the value is live, and its length is right.
    unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_LINGER, value, len) };
}

/// Closes a descriptor that no operation uses.
pub(crate) fn close(fd: RawFd) {
    // SAFETY: the caller owns the descriptor and does not use it afterwards.
    drop(unsafe { OwnedFd::from_raw_fd(fd) });
}
