//! The physical limit of datagrams: a bare ring that sends every batch back as it came (GRO and GSO).
//!
//! It uses no code of the reactor, because the reactor is measured against it; `echo_datagrams` is the same
//! with the reactor, and generates the load.
//!
//! ```text
//! limit_datagrams [--listen ADDR]
//! ```
//!
//! SIGTERM or SIGINT ends it; its last line on standard error is a JSON object of counters.

#[allow(dead_code, reason = "the other limits use the rest")]
#[path = "limit/shared.rs"]
mod shared;

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, RawFd};
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use io_uring::types::{Fd, RecvMsgOut, SubmitArgs, Timespec};
use io_uring::{CompletionQueue, SubmissionQueue, Submitter, cqueue, opcode, squeue};

use self::shared::{
    BUFFER_GROUP, BufferRing, STOP, check, number, open_ring, passable, stop_on_signals,
};

const BUFFERS: u16 = 64;
/// A batch of 64 KiB with its address and control messages.
const BUFFER_BYTES: u32 = 64 * 1024 + 256;
/// A `sockaddr_in6`, and the control message of GRO with its padding.
const NAME_BYTES: u32 = 32;
const CONTROL_BYTES: usize = 64;

const RECEIVE: u64 = 1 << 32;
const SEND: u64 = 2 << 32;

fn main() -> ExitCode {
    match listen_address(std::env::args().skip(1)).and_then(run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("limit_datagrams: {message}");
            ExitCode::FAILURE
        }
    }
}

fn listen_address(mut arguments: impl Iterator<Item = String>) -> Result<SocketAddr, String> {
    match (arguments.next().as_deref(), arguments.next()) {
        (None, _) => Ok(SocketAddr::from(([127, 0, 0, 1], 9000))),
        (Some("--listen"), Some(address)) => number("--listen", &address),
        (Some(other), _) => Err(format!("{other} is no flag; --listen ADDR is the only one")),
    }
}

fn run(address: SocketAddr) -> Result<(), String> {
    let socket =
        UdpSocket::bind(address).map_err(|e| format!("cannot listen on {address}: {e}"))?;
    stop_on_signals();
    let counters = echo(&socket).map_err(|e| e.to_string())?;
    let Counters {
        trains,
        datagrams,
        bytes,
        enters,
    } = counters;
    eprintln!(
        "{{\"trains\":{trains},\"datagrams\":{datagrams},\"bytes\":{bytes},\"enters\":{enters}}}"
    );
    Ok(())
}

#[derive(Default)]
struct Counters {
    trains: u64,
    datagrams: u64,
    bytes: u64,
    enters: u64,
}

fn echo(socket: &UdpSocket) -> io::Result<Counters> {
    let on: i32 = 1;
    let length = size_of::<i32>() as libc::socklen_t;
    let value = (&raw const on).cast();
    // SAFETY: the option's value is an int that lives through the call.
    check(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_UDP,
            libc::UDP_GRO,
            value,
            length,
        )
    })?;
    let mut ring = open_ring()?;
    let (mut submitter, submissions, completions) = ring.split();
    submitter.register_ring_fd()?;
    let buffers = BufferRing::register(&submitter, BUFFERS, BUFFER_BYTES)?;
    let mut echo = Echo {
        fd: socket.as_raw_fd(),
        submitter,
        submissions,
        completions,
        buffers,
        sizes: receive_sizes(),
        messages: (0..BUFFERS).map(|_| Message::new()).collect(),
        sends: 0,
        counters: Counters::default(),
    };
    echo.receive()?;
    while !STOP.load(Ordering::Relaxed) {
        echo.turn()?;
    }
    Ok(echo.counters)
}

/// The sizes that a multishot receive reads from its message.
fn receive_sizes() -> Box<libc::msghdr> {
    // SAFETY: all zeros is an empty message.
    let mut sizes: libc::msghdr = unsafe { std::mem::zeroed() };
    sizes.msg_namelen = NAME_BYTES;
    sizes.msg_controllen = CONTROL_BYTES;
    Box::new(sizes)
}

/// The message of a batch that is sent back; its content and address are in a receive buffer.
struct Message {
    message: libc::msghdr,
    vector: libc::iovec,
    control: Control,
}

#[repr(C, align(8))]
struct Control([u8; 24]);

impl Message {
    fn new() -> Message {
        Message {
            // SAFETY: all zeros is an empty message.
            message: unsafe { std::mem::zeroed() },
            vector: libc::iovec {
                iov_base: std::ptr::null_mut(),
                iov_len: 0,
            },
            control: Control([0; 24]),
        }
    }

