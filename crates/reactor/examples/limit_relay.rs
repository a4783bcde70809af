//! The physical limit of relaying: a bare ring that forwards bytes and parses nothing.
//!
//! Each client has one connection to the backend. Bytes of either side are sent to the other from the
//! buffer that they were received into. `cargo xtask bench h1` and `bulk` compare the proxies with it. It
//! uses no code of the reactor, because the reactor is measured against it.
//!
//! ```text
//! limit_relay [--listen ADDR] [--to ADDR]
//!             [--wait N] [--min-wait-us N] [--buffers N] [--buffer-bytes N]
//!             [--receive multishot|single] [--splice on|off]
//! ```
//!
//! With `--receive single`, a socket receives again when the bytes before have been sent. With `--splice on`, pipes
//! replace ring and buffers, and only the addresses apply.
//!
//! SIGTERM or SIGINT ends it; its last line on standard error is a JSON object of counters.

#[path = "limit/shared.rs"]
mod shared;
#[path = "limit/splice.rs"]
mod splice;

use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, SocketAddrV4, TcpListener};
use std::os::fd::{AsRawFd, RawFd};
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{CompletionQueue, SubmissionQueue, Submitter, cqueue, opcode, squeue};

use self::shared::{
    BUFFER_GROUP, BufferRing, STOP, batch, check, close, listen, number, open_ring, passable,
    send_at_once, shut_down, stop_on_signals,
};

