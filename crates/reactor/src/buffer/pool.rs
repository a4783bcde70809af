//! The core's receive memory: buffers of two sizes with a reference count each, and the limit that they share
//! with copied bytes.

use std::cell::Cell;
use std::io;
use std::ptr::NonNull;

use super::region::Region;

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

/// Bytes that belong to no share: a quarter of the pool. Only small receives (rations) use them.
const RESERVE_BYTES: usize = BUFFERS_MAX as usize * BUFFER_BYTES / 4;

/// The bytes of a small receive (a ration), which every socket may have at a time even when shares are smaller. Small
/// receives are copied and occupy no buffer of the pool, so that thousands of stalled streams leave buffers for new
/// connections.
pub(crate) const RATION_BYTES: usize = 1024;

/// The number of equal shares of the free memory.
const SHARES: usize = 768;

/// One share of an idle core, in bytes: just under 64 KiB.
pub const FAIR_SHARE_MAX: usize = (BUFFERS_MAX as usize * BUFFER_BYTES - RESERVE_BYTES) / SHARES;

/// Free buffers are discarded once they exceed the limit by so many bytes.
const DISCARDED_BYTES_MIN: usize = 1024 * 1024;

/// Receive buffers of one core, identified by number, with a count of the views of each.
pub(crate) struct Pool {
    usual: Region<0, BUFFERS_MAX, STRIDE>,
    large: Region<BUFFERS_MAX, LARGE_MAX, LARGE_STRIDE>,
    /// The number of views of each buffer; 0 means free or lent to the driver. Large buffers follow the
    /// others, here and in the numbers of buffers.
    views: Box<[Cell<u32>]>,
    /// The number of buffers with views; a large one counts as [`LARGE_COUNT`].
    held: Cell<usize>,
    /// The number of buffers that are lent to the driver and not filled yet, counted in the same way. Those
    /// that io_uring posts may all be filled in one turn.
    lent: Cell<usize>,
    /// How many of these are large, counted in the same way.
    lent_large: Cell<usize>,
    /// Bytes outside the pool that count against its limit.
    copied: Cell<usize>,
    /// The last result of [`Pool::count_occupied`].
    occupied: Cell<usize>,
}

impl Pool {
    /// Maps the core's receive memory.
    pub(crate) fn new() -> io::Result<Pool> {
        let numbers = BUFFERS_MAX + LARGE_MAX;
        Ok(Pool {
            usual: Region::new()?,
            large: Region::new()?,
            views: vec![Cell::new(0); usize::from(numbers)].into_boxed_slice(),
            held: Cell::new(0),
            lent: Cell::new(0),
            lent_large: Cell::new(0),
            copied: Cell::new(0),
            occupied: Cell::new(0),
        })
    }

