//! The provided buffers that the kernel receives into.

use std::io;
use std::ptr::NonNull;
use std::rc::Rc;
use std::slice;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::IoUring;
use io_uring::types::BufRingEntry;

use crate::buffer::{BUFFER_BYTES, Pool, RATION_BYTES, Slice};
use crate::driver::Mapping;

const GROUP: u16 = 0;
const RATIONS_GROUP: u16 = 1;
const LARGE_GROUP: u16 = 2;

/// Entries of the rings; all buffers of the pool fit.
const ENTRIES: u16 = 4_096;
const LARGE_ENTRIES: u16 = 512;

/// Buffers that are posted until a receive finds none. Few, so that the same ones stay in the cache.
const POSTED_AT_FIRST: usize = 256;
const LARGE_POSTED_AT_FIRST: usize = 16;

/// Small receives (rations) between two turns: those of 16 buffers.
const RATIONS: u16 = RATIONS_PER_BUFFER * 16;
const RATIONS_PER_BUFFER: u16 = (BUFFER_BYTES / RATION_BYTES) as u16;

/// Buffer numbers from here on are small buffers; the pool has fewer buffers.
const FIRST_RATION: u16 = 0x8000;

/// The buffers of one size of the pool that are posted to the kernel.
pub(super) struct BufferRing {
    ring: ProvidedRing,
    group: u16,
    posted: usize,
    target: PostTarget,
    /// Takes a buffer of this size from the pool.
    lend: fn(&Pool) -> Option<u16>,
}

impl BufferRing {
    /// Registers a ring for usual buffers, or a smaller one if memory limits forbid that.
    pub(super) fn register_usual(ring: &IoUring, pool: &Pool) -> io::Result<BufferRing> {
        let ring = ProvidedRing::register(ring, ENTRIES, GROUP)
            .or_else(|_| ProvidedRing::register(ring, 256, GROUP))?;
        let mut buffers = BufferRing::new(ring, GROUP, POSTED_AT_FIRST, Pool::lend);
        buffers.refill(pool);
        Ok(buffers)
    }

    /// Registers a ring for large buffers, or a smaller one.
    pub(super) fn register_large(ring: &IoUring) -> io::Result<BufferRing> {
        let ring = ProvidedRing::register(ring, LARGE_ENTRIES, LARGE_GROUP)
            .or_else(|_| ProvidedRing::register(ring, 64, LARGE_GROUP))?;
        let posted = LARGE_POSTED_AT_FIRST;
        Ok(BufferRing::new(ring, LARGE_GROUP, posted, Pool::lend_large))
    }

    fn new(
        ring: ProvidedRing,
        group: u16,
        posted_at_first: usize,
        lend: fn(&Pool) -> Option<u16>,
    ) -> BufferRing {
        BufferRing {
            target: PostTarget::new(posted_at_first, usize::from(ring.entries)),
            ring,
            group,
            posted: 0,
            lend,
        }
    }

    pub(super) fn group(&self) -> u16 {
        self.group
    }

    /// The number of buffers that the kernel can fill.
    pub(super) fn posted(&self) -> usize {
        self.posted
    }

    /// The slice that the kernel has written into a buffer.
    #[inline]
    pub(super) fn taken(&mut self, pool: &Rc<Pool>, id: u16, len: usize) -> Slice {
        self.posted -= 1;
        Slice::adopt(pool, id, len)
    }

    /// Posts more buffers in future if none is left, after a receive has found none.
    pub(super) fn grow_if_empty(&mut self) {
        if self.posted == 0 {
            self.target.grow();
        }
    }

    /// Posts buffers up to the target, as far as the pool lends them.
    pub(super) fn refill(&mut self, pool: &Pool) {
        let wanted = self.target.before_refill(self.posted);
        if self.posted < wanted {
            self.post_until(wanted, pool);
        }
        self.target.after_refill(self.posted);
    }

    fn post_until(&mut self, wanted: usize, pool: &Pool) {
        while self.posted < wanted {
            let Some(id) = (self.lend)(pool) else { break };
            self.ring.post(pool.address(id), Pool::capacity(id), id);
            self.posted += 1;
        }
        self.ring.publish();
    }

    /// Takes back the buffers that are posted beyond the initial target, on the same condition as
    /// [`BufferRing::take_back_excess`].
    pub(super) fn shrink(&mut self, pool: &Pool) {
        let wanted = self.target.restart();
        while self.posted > wanted {
            self.take_back(pool);
        }
        self.ring.publish();
    }

