//! The descriptors of a core's files. A large file is closed while its clients take nothing of it, if others need its
//! descriptor, and is opened again when they do: so slow readers take no files from the rest.

use std::cell::{Cell, RefCell};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use blitz_http::files::{File, FileFacts, Folder as OpenFolder, Found, blocking_in};
use blitz_http::reactor::sockets_limit;
use blitz_http::sleep;

use super::Folder;
use super::content::{Content, Source};

/// The most lookups and open files of a core: each has a descriptor.
const OPEN_MAX: usize = 1024;

/// At a low limit of descriptors they are at most this part of the core's sockets, but [`OPEN_MIN`].
const OPEN_PART: usize = 10;
const OPEN_MIN: usize = 4;

/// How often opening a file again is tried while descriptors or threads are lacking, and the time between two attempts.
const REOPEN_MAX: usize = 100;
const REOPEN_PAUSE: Duration = Duration::from_millis(100);

/// The lookups and open files of a core.
#[derive(Debug, Default)]
pub(super) struct OpenFiles {
    permits: Permits,
    /// Those with an open file, and some that are gone: at most twice [`OPEN_MAX`].
    large: RefCell<Vec<Weak<Content>>>,
    /// Counts uses.
    uses: Cell<u64>,
}

/// Counts descriptors. A lookup goes on when its request has ended.
#[derive(Debug, Default)]
struct Permits(Arc<AtomicUsize>);

/// The right to one more; it is given back when this is dropped.
#[derive(Debug)]
pub(super) struct Permit(Arc<AtomicUsize>);

/// A file that is read while it is sent, and how to open it again.
#[derive(Debug)]
pub(super) struct LargeFile {
    files: Arc<Folder>,
    /// Beneath the folder.
    path: Vec<u8>,
    /// When it was created, if the file system tells: another file may get its inode.
    created: Option<(i64, u32)>,
    opened: RefCell<Option<Arc<Opened>>>,
    /// The number of its last use.
    used: Cell<u64>,
}

/// An open file. It is not closed while somebody else holds it.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) file: File,
    _permit: Permit,
}

/// The file that is to be opened again.
struct Same {
    facts: FileFacts,
    created: Option<(i64, u32)>,
}

/// The outcome of opening a file again.
enum Reopened {
    Opened(Opened),
    /// Descriptors or threads are lacking.
    NotNow,
    /// It is another file now, or none.
    Changed,
    Failed(io::Error),
}

