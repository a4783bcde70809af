//! Files of a configuration that are kept in memory.

use std::fs;
use std::io::{self, Error, ErrorKind, Read};
use std::path::Path;

use blitz_config::nearest;
use blitz_gateway::LoadedFile;

/// Pages are smaller. Each response has a copy.
const BYTES_MAX: u64 = 1024 * 1024;

/// Reads a file. An error is a problem and its remedy.
pub(crate) fn read(folder: &Path, file: &str) -> Result<LoadedFile, (String, String)> {
    let path = folder.join(file);
    let content = read_regular(&path, BYTES_MAX).map_err(|error| problem(&path, &error))?;
    Ok(LoadedFile::new(&path, &content))
}

/// The content of a file of at most so many bytes. Others, such as a pipe, could be without end.
pub(crate) fn read_regular(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let invalid = |text: String| Error::new(ErrorKind::InvalidInput, text);
    if !fs::metadata(path)?.is_file() {
        return Err(invalid("it is no regular file".to_owned()));
    }
    let mut content = Vec::new();
    let file = fs::File::open(path)?;
    file.take(bytes_max + 1).read_to_end(&mut content)?;
    match content.len() as u64 > bytes_max {
        true => Err(invalid(format!(
            "it has more than {} KiB",
            bytes_max / 1024
        ))),
        false => Ok(content),
    }
}

pub(crate) fn problem(path: &Path, error: &Error) -> (String, String) {
    if error.kind() == ErrorKind::NotFound {
        return ("the file does not exist".to_owned(), similar_file(path));
    }
    let problem = format!("the file cannot be read: {error}");
    let remedy = match error.kind() {
        ErrorKind::PermissionDenied => format!("have the user of Blitz read {}", path.display()),
        _ => format!("name another file than {}", path.display()),
    };
    (problem, remedy)
}

/// A file with a similar name is probably meant.
pub(crate) fn similar_file(path: &Path) -> String {
    let parent = path.parent().filter(|parent| *parent != Path::new(""));
    let folder = parent.unwrap_or(Path::new("."));
    // Nobody knows from which folder `.` is seen.
    let absolute = std::path::absolute(folder);
    let absolute = absolute.unwrap_or_else(|_| folder.to_owned());
    let shown = absolute.display();
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names: Vec<String> = entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    match nearest(&name, names.iter().map(String::as_str)) {
        Some(similar) => format!("in {shown} there is `{similar}`"),
        None => format!("it is looked for in {shown}"),
    }
}
