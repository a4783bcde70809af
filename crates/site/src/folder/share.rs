//! The threads that may wait for the disk of a folder.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use blitz_http::files::Share;

/// One for each folder that a configuration of the process has, so that the next configuration gets no further threads
/// while those of the previous one wait. Locked when a configuration is loaded.
static SHARES: Mutex<Option<HashMap<PathBuf, Weak<Share>>>> = Mutex::new(None);

/// The share of a folder.
#[derive(Debug, Clone)]
pub(super) struct FolderShare(Arc<Share>);

impl FolderShare {
    pub(super) fn of(root: &Path) -> FolderShare {
        let mut shares = SHARES.lock().unwrap_or_else(PoisonError::into_inner);
        let shares = shares.get_or_insert_default();
        if let Some(share) = shares.get(root).and_then(Weak::upgrade) {
            return FolderShare(share);
        }
        shares.retain(|_, share| share.strong_count() > 0);
        let share = Arc::new(Share::default());
        shares.insert(root.to_owned(), Arc::downgrade(&share));
        FolderShare(share)
    }

    pub(super) fn get(&self) -> &Arc<Share> {
        &self.0
    }
}

/// It follows from the folder.
impl PartialEq for FolderShare {
    fn eq(&self, _: &FolderShare) -> bool {
        true
    }
}

impl Eq for FolderShare {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_has_one_share_and_its_own() {
        let (one, other) = (Path::new("/test/one"), Path::new("/test/other"));
        let first = FolderShare::of(one);
        assert!(Arc::ptr_eq(first.get(), FolderShare::of(one).get()));
        assert!(!Arc::ptr_eq(first.get(), FolderShare::of(other).get()));
    }
}
