//! The physical limit of responding: a bare ring that parses nothing.
//!
//! One fixed response follows every receive, so the cost is that of the kernel and of the load. `cargo xtask bench h1`
//! compares the real servers with it. It uses no code of the reactor, because the reactor is measured against it.
//!
//! ```text
//! limit_responder [--listen ADDR] [--io uring|epoll] [--response FILE]
//!                 [--wait N] [--min-wait-us N] [--buffers N] [--buffer-bytes N]
//! ```
//!
//! SIGTERM or SIGINT ends it; its last line on standard error is a JSON object of counters.

#[path = "limit/shared.rs"]
mod shared;

use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, RawFd};
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{CompletionQueue, SubmissionQueue, Submitter, cqueue, opcode, squeue};

use self::shared::{
    BUFFER_GROUP, BufferRing, STOP, batch, check, close, listen, number, open_ring, passable,
    shut_down, stop_on_signals,
};

/// As many bytes as `/hello` of the example server; `--response` replaces it.
const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain; charset=utf-8\r\n\
    content-length: 13\r\ndate: Sun, 06 Nov 1994 08:49:37 GMT\r\n\r\nHello, World!";

/// Most responses that wait for a slow client; then the connection is dropped.
const QUEUED_RESPONSES_MAX: u32 = 64;