    /// Describes a batch of datagrams of `segment` bytes; 0 for a single one.
    fn describe(&mut self, name: &[u8], content: &[u8], segment: u16) -> *const libc::msghdr {
        self.vector = libc::iovec {
            iov_base: content.as_ptr().cast_mut().cast(),
            iov_len: content.len(),
        };
        self.message.msg_name = name.as_ptr().cast_mut().cast();
        self.message.msg_namelen = name.len() as libc::socklen_t;
        self.message.msg_iov = &raw mut self.vector;
        self.message.msg_iovlen = 1;
        self.message.msg_control = std::ptr::null_mut();
        self.message.msg_controllen = 0;
        if segment > 0 {
            // A `cmsghdr` of 18 bytes: length, level, type, segment size.
            self.control.0[..8].copy_from_slice(&18_usize.to_ne_bytes());
            self.control.0[8..12].copy_from_slice(&libc::SOL_UDP.to_ne_bytes());
            self.control.0[12..16].copy_from_slice(&libc::UDP_SEGMENT.to_ne_bytes());
            self.control.0[16..18].copy_from_slice(&segment.to_ne_bytes());
            self.message.msg_control = self.control.0.as_mut_ptr().cast();
            self.message.msg_controllen = self.control.0.len();
        }
        &raw const self.message
    }
}

struct Echo<'a> {
    fd: RawFd,
    submitter: Submitter<'a>,
    submissions: SubmissionQueue<'a>,
    completions: CompletionQueue<'a>,
    buffers: BufferRing,
    sizes: Box<libc::msghdr>,
    /// By the number of the buffer; never moved, because the kernel has pointers into them.
    messages: Vec<Message>,
    /// Sends pushed in this turn: their completions arrive at once and do not end the wait.
    sends: usize,
    counters: Counters,
}

impl Echo<'_> {
    /// One enter, then every completion there is.
    fn turn(&mut self) -> io::Result<()> {
        let limit = Timespec::new().sec(1);
        let args = SubmitArgs::new().timespec(&limit);
        self.submissions.sync();
        passable(self.submitter.submit_with_args(self.sends + 1, &args))?;
        self.sends = 0;
        self.counters.enters += 1;
        self.submissions.sync();
        self.completions.sync();
        let mut is_over = false;
        while let Some(completion) = self.completions.next() {
            match completion.user_data() & !0xffff_ffff {
                RECEIVE => {
                    is_over |= !cqueue::more(completion.flags());
                    self.received(&completion)?;
                }
                SEND => self.buffers.provide(completion.user_data() as u16),
                other => unreachable!("no submission carries {other:#x}"),
            }
        }
        self.completions.sync();
        self.buffers.publish();
        if is_over {
            self.receive()?;
        }
        Ok(())
    }

    fn receive(&mut self) -> io::Result<()> {
        let receive = opcode::RecvMsgMulti::new(Fd(self.fd), &raw const *self.sizes, BUFFER_GROUP)
            .build()
            .user_data(RECEIVE);
        self.push(&receive)
    }

    fn received(&mut self, completion: &cqueue::Entry) -> io::Result<()> {
        let Some(buffer) = cqueue::buffer_select(completion.flags()) else {
            return Ok(());
        };
        let len = usize::try_from(completion.result()).unwrap_or(0);
        // SAFETY: the kernel has filled as many bytes of the buffer, which is ours until it is provided again.
        let bytes = unsafe { std::slice::from_raw_parts(self.buffers.start(buffer), len) };
        let Ok(received) = RecvMsgOut::parse(bytes, &self.sizes) else {
            self.buffers.provide(buffer);
            return Ok(());
        };
        let content = received.payload_data();
        let segment = segment_bytes(received.control_data());
        self.counters.trains += 1;
        self.counters.bytes += content.len() as u64;
        self.counters.datagrams += match segment {
            0 => 1,
            segment => content.len().div_ceil(usize::from(segment)) as u64,
        };
        let message = &mut self.messages[usize::from(buffer)];
        let message = message.describe(received.name_data(), content, segment);
        let send = opcode::SendMsg::new(Fd(self.fd), message).build();
        self.sends += 1;
        self.push(&send.user_data(SEND | u64::from(buffer)))
    }

    fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        // SAFETY: what an entry points at is boxed or in a buffer, and stays until its completion.
        while unsafe { self.submissions.push(entry) }.is_err() {
            self.submissions.sync();
            passable(self.submitter.submit())?;
            self.counters.enters += 1;
            self.submissions.sync();
        }
        Ok(())
    }
}

/// The size in the only control message, which is that of GRO; 0 without one.
fn segment_bytes(control: &[u8]) -> u16 {
    let is_gro = control.get(12..16) == Some(&libc::UDP_GRO.to_ne_bytes()[..]);
    match control.get(16..20) {
        Some(&[a, b, c, d]) if is_gro => {
            u16::try_from(i32::from_ne_bytes([a, b, c, d])).unwrap_or(0)
        }
        _ => 0,
    }
}
