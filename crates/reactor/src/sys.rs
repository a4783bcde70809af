//! System calls on sockets that both drivers need, as functions that return `io::Result`.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use crate::socket::{Address, RawAddress};

/// Connections that may wait to be accepted; the kernel lowers it to `somaxconn`.
const BACKLOG: libc::c_int = 65_535;

/// Bytes of an accepted connection that the kernel takes beyond what the peer's window lets it send.
/// Without a limit a peer that reads nothing can have it keep 4 MiB (`tcp_wmem`).
const UNSENT_MAX: libc::c_int = 256 * 1024;

/// Descriptors that the process's table has room for from the start, at 8 bytes each.
const DESCRIPTORS_AT_ONCE: u64 = 65_536;

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// A new stream socket for an address of this family.
pub(crate) fn stream_socket(family: libc::c_int, nonblocking: bool) -> io::Result<OwnedFd> {
    let flags = libc::SOCK_CLOEXEC | if nonblocking { libc::SOCK_NONBLOCK } else { 0 };
    // SAFETY: a plain system call; the descriptor it returns is ours alone.
    unsafe {
        let fd = check(libc::socket(family, libc::SOCK_STREAM | flags, 0))?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// Binds and listens. With `shared`, every core can bind the same address.
pub(crate) fn listen(address: &Address, shared: bool, nonblocking: bool) -> io::Result<OwnedFd> {
    let raw = RawAddress::new(address)?;
    let fd = stream_socket(raw.family(), nonblocking)?;
    if matches!(address, Address::Tcp(_)) {
        set_option(&fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
        // Accepted sockets inherit both, which saves system calls for each.
        set_option(&fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1)?;
        set_option(&fd, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, UNSENT_MAX)?;
        if shared {
            set_option(&fd, libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)?;
        }
    }
    if raw.family() == libc::AF_INET6 {
        set_option(&fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 0)?;
    }
    // SAFETY: the address is live and as long as it says.
    check(unsafe { libc::bind(fd.as_raw_fd(), raw.as_ptr(), raw.len()) })?;
    // SAFETY: a plain system call on a descriptor of ours.
    check(unsafe { libc::listen(fd.as_raw_fd(), BACKLOG) })?;
    Ok(fd)
}

/// Whether a connection can be made at once. One that would have to wait is an error,
/// `WouldBlock`.
pub(crate) fn try_connect(address: &Address) -> io::Result<()> {
    let raw = RawAddress::new(address)?;
    let fd = stream_socket(raw.family(), true)?;
    // SAFETY: the address is live and as long as it says.
    check(unsafe { libc::connect(fd.as_raw_fd(), raw.as_ptr(), raw.len()) }).map(drop)
}

/// Chooses whether calls on `fd`, and on its duplicates, wait.
pub(crate) fn set_nonblocking(fd: &impl AsRawFd, nonblocking: bool) -> io::Result<()> {
    // SAFETY: plain system calls on a descriptor of ours.
    unsafe {
        let flags = check(libc::fcntl(fd.as_raw_fd(), libc::F_GETFL))? & !libc::O_NONBLOCK;
        let wanted = if nonblocking { libc::O_NONBLOCK } else { 0 };
        check(libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags | wanted)).map(drop)
    }
}

/// Sets an integer socket option.
pub(crate) fn set_option(
    fd: &impl AsRawFd,
    level: libc::c_int,
    name: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    let len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the value is live and as long as it says.
    let set =
        unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const value).cast(), len) };
    check(set).map(drop)
}

/// The pending error of a socket, which reading clears.
pub(crate) fn take_error(fd: RawFd) -> i32 {
    let mut error: libc::c_int = 0;
    let mut len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: value and length are live and belong together.
    let got = unsafe {
        libc::getsockopt(
            fd,
            libc::SOL_SOCKET,
            libc::SO_ERROR,
            (&raw mut error).cast(),
            &raw mut len,
        )
    };
    if got < 0 { libc::EBADF } else { error }
}

/// Sends FIN. An error means that the connection is gone, which receiving reports.
pub(crate) fn shutdown_write(fd: RawFd) {
    // SAFETY: a plain system call; a bad descriptor is an error, not a fault.
    unsafe { libc::shutdown(fd, libc::SHUT_WR) };
}

/// Makes the coming close send RST.
pub(crate) fn linger_zero(fd: RawFd) {
    let linger = libc::linger {
        l_onoff: 1,
        l_linger: 0,
    };
    let len = size_of::<libc::linger>() as libc::socklen_t;
    let value = (&raw const linger).cast();
    // SAFETY: the value is live and as long as it says.
    unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_LINGER, value, len) };
}

/// Closes a descriptor that no operation uses any more.
pub(crate) fn close(fd: RawFd) {
    // SAFETY: the caller gives up the descriptor with this call.
    drop(unsafe { OwnedFd::from_raw_fd(fd) });
}

/// Has the kernel enlarge the process's table of descriptors now.
///
/// While a process has several threads it waits for all processors each time that the table doubles
/// (`synchronize_rcu`): 10 to 40 ms, in which a core that accepts or connects serves nobody.
pub(crate) fn enlarge_descriptor_table() {
    let last = nofile().rlim_cur.min(DESCRIPTORS_AT_ONCE).saturating_sub(1);
    let Ok(last) = libc::c_int::try_from(last) else {
        return;
    };
    let Ok(any) = stream_socket(libc::AF_UNIX, false) else {
        return;
    };
    // SAFETY: a plain system call; the descriptor it returns is ours alone. The table stays large.
    unsafe {
        let highest = libc::fcntl(any.as_raw_fd(), libc::F_DUPFD_CLOEXEC, last);
        if highest >= 0 {
            drop(OwnedFd::from_raw_fd(highest));
        }
    }
}

fn nofile() -> libc::rlimit {
    let mut limit = libc::rlimit {
        rlim_cur: 1024,
        rlim_max: 1024,
    };
    // SAFETY: the structure is live, and the call only writes it.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    limit
}

/// Lifts the soft limit of descriptors to the hard one and returns it.
pub(crate) fn raise_nofile() -> u64 {
    let mut limit = nofile();
    let soft = limit.rlim_cur;
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: the structure is live, and the call only reads it.
    match unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } {
        0 => limit.rlim_max,
        _ => soft,
    }
}

/// The processors that this thread may run on.
pub(crate) fn processors() -> Vec<usize> {
    // SAFETY: all zeros is an empty set; the call fills it.
    let set = unsafe {
        let mut set: libc::cpu_set_t = mem::zeroed();
        if libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) < 0 {
            return vec![0];
        }
        set
    };
    let all = 0..libc::CPU_SETSIZE as usize;
    // SAFETY: every index is below the size of the set.
    all.filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) })
        .collect()
}

/// Pins the calling thread to one processor.
pub(crate) fn pin_to(processor: usize) -> io::Result<()> {
    run_on(&[processor])
}

/// Lets the calling thread run on these processors only.
pub(crate) fn run_on(processors: &[usize]) -> io::Result<()> {
    let inside = |&processor: &usize| processor < libc::CPU_SETSIZE as usize;
    assert!(processors.iter().all(inside), "they came from `processors`");
    // SAFETY: the set is live and every index is inside it.
    let pinned = unsafe {
        let mut set: libc::cpu_set_t = mem::zeroed();
        processors
            .iter()
            .for_each(|&processor| libc::CPU_SET(processor, &mut set));
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set)
    };
    check(pinned).map(drop)
}
