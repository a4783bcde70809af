//! The listing of a folder, which waits for the disk and runs on the pool of blocking threads.

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use blitz_http::files::{EntryLimits, Folder as OpenFolder};

use super::Folder;
use crate::files::{FilePath, LISTED_BYTES_MAX, LISTED_MAX, Listing, ListingOrder, is_listed};

/// The most listings of a core at a time: each has a few megabytes at most, and clients may read slowly.
const LISTINGS_MAX: usize = 32;

/// Counts the listings of a core that are made or sent.
#[derive(Debug, Default)]
pub(super) struct Listings(Rc<Cell<usize>>);

/// The right to one more; it is given back when this is dropped.
pub(super) struct ListingPermit(Rc<Cell<usize>>);

impl Listings {
    /// `None` if the core has as many as it may.
    pub(super) fn take(&self) -> Option<ListingPermit> {
        let count = self.0.get();
        if count >= LISTINGS_MAX {
            return None;
        }
        self.0.set(count + 1);
        Some(ListingPermit(Rc::clone(&self.0)))
    }
}

impl Drop for ListingPermit {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// A folder to list.
pub(super) struct ListingRequest {
    pub(super) files: Arc<Folder>,
    pub(super) path: FilePath,
    /// The normalised path of the request.
    pub(super) url: String,
    /// The folder begins behind so many bytes of it.
    pub(super) start: usize,
    pub(super) order: ListingOrder,
    /// JSON in place of a page.
    pub(super) is_json: bool,
}

impl ListingRequest {
    /// The content; `None` if there is no such folder.
    pub(super) fn run(&self) -> io::Result<Option<String>> {
        let files = &*self.files;
        let Some(root) = OpenFolder::open(files.root(), files.share())? else {
            return Ok(None);
        };
        let limits = EntryLimits {
            entries: LISTED_MAX,
            name_bytes: LISTED_BYTES_MAX,
        };
        let takes = |name: &[u8]| is_listed(&self.url, self.start, files.settings.hidden, name);
        let found = root.entries(&self.path.path, files.settings.links, limits, takes)?;
        let Some((entries, is_complete)) = found else {
            return Ok(None);
        };
        let listing = Listing {
            url: &self.url,
            start: self.start,
            path: &self.path,
            entries,
            is_complete,
            order: self.order,
        };
        Ok(Some(match self.is_json {
            true => listing.json(),
            false => listing.html(),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listings_are_bounded_and_given_back() {
        let listings = Listings::default();
        let all: Vec<_> = (0..=LISTINGS_MAX).map_while(|_| listings.take()).collect();
        assert_eq!(all.len(), LISTINGS_MAX);
        assert!(listings.take().is_none());
        drop(all);
        assert!(listings.take().is_some());
    }
}
