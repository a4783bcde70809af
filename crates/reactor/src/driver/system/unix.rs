//! Listening unix sockets, which the cores of the process share.
//!
//! The file of a socket outlives a crash, so a new process has to replace it. Two processes that start at the same
//! time must not remove each other's file, so a process holds a lock while it binds: a file beside the socket that only
//! its user can open. It removes the file afterwards, and the kernel releases the lock when the process ends.

use std::ffi::OsStr;
use std::fs::{self, File, Metadata, OpenOptions, Permissions, TryLockError};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use super::RawAddress;
use super::socket::{self, start_listening, stream_socket, try_connect};
use crate::socket::Address;

/// The longest wait for the lock of a path. Processes hold it for a few system calls.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(2);
/// The time between two attempts to lock.
const LOCK_RETRY: Duration = Duration::from_millis(2);
/// The mode of a lock: no other user can hold it.
const LOCK_MODE: u32 = 0o600;

/// A listening socket. When it refuses new connections, or the last core drops it, its file is removed, unless the path
/// now leads to another file.
#[derive(Debug)]
pub(crate) struct UnixListener {
    pub(super) fd: OwnedFd,
    path: PathBuf,
    file: FileId,
    refuses: AtomicBool,
}

/// Those of this process, the newest last.
static LISTENERS: Mutex<Vec<Weak<UnixListener>>> = Mutex::new(Vec::new());

/// Held between looking at a file of a socket and replacing or removing it. A listener takes it when it is dropped.
static FILES: Mutex<()> = Mutex::new(());

/// The listener of this process for `path`, if it has one; otherwise [`bind`].
pub(super) fn shared(path: &Path) -> io::Result<Arc<UnixListener>> {
    newest(path).map_or_else(|| bind(path, None), Ok)
}

fn newest(path: &Path) -> Option<Arc<UnixListener>> {
    let all: Vec<_> = lock(&LISTENERS).iter().filter_map(Weak::upgrade).collect();
    let is_for_path = |listener: &Arc<UnixListener>| listener.path == path && !listener.refuses();
    all.into_iter().rfind(is_for_path)
}

/// Binds `path`, with these permissions or those that the umask leaves. A stale socket, which no process listens on,
/// is replaced, for example after a crash. If this process listens there, the new listener waits beside it for
/// [`UnixListener::take_path`].
pub(super) fn bind(path: &Path, mode: Option<u32>) -> io::Result<Arc<UnixListener>> {
    let ours = newest(path);
    let path_lock = PathLock::take(path);
    let files = lock(&FILES);
    let has_path = ours.as_ref().is_some_and(|listener| {
        // It may have begun to refuse meanwhile.
        !listener.refuses() && listener.file.is_at(path)
    });
    let at = match has_path {
        true => beside(path, NEW),
        false => path.to_owned(),
    };
    let fd = match listen(&at, mode) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            // Without the lock another process may have bound the socket and not listen on it yet.
            if path_lock.is_none() || !remove_stale(&at)? {
                return Err(error);
            }
            listen(&at, mode)?
        }
        bound => bound?,
    };
    let listener = Arc::new(UnixListener {
        fd,
        path: path.to_owned(),
        file: FileId::of(&fs::symlink_metadata(&at)?),
        refuses: AtomicBool::new(false),
    });
    drop(files);
    let mut all = lock(&LISTENERS);
    all.retain(|listener| listener.strong_count() > 0);
    all.push(Arc::downgrade(&listener));
    Ok(listener)
}

fn listen(path: &Path, mode: Option<u32>) -> io::Result<OwnedFd> {
    let raw = RawAddress::new(&Address::unix(path))?;
    let mut fd = stream_socket(raw.family(), true)?;
    if let Some(mode) = mode {
        // The file gets the mode of the socket.
        let socket = File::from(fd);
        socket.set_permissions(Permissions::from_mode(mode))?;
        fd = socket.into();
    }
    socket::bind(&fd, &raw)?;
    start_listening(&fd)?;
    Ok(fd)
}

impl UnixListener {
    /// Takes the path from the listener of this process that has it. Clients always find one of them.
    ///
    /// # Errors
    /// The error of `rename(2)`.
    pub(crate) fn take_path(&self) -> io::Result<()> {
        let _files = lock(&FILES);
        let new = beside(&self.path, NEW);
        match self.file.is_at(&new) {
            true => fs::rename(new, &self.path),
            false => Ok(()),
        }
    }

    /// Removes the file and has attempts to connect fail, for all cores. Connections that wait can still be accepted.
    pub(crate) fn refuse_new(&self) {
        if !self.refuses.swap(true, Ordering::AcqRel) {
            // While it listens, no other Blitz process puts a file there.
            self.remove_file();
            // SAFETY: a plain system call on a descriptor of ours.
            unsafe { libc::shutdown(self.fd.as_raw_fd(), libc::SHUT_RD) };
        }
    }

    pub(crate) fn refuses(&self) -> bool {
        self.refuses.load(Ordering::Acquire)
    }

    /// The socket is still open, so the kernel has not reused its inode.
    fn remove_file(&self) {
        let _files = lock(&FILES);
        for path in [&self.path, &beside(&self.path, NEW)] {
            if self.file.is_at(path) {
                // The file is missing, or this process may not remove it; both are harmless.
                let _ = fs::remove_file(path);
            }
        }
    }
}

impl Drop for UnixListener {
    fn drop(&mut self) {
        self.refuse_new();
    }
}

/// The end of the name of a socket that waits for its path.
const NEW: &str = ".new";

/// The end of the name of a lock.
const LOCK: &str = ".lock";

/// `path` with a longer name.
fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or(OsStr::new("")).to_owned();
    name.push(end);
    path.with_file_name(name)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes a socket that no process listens on; false if it is in use. Files of other types stay:
/// connections to them are refused as well.
fn remove_stale(path: &Path) -> io::Result<bool> {
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        // The process that owned it has removed it meanwhile.
        Err(error) => return is_missing(&error).then_some(true).ok_or(error),
    };
    let is_refused = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    let is_stale = found.file_type().is_socket()
        && try_connect(&Address::unix(path))
            .err()
            .is_some_and(is_refused)
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

/// The lock of a socket's path against other processes, and threads, that bind it.
struct PathLock {
    file: File,
    path: PathBuf,
}

impl PathLock {
    /// `None` if that is not possible, for example where another user has such a file.
    fn take(socket: &Path) -> Option<PathLock> {
        let path = beside(socket, LOCK);
        let end = Instant::now() + LOCK_WAIT_MAX;
        loop {
            let file = open_own(&path)?;
            match file.try_lock() {
                // The one who held it may have removed the file.
                Ok(()) if FileId::of(&file.metadata().ok()?).is_at(&path) => {
                    return Some(PathLock { file, path });
                }
                Err(TryLockError::WouldBlock) if Instant::now() < end => thread::sleep(LOCK_RETRY),
                Ok(()) if Instant::now() < end => {}
                _ => return None,
            }
        }
    }
}

impl Drop for PathLock {
    fn drop(&mut self) {
        // A file that stays is no hindrance to the next. One with content is of another program.
        if self.file.metadata().is_ok_and(|file| file.len() == 0) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Opens or makes a file that belongs to the user of this process.
fn open_own(path: &Path) -> Option<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).mode(LOCK_MODE);
    options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let file = options.open(path).ok()?;
    // SAFETY: a plain system call.
    let user = unsafe { libc::geteuid() };
    (file.metadata().ok()?.uid() == user).then_some(file)
}
