//! Sending ranges of files from the page cache to a socket, without a copy.
//!
//! `sendfile` waits for the disk if a page is not in memory, which would hold up the core. So a range is sent only
//! after its pages were found in memory; others are read on the threads for blocking work.

use std::io;
use std::os::fd::RawFd;

use super::file::OpenPath;

/// Bytes between two pages that are probed if the kernel has counted the pages of the range: those that it is still
/// reading count, and lie beside each other.
const STEP_COUNTED: u64 = 128 * 1024;

/// The same if it cannot count them.
const STEP: u64 = 16 * 1024;

/// `cachestat` (Linux 6.5), which has this number on all architectures.
const SYS_CACHESTAT: libc::c_long = 451;

/// `struct cachestat_range`.
#[repr(C)]
struct CacheRange {
    offset: u64,
    len: u64,
}

/// `struct cachestat`.
#[repr(C)]
#[derive(Default)]
struct CacheCounts {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// The outcome of sending a range of a file.
pub(crate) enum FileSent {
    Bytes(usize),
    /// The kernel takes no byte of the socket at present.
    NoRoom,
    /// The file ends before the range, or the file or the socket has failed.
    Nothing,
}

impl OpenPath {
    /// Whether the range, which must not be empty, is in memory as far as the kernel tells. `false` also for file
    /// systems that cannot read without waiting.
    pub(crate) fn is_in_memory(&self, offset: u64, len: usize) -> bool {
        let end = offset + len as u64;
        if !self.is_byte_in_memory(offset) || !self.is_byte_in_memory(end - 1) {
            return false;
        }
        let pages = (end - 1) / page_bytes() - offset / page_bytes() + 1;
        let step = match self.pages_in_memory(offset, len as u64) {
            // It counts for the owner of a file and those who may write it, and knows nothing of layered file systems.
            None | Some(0) => STEP,
            Some(cached) if cached >= pages => STEP_COUNTED,
            Some(_) => return false,
        };
        let mut at = offset + step;
        while at < end {
            if !self.is_byte_in_memory(at) {
                return false;
            }
            at += step;
        }
        true
    }

    /// Sends some or all bytes of the range. The socket must be in non-blocking mode.
    pub(crate) fn send_to(&self, socket: RawFd, offset: u64, len: usize) -> FileSent {
        let Ok(mut at) = libc::off64_t::try_from(offset) else {
            return FileSent::Nothing;
        };
        // SAFETY: the offset is live; bad descriptors are errors, not faults.
        let sent = unsafe { libc::sendfile64(socket, self.fd(), &raw mut at, len) };
        match usize::try_from(sent) {
            Ok(0) => FileSent::Nothing,
            Ok(sent) => FileSent::Bytes(sent),
            Err(_) => match io::Error::last_os_error().raw_os_error() {
                Some(libc::EAGAIN) => FileSent::NoRoom,
                _ => FileSent::Nothing,
            },
        }
    }

    fn is_byte_in_memory(&self, offset: u64) -> bool {
        let mut byte = Vec::new();
        self.read_without_waiting(offset, 1, &mut byte)
            .is_ok_and(|read| read == 1)
    }

    /// The number of pages of the range that have a place in memory; `None` if the kernel does not tell.
    fn pages_in_memory(&self, offset: u64, len: u64) -> Option<u64> {
        let range = CacheRange { offset, len };
        let mut counts = CacheCounts::default();
        // SAFETY: both structures are live and have the layout that the call expects.
        let counted = unsafe {
            libc::syscall(
                SYS_CACHESTAT,
                self.fd(),
                &raw const range,
                &raw mut counts,
                0_u32,
            )
        };
        (counted == 0).then_some(counts.cached)
    }
}

fn page_bytes() -> u64 {
    // SAFETY: a plain call without arguments in memory.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(bytes).unwrap_or(4096).max(1)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::FileExt;

    use super::super::file::{OpenFolder, SymbolicLinks};

    /// Has the kernel forget the pages of a range, which must be on the disk.
    fn forget(file: &fs::File, offset: u64, len: u64) {
        let (offset, len) = (offset as libc::off64_t, len as libc::off64_t);
        // SAFETY: a plain system call on a descriptor of ours.
        unsafe { libc::posix_fadvise64(file.as_raw_fd(), offset, len, libc::POSIX_FADV_DONTNEED) };
    }

    #[test]
    fn a_range_is_in_memory_once_it_was_read() {
        let root = std::env::temp_dir().join(format!("blitz-resident-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        fs::create_dir_all(&root).unwrap();
        let path = root.join("file");
        fs::write(&path, vec![7; 600_000]).unwrap();
        let file = fs::File::open(&path).unwrap();
        file.sync_all().unwrap();
        let opened = OpenFolder::open(&root).unwrap();
        let opened = opened.open_beneath(b"file", SymbolicLinks::Deny).unwrap();
        let mut all = vec![0; 600_000];
        file.read_exact_at(&mut all, 0).unwrap();
        // File systems without such reads are always read on other threads.
        if opened.is_in_memory(0, 600_000) {
            assert!(opened.is_in_memory(599_999, 1), "the last byte");
            assert!(!opened.is_in_memory(599_999, 2), "a byte behind the end");
            forget(&file, 0, 600_000);
            // Those that keep everything in memory forget nothing.
            if opened.pages_in_memory(0, 600_000) == Some(0) {
                assert!(!opened.is_in_memory(0, 600_000), "nothing of it");
            }
        }
        let _ = fs::remove_dir_all(&root);
    }
}
