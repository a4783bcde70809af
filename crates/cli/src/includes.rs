//! The files that a configuration includes.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use blitz_config::{Diagnostic, Document, Environment, Placed};

use crate::config;
use crate::file_pattern::{is_pattern, matches, watched};

/// The results of reading included files, apart from their texts.
#[derive(Default)]
pub(crate) struct Included {
    /// Files that cannot be read.
    pub(crate) diagnostics: Vec<Diagnostic>,
    /// All files that were read, with the folders where further ones may appear. Some may be missing.
    pub(crate) watched: Vec<PathBuf>,
}

/// Adds the files that a document includes, each once. Relative paths begin at the folder.
pub(crate) fn load(document: &mut Document, main: &Path, environment: &Environment) -> Included {
    let folder = main.parent().unwrap_or(Path::new(""));
    let mut included = Included::default();
    let mut seen = HashSet::from([main.to_owned()]);
    for pattern in blitz_config::includes(document, environment) {
        let files = match is_pattern(&pattern.value) {
            true => {
                included.watched.extend(watched(folder, &pattern.value));
                // A folder may have no file yet.
                let files = matches(folder, &pattern.value).into_iter();
                files.filter(|file| file.is_file()).collect()
            }
            false => vec![folder.join(&pattern.value)],
        };
        for file in files {
            if !seen.insert(file.clone()) {
                continue;
            }
            if let Err(problem) = add(document, &file, folder) {
                included.diagnostics.push(unreadable(&pattern, &problem));
            }
            included.watched.push(file);
        }
    }
    included.watched.sort_unstable();
    included.watched.dedup();
    included
}

fn add(document: &mut Document, file: &Path, folder: &Path) -> Result<(), String> {
    let read = config::document(file)?;
    let parent = file.parent().unwrap_or(Path::new(""));
    let parent = parent.strip_prefix(folder).unwrap_or(parent);
    document.include(read.name, parent.display().to_string(), &read.text);
    Ok(())
}

/// `problem` has a remedy on its second line.
fn unreadable(pattern: &Placed<String>, problem: &str) -> Diagnostic {
    let problem = problem.lines().next().unwrap_or_default();
    let label = "name a file that this user can read, or leave it out";
    Diagnostic::error("include", pattern.span.clone(), problem, label)
}
