//! Memory from the operating system: anonymous mappings, and the heap's free pages.

use std::io;
use std::ops::Range;
use std::ptr::{self, NonNull};

/// The unit in which memory is given back. Where pages are larger, the kernel refuses parts of them.
const PAGE_BYTES: usize = 4096;

/// A private anonymous mapping, zeroed and page-aligned. It occupies no memory until it is touched.
pub(crate) struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

impl Mapping {
    /// # Errors
    /// The error of `mmap(2)`.
    pub(crate) fn new(bytes: usize) -> io::Result<Mapping> {
        Mapping::with_flags(bytes, 0)
    }

    /// As [`Mapping::new`], for a mapping of which only a part is expected to be touched: it does not
    /// count against the system's memory commitment.
    pub(crate) fn sparse(bytes: usize) -> io::Result<Mapping> {
        Mapping::with_flags(bytes, libc::MAP_NORESERVE)
    }

    fn with_flags(bytes: usize, flags: libc::c_int) -> io::Result<Mapping> {
        // SAFETY: an anonymous private mapping at an address of the kernel's choice.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Mapping { start, bytes })
    }

    #[inline]
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Gives the whole pages inside `range` back to the operating system; they are zeros when they are
    /// touched next. A failure changes nothing.
    ///
    /// # Safety
    /// The contents of the range are not used any more.
    pub(crate) unsafe fn discard(&self, range: Range<usize>) {
        assert!(range.end <= self.bytes, "the range is inside the mapping");
        let first = range.start.next_multiple_of(PAGE_BYTES);
        let end = range.end / PAGE_BYTES * PAGE_BYTES;
        if first < end {
            // SAFETY: whole pages inside the mapping, whose contents the caller gives up.
            unsafe {
                let start = self.start.add(first);
                libc::madvise(start.as_ptr().cast(), end - first, libc::MADV_DONTNEED);
            }
        }
    }

    /// Pages that occupy memory.
    #[cfg(test)]
    pub(crate) fn resident_pages(&self) -> usize {
        let mut pages = vec![0_u8; self.bytes.div_ceil(PAGE_BYTES)];
        // SAFETY: the mapping is live, and there is a byte for each of its pages.
        let error =
            unsafe { libc::mincore(self.start.as_ptr().cast(), self.bytes, pages.as_mut_ptr()) };
        assert_eq!(error, 0);
        pages.iter().filter(|page| **page & 1 != 0).count()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this length, and its owner drops it last.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// Gives the free pages of the heap back to the operating system, wherever they are in it. It takes milliseconds where there
/// are many, such as after a large configuration was read.
pub fn trim_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: a plain call of the C library, which locks the heap meanwhile.
    unsafe {
        libc::malloc_trim(0);
    }
}