fn main() -> ExitCode {
    match Options::parse(std::env::args().skip(1)).and_then(|options| run(&options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("limit_responder: {message}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<(), String> {
    let listener =
        listen(options.listen).map_err(|e| format!("cannot listen on {}: {e}", options.listen))?;
    stop_on_signals();
    let mut counters = Counters::default();
    match options.io {
        Io::Uring => serve_uring(options, &listener, &mut counters),
        Io::Epoll => serve_epoll(options, &listener, &mut counters),
    }
    .map_err(|e| e.to_string())?;
    // A ring is torn down after the process has ended; until then its accept would keep the port.
    shut_down(listener.as_raw_fd(), libc::SHUT_RDWR);
    eprintln!("{}", counters.json());
    Ok(())
}

// ------------------------------------------------------------------------------- the ring

fn serve_uring(
    options: &Options,
    listener: &TcpListener,
    counters: &mut Counters,
) -> io::Result<()> {
    let mut ring = open_ring()?;
    let (mut submitter, submissions, completions) = ring.split();
    submitter.register_ring_fd()?;
    let buffers = BufferRing::register(&submitter, options.buffers, options.buffer_bytes)?;
    let mut responder = Responder {
        options,
        listener: listener.as_raw_fd(),
        submitter,
        submissions,
        completions,
        buffers,
        connections: Vec::new(),
        starved: VecDeque::new(),
        open: 0,
        sends: 0,
        counters,
    };
    responder.push(&responder.accept())?;
    while !STOP.load(Ordering::Relaxed) {
        responder.turn()?;
    }
    Ok(())
}

/// The operation of a completion: the upper half of its user data; the lower half is the descriptor.
const ACCEPT: u64 = 1 << 32;
const RECEIVE: u64 = 2 << 32;
const SEND: u64 = 3 << 32;

/// A connection, found by its descriptor. Every send points at the one response, whose memory
/// outlives the ring; only the offset of an unfinished one has to be remembered.
#[derive(Default, Clone)]
struct Connection {
    /// Responses that are not fully sent.
    owed: u32,
    /// Bytes of the current response that the kernel has taken.
    sent: usize,
    /// The client has disconnected: close when the last send has completed.
    ended: bool,
}

struct Responder<'a> {
    options: &'a Options,
    listener: RawFd,
    submitter: Submitter<'a>,
    submissions: SubmissionQueue<'a>,
    completions: CompletionQueue<'a>,
    buffers: BufferRing,
    connections: Vec<Connection>,
    /// Descriptors whose receive ended for lack of a buffer.
    starved: VecDeque<RawFd>,
    open: usize,
    /// Sends pushed in this turn: their completions arrive at once and do not end the wait.
    sends: usize,
    counters: &'a mut Counters,
}

impl Responder<'_> {
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
        while let Some(fd) = self.starved.pop_front() {
            self.push(&receive(fd))?;
        }
        Ok(())
    }

    fn complete(&mut self, completion: &cqueue::Entry) -> io::Result<()> {
        let fd = completion.user_data() as u32 as RawFd;
        match completion.user_data() & !0xffff_ffff {
            ACCEPT => self.accepted(completion),
            RECEIVE => self.received(fd, completion),
            SEND => self.sent(fd, completion.result()),
            other => unreachable!("no submission carries {other:#x}"),
        }
    }

    fn accepted(&mut self, completion: &cqueue::Entry) -> io::Result<()> {
        if let Ok(index) = usize::try_from(completion.result()) {
            if index >= self.connections.len() {
                self.connections.resize(index + 1, Connection::default());
            }
            self.connections[index] = Connection::default();
            self.open += 1;
            self.push(&receive(completion.result()))?;
        }
        if !cqueue::more(completion.flags()) {
            self.push(&self.accept())?;
        }
        Ok(())
    }

    fn received(&mut self, fd: RawFd, completion: &cqueue::Entry) -> io::Result<()> {
        // Nothing is read from the buffer, so it goes back at once.
        if let Some(buffer) = cqueue::buffer_select(completion.flags()) {
            self.buffers.provide(buffer);
        }
        let more = cqueue::more(completion.flags());
        let connection = &mut self.connections[fd as usize];
        if completion.result() > 0 {
            self.counters.requests += 1;
            connection.owed += 1;
            if connection.owed == 1 {
                self.send(fd)?;
            } else if connection.owed > QUEUED_RESPONSES_MAX {
                shut_down(fd, libc::SHUT_RDWR);
            }
            if !more {
                self.push(&receive(fd))?;
            }
        } else if completion.result() == -libc::ENOBUFS {
            self.counters.no_buffers += 1;
            self.starved.push_back(fd);
        } else {
            connection.ended = true;
            self.close_if_done(fd);
        }
        Ok(())
    }

    fn sent(&mut self, fd: RawFd, result: i32) -> io::Result<()> {
        let response = self.options.response.len();
        let connection = &mut self.connections[fd as usize];
        match usize::try_from(result) {
            Ok(bytes) if bytes > 0 => connection.sent += bytes,
            _ => {
                // The receive ends too and closes; nothing more is sent.
                shut_down(fd, libc::SHUT_RDWR);
                connection.owed = 0;
            }
        }
        if connection.sent == response {
            connection.sent = 0;
            connection.owed -= 1;
        }
        if connection.owed > 0 {
            self.send(fd)
        } else {
            self.close_if_done(fd);
            Ok(())
        }
    }

    /// Sends what is missing of the current response.
    fn send(&mut self, fd: RawFd) -> io::Result<()> {
        let rest = &self.options.response[self.connections[fd as usize].sent..];
        let send = opcode::Send::new(Fd(fd), rest.as_ptr(), rest.len() as u32)
            .flags(libc::MSG_NOSIGNAL)
            .build();
        self.sends += 1;
        self.push(&send.user_data(SEND | fd as u64))
    }

    /// A descriptor is closed only when no operation uses it, so its number cannot be confused.
    fn close_if_done(&mut self, fd: RawFd) {
        let connection = &self.connections[fd as usize];
        if connection.ended && connection.owed == 0 {
            self.open -= 1;
            close(fd);
        }
    }

    fn accept(&self) -> squeue::Entry {
        opcode::AcceptMulti::new(Fd(self.listener))
            .build()
            .user_data(ACCEPT)
    }

    fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        self.counters.sqes += 1;
        // SAFETY: what an entry points at is the response, which outlives the ring.
        while unsafe { self.submissions.push(entry) }.is_err() {
            self.submissions.sync();
            passable(self.submitter.submit())?;
            self.counters.enters += 1;
            self.submissions.sync();
        }
        Ok(())
    }
}

fn receive(fd: RawFd) -> squeue::Entry {
    opcode::RecvMulti::new(Fd(fd), BUFFER_GROUP)
        .build()
        .user_data(RECEIVE | fd as u64)
}

// ---------------------------------------------------------------------------------- epoll

fn serve_epoll(
    options: &Options,
    listener: &TcpListener,
    counters: &mut Counters,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    // SAFETY: plain system call without pointers.
    let poll = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
    watch(poll, listener.as_raw_fd())?;
    let mut events = vec![libc::epoll_event { events: 0, u64: 0 }; 512];
    let mut input = vec![0; options.buffer_bytes as usize];
    while !STOP.load(Ordering::Relaxed) {
        counters.enters += 1;
        counters.turns += 1;
        // SAFETY: `events` is valid for the count that is passed.
        let ready = unsafe { libc::epoll_wait(poll, events.as_mut_ptr(), events.len() as i32, -1) };
        let ready = match check(ready) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            other => other?,
        };
        for event in &events[..ready as usize] {
            let fd = event.u64 as RawFd;
            if fd == listener.as_raw_fd() {
                accept_all(poll, listener, counters)?;
            } else {
                let ending = event.events & (libc::EPOLLRDHUP | libc::EPOLLHUP) as u32 != 0;
                answer(fd, ending, &options.response, &mut input, counters);
            }
        }
    }
    Ok(())
}

