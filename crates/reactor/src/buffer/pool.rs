//! The core's receive memory: one mapping, divided into buffers, with a free list and a reference count
//! for each buffer.

use std::cell::{Cell, RefCell};
use std::io;
use std::ptr::NonNull;

use crate::driver::Mapping;

/// Bytes that one receive can fill. A TLS record of 16 KiB with its overhead fits.
pub(crate) const BUFFER_BYTES: usize = 16 * 1024 + 512;

/// The distance between two buffers: an odd number of cache lines. So the first lines of the buffers,
/// which small requests occupy, are distributed over all sets of the caches.
const STRIDE: usize = BUFFER_BYTES + 64;

/// Most buffers of one core: just under 64 MiB (rule 4). The mapping occupies no memory until it is used.
const BUFFERS_MAX: u16 = 3_900;

/// Bytes that a large receive can fill. A segment of the loopback device carries 65,483 bytes, and that of
/// most network cards (TSO) as many: what such a receive returns leaves as one segment, with a head before
/// it. A second segment would wait for the timer of the congestion control if that paces (BBR).
pub(crate) const LARGE_BYTES: usize = 60 * 1024;

/// A large buffer counts as so many usual ones.
const LARGE_COUNT: usize = LARGE_BYTES.div_ceil(BUFFER_BYTES);

/// The distance between two large buffers, as for [`STRIDE`].
const LARGE_STRIDE: usize = LARGE_BYTES + 64;

/// Most large buffers. They are in addition to the others and count against the same limit, and they
/// are only lent while half of that is available.
const LARGE_MAX: u16 = 512;

/// Bytes that belong to no share: a quarter of the pool. Only rations use them.
const RESERVE_BYTES: usize = BUFFERS_MAX as usize * BUFFER_BYTES / 4;

/// A ration: bytes that every socket may receive at a time even when shares are smaller. Rations are
/// copied and occupy no buffer of the pool, so that thousands of stalled streams leave buffers for new
/// connections.
pub(crate) const RATION_BYTES: usize = 1024;

/// The number of equal shares of the free memory.
const SHARES: usize = 768;

/// One share of an idle core, in bytes: just under 64 KiB.
pub const FAIR_SHARE_MAX: usize = (BUFFERS_MAX as usize * BUFFER_BYTES - RESERVE_BYTES) / SHARES;

/// Receive buffers of one core, identified by number, with a count of the views of each.
///
/// The free list is a stack: under light load the same few buffers are used, which are in the cache, and
/// the memory that a burst used stays unused.
pub(crate) struct Pool {
    memory: Mapping,
    large_memory: Mapping,
    /// The number of views of each buffer; 0 means free or lent to the driver. Large buffers follow the
    /// others, here and in the numbers of buffers.
    views: Box<[Cell<u32>]>,
    free: RefCell<Vec<u16>>,
    free_large: RefCell<Vec<u16>>,
    /// The number of buffers with views; a large one counts as [`LARGE_COUNT`].
    held: Cell<usize>,
    /// The number of buffers that are lent to the driver and not filled yet, counted in the same way. Those
    /// that io_uring posts may all be filled in one turn.
    lent: Cell<usize>,
    /// How many of these are large, counted in the same way.
    lent_large: Cell<usize>,
    /// Bytes outside the pool that count against its limit.
    copied: Cell<usize>,
}

impl Pool {
    /// Maps the core's receive memory.
    pub(crate) fn new() -> io::Result<Pool> {
        let numbers = BUFFERS_MAX + LARGE_MAX;
        Ok(Pool {
            memory: Mapping::sparse(STRIDE * usize::from(BUFFERS_MAX))?,
            large_memory: Mapping::sparse(LARGE_STRIDE * usize::from(LARGE_MAX))?,
            views: vec![Cell::new(0); usize::from(numbers)].into_boxed_slice(),
            free: RefCell::new((0..BUFFERS_MAX).rev().collect()),
            free_large: RefCell::new((BUFFERS_MAX..numbers).rev().collect()),
            held: Cell::new(0),
            lent: Cell::new(0),
            lent_large: Cell::new(0),
            copied: Cell::new(0),
        })
    }

    /// The number of free buffers.
    pub(crate) fn free(&self) -> usize {
        self.free.borrow().len()
    }

    /// Bytes that can be received before the core reaches its limit.
    pub(crate) fn available(&self) -> usize {
        let buffers = usize::from(BUFFERS_MAX).saturating_sub(self.held.get());
        (buffers * BUFFER_BYTES).saturating_sub(self.copied.get())
    }

    /// Whether less than half is available. Small slices are then copied out of their buffers (rule 3).
    pub(crate) fn is_scarce(&self) -> bool {
        self.available() < usize::from(BUFFERS_MAX) * BUFFER_BYTES / 2
    }

    /// Counts bytes outside the pool against its limit.
    pub(crate) fn charge(&self, bytes: usize) {
        self.copied.set(self.copied.get() + bytes);
    }

    /// Takes back a [`Pool::charge`].
    pub(crate) fn discharge(&self, bytes: usize) {
        self.copied.set(self.copied.get() - bytes);
    }

