//! Regular files beneath a folder, which are read without blocking a core.
//!
//! Opening waits for the disk, so it belongs into [`blocking_in`](crate::blocking_in). Reading first takes what the
//! kernel has in memory, and reads the rest on the pool of blocking threads.

mod listing;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::driver::{
    FileFacts, OpenFolder, OpenKind, OpenPath, Share, SymbolicLinks, is_no_path, is_shortage,
};
use crate::executor::blocking_in_order;
use crate::socket::Socket;

/// A folder to look beneath.
#[derive(Debug)]
pub struct Folder {
    folder: OpenFolder,
    share: Arc<Share>,
}

/// A regular file that is open. A clone is the same.
#[derive(Debug, Clone)]
pub struct File {
    path: Arc<OpenPath>,
    share: Arc<Share>,
    facts: FileFacts,
}

/// A path that exists.
#[derive(Debug)]
pub enum Found {
    /// A regular file.
    File(File),
    /// A folder.
    Folder,
    /// A FIFO, a device or a socket, which is not read.
    Other,
}

impl Folder {
    /// Opens a folder. This may wait for the disk. Later waits for the disk are on threads of `share`.
    ///
    /// # Errors
    /// Not if there is none; that is `None`.
    pub fn open(path: &Path, share: &Arc<Share>) -> io::Result<Option<Folder>> {
        let share = Arc::clone(share);
        existing(OpenFolder::open(path).map(|folder| Folder { folder, share }))
    }

    /// Opens a path beneath the folder. It has segments between slashes, without dot segments; an empty one is the folder
    /// itself. This may wait for the disk, but not for the other end of a FIFO.
    ///
    /// # Errors
    /// Not if there is none, or a symbolic link is not followed; that is `None`.
    pub fn find(&self, path: &[u8], links: SymbolicLinks) -> io::Result<Option<Found>> {
        let Some(path) = existing(self.folder.open_beneath(path, links))? else {
            return Ok(None);
        };
        Ok(Some(match path.kind()? {
            OpenKind::Folder => Found::Folder,
            OpenKind::Other => Found::Other,
            OpenKind::Regular(facts) => Found::File(File {
                path: Arc::new(path),
                share: Arc::clone(&self.share),
                facts,
            }),
        }))
    }

    /// Whether an error of [`Folder::find`] passes: a resource was lacking, or folders were being renamed.
    #[must_use]
    pub fn may_retry(error: &io::Error) -> bool {
        is_shortage(error)
    }
}

fn existing<T>(opened: io::Result<T>) -> io::Result<Option<T>> {
    match opened {
        Ok(opened) => Ok(Some(opened)),
        Err(error) if is_no_path(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

impl File {
    /// The facts at the time when it was opened.
    #[must_use]
    pub fn facts(&self) -> &FileFacts {
        &self.facts
    }

    /// When it was created, since 1970: seconds and nanoseconds. `None` if the file system does not tell without waiting.
    #[must_use]
    pub fn created(&self) -> Option<(i64, u32)> {
        self.path.created()
    }

    /// Sends bytes to a socket behind its queue, straight from the page cache: at most `len`, which must not be 0, at
    /// an offset. Ready with the number that the kernel took. `None` if the caller must read the next bytes and send
    /// them, because they are not in memory, the file ends, or the socket or the file cannot do it. While it is pending
    /// the caller must queue nothing, and call it again when it is woken.
    pub fn poll_send(
        &self,
        socket: &Socket,
        cx: &Context<'_>,
        offset: u64,
        len: usize,
    ) -> Poll<io::Result<Option<usize>>> {
        socket.poll_send_file(cx, &self.path, offset, len)
    }

    /// Reads up to `len` bytes at an offset; fewer only at the end of the file. This may wait for the disk.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn read_blocking(&self, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        self.path.read(offset, len)
    }

    /// Reads up to `len` bytes at an offset, none only at the end of the file.
    ///
    /// # Errors
    /// The file cannot be read.
    pub async fn read(&self, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        if let Some(bytes) = self.path.read_cached(offset, len) {
            return Ok(bytes);
        }
        let path = Arc::clone(&self.path);
        blocking_in_order(&self.share, move || path.read(offset, len)).await
    }
}
