//! Files of networks: they are read when a configuration is, and not again as long as they stay the same.

use std::collections::BTreeMap;
use std::fs::{self, File, Metadata};
use std::io::{self, BufReader, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use blitz_gateway::{LoadedFile, NetworkSet, NetworksError, ReadFile, read_networks};

use crate::loaded_file;

/// The largest file. That of the most networks is smaller, unless it has long comments.
const BYTES_MAX: u64 = 256 * 1024 * 1024;

/// A file that has just been changed may change again without another time.
const SETTLING_TIME: Duration = Duration::from_secs(2);

/// The networks of files, by their names in the configuration.
#[derive(Clone, Default)]
pub(crate) struct NetworkFiles(BTreeMap<String, NetworkFile>);

/// A file that was read.
#[derive(Clone)]
struct NetworkFile {
    set: Arc<NetworkSet>,
    /// `None` if the next version may have the same.
    stamp: Option<Stamp>,
}

/// Files with the same stamp are the same, unchanged.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(found: &Metadata) -> Option<Stamp> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
        let settled = now.checked_sub(SETTLING_TIME)?.as_secs();
        let is_settled = u64::try_from(found.ctime()).is_ok_and(|changed| changed < settled);
        is_settled.then(|| Stamp {
            device: found.dev(),
            inode: found.ino(),
            bytes: found.len(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        })
    }
}

/// Which networks a configuration gets for a file that another one has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Known {
    /// Those that it has now.
    Current,
    /// The same: it is the configuration that is in use.
    Same,
}

/// Reads the files that a configuration names.
pub(crate) struct FileReader<'a> {
    pub(crate) folder: &'a Path,
    pub(crate) known: (&'a NetworkFiles, Known),
    /// All files that were read.
    pub(crate) files: Vec<String>,
    /// The networks of those that have them.
    pub(crate) networks: NetworkFiles,
}

impl ReadFile for FileReader<'_> {
    fn read(&mut self, file: &str) -> Result<LoadedFile, (String, String)> {
        self.files.push(file.to_owned());
        loaded_file::read(self.folder, file)
    }

    fn networks(&mut self, file: &str) -> Result<Arc<NetworkSet>, (String, String)> {
        self.files.push(file.to_owned());
        let (known, kind) = self.known;
        let known = known.0.get(file);
        if let (Some(known), Known::Same) = (known, kind) {
            let set = Arc::clone(&known.set);
            self.networks.0.insert(file.to_owned(), known.clone());
            return Ok(set);
        }
        let path = self.folder.join(file);
        let read = read(&path, known).map_err(|error| problem(&path, file, error))?;
        let set = Arc::clone(&read.set);
        self.networks.0.insert(file.to_owned(), read);
        Ok(set)
    }
}

/// The networks of a file. Those that are known are shared if they are the same.
fn read(path: &Path, known: Option<&NetworkFile>) -> Result<NetworkFile, NetworksError> {
    let invalid = |text: &str| {
        let error = io::Error::new(io::ErrorKind::InvalidInput, text.to_owned());
        Err(NetworksError::Io(error))
    };
    // Others, such as a pipe, could wait for ever.
    if !fs::metadata(path).map_err(NetworksError::Io)?.is_file() {
        return invalid("it is no regular file");
    }
    let file = File::open(path).map_err(NetworksError::Io)?;
    let found = file.metadata().map_err(NetworksError::Io)?;
    if found.len() > BYTES_MAX {
        return invalid("it has more than 256 MiB");
    }
    let stamp = Stamp::of(&found);
    if let Some(known) = known
        && known.stamp.is_some()
        && known.stamp == stamp
    {
        return Ok(known.clone());
    }
    let set = read_networks(BufReader::new(file.take(BYTES_MAX)))?;
    let set = match known {
        Some(known) if *known.set == set => Arc::clone(&known.set),
        _ => Arc::new(set),
    };
    Ok(NetworkFile { set, stamp })
}