    /// Lends a buffer to the driver, which fills it; `None` if only the reserve is left, or if the lent buffers
    /// may take all that is available.
    pub(crate) fn lend(&self) -> Option<u16> {
        if self.available() <= RESERVE_BYTES || self.lent_excess() >= 0 {
            return None;
        }
        let id = self.free.borrow_mut().pop()?;
        self.lent.set(self.lent.get() + 1);
        Some(id)
    }

    /// Lends a large buffer to the driver, which fills it; `None` if less than half of the core's memory is
    /// available, were all large buffers full (rule 4), or as [`Pool::lend`].
    pub(crate) fn lend_large(&self) -> Option<u16> {
        if self.lent_large_excess() > 0 || self.lent_excess() >= 0 {
            return None;
        }
        let id = self.free_large.borrow_mut().pop()?;
        self.lent.set(self.lent.get() + LARGE_COUNT);
        self.lent_large.set(self.lent_large.get() + LARGE_COUNT);
        Some(id)
    }

    /// By how many buffers those that are lent exceed what is available. Negative if more may be lent.
    #[inline]
    pub(crate) fn lent_excess(&self) -> isize {
        let room = self.available() / BUFFER_BYTES;
        self.lent.get().cast_signed() - room.cast_signed()
    }

    /// By how many buffers the large ones that are lent exceed half of the core's memory.
    #[inline]
    pub(crate) fn lent_large_excess(&self) -> isize {
        let room = self.available() / BUFFER_BYTES;
        let half = usize::from(BUFFERS_MAX) / 2;
        (self.lent_large.get() + half).cast_signed() - room.cast_signed()
    }

    /// A lent buffer was filled, or taken back.
    #[inline]
    fn end_lending(&self, id: u16) {
        let count = Pool::count_of(id);
        self.lent.set(self.lent.get() - count);
        if Pool::is_large(id) {
            self.lent_large.set(self.lent_large.get() - count);
        }
    }

    /// Whether shares are smaller than a ration, so that sockets receive rations.
    pub(crate) fn is_rationed(&self) -> bool {
        self.fair_share() < RATION_BYTES
    }

    /// Takes back a lent buffer that the driver has not filled.
    pub(crate) fn give_back(&self, id: u16) {
        assert_eq!(
            self.views[usize::from(id)].get(),
            0,
            "a lent buffer has no views"
        );
        self.end_lending(id);
        self.free_list(id).borrow_mut().push(id);
    }

    #[inline]
    fn free_list(&self, id: u16) -> &RefCell<Vec<u16>> {
        match Pool::is_large(id) {
            true => &self.free_large,
            false => &self.free,
        }
    }

    /// Whether a buffer with this number is large.
    #[inline]
    pub(crate) fn is_large(id: u16) -> bool {
        id >= BUFFERS_MAX
    }

    /// The number of bytes that a receive can fill.
    #[inline]
    pub(crate) fn capacity(id: u16) -> usize {
        match Pool::is_large(id) {
            true => LARGE_BYTES,
            false => BUFFER_BYTES,
        }
    }

    /// The bytes that one stream may hold: a 768th of the available memory without the reserve, at most
    /// 64 KiB (rule 4). The more memory stalled streams hold, the less may a further one hold, so that
    /// thousands of them leave some free (dynamic thresholds, Choudhury and Hahne 1998).
    pub(crate) fn fair_share(&self) -> usize {
        self.available().saturating_sub(RESERVE_BYTES) / SHARES
    }

    /// The number of buffers with views; a large one counts as four.
    #[inline]
    pub(crate) fn held(&self) -> usize {
        self.held.get()
    }

    /// Gives the memory of all buffers without views back to the operating system. The driver must not
    /// have filled one of those that it has lent; it may fill them later.
    pub(crate) fn give_back_memory(&self) {
        // Sorted, so that the buffers that are used next are adjacent.
        for free in [&self.free, &self.free_large] {
            free.borrow_mut().sort_unstable_by(|a, b| b.cmp(a));
        }
        let (small, large) = self.views.split_at(usize::from(BUFFERS_MAX));
        discard_unviewed(&self.memory, STRIDE, small);
        discard_unviewed(&self.large_memory, LARGE_STRIDE, large);
    }

    /// The address of a buffer. Valid for its [`Pool::capacity`] as long as the pool lives.
    #[inline]
    pub(crate) fn address(&self, id: u16) -> NonNull<u8> {
        if Pool::is_large(id) {
            return self.address_of_large(id);
        }
        // SAFETY: the offset is inside the mapping, which has BUFFERS_MAX strides.
        unsafe { self.memory.start().add(usize::from(id) * STRIDE) }
    }

    #[cold]
    fn address_of_large(&self, id: u16) -> NonNull<u8> {
        let index = id - BUFFERS_MAX;
        assert!(index < LARGE_MAX, "the pool has no buffer {id}");
        // SAFETY: the offset is inside the mapping, which has LARGE_MAX strides.
        unsafe {
            let start = self.large_memory.start();
            start.add(usize::from(index) * LARGE_STRIDE)
        }
    }

