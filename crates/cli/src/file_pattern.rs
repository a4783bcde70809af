//! Patterns of files: a star stands for a part of the name of a folder or of the file.

use std::fs;
use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};

/// Whether it stands for any number of files.
pub(crate) fn is_pattern(text: &str) -> bool {
    text.contains('*')
}

/// The files and folders that may change what a pattern stands for: what it matches now, and the folders on the way.
pub(crate) fn watched(folder: &Path, pattern: &str) -> Vec<PathBuf> {
    let listing = Listing::of(folder, pattern);
    let mut watched = listing.matches;
    watched.extend(listing.folders);
    watched
}

/// The files and folders that a pattern names, in order.
pub(crate) fn matches(folder: &Path, pattern: &str) -> Vec<PathBuf> {
    Listing::of(folder, pattern).matches
}

/// The files and folders that a pattern names, and where they were looked for.
pub(crate) struct Listing {
    /// In order.
    pub(crate) matches: Vec<PathBuf>,
    /// The folders whose content counts, also those without a match.
    folders: Vec<PathBuf>,
    /// Folders that are there and cannot be read.
    pub(crate) unreadable: Vec<(PathBuf, Error)>,
}

impl Listing {
    pub(crate) fn of(folder: &Path, pattern: &str) -> Listing {
        let mut listing = Listing {
            matches: vec![folder.to_owned()],
            folders: Vec::new(),
            unreadable: Vec::new(),
        };
        for part in Path::new(pattern) {
            let name = part.to_string_lossy();
            let found = std::mem::take(&mut listing.matches);
            match name.split_once('*') {
                None => listing.matches = found.iter().map(|path| path.join(part)).collect(),
                Some((before, after)) => {
                    for path in found {
                        listing.list(&path, before, after);
                    }
                }
            }
        }
        listing.matches.sort();
        listing
    }

    fn list(&mut self, folder: &Path, before: &str, after: &str) {
        match entries(folder, before, after) {
            Ok(entries) => self.matches.extend(entries),
            Err(error)
                if [ErrorKind::NotFound, ErrorKind::NotADirectory].contains(&error.kind()) => {}
            Err(error) => self.unreadable.push((folder.to_owned(), error)),
        }
        self.folders.push(named(folder).to_owned());
    }
}

/// A folder by a name that the system knows: a file without a folder is in the current one.
fn named(folder: &Path) -> &Path {
    match folder.as_os_str().is_empty() {
        true => Path::new("."),
        false => folder,
    }
}

fn entries(folder: &Path, before: &str, after: &str) -> Result<Vec<PathBuf>, Error> {
    let entries: Vec<_> = fs::read_dir(named(folder))?.collect::<Result<_, _>>()?;
    let is_match = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        // As in shells: editors keep locks and copies under such names.
        let is_hidden = before.is_empty() && name.starts_with('.');
        !is_hidden
            && name.len() >= before.len() + after.len()
            && name.starts_with(before)
            && name.ends_with(after)
    };
    let paths = entries
        .into_iter()
        .map(|entry| folder.join(entry.file_name()));
    Ok(paths.filter(is_match).collect())
}
