//! The lookup of a file, which waits for the disk and runs on the pool of blocking threads.

use std::io;
use std::sync::Arc;

use blitz_http::files::{File, Folder as OpenFolder};

use super::Folder;
use super::content::{Content, Identity, Place, SMALL_MAX};
use super::open_files::Permit;
use crate::files::{AcceptedCodings, ContentCoding, FilePath, media_type};

/// A file to look for.
pub(super) struct Lookup {
    pub(super) files: Arc<Folder>,
    pub(super) path: FilePath,
    pub(super) codings: AcceptedCodings,
    /// Whether the client takes the fallback, which is a page.
    pub(super) takes_page: bool,
    /// The file that is remembered, and its coding: it need not be read again.
    pub(super) known: Option<Identity>,
    /// The right to open files, which the content of a large file takes.
    pub(super) permit: Option<Permit>,
}

/// The outcome of a lookup.
#[derive(Debug)]
pub(super) enum Found {
    Content(Content),
    /// The fallback stands for the path, which has no file.
    Fallback(Content),
    /// The file that is known, unchanged.
    Unchanged,
    /// A folder, whose path needs a slash at its end.
    Folder,
    Missing,
    /// The process may not read it.
    Forbidden,
    /// The process or the system lacks a resource.
    Unavailable,
    Failed(io::Error),
}

/// A path that exists.
enum Entry {
    File(File),
    Folder,
}

impl Lookup {
    /// Looks for the file: the path itself, with endings, as a folder with an index, and the fallback.
    pub(super) fn run(&mut self) -> Found {
        self.find().unwrap_or_else(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => Found::Forbidden,
            _ if OpenFolder::may_retry(&error) => Found::Unavailable,
            _ => Found::Failed(error),
        })
    }

    fn find(&mut self) -> io::Result<Found> {
        let files = Arc::clone(&self.files);
        let Some(root) = OpenFolder::open(files.root(), files.share())? else {
            return Ok(Found::Missing);
        };
        let found = match self.path.is_folder {
            true => self.index(&root)?,
            false => self.file(&root)?,
        };
        if !matches!(found, Found::Missing) || !self.takes_page {
            return Ok(found);
        }
        let Some(fallback) = &files.settings.fallback else {
            return Ok(found);
        };
        match self.open(&root, fallback.as_bytes())? {
            Some(Entry::File(file)) => {
                let content = self.content(&root, file, fallback.as_bytes(), false)?;
                Ok(match content {
                    Found::Content(content) => Found::Fallback(content),
                    other => other,
                })
            }
            _ => Ok(found),
        }
    }

    fn index(&mut self, root: &OpenFolder) -> io::Result<Found> {
        let files = Arc::clone(&self.files);
        for name in &files.settings.index {
            let path = self.path.with("/", name);
            if let Some(Entry::File(file)) = self.open(root, &path)? {
                return self.content(root, file, &path, true);
            }
        }
        Ok(Found::Missing)
    }

    fn file(&mut self, root: &OpenFolder) -> io::Result<Found> {
        let entry = self.open(root, &self.path.path)?;
        if let Some(Entry::File(file)) = entry {
            let path = self.path.path.clone();
            return self.content(root, file, &path, true);
        }
        if !self.path.path.is_empty() {
            let files = Arc::clone(&self.files);
            for ending in &files.settings.extensions {
                let path = self.path.with("", ending);
                if let Some(Entry::File(file)) = self.open(root, &path)? {
                    return self.content(root, file, &path, true);
                }
            }
        }
        Ok(match entry {
            Some(Entry::Folder) if self.leaves_folder_to_upstream(root)? => Found::Missing,
            Some(Entry::Folder) => Found::Folder,
            _ => Found::Missing,
        })
    }

    /// Whether an upstream gets the request for a folder, which has no index.
    fn leaves_folder_to_upstream(&self, root: &OpenFolder) -> io::Result<bool> {
        if !self.files.is_before_upstream() {
            return Ok(false);
        }
        for name in &self.files.settings.index {
            let index = self.open(root, &self.path.with("/", name))?;
            if let Some(Entry::File(_)) = index {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn open(&self, root: &OpenFolder, path: &[u8]) -> io::Result<Option<Entry>> {
        use blitz_http::files::Found as Opened;
        Ok(match root.find(path, self.files.settings.links)? {
            Some(Opened::File(file)) => Some(Entry::File(file)),
            Some(Opened::Folder) => Some(Entry::Folder),
            Some(Opened::Other) | None => None,
        })
    }

    /// The file, or its compressed sibling that the client prefers.
    fn content(
        &mut self,
        root: &OpenFolder,
        file: File,
        path: &[u8],
        may_be_known: bool,
    ) -> io::Result<Found> {
        let mut siblings = [None, None, None];
        for coding in ContentCoding::ALL {
            let sibling = [path, coding.ending().as_bytes()].concat();
            // A sibling that cannot be read is none.
            if let Ok(Some(Entry::File(sibling))) = self.open(root, &sibling) {
                siblings[coding as usize] = Some(sibling);
            }
        }
        let compression = self.files.compression();
        let compression = compression.filter(|compression| {
            compression.takes(media_type(path).as_bytes(), file.facts().size)
        });
        let varies = siblings.iter().any(Option::is_some) || compression.is_some();
        let mut ranked = self.codings.ranked();
        let coding = ranked.find(|coding| siblings[*coding as usize].is_some());
        let sibling = coding.and_then(|coding| siblings[coding as usize].take());
        let made = compression.filter(|_| sibling.is_none() && file.facts().size <= SMALL_MAX);
        let made = made.and_then(|compression| compression.choose(self.codings));
        let coding = made.or(coding);
        let (file, ending) = match sibling {
            Some(sibling) => (sibling, coding.map_or("", ContentCoding::ending)),
            None => (file, ""),
        };
        if may_be_known && self.known == Some((*file.facts(), coding, varies)) {
            return Ok(Found::Unchanged);
        }
        let Some(permit) = self.permit.take() else {
            return Ok(Found::Unavailable);
        };
        let sent = [path, ending.as_bytes()].concat();
        let place = Place {
            files: &self.files,
            path: &sent,
            name: path,
        };
        let content = match made {
            Some(made) => Content::compressed(file, place, made, permit),
            None => Content::new(file, place, (coding, varies), permit),
        };
        content.map(Found::Content)
    }
}
