//! Regular files beneath a folder, for reading.
//!
//! A path never leaves its folder: the kernel resolves it with `openat2`. Without that system call each segment is
//! opened by itself, and no symbolic link is followed.

mod entries;

use std::ffi::CString;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

pub(crate) use self::entries::entries;
pub use self::entries::{EntryLimits, FolderEntry};

/// Attempts to resolve a path while folders are renamed, which the kernel reports with EAGAIN.
const ATTEMPTS_MAX: usize = 8;

/// Of `openat2` (`linux/openat2.h`).
const RESOLVE_NO_MAGICLINKS: u64 = 0x02;
const RESOLVE_NO_SYMLINKS: u64 = 0x04;
const RESOLVE_BENEATH: u64 = 0x08;

/// A read that would wait for the disk fails instead (`linux/fs.h`).
const RWF_NOWAIT: libc::c_int = 0x08;

/// A FIFO or a device must not block the thread that opens it.
const FOR_READING: libc::c_int =
    libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY;
const FOR_PATHS: libc::c_int = libc::O_PATH | libc::O_CLOEXEC | libc::O_DIRECTORY;

/// Which symbolic links of a path are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum SymbolicLinks {
    /// Relative ones that stay beneath the folder.
    #[default]
    Inside,
    /// All.
    Follow,
    /// None.
    Deny,
}

/// The facts about an open file. Two that are equal are the same file, unchanged as far as the file system tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileFacts {
    /// Bytes.
    pub size: u64,
    /// When its content was changed, since 1970: seconds and nanoseconds.
    pub modified: (i64, u32),
    /// When its content or its status was changed, by the clock of the file system.
    pub changed: (i64, u32),
    /// The numbers of its device and of its inode.
    pub identity: (u64, u64),
}

/// Whether opening failed because there is no such path beneath the folder: also for a symbolic link that is not
/// followed, for a name that no file can have, and for a socket.
pub(crate) fn is_no_path(error: &io::Error) -> bool {
    match error.raw_os_error() {
        Some(code) => [
            libc::ENOENT,
            libc::ENOTDIR,
            libc::ELOOP,
            libc::EXDEV,
            libc::ENAMETOOLONG,
            libc::ENXIO,
        ]
        .contains(&code),
        None => matches!(
            error.kind(),
            io::ErrorKind::NotFound | io::ErrorKind::InvalidInput
        ),
    }
}

/// Whether opening failed for lack of a resource, or because folders of the path were being renamed.
pub(crate) fn is_shortage(error: &io::Error) -> bool {
    [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::EAGAIN]
        .map(Some)
        .contains(&error.raw_os_error())
}

/// The kinds of an open path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OpenKind {
    Regular(FileFacts),
    Folder,
    /// A FIFO, a device or a socket.
    Other,
}

/// A folder to look beneath.
#[derive(Debug)]
pub(crate) struct OpenFolder(OwnedFd);

/// An open path that is to be read.
#[derive(Debug)]
pub(crate) struct OpenPath(OwnedFd);

impl OpenFolder {
    pub(crate) fn open(path: &Path) -> io::Result<OpenFolder> {
        let path = CString::new(path.as_os_str().as_bytes())?;
        open_at(libc::AT_FDCWD, &path, FOR_PATHS).map(OpenFolder)
    }

    /// Opens a path of plain segments beneath the folder; an empty one is the folder itself.
    pub(crate) fn open_beneath(&self, path: &[u8], links: SymbolicLinks) -> io::Result<OpenPath> {
        let path = if path.is_empty() { b"." } else { path };
        let path = CString::new(path)?;
        let resolve = match links {
            SymbolicLinks::Inside => RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS,
            SymbolicLinks::Follow => RESOLVE_NO_MAGICLINKS,
            SymbolicLinks::Deny => RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS,
        };
        let mut attempt = 0;
        loop {
            attempt += 1;
            let opened = open_at_2(self.0.as_raw_fd(), &path, FOR_READING, resolve);
            return match opened.as_ref().map_err(io::Error::raw_os_error) {
                Err(Some(libc::EAGAIN)) if attempt < ATTEMPTS_MAX => continue,
                // Filters of system calls that do not know it refuse it with EPERM.
                Err(Some(libc::ENOSYS | libc::EPERM)) if links == SymbolicLinks::Follow => {
                    open_at(self.0.as_raw_fd(), &path, FOR_READING).map(OpenPath)
                }
                Err(Some(libc::ENOSYS | libc::EPERM)) => self.walk(path.as_bytes()),
                _ => opened.map(OpenPath),
            };
        }
    }

