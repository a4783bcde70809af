//! The provided buffers that the kernel receives into.

use std::io;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::IoUring;
use io_uring::types::BufRingEntry;

use crate::buffer::{BUFFER_BYTES, Pool};

const GROUP: u16 = 0;

/// Places of the ring; all buffers of the pool fit.
const ENTRIES: u16 = 4_096;

/// Buffers posted while nobody runs dry. Few, so that the same ones stay in the cache.
const POSTED_AT_FIRST: usize = 256;

/// Buffers on their way from the pool to the kernel and back.
pub(super) struct BufferRing {
    base: NonNull<BufRingEntry>,
    entries: u16,
    tail: u16,
    posted: usize,
    /// Buffers to keep posted; grows when receives run dry.
    target: usize,
}

impl BufferRing {
    /// Registers a ring, a small one where memory limits forbid the large.
    pub(super) fn register(ring: &IoUring, pool: &Rc<Pool>) -> io::Result<BufferRing> {
        let mut buffers = BufferRing::try_register(ring, ENTRIES)
            .or_else(|_| BufferRing::try_register(ring, 256))?;
        buffers.refill(pool);
        Ok(buffers)
    }

    fn try_register(ring: &IoUring, entries: u16) -> io::Result<BufferRing> {
        let bytes = usize::from(entries) * size_of::<BufRingEntry>();
        // SAFETY: an anonymous private mapping at an address of the kernel's choice.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let buffers = BufferRing {
            base,
            entries,
            tail: 0,
            posted: 0,
            target: POSTED_AT_FIRST.min(usize::from(entries)),
        };
        // SAFETY: the mapping is page-aligned, zeroed, as long as the ring says, and unmapped
        // only after the io_uring is closed (fields of `Uring` are dropped in order).
        unsafe {
            ring.submitter().register_buf_ring_with_flags(
                base.as_ptr() as u64,
                entries,
                GROUP,
                0,
            )?;
        }
        Ok(buffers)
    }

    pub(super) fn group(&self) -> u16 {
        GROUP
    }

    /// Buffers that the kernel can fill.
    pub(super) fn posted(&self) -> usize {
        self.posted
    }

    /// The kernel has used one.
    pub(super) fn taken(&mut self) {
        self.posted -= 1;
    }

    /// A receive found none: from now on twice as many are posted.
    pub(super) fn ran_dry(&mut self) {
        self.target = (self.target * 2).min(usize::from(self.entries));
    }

    /// Posts buffers up to the target, as far as the pool has them.
    pub(super) fn refill(&mut self, pool: &Pool) {
        if self.posted == self.target {
            return;
        }
        while self.posted < self.target {
            let Some(id) = pool.lend() else { break };
            let place = usize::from(self.tail & (self.entries - 1));
            // SAFETY: `place` is inside the ring. The kernel reads an entry only once the tail
            // has passed it; the tail, which shares memory with the first entry, is in a field
            // that these setters do not touch.
            unsafe {
                let entry = &mut *self.base.as_ptr().add(place);
                entry.set_addr(pool.address(id).as_ptr() as u64);
                entry.set_len(BUFFER_BYTES as u32);
                entry.set_bid(id);
            }
            self.tail = self.tail.wrapping_add(1);
            self.posted += 1;
        }
        self.publish_tail();
    }

    /// Takes the buffers back that are posted beyond the first target. The kernel must have nothing
    /// to report: it uses the ring inside our enter only, so that it does not while this runs.
    pub(super) fn shrink(&mut self, pool: &Pool) {
        self.target = POSTED_AT_FIRST.min(usize::from(self.entries));
        while self.posted > self.target {
            self.tail = self.tail.wrapping_sub(1);
            let place = usize::from(self.tail & (self.entries - 1));
            // SAFETY: `place` is inside the ring, and the entry was written by `refill`.
            pool.give_back(unsafe { (*self.base.as_ptr().add(place)).bid() });
            self.posted -= 1;
        }
        self.publish_tail();
    }

    fn publish_tail(&self) {
        // SAFETY: the ring's tail lies inside the mapping and is only ever used atomically.
        unsafe {
            let tail = BufRingEntry::tail(self.base.as_ptr()).cast::<AtomicU16>();
            (*tail).store(self.tail, Ordering::Release);
        }
    }
}

impl Drop for BufferRing {
    fn drop(&mut self) {
        let bytes = usize::from(self.entries) * size_of::<BufRingEntry>();
        // SAFETY: mapped by `try_register` with this length; the io_uring is closed.
        unsafe { libc::munmap(self.base.as_ptr().cast(), bytes) };
    }
}