    /// The number of free usual buffers.
    pub(crate) fn free(&self) -> usize {
        self.usual.free()
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

    /// Bytes outside the pool that count against its limit.
    pub(crate) fn copied(&self) -> usize {
        self.copied.get()
    }

    /// Counts bytes outside the pool against its limit.
    pub(crate) fn charge(&self, bytes: usize) {
        self.copied.set(self.copied.get() + bytes);
        self.discard_excess();
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
        let id = self.take(&self.usual)?;
        self.lent.set(self.lent.get() + 1);
        Some(id)
    }

    /// Lends a large buffer to the driver, which fills it; `None` if less than half of the core's memory is
    /// available, were all large buffers full (rule 4), or as [`Pool::lend`].
    pub(crate) fn lend_large(&self) -> Option<u16> {
        if self.lent_large_excess() > 0 || self.lent_excess() >= 0 {
            return None;
        }
        let id = self.take(&self.large)?;
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

    /// Whether shares are smaller than a small receive, so that sockets have small receives only.
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
        match Pool::is_large(id) {
            true => self.large.give_back(id),
            false => self.usual.give_back(id),
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

    /// Takes a free buffer, if possible one that occupies memory already.
    #[inline]
    fn take<const FIRST: u16, const COUNT: u16, const STRIDE: usize>(
        &self,
        region: &Region<FIRST, COUNT, STRIDE>,
    ) -> Option<u16> {
        region.take_used().or_else(|| self.take_unused(region))
    }

    #[cold]
    fn take_unused<const FIRST: u16, const COUNT: u16, const STRIDE: usize>(
        &self,
        region: &Region<FIRST, COUNT, STRIDE>,
    ) -> Option<u16> {
        let id = region.take_unused()?;
        self.count_occupied();
        self.discard_excess();
        Some(id)
    }

    /// Counts the bytes of all buffers that may occupy memory. Those that are lent count as filled.
    fn count_occupied(&self) {
        let usual = self.usual.occupied() * BUFFER_BYTES;
        self.occupied
            .set(usual + self.large.occupied() * LARGE_BYTES);
    }

    /// Discards free buffers when the memory that buffers and copies occupy exceeds the limit: buffers of one
    /// size that are free do not occupy memory beside those of the other size, or beside copies.
    #[inline]
    fn discard_excess(&self) {
        let limit = usize::from(BUFFERS_MAX) * BUFFER_BYTES;
        let occupied = self.occupied.get() + self.copied.get();
        if occupied > limit + DISCARDED_BYTES_MIN {
            self.discard_free(occupied - limit);
        }
    }

    #[cold]
    fn discard_free(&self, bytes: usize) {
        let large = self.large.discard_free(bytes.div_ceil(LARGE_BYTES));
        let left = bytes.saturating_sub(large * LARGE_BYTES);
        self.usual.discard_free(left.div_ceil(BUFFER_BYTES));
        self.count_occupied();
    }

    /// Gives the memory of all buffers without views back to the operating system. The driver must not
    /// have filled one of those that it has lent; it may fill them later.
    pub(crate) fn give_back_memory(&self) {
        let (usual, large) = self.views.split_at(usize::from(BUFFERS_MAX));
        // SAFETY: the caller ensures that no lent buffer is filled.
        unsafe {
            self.usual.discard_unviewed(usual);
            self.large.discard_unviewed(large);
        }
        self.count_occupied();
    }

    /// The address of a buffer. Valid for its [`Pool::capacity`] as long as the pool lives.
    #[inline]
    pub(crate) fn address(&self, id: u16) -> NonNull<u8> {
        match Pool::is_large(id) {
            true => self.address_of_large(id),
            false => self.usual.address(id),
        }
    }

    #[cold]
    fn address_of_large(&self, id: u16) -> NonNull<u8> {
        self.large.address(id)
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
            self.usual.give_back(id);
        }
    }

    #[cold]
    fn free_large_buffer(&self, id: u16) {
        self.held.set(self.held.get() - LARGE_COUNT);
        self.large.give_back(id);
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

    /// Lends until the pool lends no more, and fills the buffers.
    fn fill_all(pool: &Pool, lend: Lend) -> Vec<u16> {
        let lent = lend_all(pool, lend);
        for id in &lent {
            fill(pool, *id);
            pool.retain(*id);
        }
        lent
    }

    fn fill(pool: &Pool, id: u16) {
        // SAFETY: the buffer is lent to this test alone.
        unsafe { pool.address(id).as_ptr().write_bytes(7, Pool::capacity(id)) };
    }

    fn resident_bytes(pool: &Pool) -> usize {
        (pool.usual.resident_pages() + pool.large.resident_pages()) * 4096
    }

    #[test]
    fn free_buffers_of_one_size_do_not_occupy_memory_beside_the_other_size_and_copies() {
        let limit = usize::from(BUFFERS_MAX) * BUFFER_BYTES;
        let pool = Pool::new().unwrap();
        let large = fill_all(&pool, Pool::lend_large);
        large.iter().for_each(|id| pool.release(*id));
        assert!(
            resident_bytes(&pool) > limit * 2 / 5,
            "they stay for the next use"
        );

        let usual = fill_all(&pool, Pool::lend);
        assert!(pool.held() > usize::from(BUFFERS_MAX) * 7 / 10);
        // A page of each side of what was discarded stays.
        let most = limit + 2 * DISCARDED_BYTES_MIN;
        assert!(resident_bytes(&pool) < most, "{}", resident_bytes(&pool));

        let (kept, freed) = usual.split_at(500);
        freed.iter().for_each(|id| pool.release(*id));
        let copies = 40_000;
        (0..copies).for_each(|_| pool.charge(RATION_BYTES));
        let with_copies = resident_bytes(&pool) + copies * RATION_BYTES;
        assert!(with_copies < most, "{with_copies}");
        for id in kept {
            // SAFETY: the test holds a view, and the bytes are inside the buffer.
            let bytes =
                unsafe { std::slice::from_raw_parts(pool.address(*id).as_ptr(), BUFFER_BYTES) };
            assert!(bytes.iter().all(|byte| *byte == 7), "buffer {id} is in use");
        }
        pool.discharge(copies * RATION_BYTES);
    }

    #[test]
    fn buffers_within_the_limit_keep_their_memory() {
        let pool = Pool::new().unwrap();
        for lend in [Pool::lend_large, Pool::lend] {
            let lent: Vec<u16> = (0..300).filter_map(|_| lend(&pool)).collect();
            for id in &lent {
                fill(&pool, *id);
                pool.give_back(*id);
            }
        }
        let bytes = resident_bytes(&pool);
        assert!(bytes >= 300 * (BUFFER_BYTES + LARGE_BYTES), "{bytes}");
    }

    #[test]
    fn memory_of_buffers_without_views_is_given_back_and_that_of_others_stays() {
        let pool = Pool::new().unwrap();
        let lent: Vec<u16> = (0..1_000).filter_map(|_| pool.lend()).collect();
        for id in &lent {
            fill(&pool, *id);
        }
        assert!(pool.usual.resident_pages() > 4_000);
        let (kept, rest) = lent.split_at(1);
        pool.retain(kept[0]);
        let (posted, free) = rest.split_at(500);
        free.iter().for_each(|id| pool.give_back(*id));
        pool.give_back_memory();
        assert!(
            pool.usual.resident_pages() < 10,
            "{} pages are left",
            pool.usual.resident_pages()
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
