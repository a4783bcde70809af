//! Relaying without a copy: bytes go from socket to pipe to socket by splice(2), on one thread with epoll.

use std::io::{self, ErrorKind};
use std::net::{SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::Ordering;

use super::Counters;
use super::shared::{STOP, check, shut_down};

/// The largest pipe of an unprivileged process.
const PIPE_BYTES: i32 = 1024 * 1024;
/// Rounds of reading and writing before other connections have their turn.
const ROUNDS_MAX: u32 = 8;
const EVENTS_MAX: usize = 256;
const WAIT_MS: i32 = 1000;
const LISTENER: u64 = u64::MAX;
const CLIENT: usize = 0;
const UPSTREAM: usize = 1;

/// Relays until a signal arrives.
pub(super) fn relay(to: SocketAddrV4, listener: &TcpListener) -> io::Result<Counters> {
    listener.set_nonblocking(true)?;
    // SAFETY: a system call without pointers.
    let epoll = owned(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
    watch(&epoll, listener.as_raw_fd(), libc::EPOLLIN, LISTENER)?;
    let mut relay = Relay {
        to,
        epoll,
        pairs: Vec::new(),
        unfinished: Vec::new(),
        counters: Counters::default(),
    };
    while !STOP.load(Ordering::Relaxed) {
        relay.turn(listener)?;
    }
    Ok(relay.counters)
}

struct Relay {
    to: SocketAddrV4,
    epoll: OwnedFd,
    pairs: Vec<Option<Pair>>,
    /// Pairs that have used all their rounds, with the direction.
    unfinished: Vec<(usize, usize)>,
    counters: Counters,
}

impl Relay {
    fn turn(&mut self, listener: &TcpListener) -> io::Result<()> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; EVENTS_MAX];
        let wait_ms = if self.unfinished.is_empty() {
            WAIT_MS
        } else {
            0
        };
        let (epoll, room) = (self.epoll.as_raw_fd(), EVENTS_MAX as i32);
        // SAFETY: the kernel writes at most as many events as there is room for.
        let reported = unsafe { libc::epoll_wait(epoll, events.as_mut_ptr(), room, wait_ms) };
        self.counters.turns += 1;
        self.counters.enters += 1;
        let reported = match check(reported) {
            Ok(reported) => reported as usize,
            Err(error) if error.kind() == ErrorKind::Interrupted => 0,
            Err(error) => return Err(error),
        };
        self.counters.cqes += reported as u64;
        for (index, side) in std::mem::take(&mut self.unfinished) {
            self.pump(index, side);
        }
        for event in &events[..reported] {
            if event.u64 == LISTENER {
                self.accept(listener)?;
            } else {
                self.report(event.u64 as usize, event.events as i32);
            }
        }
        Ok(())
    }

    fn accept(&mut self, listener: &TcpListener) -> io::Result<()> {
        while let Ok((client, _)) = listener.accept() {
            // The backend is on the same machine: the connection is there at once.
            let upstream = TcpStream::connect(self.to)?;
            let sockets = [client, upstream];
            let free = self.pairs.iter().position(Option::is_none);
            let index = free.unwrap_or(self.pairs.len());
            for (side, socket) in sockets.iter().enumerate() {
                socket.set_nonblocking(true)?;
                socket.set_nodelay(true)?;
                let events = libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLET;
                watch(&self.epoll, socket.as_raw_fd(), events, key(index, side))?;
            }
            let pair = Some(Pair {
                directions: [Direction::open()?, Direction::open()?],
                sockets,
            });
            match self.pairs.get_mut(index) {
                Some(place) => *place = pair,
                None => self.pairs.push(pair),
            }
        }
        Ok(())
    }

    fn report(&mut self, key: usize, events: i32) {
        let (index, side) = (key / 2, key % 2);
        let Some(pair) = &mut self.pairs[index] else {
            return;
        };
        let ended = libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR;
        let readable = events & (libc::EPOLLIN | ended) != 0;
        let writable = events & (libc::EPOLLOUT | ended) != 0;
        pair.directions[side].readable |= readable;
        pair.directions[1 - side].writable |= writable;
        if readable {
            self.pump(index, side);
        }
        if writable {
            self.pump(index, 1 - side);
        }
    }

    /// Moves the bytes that `side` has sent.
    fn pump(&mut self, index: usize, side: usize) {
        let Some(pair) = &mut self.pairs[index] else {
            return;
        };
        let [from, to] = match side {
            CLIENT => [CLIENT, UPSTREAM],
            _ => [UPSTREAM, CLIENT],
        };
        let fds = (pair.sockets[from].as_raw_fd(), pair.sockets[to].as_raw_fd());
        let moved = pair.directions[side].pump(fds, &mut self.counters);
        let is_over = pair.directions.iter().all(|direction| direction.is_shut);
        match moved {
            Ok(Progress::Waits) if !is_over => {}
            Ok(Progress::Unfinished) => self.unfinished.push((index, side)),
            // Closing the descriptors also removes them from the epoll instance.
            Ok(Progress::Waits) | Err(_) => self.pairs[index] = None,
        }
    }
}

