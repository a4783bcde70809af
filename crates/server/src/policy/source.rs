//! Content of policies: a file, or a text of the program.

use std::fs;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

use crate::error::Error;

/// The most bytes of a file.
const FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Where content comes from.
#[derive(Debug, Clone)]
pub(super) enum Source {
    File(PathBuf),
    Text(Vec<u8>),
}

impl Source {
    /// The content, once it is there.
    pub(super) fn read(&self) -> Result<Vec<u8>, Error> {
        match self {
            Source::Text(text) => Ok(text.clone()),
            Source::File(path) => {
                read_regular(path).map_err(|error| unreadable("file", path, &error))
            }
        }
    }

    /// An error in the content, with the place for people.
    pub(super) fn error(&self, (problem, remedy): (String, String)) -> Error {
        let remedy = sentence(&remedy);
        match self {
            Source::File(path) => {
                Error::new(format!("{}: {problem}", path.display())).with_remedy(remedy)
            }
            Source::Text(_) => Error::new(problem).with_remedy(remedy),
        }
    }
}

/// Others than regular files, such as a pipe, could be without end.
fn read_regular(path: &Path) -> io::Result<Vec<u8>> {
    let invalid = |text: String| io::Error::new(ErrorKind::InvalidInput, text);
    if !fs::metadata(path)?.is_file() {
        return Err(invalid("it is no regular file".to_owned()));
    }
    let mut content = Vec::new();
    let file = fs::File::open(path)?;
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut content)?;
    match content.len() as u64 > FILE_BYTES_MAX {
        true => Err(invalid(format!("it has more than {FILE_BYTES_MAX} bytes"))),
        false => Ok(content),
    }
}

/// A file or a folder that cannot be used.
pub(crate) fn unreadable(kind: &str, path: &Path, error: &io::Error) -> Error {
    let path = path.display();
    match error.kind() {
        ErrorKind::NotFound => {
            let folder = std::env::current_dir().unwrap_or_default();
            let remedy = format!(
                "Relative paths begin at the working directory, which is {}.",
                folder.display()
            );
            Error::new(format!("the {kind} {path} does not exist")).with_remedy(remedy)
        }
        ErrorKind::PermissionDenied => Error::new(format!("the {kind} {path} may not be read"))
            .with_remedy("Let the user of this program read it."),
        _ => Error::new(format!("the {kind} {path} cannot be read: {error}")),
    }
}

/// A remedy as a sentence.
fn sentence(remedy: &str) -> String {
    let mut letters = remedy.trim_end_matches('.').chars();
    match letters.next() {
        Some(first) => format!("{}{}.", first.to_uppercase(), letters.as_str()),
        None => String::new(),
    }
}