/// A problem and its remedy.
fn problem(path: &Path, file: &str, error: NetworksError) -> (String, String) {
    match error {
        NetworksError::Io(error) => loaded_file::problem(path, &error),
        NetworksError::Line { ref remedy, .. } => {
            let remedy = remedy.clone();
            (format!("{file}, {error}"), remedy)
        }
        NetworksError::TooMany => {
            let remedy = "join networks that are next to each other, or write two files";
            (format!("{file}: {error}"), remedy.to_owned())
        }
    }
}

impl NetworkFiles {
    /// The number of networks of a file, for people.
    pub(crate) fn counted(&self, file: &str) -> Option<String> {
        let found = self.0.get(file)?;
        Some(format!("{file}: {}", networks(found.set.count())))
    }

    /// The files that differ, with their numbers of networks.
    pub(crate) fn changes(&self, after: &NetworkFiles) -> String {
        let mut text = String::new();
        for (file, new) in &after.0 {
            let count = new.set.count();
            match self.0.get(file) {
                None => text += &format!("  + networks of {file}: {}\n", networks(count)),
                Some(old) if old.set == new.set => {}
                Some(old) => {
                    let before = old.set.count();
                    text += &format!(
                        "  ~ networks of {file}: {} before, {}\n",
                        before,
                        networks(count)
                    );
                }
            }
        }
        let gone = self.0.keys().filter(|file| !after.0.contains_key(*file));
        gone.for_each(|file| text += &format!("  - networks of {file}\n"));
        text
    }
}

fn networks(count: usize) -> String {
    match count {
        1 => "1 network".to_owned(),
        count => format!("{count} networks"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(folder: &Path, known: (&NetworkFiles, Known)) -> Result<NetworkFiles, String> {
        let mut reader = FileReader {
            folder,
            known,
            files: Vec::new(),
            networks: NetworkFiles::default(),
        };
        match reader.networks("a.txt") {
            Ok(_) => Ok(reader.networks),
            Err((problem, remedy)) => Err(format!("{problem}\n{remedy}")),
        }
    }

    #[test]
    fn files_that_stay_the_same_are_shared_and_others_are_read_again() {
        let folder = std::env::temp_dir().join(format!("blitz-networks-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("the folder is ours");
        let file = folder.join("a.txt");
        let none = NetworkFiles::default();
        assert!(
            load(&folder, (&none, Known::Current)).is_err_and(|text| text.contains("not exist"))
        );
        fs::write(&file, "10.0.0.0/8\n").expect("it is ours");
        let first = load(&folder, (&none, Known::Current)).expect("it is right");
        assert_eq!(first.counted("a.txt").as_deref(), Some("a.txt: 1 network"));
        // It was just changed, so it is read, and is the same.
        let same = load(&folder, (&first, Known::Current)).expect("it is right");
        assert!(Arc::ptr_eq(&first.0["a.txt"].set, &same.0["a.txt"].set));
        assert_eq!(first.changes(&same), "");
        fs::write(&file, "11.0.0.0/8\n").expect("it is ours");
        let other = load(&folder, (&first, Known::Current)).expect("it is right");
        assert_eq!(
            first.changes(&other),
            "  ~ networks of a.txt: 1 before, 1 network\n"
        );
        assert_eq!(none.changes(&other), "  + networks of a.txt: 1 network\n");
        assert_eq!(other.changes(&none), "  - networks of a.txt\n");
        // The configuration in use keeps what it has.
        let used = load(&folder, (&first, Known::Same)).expect("it is not read");
        assert_eq!(first.changes(&used), "");
        fs::write(&file, "11.0.0.0/8\n11.0.0.1/8\n").expect("it is ours");
        let wrong = load(&folder, (&first, Known::Current)).err();
        let wrong = wrong.expect("a line is wrong");
        assert!(
            wrong.contains("a.txt, line 2: bits") && wrong.contains("11.0.0.0/8"),
            "{wrong}"
        );
        fs::remove_dir_all(&folder).expect("it is ours");
    }
}