impl Permits {
    /// `None` if a core that may have so many sockets has as many files open as it may.
    fn take(&self, sockets_max: usize) -> Option<Permit> {
        let max = (sockets_max / OPEN_PART).clamp(OPEN_MIN, OPEN_MAX);
        let before = self.0.fetch_add(1, Ordering::Relaxed);
        let permit = Permit(Arc::clone(&self.0));
        (before < max).then_some(permit)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl LargeFile {
    pub(super) fn new(file: File, files: &Arc<Folder>, path: &[u8], permit: Permit) -> LargeFile {
        let created = file.created();
        let opened = Opened {
            file,
            _permit: permit,
        };
        LargeFile {
            created,
            files: Arc::clone(files),
            path: path.to_vec(),
            opened: RefCell::new(Some(Arc::new(opened))),
            used: Cell::new(0),
        }
    }

    /// The path, for people.
    pub(super) fn shown(&self) -> String {
        let path = Path::new(OsStr::from_bytes(&self.path));
        self.files.root().join(path).display().to_string()
    }

    pub(super) fn is_open(&self) -> bool {
        self.opened.borrow().is_some()
    }

    /// Whether it is open and nobody uses it at the moment.
    fn can_be_closed(&self) -> bool {
        let opened = self.opened.borrow();
        opened
            .as_ref()
            .is_some_and(|opened| Arc::strong_count(opened) == 1)
    }
}

impl OpenFiles {
    /// The right to one more descriptor. It closes the file that has not been used for the longest time if that is needed;
    /// `None` if all are in use.
    pub(super) fn permit(&self) -> Option<Permit> {
        let sockets_max = sockets_limit().1;
        let permit = self.permits.take(sockets_max);
        permit.or_else(|| {
            self.close_one();
            self.permits.take(sockets_max)
        })
    }

    /// Notes an open file, so that it can be closed.
    pub(super) fn note(&self, content: &Rc<Content>) {
        if let Source::File(large) = &content.source {
            let mut all = self.large.borrow_mut();
            if all.len() >= 2 * OPEN_MAX {
                all.retain(is_open);
            }
            all.push(Rc::downgrade(content));
            self.note_use(large);
        }
    }

    /// The file, if it is open.
    pub(super) fn get(&self, large: &LargeFile) -> Option<Arc<Opened>> {
        let opened = large.opened.borrow().clone();
        if opened.is_some() {
            self.note_use(large);
        }
        opened
    }

    /// Opens a file again that was closed. Returns whether it is open and the same.
    pub(super) async fn reopen(&self, content: &Rc<Content>, large: &LargeFile) -> bool {
        for _ in 0..REOPEN_MAX {
            match self.try_to_open(large, content.facts).await {
                Reopened::Opened(opened) => {
                    // Another response may have been faster.
                    if !large.is_open() {
                        large.opened.replace(Some(Arc::new(opened)));
                        self.note(content);
                    }
                    return true;
                }
                Reopened::NotNow => sleep(REOPEN_PAUSE).await,
                Reopened::Changed => {
                    let file = large.shown();
                    tracing::warn!(
                        file,
                        "a file changed while it was sent: the response is cut off"
                    );
                    return false;
                }
                Reopened::Failed(error) => {
                    let file = large.shown();
                    tracing::warn!(%error, file, "a file cannot be opened again: the response is cut off");
                    return false;
                }
            }
        }
        let file = large.shown();
        tracing::warn!(
            file,
            "too many files are open to go on with a response: it is cut off"
        );
        false
    }

    async fn try_to_open(&self, large: &LargeFile, facts: FileFacts) -> Reopened {
        let Some(permit) = self.permit() else {
            return Reopened::NotNow;
        };
        let (files, path) = (Arc::clone(&large.files), large.path.clone());
        let same = Same {
            facts,
            created: large.created,
        };
        let job = move || open_again(&files, &path, &same, permit);
        let opened = blocking_in(large.files.share(), job).await;
        opened.unwrap_or(Reopened::NotNow)
    }

    /// Closes the file that has not been used for the longest time, of those that nobody uses now.
    fn close_one(&self) {
        let mut all = self.large.borrow_mut();
        all.retain(is_open);
        let mut oldest: Option<(u64, usize)> = None;
        for (index, content) in all.iter().enumerate() {
            let content = content.upgrade();
            let large = content.as_deref().and_then(Content::large);
            let Some(large) = large.filter(|large| large.can_be_closed()) else {
                continue;
            };
            if oldest.is_none_or(|(used, _)| large.used.get() < used) {
                oldest = Some((large.used.get(), index));
            }
        }
        let closed = oldest.and_then(|(_, index)| all.swap_remove(index).upgrade());
        if let Some(large) = closed.as_deref().and_then(Content::large) {
            large.opened.take();
        }
    }

    fn note_use(&self, large: &LargeFile) {
        self.uses.set(self.uses.get() + 1);
        large.used.set(self.uses.get());
    }
}

fn is_open(content: &Weak<Content>) -> bool {
    let content = content.upgrade();
    let large = content.as_deref().and_then(Content::large);
    large.is_some_and(LargeFile::is_open)
}

fn open_again(files: &Folder, path: &[u8], same: &Same, permit: Permit) -> Reopened {
    let found = OpenFolder::open(files.root(), files.share()).and_then(|root| match root {
        Some(root) => root.find(path, files.settings.links),
        None => Ok(None),
    });
    match found {
        Ok(Some(Found::File(file))) if same.is(&file) => Reopened::Opened(Opened {
            file,
            _permit: permit,
        }),
        Ok(_) => Reopened::Changed,
        Err(error) if OpenFolder::may_retry(&error) => Reopened::NotNow,
        Err(error) => Reopened::Failed(error),
    }
}

impl Same {
    /// Whether a file that was opened is it, with the same content. If it got another name, the time of the last change of
    /// its status is another one.
    fn is(&self, file: &File) -> bool {
        let content = |facts: &FileFacts| (facts.identity, facts.size, facts.modified);
        let is_file = match self.created {
            Some(_) => file.created() == self.created,
            None => file.facts().changed == self.facts.changed,
        };
        is_file && content(file.facts()) == content(&self.facts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permits_are_bounded_and_given_back() {
        let permits = Permits::default();
        for (sockets_max, expected) in [(0, OPEN_MIN), (450, 45), (1 << 20, OPEN_MAX)] {
            let taken = (0..2 * OPEN_MAX).map_while(|_| permits.take(sockets_max));
            let all: Vec<_> = taken.collect();
            assert_eq!(all.len(), expected);
            assert!(permits.take(sockets_max).is_none());
        }
        assert_eq!(permits.0.load(Ordering::Relaxed), 0);
    }
}