fn main() -> ExitCode {
    match Options::parse(std::env::args().skip(1)).and_then(|options| run(&options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("limit_relay: {message}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<(), String> {
    let listener =
        listen(options.listen).map_err(|e| format!("cannot listen on {}: {e}", options.listen))?;
    stop_on_signals();
    let counters = if options.splice {
        splice::relay(options.to, &listener)
    } else {
        relay(options, &listener)
    };
    let counters = counters.map_err(|e| e.to_string())?;
    // A ring is torn down after the process has ended; until then its accept would keep the port.
    shut_down(listener.as_raw_fd(), libc::SHUT_RDWR);
    eprintln!("{}", counters.json());
    Ok(())
}

fn relay(options: &Options, listener: &TcpListener) -> io::Result<Counters> {
    let mut ring = open_ring()?;
    let (mut submitter, submissions, completions) = ring.split();
    submitter.register_ring_fd()?;
    let buffers = BufferRing::register(&submitter, options.buffers, options.buffer_bytes)?;
    let mut relay = Relay {
        options,
        backend: sockaddr(options.to),
        listener: listener.as_raw_fd(),
        submitter,
        submissions,
        completions,
        buffers,
        free_buffers: options.buffers,
        sides: Vec::new(),
        starved: VecDeque::new(),
        open: 0,
        sends: 0,
        counters: Counters::default(),
    };
    relay.push(&relay.accept())?;
    while !STOP.load(Ordering::Relaxed) {
        relay.turn()?;
    }
    Ok(relay.counters)
}

/// The operation of a completion: the upper half of its user data; the lower half is the descriptor.
const ACCEPT: u64 = 1 << 32;
const CONNECT: u64 = 2 << 32;
const RECEIVE: u64 = 3 << 32;
const SEND: u64 = 4 << 32;

/// Received bytes to send.
#[derive(Clone, Copy)]
struct Piece {
    buffer: u16,
    offset: u32,
    length: u32,
}

/// One socket of a pair, found by its descriptor.
#[derive(Default)]
struct Side {
    peer: RawFd,
    /// The send queue of this socket; the first is being sent.
    queue: VecDeque<Piece>,
    /// A receive, or the connecting before it, is under way.
    receiving: bool,
    /// No more bytes will arrive: FIN or an error was received.
    ended: bool,
    /// The pair is being torn down: nothing more is sent.
    broken: bool,
}

struct Relay<'a> {
    options: &'a Options,
    backend: libc::sockaddr_in,
    listener: RawFd,
    submitter: Submitter<'a>,
    submissions: SubmissionQueue<'a>,
    completions: CompletionQueue<'a>,
    buffers: BufferRing,
    /// Buffers that the kernel holds.
    free_buffers: u16,
    sides: Vec<Side>,
    /// Descriptors whose receive ended for lack of a buffer.
    starved: VecDeque<RawFd>,
    /// Pairs that are open.
    open: usize,
    /// Sends pushed in this turn: their completions arrive at once and do not end the wait.
    sends: usize,
    counters: Counters,
}

impl Relay<'_> {
    /// One enter, then every completion there is.
    fn turn(&mut self) -> io::Result<()> {
        let want = self.sends + batch(self.open, self.options.wait_max);
        let limit = Timespec::new().sec(1);
        // Without a timespec the kernel returns at every minimum wait, events or none.
        let mut args = SubmitArgs::new().timespec(&limit);
        if want > 1 {
            // One send that waits for its client must not delay all others.
            args = args.min_wait_usec(self.options.min_wait_us);
        }
        self.submissions.sync();
        let entered = self.submitter.submit_with_args(want, &args);
        passable(entered)?;
        self.sends = 0;
        self.counters.enters += 1;
        self.counters.turns += 1;
        self.submissions.sync();
        self.completions.sync();
        while let Some(completion) = self.completions.next() {
            self.counters.cqes += 1;
            self.complete(&completion)?;
        }
        self.completions.sync();
        self.buffers.publish();
        // Only as many as can be served: the others would fail again and spin.
        for _ in 0..self.starved.len().min(usize::from(self.free_buffers)) {
            if let Some(fd) = self.starved.pop_front() {
                self.receive(fd)?;
            }
        }
        Ok(())
    }

    fn complete(&mut self, completion: &cqueue::Entry) -> io::Result<()> {
        let fd = completion.user_data() as u32 as RawFd;
        match completion.user_data() & !0xffff_ffff {
            ACCEPT => self.accepted(completion),
            CONNECT => self.connected(fd, completion.result()),
            RECEIVE => self.received(fd, completion),
            SEND => self.sent(fd, completion.result()),
            other => unreachable!("no submission carries {other:#x}"),
        }
    }

    fn accepted(&mut self, completion: &cqueue::Entry) -> io::Result<()> {
        if completion.result() >= 0 {
            self.pair(completion.result())?;
        }
        if !cqueue::more(completion.flags()) {
            self.push(&self.accept())?;
        }
        Ok(())
    }

    /// Opens the client's connection to the backend. The client's bytes wait in its socket.
    fn pair(&mut self, client: RawFd) -> io::Result<()> {
        let flags = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
        // SAFETY: a system call without pointers.
        let Ok(upstream) = check(unsafe { libc::socket(libc::AF_INET, flags, 0) }) else {
            close(client);
            return Ok(());
        };
        send_at_once(upstream)?;
        let highest = client.max(upstream) as usize;
        if highest >= self.sides.len() {
            self.sides.resize_with(highest + 1, Side::default);
        }
        self.sides[client as usize] = Side {
            peer: upstream,
            ..Side::default()
        };
        self.sides[upstream as usize] = Side {
            peer: client,
            receiving: true,
            ..Side::default()
        };
        self.open += 1;
        let length = size_of::<libc::sockaddr_in>() as libc::socklen_t;
        let address = (&raw const self.backend).cast();
        let connect = opcode::Connect::new(Fd(upstream), address, length).build();
        self.push(&connect.user_data(CONNECT | upstream as u64))
    }

    fn connected(&mut self, upstream: RawFd, result: i32) -> io::Result<()> {
        self.side(upstream).receiving = false;
        if result < 0 {
            self.break_pair(upstream);
            return Ok(());
        }
        let client = self.side(upstream).peer;
        self.receive(upstream)?;
        self.receive(client)
    }

    fn received(&mut self, fd: RawFd, completion: &cqueue::Entry) -> io::Result<()> {
        let more = cqueue::more(completion.flags());
        self.side(fd).receiving = more;
        let peer = self.side(fd).peer;
        if let Some(buffer) = cqueue::buffer_select(completion.flags()) {
            self.free_buffers -= 1;
            if completion.result() <= 0 || self.side(peer).broken {
                self.provide(buffer);
            } else {
                let length = completion.result() as u32;
                self.counters.receives += 1;
                self.forward(
                    peer,
                    Piece {
                        buffer,
                        offset: 0,
                        length,
                    },
                )?;
            }
        }
        match completion.result() {
            _ if more => Ok(()),
            // `sent` receives again.
            1.. if self.options.receive == Receive::Single && !self.side(peer).broken => Ok(()),
            1.. => self.receive(fd),
            0 => {
                self.side(fd).ended = true;
                self.end(fd)
            }
            error if error == -libc::ENOBUFS => {
                self.counters.no_buffers += 1;
                self.side(fd).receiving = true;
                self.starved.push_back(fd);
                Ok(())
            }
            _ => {
                self.side(fd).ended = true;
                self.break_pair(fd);
                Ok(())
            }
        }
    }

    /// Forwards FIN after the bytes before it.
    fn end(&mut self, fd: RawFd) -> io::Result<()> {
        let peer = self.side(fd).peer;
        if self.side(peer).queue.is_empty() {
            shut_down(peer, libc::SHUT_WR);
        }
        self.close_if_done(fd);
        Ok(())
    }

    fn forward(&mut self, to: RawFd, piece: Piece) -> io::Result<()> {
        let side = self.side(to);
        side.queue.push_back(piece);
        if side.queue.len() == 1 {
            self.send(to, piece)
        } else {
            Ok(())
        }
    }

    fn send(&mut self, fd: RawFd, piece: Piece) -> io::Result<()> {
        // SAFETY: the piece lies in its buffer, which is not provided again before `sent`.
        let bytes = unsafe { self.buffers.start(piece.buffer).add(piece.offset as usize) };
        let send = opcode::Send::new(Fd(fd), bytes, piece.length)
            .flags(libc::MSG_NOSIGNAL)
            .build();
        self.sends += 1;
        self.push(&send.user_data(SEND | fd as u64))
    }

    fn sent(&mut self, fd: RawFd, result: i32) -> io::Result<()> {
        let Some(mut piece) = self.side(fd).queue.pop_front() else {
            unreachable!("every completion of a send has a send");
        };
        if !self.side(fd).broken && result > 0 && (result as u32) < piece.length {
            self.counters.sends += 1;
            piece.offset += result as u32;
            piece.length -= result as u32;
            self.side(fd).queue.push_front(piece);
            return self.send(fd, piece);
        }
        self.counters.sends += 1;
        self.provide(piece.buffer);
        if result <= 0 {
            self.reset_pair(fd);
        }
        if self.side(fd).broken {
            while let Some(piece) = self.side(fd).queue.pop_front() {
                self.provide(piece.buffer);
            }
        }
        if let Some(&next) = self.side(fd).queue.front() {
            return self.send(fd, next);
        }
        let peer = self.side(fd).peer;
        match self.side(peer) {
            Side {
                receiving: true, ..
            } => Ok(()),
            Side {
                ended: false,
                broken: false,
                ..
            } => self.receive(peer),
            _ => self.end(peer),
        }
    }

    fn break_pair(&mut self, fd: RawFd) {
        self.reset_pair(fd);
        self.close_if_done(fd);
    }

    /// Ends both directions; the receives that are under way end by it.
    fn reset_pair(&mut self, fd: RawFd) {
        let peer = self.side(fd).peer;
        for fd in [fd, peer] {
            self.side(fd).broken = true;
            reset_on_close(fd);
            shut_down(fd, libc::SHUT_RDWR);
        }
    }

    /// Descriptors are closed only when no operation uses them, so no number can be confused.
    fn close_if_done(&mut self, fd: RawFd) {
        let pair = [fd, self.side(fd).peer];
        let done = |side: &Side| !side.receiving && side.queue.is_empty();
        if pair.iter().all(|&fd| done(&self.sides[fd as usize])) {
            self.open -= 1;
            pair.into_iter().for_each(close);
        }
    }

    /// Returns a buffer to the kernel.
    fn provide(&mut self, buffer: u16) {
        self.buffers.provide(buffer);
        self.free_buffers += 1;
    }

    fn side(&mut self, fd: RawFd) -> &mut Side {
        &mut self.sides[fd as usize]
    }

    fn receive(&mut self, fd: RawFd) -> io::Result<()> {
        self.side(fd).receiving = true;
        let receive = match self.options.receive {
            Receive::Multishot => opcode::RecvMulti::new(Fd(fd), BUFFER_GROUP).build(),
            Receive::Single => opcode::Recv::new(Fd(fd), std::ptr::null_mut(), 0)
                .buf_group(BUFFER_GROUP)
                .build()
                .flags(squeue::Flags::BUFFER_SELECT),
        };
        self.push(&receive.user_data(RECEIVE | fd as u64))
    }

    fn accept(&self) -> squeue::Entry {
        opcode::AcceptMulti::new(Fd(self.listener))
            .build()
            .user_data(ACCEPT)
    }

    fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        self.counters.sqes += 1;
        // SAFETY: entries point at receive buffers, held until the send has completed, and at the
        // backend's address; both outlive the ring's use of them.
        while unsafe { self.submissions.push(entry) }.is_err() {
            self.submissions.sync();
            passable(self.submitter.submit())?;
            self.counters.enters += 1;
            self.submissions.sync();
        }
        Ok(())
    }
}

