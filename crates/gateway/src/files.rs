//! Static files of routes: the [folder](blitz_site::folder) of a route's settings.

use std::path::Path;
use std::sync::Arc;

use blitz_config::Placed;
use blitz_http::RequestHead;
use blitz_http::files::SymbolicLinks;
use blitz_site::compress::Compression;
use blitz_site::folder::{FileRequest, Folder, FolderSettings};
use blitz_site::{Edit, FieldChange};

use crate::rules::rest_start;

/// The file that stands for its folder if the configuration names none.
const INDEX: &str = "index.html";

/// A folder whose files a route sends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Files {
    pub(crate) folder: Arc<Folder>,
    /// The folder stands for this part of a normalised path: segments, and bytes behind them.
    segments: usize,
    bytes: usize,
    /// Changes of the responses of the upstream that gets the requests without a file.
    upstream_edits: Vec<Edit>,
}

impl Files {
    /// Relative folders begin at `base`.
    pub(crate) fn new(
        files: &blitz_config::Files,
        base: &Path,
        compression: Option<Compression>,
        is_before_upstream: bool,
    ) -> Files {
        type List = Option<Arc<Placed<Vec<String>>>>;
        let list = |list: &List| list.as_ref().map(|list| list.value.clone());
        let fallback = files.fallback.as_ref();
        let settings = FolderSettings {
            root: base.join(&files.folder.value),
            index: list(&files.index).unwrap_or_else(|| vec![INDEX.to_owned()]),
            extensions: list(&files.extensions).unwrap_or_default(),
            fallback: fallback.map(|path| path.value.as_str().to_owned()),
            hidden: files.hidden.as_ref().is_some_and(|hidden| hidden.value),
            compression,
            is_before_upstream,
            list: files.list.as_ref().is_some_and(|list| list.value),
            links: match files.symlinks.as_ref().map(|links| links.value) {
                None | Some(blitz_config::SymbolicLinks::Inside) => SymbolicLinks::Inside,
                Some(blitz_config::SymbolicLinks::Follow) => SymbolicLinks::Follow,
                Some(blitz_config::SymbolicLinks::Deny) => SymbolicLinks::Deny,
            },
        };
        Files {
            folder: Arc::new(Folder::new(settings)),
            segments: files.segments,
            bytes: files.bytes,
            // Others get the fallback at the same path.
            upstream_edits: fallback.map(|_| vary_by_accept()).into_iter().collect(),
        }
    }

    /// Changes of responses of the upstream that gets the requests without a file.
    pub(crate) fn upstream_edits(&self) -> &[Edit] {
        &self.upstream_edits
    }

    /// A request for one of them.
    pub(crate) fn request<'a>(&'a self, head: &'a RequestHead) -> FileRequest<'a> {
        FileRequest {
            folder: &self.folder,
            head,
            start: self.start(head.path()),
        }
    }

    /// Where the path in the folder begins.
    fn start(&self, normalized: &str) -> usize {
        rest_start(normalized, self.segments, self.bytes).min(normalized.len())
    }

    /// The file for a normalised path, for people; `None` for a path that is not served.
    pub(crate) fn shown(&self, normalized: &str) -> Option<String> {
        let path = self.folder.path(normalized, self.start(normalized)).ok()?;
        let folder = if path.is_folder && !path.path.is_empty() {
            "/"
        } else {
            ""
        };
        let root = self.root().display();
        Some(format!(
            "{root}/{}{folder}",
            String::from_utf8_lossy(&path.path)
        ))
    }

    /// The folder, for people.
    pub(crate) fn root(&self) -> &Path {
        self.folder.root()
    }
}

fn vary_by_accept() -> Edit {
    Edit {
        name: "vary".into(),
        change: FieldChange::Add(b"Accept".to_vec()),
    }
}