    /// Opens segment by segment, without symbolic links.
    fn walk(&self, path: &[u8]) -> io::Result<OpenPath> {
        let (folders, last) = match path.iter().rposition(|byte| *byte == b'/') {
            Some(at) => (&path[..at], &path[at + 1..]),
            None => (&[][..], path),
        };
        let mut folder = None::<OwnedFd>;
        let at = |folder: &Option<OwnedFd>| folder.as_ref().unwrap_or(&self.0).as_raw_fd();
        for segment in folders.split(|byte| *byte == b'/') {
            if segment.is_empty() {
                continue;
            }
            if segment == b".." {
                return Err(io::ErrorKind::NotFound.into());
            }
            let segment = CString::new(segment)?;
            folder = Some(open_at(
                at(&folder),
                &segment,
                FOR_PATHS | libc::O_NOFOLLOW,
            )?);
        }
        if last == b".." {
            return Err(io::ErrorKind::NotFound.into());
        }
        let last = CString::new(last)?;
        open_at(at(&folder), &last, FOR_READING | libc::O_NOFOLLOW).map(OpenPath)
    }
}

impl OpenPath {
    pub(crate) fn kind(&self) -> io::Result<OpenKind> {
        let mut stat = MaybeUninit::<libc::stat>::zeroed();
        // SAFETY: the structure is live and has the size that the call expects.
        if unsafe { libc::fstat(self.0.as_raw_fd(), stat.as_mut_ptr()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call has filled it in.
        let stat = unsafe { stat.assume_init() };
        Ok(match stat.st_mode & libc::S_IFMT {
            libc::S_IFREG => OpenKind::Regular(FileFacts {
                size: u64::try_from(stat.st_size).unwrap_or_default(),
                modified: (stat.st_mtime, nanoseconds(stat.st_mtime_nsec)),
                changed: (stat.st_ctime, nanoseconds(stat.st_ctime_nsec)),
                identity: (stat.st_dev, stat.st_ino),
            }),
            libc::S_IFDIR => OpenKind::Folder,
            _ => OpenKind::Other,
        })
    }

    /// When a file was created, if the file system tells without waiting.
    pub(crate) fn created(&self) -> Option<(i64, u32)> {
        let mut facts = MaybeUninit::<libc::statx>::zeroed();
        let flags = libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC;
        // SAFETY: path and structure are live, and the structure has the size that the call expects.
        let told = unsafe {
            libc::statx(
                self.fd(),
                c"".as_ptr(),
                flags,
                libc::STATX_BTIME,
                facts.as_mut_ptr(),
            )
        };
        // SAFETY: all bytes are zero, or the call has filled them in.
        let facts = unsafe { facts.assume_init() };
        let is_told = told == 0 && facts.stx_mask & libc::STATX_BTIME != 0;
        is_told.then_some((facts.stx_btime.tv_sec, facts.stx_btime.tv_nsec))
    }

    /// Reads up to `len` bytes at an offset into new memory; fewer only at the end of the file.
    pub(crate) fn read(&self, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(len);
        while bytes.len() < len {
            let at = offset + bytes.len() as u64;
            match read_some(self.0.as_raw_fd(), at, len - bytes.len(), 0, &mut bytes) {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(bytes)
    }

    pub(super) fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Reads once without waiting for the disk, behind what `bytes` has.
    pub(super) fn read_without_waiting(
        &self,
        offset: u64,
        len: usize,
        bytes: &mut Vec<u8>,
    ) -> io::Result<usize> {
        bytes.reserve_exact(len);
        read_some(self.fd(), offset, len, RWF_NOWAIT, bytes)
    }

    /// The same without waiting for the disk: the bytes at the offset that are in memory. `None` if there are none, or
    /// the file system cannot tell.
    pub(crate) fn read_cached(&self, offset: u64, len: usize) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        let read = self.read_without_waiting(offset, len, &mut bytes);
        read.is_ok_and(|read| read > 0).then_some(bytes)
    }
}

fn nanoseconds(nanoseconds: i64) -> u32 {
    u32::try_from(nanoseconds).unwrap_or_default()
}

/// Reads once, behind what `bytes` has. At most `len` bytes, for which there must be room.
fn read_some(
    fd: RawFd,
    offset: u64,
    len: usize,
    flags: libc::c_int,
    bytes: &mut Vec<u8>,
) -> io::Result<usize> {
    let room = bytes.spare_capacity_mut();
    let vector = libc::iovec {
        iov_base: room.as_mut_ptr().cast(),
        iov_len: len.min(room.len()),
    };
    // The offset in two halves, of which 64-bit systems take the first alone.
    let (low, high) = (offset as libc::c_long, (offset >> 32) as libc::c_long);
    // SAFETY: the vector is live, and its bytes are room that the list owns.
    let read = unsafe {
        libc::syscall(
            libc::SYS_preadv2,
            fd,
            &raw const vector,
            1,
            low,
            high,
            flags,
        )
    };
    let read = usize::try_from(read).map_err(|_| io::Error::last_os_error())?;
    // SAFETY: the kernel has written so many bytes behind the present ones.
    unsafe { bytes.set_len(bytes.len() + read) };
    Ok(read)
}

fn open_at(folder: RawFd, path: &CString, flags: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: the path ends with NUL; a bad descriptor is an error, not a fault.
    let fd = unsafe { libc::openat(folder, path.as_ptr(), flags) };
    owned(fd.into())
}

fn open_at_2(
    folder: RawFd,
    path: &CString,
    flags: libc::c_int,
    resolve: u64,
) -> io::Result<OwnedFd> {
    /// `struct open_how`.
    #[repr(C)]
    struct How {
        flags: u64,
        mode: u64,
        resolve: u64,
    }
    let how = How {
        flags: flags as u64,
        mode: 0,
        resolve,
    };
    // SAFETY: the path ends with NUL, and the structure is live and of the given size.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_openat2,
            folder,
            path.as_ptr(),
            &raw const how,
            size_of::<How>(),
        )
    };
    owned(fd)
}

fn owned(fd: libc::c_long) -> io::Result<OwnedFd> {
    match RawFd::try_from(fd) {
        // SAFETY: the kernel has just opened it, and nothing else knows it.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    /// The content of a path by `openat2` and by the walk.
    fn both(folder: &OpenFolder, path: &str) -> [Option<Vec<u8>>; 2] {
        let opened = folder.open_beneath(path.as_bytes(), SymbolicLinks::Deny);
        [opened, folder.walk(path.as_bytes())].map(|opened| opened.ok()?.read(0, 100).ok())
    }

    #[test]
    fn without_openat2_the_same_files_are_found_and_no_link_is_followed() {
        let root = std::env::temp_dir().join(format!("blitz-walk-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        fs::create_dir_all(root.join("www/a")).unwrap();
        fs::write(root.join("secret"), "secret").unwrap();
        fs::write(root.join("www/a/b"), "content").unwrap();
        symlink("a", root.join("www/link")).unwrap();
        symlink("b", root.join("www/a/last")).unwrap();
        let folder = OpenFolder::open(&root.join("www")).unwrap();
        assert_eq!(
            both(&folder, "a/b"),
            [(); 2].map(|()| Some(b"content".to_vec()))
        );
        for path in [
            "../secret",
            "a/../../secret",
            "link/b",
            "a/last",
            "..",
            "a/..",
            "none",
            "a/b/c",
        ] {
            assert_eq!(both(&folder, path), [None, None], "{path}");
        }
        let linked = folder
            .open_beneath(b"link/b", SymbolicLinks::Inside)
            .unwrap();
        assert_eq!(linked.read(3, 2).unwrap(), b"te");
        let _ = fs::remove_dir_all(&root);
    }
}
