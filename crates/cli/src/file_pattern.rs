//! Patterns of files: a star stands for a part of the name of a folder or of the file.

use std::fs;
use std::path::{Path, PathBuf};

/// Whether it stands for any number of files.
pub(crate) fn is_pattern(text: &str) -> bool {
    text.contains('*')
}

/// The files and folders that may change what a pattern stands for: what it matches now, and the folders on the way.
pub(crate) fn watched(folder: &Path, pattern: &str) -> Vec<PathBuf> {
    let before_star = pattern.split('*').next().unwrap_or_default();
    let parent = before_star
        .rsplit_once('/')
        .map_or("", |(parent, _)| parent);
    let parent = folder.join(parent);
    let mut watched = Vec::new();
    for file in matches(folder, pattern) {
        let folders = file.ancestors().skip(1);
        let folders = folders.take_while(|folder| folder.starts_with(&parent));
        watched.extend(folders.map(Path::to_owned));
        watched.push(file);
    }
    watched.push(parent);
    watched
}

/// The files and folders that a pattern names, in order.
pub(crate) fn matches(folder: &Path, pattern: &str) -> Vec<PathBuf> {
    let mut found = vec![folder.to_owned()];
    for part in Path::new(pattern) {
        let name = part.to_string_lossy();
        found = match name.split_once('*') {
            None => found.iter().map(|path| path.join(part)).collect(),
            Some((before, after)) => {
                let entries = found.iter().flat_map(|path| entries(path, before, after));
                entries.collect()
            }
        };
    }
    found.sort();
    found
}

fn entries(folder: &Path, before: &str, after: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let is_match = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.len() >= before.len() + after.len()
            && name.starts_with(before)
            && name.ends_with(after)
    };
    entries.map(|entry| entry.path()).filter(is_match).collect()
}