    /// The number of views of a buffer.
    pub(super) fn views(&self, id: u16) -> u32 {
        self.views[usize::from(id)].get()
    }

    /// Adds a view of a buffer.
    #[inline]
    pub(super) fn retain(&self, id: u16) {
        let views = &self.views[usize::from(id)];
        if views.get() == 0 {
            self.end_lending(id);
            self.held.set(self.held.get() + Pool::count_of(id));
        }
        views.set(views.get() + 1);
    }

    /// Removes a view of a buffer; removing the last one frees the buffer.
    #[inline]
    pub(super) fn release(&self, id: u16) {
        let views = &self.views[usize::from(id)];
        let left = views.get() - 1;
        views.set(left);
        if left == 0 {
            if Pool::is_large(id) {
                return self.free_large_buffer(id);
            }
            self.held.set(self.held.get() - 1);
            self.free.borrow_mut().push(id);
        }
    }

    #[cold]
    fn free_large_buffer(&self, id: u16) {
        self.held.set(self.held.get() - LARGE_COUNT);
        self.free_large.borrow_mut().push(id);
    }

    /// The number of usual buffers that a buffer counts as.
    #[inline]
    fn count_of(id: u16) -> usize {
        match Pool::is_large(id) {
            true => LARGE_COUNT,
            false => 1,
        }
    }
}

/// Discards the memory of the buffers without views, which lie `stride` bytes apart.
fn discard_unviewed(memory: &Mapping, stride: usize, views: &[Cell<u32>]) {
    let mut index = 0;
    for run in views.chunk_by(|a, b| (a.get() == 0) == (b.get() == 0)) {
        if run.iter().all(|views| views.get() == 0) {
            // SAFETY: these buffers have no views, and the driver has filled none of those that are
            // lent to it (the caller of `give_back_memory` ensures that).
            unsafe { memory.discard(index * stride..(index + run.len()) * stride) };
        }
        index += run.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Lend = fn(&Pool) -> Option<u16>;

    /// Lends until the pool lends no more; returns the buffers.
    fn lend_all(pool: &Pool, lend: Lend) -> Vec<u16> {
        std::iter::from_fn(|| lend(pool)).collect()
    }

    #[test]
    fn lent_buffers_never_exceed_the_limit_when_all_are_filled() {
        let orders: [[Lend; 2]; 2] = [
            [Pool::lend_large, Pool::lend],
            [Pool::lend, Pool::lend_large],
        ];
        for order in orders {
            let pool = Pool::new().unwrap();
            let lent: Vec<u16> = order
                .iter()
                .flat_map(|lend| lend_all(&pool, *lend))
                .collect();
            assert!(lent.len() > 1_000, "{}", lent.len());
            lent.iter().for_each(|id| pool.retain(*id));
            assert!(pool.held() < usize::from(BUFFERS_MAX) + LARGE_COUNT);
            assert_eq!((pool.lent.get(), pool.lent_large.get()), (0, 0));
            lent.iter().for_each(|id| pool.release(*id));
            assert_eq!(pool.held(), 0);
        }
    }

    #[test]
    fn large_buffers_alone_take_at_most_half() {
        let pool = Pool::new().unwrap();
        for id in lend_all(&pool, Pool::lend_large) {
            pool.retain(id);
        }
        let half = usize::from(BUFFERS_MAX) * BUFFER_BYTES / 2;
        assert!(pool.available() + LARGE_COUNT * BUFFER_BYTES >= half);
        assert!(pool.lend().is_some());
    }

    #[test]
    fn what_is_charged_later_shows_that_too_much_is_lent() {
        let pool = Pool::new().unwrap();
        lend_all(&pool, Pool::lend);
        assert!(pool.lent_excess() >= 0);
        pool.charge(100 * BUFFER_BYTES);
        assert!(pool.lent_excess() >= 100);
        pool.discharge(100 * BUFFER_BYTES);
    }

    #[test]
    fn memory_of_buffers_without_views_is_given_back_and_that_of_others_stays() {
        let pool = Pool::new().unwrap();
        let lent: Vec<u16> = (0..1_000).filter_map(|_| pool.lend()).collect();
        for id in &lent {
            // SAFETY: the buffer is lent to this test alone.
            unsafe { pool.address(*id).as_ptr().write_bytes(7, BUFFER_BYTES) };
        }
        assert!(pool.memory.resident_pages() > 4_000);
        let (kept, rest) = lent.split_at(1);
        pool.retain(kept[0]);
        let (posted, free) = rest.split_at(500);
        free.iter().for_each(|id| pool.give_back(*id));
        pool.give_back_memory();
        assert!(
            pool.memory.resident_pages() < 10,
            "{} pages are left",
            pool.memory.resident_pages()
        );
        let at = |id: u16| {
            // SAFETY: as above; a byte inside the buffer.
            unsafe { *pool.address(id).as_ptr().add(BUFFER_BYTES / 2) }
        };
        assert_eq!((at(kept[0]), at(posted[1])), (7, 0));
        let next: Vec<u16> = (0..3).filter_map(|_| pool.lend()).collect();
        assert!(next.is_sorted(), "the next buffers are adjacent: {next:?}");
    }
}