/// Closing will reset the connection, so that a peer whose send waits for window notices it at once.
fn reset_on_close(fd: RawFd) {
    let linger = libc::linger {
        l_onoff: 1,
        l_linger: 0,
    };
    let length = size_of::<libc::linger>() as libc::socklen_t;
    let value = (&raw const linger).cast();
    // SAFETY: the option's value lives through the call; after an error the connection ends as usual.
    unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_LINGER, value, length) };
}

// -------------------------------------------------------------------- counters and options

fn sockaddr(address: SocketAddrV4) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: address.port().to_be(),
        sin_addr: libc::in_addr {
            s_addr: u32::from(*address.ip()).to_be(),
        },
        sin_zero: [0; 8],
    }
}

#[derive(Default)]
struct Counters {
    enters: u64,
    sqes: u64,
    cqes: u64,
    turns: u64,
    receives: u64,
    sends: u64,
    no_buffers: u64,
}

impl Counters {
    fn json(&self) -> String {
        let Counters {
            enters,
            sqes,
            cqes,
            turns,
            receives,
            sends,
            no_buffers,
        } = self;
        format!(
            "{{\"enters\":{enters},\"sqes\":{sqes},\"cqes\":{cqes},\"turns\":{turns},\
             \"receives\":{receives},\"sends\":{sends},\"no_buffers\":{no_buffers}}}"
        )
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Receive {
    Multishot,
    Single,
}

struct Options {
    listen: SocketAddr,
    to: SocketAddrV4,
    wait_max: usize,
    min_wait_us: u32,
    buffers: u16,
    buffer_bytes: u32,
    receive: Receive,
    splice: bool,
}

impl Options {
    fn parse(mut args: impl Iterator<Item = String>) -> Result<Options, String> {
        let mut options = Options {
            listen: SocketAddr::from(([127, 0, 0, 1], 9001)),
            to: SocketAddrV4::new([127, 0, 0, 1].into(), 9000),
            wait_max: 16,
            min_wait_us: 50,
            buffers: 1024,
            buffer_bytes: 4096,
            receive: Receive::Multishot,
            splice: false,
        };
        while let Some(flag) = args.next() {
            let value = args.next().ok_or_else(|| format!("{flag} needs a value"))?;
            match flag.as_str() {
                "--listen" => options.listen = number(&flag, &value)?,
                "--to" => options.to = number(&flag, &value)?,
                "--wait" => options.wait_max = number(&flag, &value)?,
                "--min-wait-us" => options.min_wait_us = number(&flag, &value)?,
                "--buffers" => options.buffers = number(&flag, &value)?,
                "--buffer-bytes" => options.buffer_bytes = number(&flag, &value)?,
                "--receive" => {
                    options.receive = match value.as_str() {
                        "multishot" => Receive::Multishot,
                        "single" => Receive::Single,
                        _ => return Err(format!("{flag} does not take {value}")),
                    }
                }
                "--splice" => {
                    options.splice = match value.as_str() {
                        "on" => true,
                        "off" => false,
                        _ => return Err(format!("{flag} does not take {value}")),
                    }
                }
                _ => return Err(format!("there is no flag {flag}")),
            }
        }
        if !options.buffers.is_power_of_two() || options.wait_max == 0 {
            return Err("--buffers is a power of two and --wait at least 1".to_owned());
        }
        Ok(options)
    }
}
