//! Files of a configuration that are kept in memory.

use std::fs;
use std::io::{Error, ErrorKind};
use std::path::Path;

use blitz_config::nearest;
use blitz_gateway::LoadedFile;

/// Pages are smaller. Each response has a copy.
const BYTES_MAX: u64 = 1024 * 1024;

/// Reads a file. An error is a problem and its remedy.
pub(crate) fn read(folder: &Path, file: &str) -> Result<LoadedFile, (String, String)> {
    let path = folder.join(file);
    let metadata = fs::metadata(&path).map_err(|error| problem(&path, &error))?;
    if metadata.len() > BYTES_MAX {
        let problem = "the file is too large to be kept in memory".to_owned();
        let remedy = format!("write one of at most {} KiB", BYTES_MAX / 1024);
        return Err((problem, remedy));
    }
    let content = fs::read(&path).map_err(|error| problem(&path, &error))?;
    Ok(LoadedFile::new(&path, &content))
}

fn problem(path: &Path, error: &Error) -> (String, String) {
    if error.kind() == ErrorKind::NotFound {
        return ("the file does not exist".to_owned(), similar_file(path));
    }
    let problem = format!("the file cannot be read: {error}");
    let remedy = format!("have the user of Blitz read {}", path.display());
    (problem, remedy)
}

/// A file with a similar name is probably meant.
fn similar_file(path: &Path) -> String {
    let folder = path.parent().unwrap_or(Path::new(""));
    let shown = folder.display();
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
