//! The parts that the limits of responding and of relaying share: ring, buffers, signals, sockets.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};

use io_uring::types::BufRingEntry;
use io_uring::{IoUring, Submitter};

const BACKLOG: i32 = 4096;
const SUBMISSIONS: u32 = 1024;
const COMPLETIONS: u32 = 8192;
pub(super) const BUFFER_GROUP: u16 = 0;

pub(super) fn open_ring() -> io::Result<IoUring> {
    IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_submit_all()
        .setup_no_sqarray()
        .setup_cqsize(COMPLETIONS)
        .build(SUBMISSIONS)
}

/// How many receives to wait for: more than one only if many clients are there to send them,
/// because with a single client every enter would last the minimum wait.
pub(super) fn batch(open: usize, wait_max: usize) -> usize {
    (open / 6).clamp(1, wait_max)
}

/// Errors of an enter that only mean "look at the completions".
pub(super) fn passable(entered: io::Result<usize>) -> io::Result<()> {
    match entered.map_err(|e| (e.raw_os_error(), e)) {
        Ok(_) => Ok(()),
        Err((Some(libc::EINTR | libc::ETIME | libc::EBUSY | libc::EAGAIN), _)) => Ok(()),
        Err((_, error)) => Err(error),
    }
}

/// Receive buffers that the kernel picks from.
pub(super) struct BufferRing {
    entries: *mut BufRingEntry,
    memory: *mut u8,
    count: u16,
    bytes: u32,
    tail: u16,
}

impl BufferRing {
    /// A cache line between the buffers: their first lines fall into different sets of the cache.
    const COLOUR_BYTES: usize = 64;

    pub(super) fn register(
        submitter: &Submitter<'_>,
        count: u16,
        bytes: u32,
    ) -> io::Result<BufferRing> {
        let stride = bytes as usize + Self::COLOUR_BYTES;
        let mut buffers = BufferRing {
            entries: pages(usize::from(count) * size_of::<BufRingEntry>())?.cast(),
            memory: pages(usize::from(count) * stride)?,
            count,
            bytes,
            tail: 0,
        };
        // SAFETY: the pages are never unmapped and hold `count` entries.
        unsafe {
            let entries = buffers.entries as u64;
            submitter.register_buf_ring_with_flags(entries, count, BUFFER_GROUP, 0)?;
        }
        (0..count).for_each(|buffer| buffers.provide(buffer));
        buffers.publish();
        Ok(buffers)
    }

    /// The first byte of a buffer.
    pub(super) fn start(&self, buffer: u16) -> *const u8 {
        let stride = self.bytes as usize + Self::COLOUR_BYTES;
        // SAFETY: the kernel only hands out buffers that were provided, so it lies in the pages.
        unsafe { self.memory.add(usize::from(buffer) * stride) }
    }

    /// Gives a buffer to the kernel at the next `publish`.
    pub(super) fn provide(&mut self, buffer: u16) {
        // SAFETY: the index is below `count`, a power of two.
        unsafe {
            let entry = &mut *self.entries.add(usize::from(self.tail & (self.count - 1)));
            entry.set_addr(self.start(buffer) as u64);
            entry.set_len(self.bytes);
            entry.set_bid(buffer);
        }
        self.tail = self.tail.wrapping_add(1);
    }

    pub(super) fn publish(&self) {
        // SAFETY: the tail lies in the first entry and the kernel reads it as an atomic.
        let tail = unsafe { &*BufRingEntry::tail(self.entries).cast::<AtomicU16>() };
        tail.store(self.tail, Ordering::Release);
    }
}

fn pages(bytes: usize) -> io::Result<*mut u8> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE;
    // SAFETY: a new anonymous mapping overlaps no other memory.
    let address = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
    if address == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    Ok(address.cast())
}

pub(super) static STOP: AtomicBool = AtomicBool::new(false);

extern "C" fn on_stop(_signal: i32) {
    STOP.store(true, Ordering::Relaxed);
}

/// No SA_RESTART: the wait has to return.
pub(super) fn stop_on_signals() {
    for signal in [libc::SIGTERM, libc::SIGINT] {
        // SAFETY: the handler only stores to an atomic; a zeroed action has no flags.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_stop as *const () as usize;
            libc::sigaction(signal, &raw const action, std::ptr::null_mut());
        }
    }
}

/// A listener whose connections inherit TCP_NODELAY.
pub(super) fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    send_at_once(listener.as_raw_fd())?;
    // SAFETY: listening again only changes the backlog.
    check(unsafe { libc::listen(listener.as_raw_fd(), BACKLOG) })?;
    Ok(listener)
}

pub(super) fn send_at_once(fd: RawFd) -> io::Result<()> {
    let on: i32 = 1;
    let length = size_of::<i32>() as libc::socklen_t;
    let value = (&raw const on).cast();
    // SAFETY: the option's value is an int that lives through the call.
    check(unsafe { libc::setsockopt(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, value, length) })?;
    Ok(())
}

pub(super) fn check(result: i32) -> io::Result<i32> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

pub(super) fn shut_down(fd: RawFd, how: i32) {
    // SAFETY: no pointers; an error means that it is shut already.
    unsafe { libc::shutdown(fd, how) };
}

pub(super) fn close(fd: RawFd) {
    // SAFETY: the caller owns the descriptor and no operation uses it.
    unsafe { libc::close(fd) };
}

pub(super) fn number<T: std::str::FromStr>(flag: &str, value: &str) -> Result<T, String> {
    value
        .parse()
        .map_err(|_| format!("{flag} does not take {value}"))
}