struct Pair {
    sockets: [TcpStream; 2],
    /// By the socket that the bytes come from.
    directions: [Direction; 2],
}

enum Progress {
    /// It goes on with the next event of a socket.
    Waits,
    Unfinished,
}

struct Direction {
    output: OwnedFd,
    input: OwnedFd,
    pipe_bytes_max: usize,
    pipe_bytes: usize,
    readable: bool,
    writable: bool,
    /// The FIN of the source has arrived.
    is_ended: bool,
    /// The FIN has been passed on.
    is_shut: bool,
}

impl Direction {
    fn open() -> io::Result<Direction> {
        let mut ends = [0; 2];
        // SAFETY: the kernel writes two descriptors.
        check(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) })?;
        let [output, input] = [owned(ends[0])?, owned(ends[1])?];
        // SAFETY: system calls without pointers.
        let mut capacity =
            unsafe { libc::fcntl(input.as_raw_fd(), libc::F_SETPIPE_SZ, PIPE_BYTES) };
        if capacity < 0 {
            // The user has too many large pipes.
            // SAFETY: as above.
            capacity = check(unsafe { libc::fcntl(input.as_raw_fd(), libc::F_GETPIPE_SZ) })?;
        }
        Ok(Direction {
            output,
            input,
            pipe_bytes_max: capacity as usize,
            pipe_bytes: 0,
            readable: false,
            writable: true,
            is_ended: false,
            is_shut: false,
        })
    }

    fn pump(
        &mut self,
        (from, to): (RawFd, RawFd),
        counters: &mut Counters,
    ) -> io::Result<Progress> {
        for _ in 0..ROUNDS_MAX {
            let read = self.read(from, counters)?;
            let written = self.write(to, counters)?;
            if self.is_ended && self.pipe_bytes == 0 && !self.is_shut {
                shut_down(to, libc::SHUT_WR);
                self.is_shut = true;
            }
            if !read && !written {
                return Ok(Progress::Waits);
            }
        }
        Ok(Progress::Unfinished)
    }

    /// Moves bytes from the socket to the pipe; whether there were any.
    fn read(&mut self, from: RawFd, counters: &mut Counters) -> io::Result<bool> {
        let room = self.pipe_bytes_max - self.pipe_bytes;
        if !self.readable || self.is_ended || room == 0 {
            return Ok(false);
        }
        match splice(from, self.input.as_raw_fd(), room, counters)? {
            Some(0) => self.is_ended = true,
            Some(bytes) => {
                counters.receives += 1;
                self.pipe_bytes += bytes;
            }
            // A pipe has a limited number of pieces: it can be full with fewer bytes than its size.
            None if self.pipe_bytes > 0 => return Ok(false),
            None => {
                self.readable = false;
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Moves bytes from the pipe to the socket; whether the socket took any.
    fn write(&mut self, to: RawFd, counters: &mut Counters) -> io::Result<bool> {
        if !self.writable || self.pipe_bytes == 0 {
            return Ok(false);
        }
        let Some(bytes) = splice(self.output.as_raw_fd(), to, self.pipe_bytes, counters)? else {
            self.writable = false;
            return Ok(false);
        };
        counters.sends += 1;
        self.pipe_bytes -= bytes;
        Ok(true)
    }
}

/// Moves up to `bytes`; `None` if the source has none or the destination takes none now.
fn splice(
    from: RawFd,
    to: RawFd,
    bytes: usize,
    counters: &mut Counters,
) -> io::Result<Option<usize>> {
    counters.enters += 1;
    let (none, flags) = (
        std::ptr::null_mut(),
        libc::SPLICE_F_NONBLOCK | libc::SPLICE_F_MOVE,
    );
    // SAFETY: sockets and pipes have no offsets, so both pointers are null.
    let moved = unsafe { libc::splice(from, none, to, none, bytes, flags) };
    if moved >= 0 {
        return Ok(Some(moved as usize));
    }
    match io::Error::last_os_error() {
        error if error.kind() == ErrorKind::WouldBlock => Ok(None),
        error => Err(error),
    }
}

fn key(index: usize, side: usize) -> u64 {
    (index * 2 + side) as u64
}

fn watch(epoll: &OwnedFd, fd: RawFd, events: i32, key: u64) -> io::Result<()> {
    let mut event = libc::epoll_event {
        events: events as u32,
        u64: key,
    };
    let add = libc::EPOLL_CTL_ADD;
    // SAFETY: the event lives through the call.
    check(unsafe { libc::epoll_ctl(epoll.as_raw_fd(), add, fd, &raw mut event) })?;
    Ok(())
}

fn owned(result: RawFd) -> io::Result<OwnedFd> {
    let fd = check(result)?;
    // SAFETY: the descriptor is new and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
