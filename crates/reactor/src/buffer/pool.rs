//! The core's receive memory: one mapping cut into buffers, a free list and a count of views each.

use std::cell::{Cell, RefCell};
use std::io;
use std::ptr::NonNull;

use crate::driver::Mapping;

/// Bytes that one receive can fill. A TLS record of 16 KiB with its overhead fits.
pub(crate) const BUFFER_BYTES: usize = 16 * 1024 + 512;

/// Distance of two buffers. An odd number of cache lines, so that the first lines of the
/// buffers, which small requests touch, spread over all sets of the caches.
const STRIDE: usize = BUFFER_BYTES + 64;

/// Most buffers of one core: just under 64 MiB (rule 4). The map costs no memory until touched.
const BUFFERS_MAX: u16 = 3_900;

/// Bytes that are in nobody's share: a quarter. Only rations are received into it.
const RESERVE_BYTES: usize = BUFFERS_MAX as usize * BUFFER_BYTES / 4;

/// What every socket may receive at a time however little is left of the shares. Rations are copied and
/// take no buffer of the pool, so that thousands of stalled streams leave some for a newcomer.
pub(crate) const RATION_BYTES: usize = 1024;

/// How many equal shares the rest is cut into: one of an idle core is 64 KiB.
const SHARES: usize = 768;

/// Receive buffers of one core, handed out by number and counted by view.
///
/// The free list is a stack: under light load the same few warm buffers serve everybody, and
/// memory that a burst touched is not touched again.
pub(crate) struct Pool {
    memory: Mapping,
    /// Views of each buffer; 0 means free or lent to the driver.
    views: Box<[Cell<u32>]>,
    free: RefCell<Vec<u16>>,
    /// Buffers with views.
    held: Cell<usize>,
    /// Bytes that were copied out of scarce buffers and are still held.
    copied: Cell<usize>,
}

impl Pool {
    /// Maps the core's receive memory.
    pub(crate) fn new() -> io::Result<Pool> {
        let memory = Mapping::sparse(STRIDE * usize::from(BUFFERS_MAX))?;
        Ok(Pool {
            memory,
            views: vec![Cell::new(0); usize::from(BUFFERS_MAX)].into_boxed_slice(),
            free: RefCell::new((0..BUFFERS_MAX).rev().collect()),
            held: Cell::new(0),
            copied: Cell::new(0),
        })
    }

    /// Buffers that nobody holds.
    pub(crate) fn free(&self) -> usize {
        self.free.borrow().len()
    }

    /// Bytes that can still be received before the core holds all that it may.
    pub(crate) fn available(&self) -> usize {
        let buffers = usize::from(BUFFERS_MAX) - self.held.get();
        (buffers * BUFFER_BYTES).saturating_sub(self.copied.get())
    }

    /// Less than half is available: small slices are copied out of their buffers (rule 3).
    pub(crate) fn is_scarce(&self) -> bool {
        self.available() < usize::from(BUFFERS_MAX) * BUFFER_BYTES / 2
    }

    /// Bytes held elsewhere on the core's behalf, which count against what may be received.
    pub(crate) fn charge(&self, bytes: usize) {
        self.copied.set(self.copied.get() + bytes);
    }

    /// They are held no more.
    pub(crate) fn discharge(&self, bytes: usize) {
        self.copied.set(self.copied.get() - bytes);
    }

    pub(super) fn count_copy(&self, bytes: usize) {
        self.copied.set(self.copied.get() + bytes);
    }

    pub(super) fn uncount_copy(&self, bytes: usize) {
        self.copied.set(self.copied.get() - bytes);
    }

    /// Takes a buffer for the driver to fill, unless only the reserve is left.
    pub(crate) fn lend(&self) -> Option<u16> {
        if self.available() <= RESERVE_BYTES {
            None
        } else {
            self.free.borrow_mut().pop()
        }
    }

    /// Whether shares are smaller than a ration, so that rations are received.
    pub(crate) fn is_rationed(&self) -> bool {
        self.fair_share() < RATION_BYTES
    }

    /// Takes back a lent buffer that was not filled.
    pub(crate) fn give_back(&self, id: u16) {
        assert_eq!(
            self.views[usize::from(id)].get(),
            0,
            "a lent buffer has no views"
        );
        self.free.borrow_mut().push(id);
    }

    /// What one stream may hold, by what is left for all but the reserve: a 768th of it, 64 KiB at
    /// best (rule 4). The more is held by those who cannot pass it on, the less may each newcomer
    /// hold, so that thousands of them leave something free (dynamic thresholds, Choudhury and Hahne
    /// 1998).
    pub(crate) fn fair_share(&self) -> usize {
        self.available().saturating_sub(RESERVE_BYTES) / SHARES
    }

    /// Buffers that have views.
    #[inline]
    pub(crate) fn held(&self) -> usize {
        self.held.get()
    }

    /// Lets the memory of all buffers go that have no views. Nobody may have filled one of those that
    /// are lent; they may be filled later.
    pub(crate) fn give_back_memory(&self) {
        // Those that are used next lie together.
        self.free.borrow_mut().sort_unstable_by(|a, b| b.cmp(a));
        let mut id = 0;
        for run in self.views.chunk_by(|a, b| (a.get() == 0) == (b.get() == 0)) {
            if run.iter().all(|views| views.get() == 0) {
                // SAFETY: nobody has a view of these buffers, and the driver has filled none of
                // those that are lent to it.
                unsafe { self.memory.discard(id * STRIDE..(id + run.len()) * STRIDE) };
            }
            id += run.len();
        }
    }

    /// Where a buffer lies. Valid for [`BUFFER_BYTES`] as long as the pool lives.
    pub(crate) fn address(&self, id: u16) -> NonNull<u8> {
        assert!(id < BUFFERS_MAX, "the pool has no buffer {id}");
        // SAFETY: the offset is inside the mapping, which has BUFFERS_MAX strides.
        unsafe { self.memory.start().add(usize::from(id) * STRIDE) }
    }

    /// How many views a buffer has.
    pub(super) fn views(&self, id: u16) -> u32 {
        self.views[usize::from(id)].get()
    }

    /// Counts one more view of a buffer.
    pub(super) fn retain(&self, id: u16) {
        let views = &self.views[usize::from(id)];
        if views.get() == 0 {
            self.held.set(self.held.get() + 1);
        }
        views.set(views.get() + 1);
    }

    /// Counts one view less; the last one frees the buffer.
    pub(super) fn release(&self, id: u16) {
        let views = &self.views[usize::from(id)];
        let left = views.get() - 1;
        views.set(left);
        if left == 0 {
            self.held.set(self.held.get() - 1);
            self.free.borrow_mut().push(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_buffers_without_views_goes_back_and_that_of_others_stays() {
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
        assert!(next.is_sorted(), "they lie together: {next:?}");
    }
}
