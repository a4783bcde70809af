//! Folders whose files answer requests: the settings, the look-up on the pool of blocking threads, the files that a core
//! remembers, and the responses.

mod cache;
mod content;
mod listing;
mod lookup;
mod open_files;
mod request;
mod send;
mod share;

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use blitz_http::files::{Share, SymbolicLinks};

use crate::compress::Compression;
use crate::files::{FilePath, PathError};
use cache::FileCache;
use listing::Listings;
use open_files::OpenFiles;
use share::FolderShare;

pub use request::{FileAnswer, FileContent, FileLookup, FileRequest, FileStep};

/// The methods that files have.
const FILE_METHODS: &str = "GET, HEAD, OPTIONS";

/// The files of a core.
#[derive(Default)]
pub struct CoreFiles {
    cache: RefCell<FileCache>,
    open_files: Rc<OpenFiles>,
    listings: Listings,
}

impl CoreFiles {
    /// Forgets the files that the core remembers.
    pub fn clear(&self) {
        self.cache.borrow_mut().clear();
    }
}

/// How the files of a folder are sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FolderSettings {
    /// The folder.
    pub root: PathBuf,
    /// Names of files that stand for their folder, the preferred first.
    pub index: Vec<String>,
    /// Endings that paths may leave out.
    pub extensions: Vec<String>,
    /// The file for paths of pages that have none.
    pub fallback: Option<String>,
    /// Whether names that begin with a dot are served.
    pub hidden: bool,
    /// Whether folders without an index are listed.
    pub list: bool,
    /// Whether an upstream gets the requests without a file, and those for folders without an index.
    pub is_before_upstream: bool,
    /// Which symbolic links are followed.
    pub links: SymbolicLinks,
    /// Of files without a compressed sibling; `None` sends them as they are.
    pub compression: Option<Compression>,
}

/// A folder whose files are sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Folder {
    settings: FolderSettings,
    share: FolderShare,
}

impl Folder {
    /// A folder with these settings.
    #[must_use]
    pub fn new(settings: FolderSettings) -> Folder {
        Folder {
            share: FolderShare::of(&settings.root),
            settings,
        }
    }

    /// The path in the folder that a normalised path means, behind the first `start` bytes.
    ///
    /// # Errors
    /// The path is not served.
    pub fn path(&self, normalized: &str, start: usize) -> Result<FilePath, PathError> {
        FilePath::new(normalized, start, self.settings.hidden)
    }

    /// The folder, for people.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.settings.root
    }

    /// How files without a compressed sibling are compressed.
    #[must_use]
    pub fn compression(&self) -> Option<&Compression> {
        self.settings.compression.as_ref()
    }

    /// Whether the path is that of a folder, which is listed if it has no index.
    fn may_list(&self, path: &FilePath) -> bool {
        self.settings.list && path.is_folder && !self.is_before_upstream()
    }

    /// Whether an upstream gets the requests without a file.
    fn is_before_upstream(&self) -> bool {
        self.settings.is_before_upstream
    }

    /// Whether a client gets the fallback for this path if there is no file. Before an upstream only pages do, since all
    /// else may be there.
    fn takes_fallback(&self, path: &FilePath, prefers_html: impl FnOnce() -> bool) -> bool {
        let is_page = path.is_page() && !self.is_before_upstream();
        self.has_fallback() && (is_page || prefers_html())
    }

    /// Whether the file for this path depends on what the client accepts, if it is the fallback.
    fn depends_on_accept(&self, path: &FilePath) -> bool {
        self.has_fallback() && (self.is_before_upstream() || !path.is_page())
    }

    fn has_fallback(&self) -> bool {
        self.settings.fallback.is_some()
    }

    /// The threads that wait for its disk.
    fn share(&self) -> &Arc<Share> {
        self.share.get()
    }
}