fn accept_all(poll: RawFd, listener: &TcpListener, counters: &mut Counters) -> io::Result<()> {
    use std::os::fd::IntoRawFd;
    loop {
        counters.enters += 1;
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(true)?;
                watch(poll, stream.into_raw_fd())?;
            }
            Err(_) => return Ok(()),
        }
    }
}

/// Responds to every read until the socket is empty. A short read says so, unless a FIN waits behind it: that edge has
/// been reported and comes no second time.
fn answer(fd: RawFd, ending: bool, response: &[u8], input: &mut [u8], counters: &mut Counters) {
    loop {
        counters.enters += 1;
        // SAFETY: `input` is valid for the length that is passed.
        let got = unsafe { libc::recv(fd, input.as_mut_ptr().cast(), input.len(), 0) };
        if got < 0 && io::Error::last_os_error().kind() == io::ErrorKind::WouldBlock {
            return;
        }
        if got <= 0 {
            return close(fd);
        }
        counters.enters += 1;
        counters.requests += 1;
        let bytes = response.as_ptr().cast();
        // SAFETY: `response` is valid for its length.
        let sent = unsafe { libc::send(fd, bytes, response.len(), libc::MSG_NOSIGNAL) };
        // Clients that do not read their responses are not supported.
        if sent != response.len() as isize {
            return close(fd);
        }
        if !ending && (got as usize) < input.len() {
            return;
        }
    }
}

fn watch(poll: RawFd, fd: RawFd) -> io::Result<()> {
    let events = (libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLET) as u32;
    let mut event = libc::epoll_event {
        events,
        u64: fd as u64,
    };
    // SAFETY: the kernel copies the event before it returns.
    check(unsafe { libc::epoll_ctl(poll, libc::EPOLL_CTL_ADD, fd, &raw mut event) }).map(drop)
}

// -------------------------------------------------------------------- counters and options

#[derive(Default)]
struct Counters {
    /// Enters of the ring, or all system calls of the epoll version.
    enters: u64,
    sqes: u64,
    cqes: u64,
    turns: u64,
    requests: u64,
    no_buffers: u64,
}

impl Counters {
    fn json(&self) -> String {
        let Counters {
            enters,
            sqes,
            cqes,
            turns,
            requests,
            no_buffers,
        } = self;
        format!(
            "{{\"enters\":{enters},\"sqes\":{sqes},\"cqes\":{cqes},\"turns\":{turns},\
             \"requests\":{requests},\"no_buffers\":{no_buffers}}}"
        )
    }
}

#[derive(Clone, Copy)]
enum Io {
    Uring,
    Epoll,
}

struct Options {
    listen: SocketAddr,
    io: Io,
    response: Vec<u8>,
    wait_max: usize,
    min_wait_us: u32,
    buffers: u16,
    buffer_bytes: u32,
}

impl Options {
    fn parse(mut args: impl Iterator<Item = String>) -> Result<Options, String> {
        let mut options = Options {
            listen: SocketAddr::from(([127, 0, 0, 1], 9000)),
            io: Io::Uring,
            response: RESPONSE.to_vec(),
            wait_max: 16,
            min_wait_us: 50,
            buffers: 256,
            buffer_bytes: 2048,
        };
        while let Some(flag) = args.next() {
            let value = args.next().ok_or_else(|| format!("{flag} needs a value"))?;
            match flag.as_str() {
                "--listen" => options.listen = number(&flag, &value)?,
                "--io" => options.io = io_named(&value)?,
                "--response" => {
                    options.response =
                        std::fs::read(&value).map_err(|e| format!("{value}: {e}"))?;
                }
                "--wait" => options.wait_max = number(&flag, &value)?,
                "--min-wait-us" => options.min_wait_us = number(&flag, &value)?,
                "--buffers" => options.buffers = number(&flag, &value)?,
                "--buffer-bytes" => options.buffer_bytes = number(&flag, &value)?,
                _ => return Err(format!("there is no flag {flag}")),
            }
        }
        if !options.buffers.is_power_of_two()
            || options.wait_max == 0
            || options.response.is_empty()
        {
            return Err(
                "--buffers is a power of two; --wait and the response are not empty".into(),
            );
        }
        Ok(options)
    }
}

fn io_named(name: &str) -> Result<Io, String> {
    match name {
        "uring" => Ok(Io::Uring),
        "epoll" => Ok(Io::Epoll),
        _ => Err(format!("--io is uring or epoll, not {name}")),
    }
}
