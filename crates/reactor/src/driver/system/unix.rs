//! Listening unix sockets: one for each path of the process, shared by all cores.
//!
//! The file of a socket outlives a crash, so a new process has to remove it. Two processes that start
//! at the same time must not remove each other's file, so a process locks the folder while it binds or
//! removes the file. The kernel releases the lock when the process ends; there is no lock file.

use std::collections::HashMap;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use crate::socket::Address;

/// The longest wait for the lock of a folder. Processes hold it for a few system calls.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(2);
/// The time between two attempts to lock.
const LOCK_RETRY: Duration = Duration::from_millis(2);

/// A listening socket. When the last core drops it, its file is removed, unless the path now leads to
/// another file.
#[derive(Debug)]
pub(crate) struct UnixListener {
    pub(super) fd: OwnedFd,
    path: PathBuf,
    file: FileId,
}

static UNIX_LISTENERS: LazyLock<Mutex<HashMap<PathBuf, Weak<UnixListener>>>> =
    LazyLock::new(Mutex::default);

/// Binds `path`, or returns the listener that this process has bound to it. A stale socket, which no
/// process listens on, is replaced, for example after a crash.
pub(super) fn unix_listener(path: &Arc<PathBuf>) -> io::Result<Arc<UnixListener>> {
    let mut all = UNIX_LISTENERS
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    if let Some(listener) = all.get(&**path).and_then(Weak::upgrade) {
        return Ok(listener);
    }
    let address = Address::Unix(Arc::clone(path));
    let lock = lock_folder(path);
    let fd = match super::listen(&address, false, true) {
        // Without the lock another process may have bound the socket and not listen on it yet.
        Err(error) if error.kind() == io::ErrorKind::AddrInUse && lock.is_some() => {
            if !remove_stale(path, &address)? {
                return Err(error);
            }
            super::listen(&address, false, true)?
        }
        bound => bound?,
    };
    let listener = Arc::new(UnixListener {
        fd,
        path: path.to_path_buf(),
        file: FileId::of(&fs::symlink_metadata(&**path)?),
    });
    all.insert(path.to_path_buf(), Arc::downgrade(&listener));
    Ok(listener)
}

/// Removes a socket that no process listens on; false if it is in use. Files of other types stay:
/// connections to them are refused as well.
fn remove_stale(path: &Path, address: &Address) -> io::Result<bool> {
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        // The process that owned it has removed it meanwhile.
        Err(error) => return is_missing(&error).then_some(true).ok_or(error),
    };
    let is_refused = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    let is_stale = found.file_type().is_socket()
        && super::try_connect(address).err().is_some_and(is_refused)
        && FileId::of(&found).is_at(path);
    if !is_stale {
        return Ok(false);
    }
    match fs::remove_file(path) {
        Err(error) if !is_missing(&error) => Err(error),
        _ => Ok(true),
    }
}

fn is_missing(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

impl Drop for UnixListener {
    fn drop(&mut self) {
        // While the lock is held no other Blitz process puts a file there. The socket is still open,
        // so the kernel has not reused its inode.
        let _lock = lock_folder(&self.path);
        if self.file.is_at(&self.path) {
            // The file is missing, or this process may not remove it; both are harmless.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Identifies a file among all that exist at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    fn of(file: &Metadata) -> FileId {
        FileId {
            device: file.dev(),
            inode: file.ino(),
        }
    }

    fn is_at(self, path: &Path) -> bool {
        fs::symlink_metadata(path).is_ok_and(|file| FileId::of(&file) == self)
    }
}

/// Locks the folder of `path` against other processes and threads that bind or remove a socket there.
/// `None` if that is not possible, for example in a folder that this process cannot read.
fn lock_folder(path: &Path) -> Option<File> {
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    let folder = File::open(folder).ok()?;
    let end = Instant::now() + LOCK_WAIT_MAX;
    loop {
        match folder.try_lock() {
            Ok(()) => return Some(folder),
            Err(fs::TryLockError::WouldBlock) if Instant::now() < end => thread::sleep(LOCK_RETRY),
            Err(_) => return None,
        }
    }
}
