//! The folder for the files of one run.

use std::fs::{self, DirBuilder, File};
use std::hash::{BuildHasher, RandomState};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::geteuid;

/// The start of the names, before 16 hexadecimal digits.
const PREFIX: &str = "blitz-bench-";

/// A folder that is younger may not be locked yet.
const LEFT_BEHIND_AFTER: Duration = Duration::from_secs(60);

/// A new folder, removed when dropped. Others may read files whose names they know, as servers do that give up their
/// privileges, and write nothing.
#[derive(Debug)]
pub(crate) struct RunFolder {
    path: PathBuf,
    /// Locked while the folder is in use. The kernel unlocks it when the process is killed.
    _lock: Option<File>,
}

impl RunFolder {
    pub(crate) fn create() -> Result<RunFolder, String> {
        let parent = std::env::temp_dir();
        remove_left_behind(&parent);
        // Others cannot know the name before; that of an existing folder is an error.
        let number = RandomState::new().hash_one(std::process::id());
        let path = parent.join(format!("{PREFIX}{number:016x}"));
        let created = DirBuilder::new().mode(0o711).create(&path);
        created.map_err(|error| format!("{}: {error}", path.display()))?;
        let lock = File::open(&path)
            .ok()
            .filter(|lock| lock.try_lock().is_ok());
        Ok(RunFolder { path, _lock: lock })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// Removes the folders of runs that were killed.
fn remove_left_behind(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let digits = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        let is_ours = digits.is_some_and(|digits| {
            digits.len() == 16 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
        });
        let path = entry.path();
        if is_ours && is_left_behind(&path) {
            let _ = fs::remove_dir_all(path);
        }
    }
}

fn is_left_behind(path: &Path) -> bool {
    let Ok(metadata) = fs::symlink_metadata(path) else {
        return false;
    };
    let changed = metadata.modified().ok();
    let age = changed.and_then(|changed| changed.elapsed().ok());
    metadata.is_dir()
        && metadata.uid() == geteuid().as_raw()
        && age.is_some_and(|age| age > LEFT_BEHIND_AFTER)
        && File::open(path).is_ok_and(|folder| folder.try_lock().is_ok())
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        // A failure leaves a few small files in the temporary folder.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// A new folder of a test, removed when dropped.
#[cfg(test)]
pub(crate) struct TestFolder(PathBuf);

#[cfg(test)]
impl TestFolder {
    pub(crate) fn create() -> TestFolder {
        use std::sync::atomic::{AtomicU32, Ordering};

        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("blitz-bench-test-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).expect("a temporary folder");
        TestFolder(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

#[cfg(test)]
impl Drop for TestFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use std::fs::FileTimes;
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn only_old_folders_that_nobody_uses_are_removed() {
        let parent = TestFolder::create();
        let create = |name: &str, is_old: bool| {
            let path = parent.path().join(name);
            fs::create_dir(&path).unwrap();
            fs::write(path.join("file"), "").unwrap();
            let folder = File::open(&path).unwrap();
            if is_old {
                let times = FileTimes::new().set_modified(SystemTime::UNIX_EPOCH);
                folder.set_times(times).unwrap();
            }
            folder
        };
        let in_use = create("blitz-bench-0000000000000001", true);
        in_use.try_lock().unwrap();
        create("blitz-bench-0000000000000002", true);
        create("blitz-bench-0000000000000003", false);
        create("blitz-bench-mine", true);
        remove_left_behind(parent.path());
        let mut left: Vec<_> = fs::read_dir(parent.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        assert_eq!(
            left,
            [
                "blitz-bench-0000000000000001",
                "blitz-bench-0000000000000003",
                "blitz-bench-mine"
            ]
        );
    }
}