    /// Takes back buffers while `excess` says that too many are lent. No completion may be outstanding. The
    /// kernel uses the ring only inside our enter, so not while this function runs.
    #[cold]
    pub(super) fn take_back_excess(&mut self, pool: &Pool, excess: fn(&Pool) -> isize) {
        while self.posted > 0 && excess(pool) > 0 {
            self.take_back(pool);
        }
        self.ring.publish();
    }

    fn take_back(&mut self, pool: &Pool) {
        pool.give_back(self.ring.take_back());
        self.posted -= 1;
    }
}

/// The number of buffers to keep posted. The kernel fills them in turn, so that all of them occupy memory
/// and replace other memory in the caches: few are better while they suffice.
struct PostTarget {
    value: usize,
    min: usize,
    max: usize,
    /// The number after the last refill.
    posted: usize,
    /// The most that were used between two of the last refills, and the number of these.
    most_used: usize,
    refills: u32,
}

/// After so many refills that replaced few buffers, fewer are posted.
const SHRINK_REFILLS: u32 = 1_024;

impl PostTarget {
    fn new(min: usize, max: usize) -> PostTarget {
        let min = min.min(max);
        PostTarget {
            value: min,
            min,
            max,
            posted: 0,
            most_used: 0,
            refills: 0,
        }
    }

    /// Doubles, after a receive has found no buffer; once until the next refill. If the last refill did not
    /// reach the target, it was the pool that lent too few.
    fn grow(&mut self) {
        if self.posted >= self.value {
            self.value = (self.value * 2).min(self.max);
            self.count_again();
        }
    }

    /// Records how many are left; returns how many to have. Halves if at most a quarter was used for long.
    #[inline]
    fn before_refill(&mut self, left: usize) -> usize {
        if self.value > self.min {
            self.most_used = self.most_used.max(self.posted.saturating_sub(left));
            self.refills += 1;
            if self.refills == SHRINK_REFILLS {
                if self.most_used <= self.value / 4 {
                    self.value = (self.value / 2).max(self.min);
                }
                self.count_again();
            }
        }
        self.value
    }

    #[inline]
    fn after_refill(&mut self, posted: usize) {
        self.posted = posted;
    }

    fn count_again(&mut self) {
        self.most_used = 0;
        self.refills = 0;
    }

    /// Returns to the number at first.
    fn restart(&mut self) -> usize {
        self.value = self.min;
        self.count_again();
        self.value
    }
}

/// Small buffers, for sockets whose share is a small receive. Received bytes are copied, and the buffer is posted
/// again.
pub(super) struct Rations {
    ring: ProvidedRing,
    /// Buffers of the pool that are divided into small ones; they are never given back.
    lent: Vec<u16>,
    /// Small buffers to be posted again.
    used: Vec<u16>,
}

impl Rations {
    pub(super) fn register(ring: &IoUring, pool: &Pool) -> io::Result<Rations> {
        let lent: Vec<_> = (0..RATIONS / RATIONS_PER_BUFFER)
            .map_while(|_| pool.lend())
            .collect();
        let mut rations = Rations {
            ring: ProvidedRing::register(ring, RATIONS, RATIONS_GROUP)?,
            used: (0..lent.len() as u16 * RATIONS_PER_BUFFER).collect(),
            lent,
        };
        rations.refill(pool);
        Ok(rations)
    }

    pub(super) fn group(&self) -> u16 {
        RATIONS_GROUP
    }

    /// Whether a buffer with this number is a small one.
    #[inline]
    pub(super) fn has(id: u16) -> bool {
        id >= FIRST_RATION
    }

    /// The slice that the kernel has written into a small buffer.
    #[cold]
    pub(super) fn taken(&mut self, pool: &Rc<Pool>, id: u16, len: usize) -> Slice {
        let index = id - FIRST_RATION;
        assert!(len <= RATION_BYTES, "a receive cannot exceed its buffer");
        // SAFETY: the kernel has filled `len` bytes of this small buffer, and writes to it again only after it is
        // posted, which needs `self`.
        let bytes = unsafe { slice::from_raw_parts(self.address(pool, index).as_ptr(), len) };
        self.used.push(index);
        Slice::ration(pool, bytes)
    }

    fn address(&self, pool: &Pool, index: u16) -> NonNull<u8> {
        let buffer = self.lent[usize::from(index / RATIONS_PER_BUFFER)];
        let offset = usize::from(index % RATIONS_PER_BUFFER) * RATION_BYTES;
        // SAFETY: RATIONS_PER_BUFFER small buffers fit into a buffer.
        unsafe { pool.address(buffer).add(offset) }
    }

