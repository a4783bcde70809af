//! The files that a configuration includes.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use blitz_config::{Diagnostic, Document, Environment, Placed};

use crate::config;
use crate::file_pattern::{Listing, is_pattern, watched};

/// The results of reading included files, apart from their texts.
#[derive(Default)]
pub(crate) struct IncludedFiles {
    /// Files and folders that cannot be read, and patterns without a file.
    pub(crate) diagnostics: Vec<Diagnostic>,
    /// All files that were read, with the folders where further ones may appear. Some may be missing.
    pub(crate) watched: Vec<PathBuf>,
}

/// Adds the files that a document includes, each once. Relative paths begin at the folder.
pub(crate) fn load(
    document: &mut Document,
    main: &Path,
    environment: &Environment,
) -> IncludedFiles {
    let folder = main.parent().unwrap_or(Path::new(""));
    let mut included = IncludedFiles::default();
    let mut seen = HashSet::from([main.canonicalize().unwrap_or_else(|_| main.to_owned())]);
    for pattern in blitz_config::includes(document, environment) {
        let files = match is_pattern(&pattern.value) {
            true => {
                included.watched.extend(watched(folder, &pattern.value));
                let Listing {
                    matches: mut files,
                    unreadable,
                    ..
                } = Listing::of(folder, &pattern.value);
                // A link that leads nowhere is a file that cannot be read.
                files.retain(|file| !file.is_dir());
                for (path, error) in &unreadable {
                    let problem = format!("{}: {error}", path.display());
                    included
                        .diagnostics
                        .push(self::unreadable(&pattern, &problem));
                }
                if files.is_empty() && unreadable.is_empty() {
                    included.diagnostics.push(without_files(&pattern));
                }
                files
            }
            false => vec![folder.join(&pattern.value)],
        };
        for file in files {
            // Two spellings may name the same file.
            if !seen.insert(file.canonicalize().unwrap_or_else(|_| file.clone())) {
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

/// A folder may have no file yet, or its name be another one.
fn without_files(pattern: &Placed<String>) -> Diagnostic {
    let problem = format!("no file has the form of {}", pattern.value);
    let label = "correct the name of the folder, if there should be one";
    Diagnostic::warning("include", pattern.span.clone(), problem, label)
}

/// `problem` has a remedy on its second line.
fn unreadable(pattern: &Placed<String>, problem: &str) -> Diagnostic {
    let problem = problem.lines().next().unwrap_or_default();
    let label = "name a file that this user can read, or leave it out";
    Diagnostic::error("include", pattern.span.clone(), problem, label)
}
