//! The entries of a folder beneath another one.

use std::io;

use super::{Folder, existing};
use crate::driver::{EntryLimits, FolderEntry, SymbolicLinks, entries};

impl Folder {
    /// The files and folders in a folder beneath this one, in no order, and whether these are all: a folder may have more
    /// than the limits. `takes` takes them by their names. Symbolic links are followed as [`Folder::find`] does; those
    /// that are not followed are left out, and so is what is neither file nor folder. This may wait for the disk.
    ///
    /// # Errors
    /// Not if there is no such folder; that is `None`.
    pub fn entries(
        &self,
        path: &[u8],
        links: SymbolicLinks,
        limits: EntryLimits,
        takes: impl FnMut(&[u8]) -> bool,
    ) -> io::Result<Option<(Vec<FolderEntry>, bool)>> {
        existing(entries(&self.folder, path, links, limits, takes))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::sync::Arc;

    use super::*;

    const LIMITS: EntryLimits = EntryLimits {
        entries: 100,
        name_bytes: 1_000,
    };

    /// The names in a folder, those of folders with a slash.
    fn names(
        root: &Folder,
        path: &str,
        links: SymbolicLinks,
        limits: EntryLimits,
    ) -> (String, bool) {
        let takes = |name: &[u8]| !name.starts_with(b".");
        let found = root.entries(path.as_bytes(), links, limits, takes).unwrap();
        let (entries, is_all) = found.expect("the folder is there");
        let name = |entry: &FolderEntry| {
            let name = String::from_utf8_lossy(&entry.name).into_owned();
            name + if entry.is_folder { "/" } else { "" }
        };
        let mut names: Vec<_> = entries.iter().map(name).collect();
        names.sort();
        (names.join(" "), is_all)
    }

    #[test]
    fn entries_are_files_and_folders_that_can_be_opened() {
        let path = std::env::temp_dir().join(format!("blitz-entries-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(path.join("www/sub/deep")).unwrap();
        fs::write(path.join("secret"), "secret").unwrap();
        for file in ["a", "b", ".hidden", "sub/c"] {
            fs::write(path.join("www").join(file), "text").unwrap();
        }
        for (target, link) in [
            ("../secret", "out"),
            ("a", "in"),
            ("sub", "folder"),
            ("none", "broken"),
        ] {
            symlink(target, path.join("www").join(link)).unwrap();
        }
        symlink("../a", path.join("www/sub/up")).unwrap();
        let fifo = std::process::Command::new("mkfifo")
            .arg(path.join("www/fifo"))
            .status();
        assert!(fifo.unwrap().success());
        let root = Folder::open(&path.join("www"), &Arc::default())
            .unwrap()
            .unwrap();
        for (folder, links, expected) in [
            ("", SymbolicLinks::Deny, "a b sub/"),
            ("", SymbolicLinks::Follow, "a b folder/ in out sub/"),
            ("sub", SymbolicLinks::Deny, "c deep/"),
            ("sub", SymbolicLinks::Follow, "c deep/ up"),
            ("sub/deep", SymbolicLinks::Inside, ""),
        ] {
            let (found, is_all) = names(&root, folder, links, LIMITS);
            assert_eq!(
                (found.as_str(), is_all),
                (expected, true),
                "{folder}, {links:?}"
            );
        }
        // A kernel without `openat2` follows no link.
        let (inside, _) = names(&root, "", SymbolicLinks::Inside, LIMITS);
        assert!(
            ["a b folder/ in sub/", "a b sub/"].contains(&inside.as_str()),
            "{inside}"
        );
        for none in ["none", "a", "../", "fifo"] {
            let found = root.entries(none.as_bytes(), SymbolicLinks::Inside, LIMITS, |_| true);
            assert!(matches!(found, Ok(None)), "{none}: {found:?}");
        }
        fs::remove_dir_all(&path).unwrap();
    }

    #[test]
    fn large_folders_are_read_in_part() {
        let path = std::env::temp_dir().join(format!("blitz-large-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        for number in 0..2_000 {
            fs::write(path.join(format!("file-{number:05}")), "").unwrap();
        }
        let root = Folder::open(&path, &Arc::default()).unwrap().unwrap();
        for (entries, name_bytes, expected, is_all) in [
            (2_000, 20_000, 2_000, true),
            (1_999, 20_000, 1_999, false),
            (2_000, 995, 99, false),
            (0, 0, 0, false),
        ] {
            let limits = EntryLimits {
                entries,
                name_bytes,
            };
            let found = root.entries(b"", SymbolicLinks::Deny, limits, |_| true);
            let (found, all) = found.unwrap().unwrap();
            assert_eq!((found.len(), all), (expected, is_all));
        }
        fs::remove_dir_all(&path).unwrap();
    }
}
