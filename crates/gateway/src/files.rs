//! Static files of routes: the settings, the lookup on the pool of blocking threads, and the files that a core
//! remembers.

mod cache;
mod content;
mod listing;
mod lookup;
mod send;
mod share;

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use blitz_http::files::{Share, SymbolicLinks};
use blitz_site::compress::Compression;
use blitz_site::files::{FilePath, PathError};
use blitz_site::{Edit, FieldChange};

use crate::rules::rest_start;
use share::FolderShare;

pub(crate) use cache::{FileCache, Remembered};
pub(crate) use content::{Content, Source};
pub(crate) use listing::{ListingRequest, Listings};
pub(crate) use lookup::{Found, Lookup};
pub(crate) use send::{Permit, respond};

/// The file that stands for its folder if the configuration names none.
const INDEX: &str = "index.html";

/// The files of a core.
#[derive(Default)]
pub(crate) struct CoreFiles {
    pub(crate) cache: RefCell<FileCache>,
    pub(crate) permits: send::Permits,
    pub(crate) listings: Listings,
}

/// A folder whose files a route sends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Files {
    root: PathBuf,
    share: FolderShare,
    /// The folder stands for this part of a normalised path: segments, and bytes behind them.
    segments: usize,
    bytes: usize,
    index: Box<[String]>,
    extensions: Box<[String]>,
    fallback: Option<Box<str>>,
    hidden: bool,
    list: bool,
    links: SymbolicLinks,
    /// The upstream that gets requests without a file; `None` is 404.
    upstream: Option<BeforeUpstream>,
    /// Of files without a compressed sibling; `None` sends them as they are.
    pub(crate) compression: Option<Compression>,
}

/// Marks a folder whose route has an upstream for requests without a file.
#[derive(Debug, Clone, PartialEq, Eq)]
struct BeforeUpstream {
    /// Changes of the responses of the upstream.
    edits: Vec<Edit>,
}

impl Files {
    /// Relative folders begin at `base`.
    pub(crate) fn new(
        files: &blitz_config::Files,
        base: &Path,
        compression: Option<Compression>,
        is_before_upstream: bool,
    ) -> Files {
        let list = |list: &Option<Arc<blitz_config::Placed<Vec<String>>>>| {
            list.as_ref()
                .map(|list| list.value.clone().into_boxed_slice())
        };
        let fallback = files.fallback.as_ref();
        let root = base.join(&files.folder.value);
        Files {
            share: FolderShare::of(&root),
            root,
            segments: files.segments,
            bytes: files.bytes,
            index: list(&files.index).unwrap_or_else(|| [INDEX.to_owned()].into()),
            extensions: list(&files.extensions).unwrap_or_default(),
            fallback: fallback.map(|path| path.value.as_str().into()),
            hidden: files.hidden.as_ref().is_some_and(|hidden| hidden.value),
            upstream: is_before_upstream.then(|| BeforeUpstream {
                // Others get the fallback at the same path.
                edits: fallback.map(|_| vary_by_accept()).into_iter().collect(),
            }),
            compression,
            list: files.list.as_ref().is_some_and(|list| list.value),
            links: match files.symlinks.as_ref().map(|links| links.value) {
                None | Some(blitz_config::SymbolicLinks::Inside) => SymbolicLinks::Inside,
                Some(blitz_config::SymbolicLinks::Follow) => SymbolicLinks::Follow,
                Some(blitz_config::SymbolicLinks::Deny) => SymbolicLinks::Deny,
            },
        }
    }

    /// The path in the folder that a normalised path means.
    pub(crate) fn path(&self, normalized: &str) -> Result<FilePath, PathError> {
        let start = rest_start(normalized, self.segments, self.bytes).min(normalized.len());
        FilePath::new(normalized, start, self.hidden)
    }

    /// Whether the path is that of a folder, which is listed if it has no index.
    pub(crate) fn may_list(&self, path: &FilePath) -> bool {
        self.list && path.is_folder
    }

    /// Whether an upstream gets the requests without a file.
    pub(crate) fn is_before_upstream(&self) -> bool {
        self.upstream.is_some()
    }

    /// Changes of responses of the upstream that gets the requests without a file.
    pub(crate) fn upstream_edits(&self) -> &[Edit] {
        self.upstream
            .as_ref()
            .map_or(&[], |upstream| &upstream.edits)
    }

    /// Whether a client gets the fallback for this path if there is no file. Before an upstream only pages do, since all
    /// else may be there.
    pub(crate) fn takes_fallback(&self, path: &FilePath, prefers_html: bool) -> bool {
        let is_page = path.is_page() && !self.is_before_upstream();
        self.has_fallback() && (is_page || prefers_html)
    }

    /// Whether the file for this path depends on what the client accepts, if it is the fallback.
    pub(crate) fn depends_on_accept(&self, path: &FilePath) -> bool {
        self.has_fallback() && (self.is_before_upstream() || !path.is_page())
    }

    fn has_fallback(&self) -> bool {
        self.fallback.is_some()
    }

    /// The file for a normalised path, for people; `None` for a path that is not served.
    pub(crate) fn shown(&self, normalized: &str) -> Option<String> {
        let path = self.path(normalized).ok()?;
        let folder = if path.is_folder && !path.path.is_empty() {
            "/"
        } else {
            ""
        };
        let root = self.root.display();
        Some(format!(
            "{root}/{}{folder}",
            String::from_utf8_lossy(&path.path)
        ))
    }

    /// The threads that wait for its disk.
    pub(crate) fn share(&self) -> &Arc<Share> {
        self.share.get()
    }

    /// The folder, for people.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }
}

fn vary_by_accept() -> Edit {
    Edit {
        name: "vary".into(),
        change: FieldChange::Add(b"Accept".to_vec()),
    }
}
