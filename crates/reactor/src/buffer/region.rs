//! Buffers of one size: a mapping divided into them, and those that are free.

use std::cell::{Cell, RefCell};
use std::io;
use std::ops::Range;
use std::ptr::NonNull;

use crate::driver::Mapping;

/// Buffers with consecutive numbers. Free ones that were used since their memory was last discarded are
/// taken first, so that memory which is not needed is never occupied.
///
/// The first number, the number of buffers, and the distance between two of them in bytes.
pub(super) struct Region<const FIRST: u16, const COUNT: u16, const STRIDE: usize> {
    memory: Mapping,
    /// Free buffers that may occupy memory. A stack: under light load the same few are used, which are in
    /// the cache.
    used: RefCell<Vec<u16>>,
    /// Free buffers that occupy none.
    unused: RefCell<Vec<u16>>,
}

impl<const FIRST: u16, const COUNT: u16, const STRIDE: usize> Region<FIRST, COUNT, STRIDE> {
    /// Maps the buffers, which occupy no memory until they are used.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Region {
            memory: Mapping::sparse(STRIDE * usize::from(COUNT))?,
            used: RefCell::default(),
            unused: RefCell::new((FIRST..FIRST + COUNT).rev().collect()),
        })
    }

    /// Takes a free buffer that was used before.
    #[inline]
    pub(super) fn take_used(&self) -> Option<u16> {
        self.used.borrow_mut().pop()
    }

    /// Takes a free buffer that occupies no memory yet.
    pub(super) fn take_unused(&self) -> Option<u16> {
        self.unused.borrow_mut().pop()
    }

    #[inline]
    pub(super) fn give_back(&self, id: u16) {
        self.used.borrow_mut().push(id);
    }

    /// The number of free buffers.
    pub(super) fn free(&self) -> usize {
        self.used.borrow().len() + self.unused.borrow().len()
    }

    /// The number of buffers that may occupy memory: those in use, and the free ones that were used.
    pub(super) fn occupied(&self) -> usize {
        usize::from(COUNT) - self.unused.borrow().len()
    }

    /// The address of a buffer of this region.
    #[inline]
    pub(super) fn address(&self, id: u16) -> NonNull<u8> {
        let index = Self::index(id);
        assert!(index < usize::from(COUNT), "the region has no buffer {id}");
        // SAFETY: the offset is inside the mapping, which has COUNT strides.
        unsafe { self.memory.start().add(index * STRIDE) }
    }

    #[inline]
    fn index(id: u16) -> usize {
        usize::from(id - FIRST)
    }

    /// Discards the memory of at most `count` free buffers, those first that were not used for longest.
    /// Returns how many.
    pub(super) fn discard_free(&self, count: usize) -> usize {
        let mut discarded = {
            let mut used = self.used.borrow_mut();
            let count = count.min(used.len());
            used.drain(..count).collect::<Vec<u16>>()
        };
        if discarded.is_empty() {
            return 0;
        }
        discarded.sort_unstable();
        let mut unused = self.unused.borrow_mut();
        unused.extend(&discarded);
        sort(&mut unused);
        // Whole runs, because adjacent buffers share a page.
        for run in unused.chunk_by(|a, b| *a == *b + 1) {
            if run.iter().any(|id| discarded.binary_search(id).is_ok()) {
                let start = Self::index(run[run.len() - 1]);
                // SAFETY: free buffers have no views, and the driver fills none of them.
                unsafe { self.discard(start..start + run.len()) };
            }
        }
        discarded.len()
    }

    /// Discards the memory of all buffers without views. `views` has the number of views of each buffer.
    ///
    /// # Safety
    /// The driver has filled none of the buffers that are lent to it.
    pub(super) unsafe fn discard_unviewed(&self, views: &[Cell<u32>]) {
        let mut unused = self.unused.borrow_mut();
        unused.append(&mut self.used.borrow_mut());
        sort(&mut unused);
        let mut index = 0;
        for run in views.chunk_by(|a, b| (a.get() == 0) == (b.get() == 0)) {
            if run.iter().all(|views| views.get() == 0) {
                // SAFETY: these buffers have no views, and the caller knows that none is filled.
                unsafe { self.discard(index..index + run.len()) };
            }
            index += run.len();
        }
    }

    /// Discards the memory of the buffers with these indices.
    ///
    /// # Safety
    /// Nobody reads them before they are filled again.
    unsafe fn discard(&self, indices: Range<usize>) {
        let bytes = indices.start * STRIDE..indices.end * STRIDE;
        // SAFETY: the caller gives the contents up.
        unsafe { self.memory.discard(bytes) };
    }

    /// Pages that occupy memory.
    #[cfg(test)]
    pub(super) fn resident_pages(&self) -> usize {
        self.memory.resident_pages()
    }
}

/// Sorts free buffers that occupy no memory, so that those that are used next are adjacent.
fn sort(unused: &mut [u16]) {
    unused.sort_unstable_by(|a, b| b.cmp(a));
}