    /// The number of small receives that can complete before the next refill.
    pub(super) fn posted(&self) -> usize {
        self.lent.len() * usize::from(RATIONS_PER_BUFFER) - self.used.len()
    }

    /// Posts used small buffers again, unless the core has reached its limit.
    #[inline]
    pub(super) fn refill(&mut self, pool: &Pool) {
        if !self.used.is_empty() && pool.available() > 0 {
            self.post_used(pool);
        }
    }

    #[cold]
    fn post_used(&mut self, pool: &Pool) {
        while let Some(index) = self.used.pop() {
            let address = self.address(pool, index);
            self.ring.post(address, RATION_BYTES, FIRST_RATION + index);
        }
        self.ring.publish();
    }
}

/// A ring that passes buffers to the kernel.
pub(super) struct ProvidedRing {
    base: NonNull<BufRingEntry>,
    _memory: Mapping,
    entries: u16,
    tail: u16,
}

impl ProvidedRing {
    pub(super) fn register(ring: &IoUring, entries: u16, group: u16) -> io::Result<ProvidedRing> {
        let bytes = usize::from(entries) * size_of::<BufRingEntry>();
        let memory = Mapping::new(bytes)?;
        let provided = ProvidedRing {
            base: memory.start().cast(),
            _memory: memory,
            entries,
            tail: 0,
        };
        // SAFETY: the mapping is page-aligned, zeroed, has room for the entries, and is unmapped
        // only after the io_uring is closed (fields of `Uring` are dropped in order).
        unsafe {
            ring.submitter().register_buf_ring_with_flags(
                provided.base.as_ptr() as u64,
                entries,
                group,
                0,
            )?;
        }
        Ok(provided)
    }

    /// Adds a buffer; never more than the ring has entries.
    #[inline]
    pub(super) fn post(&mut self, address: NonNull<u8>, bytes: usize, id: u16) {
        let place = usize::from(self.tail & (self.entries - 1));
        // SAFETY: `place` is inside the ring. The kernel reads an entry only once the tail has
        // passed it; the tail, which shares memory with the first entry, is in a field that these
        // setters do not touch.
        unsafe {
            let entry = &mut *self.base.as_ptr().add(place);
            entry.set_addr(address.as_ptr() as u64);
            entry.set_len(bytes as u32);
            entry.set_bid(id);
        }
        self.tail = self.tail.wrapping_add(1);
    }

    /// Takes back the buffer that was added last, and returns its number. The kernel must not have used it.
    fn take_back(&mut self) -> u16 {
        self.tail = self.tail.wrapping_sub(1);
        let place = usize::from(self.tail & (self.entries - 1));
        // SAFETY: `place` is inside the ring, and the entry was written by `post`.
        unsafe { (*self.base.as_ptr().add(place)).bid() }
    }

    /// Makes the added buffers visible to the kernel.
    #[inline]
    pub(super) fn publish(&mut self) {
        // SAFETY: the ring's tail is inside the mapping and is only accessed atomically.
        unsafe {
            let tail = BufRingEntry::tail(self.base.as_ptr()).cast::<AtomicU16>();
            (*tail).store(self.tail, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A refill after `used` buffers were used; the pool lends `lent` of them.
    fn refill(target: &mut PostTarget, used: usize, lent: usize) {
        let left = target.posted - used;
        target.before_refill(left);
        target.after_refill(left + lent);
    }

    #[test]
    fn the_target_grows_when_none_is_left_and_shrinks_when_few_are_used_for_long() {
        let mut target = PostTarget::new(256, 1_000);
        refill(&mut target, 0, 256);
        target.grow();
        target.grow();
        assert_eq!(target.value, 512, "only once before a refill");
        refill(&mut target, 256, 512);
        target.grow();
        assert_eq!(target.value, 1_000, "that is the limit");
        // Others hold most of the memory: 600 buffers are posted.
        refill(&mut target, 512, 600);
        target.count_again();
        for (used, then) in [(600, 1_000), (251, 1_000), (250, 500), (125, 256), (0, 256)] {
            for _ in 0..SHRINK_REFILLS {
                refill(&mut target, used, used);
            }
            assert_eq!(target.value, then, "{used} are used each time");
        }
    }

    #[test]
    fn the_target_stays_when_the_pool_lends_too_few() {
        let mut target = PostTarget::new(256, 4_096);
        refill(&mut target, 0, 255);
        target.grow();
        assert_eq!(target.value, 256);
        refill(&mut target, 0, 1);
        target.grow();
        assert_eq!(target.value, 512);
    }
}
