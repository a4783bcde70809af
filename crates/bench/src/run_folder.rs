//! The folder for the files of one run.

use std::fs::{self, DirBuilder};
use std::hash::{BuildHasher, RandomState};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// A new folder, removed when dropped. Others may read files whose names they know, as servers do that give up their
/// privileges, and write nothing.
#[derive(Debug)]
pub(crate) struct RunFolder(PathBuf);

impl RunFolder {
    pub(crate) fn create() -> Result<RunFolder, String> {
        // Others cannot know the name before; that of an existing folder is an error.
        let number = RandomState::new().hash_one(std::process::id());
        let path = std::env::temp_dir().join(format!("blitz-bench-{number:016x}"));
        let created = DirBuilder::new().mode(0o711).create(&path);
        created.map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(RunFolder(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        // A failure leaves a few small files in the temporary folder.
        let _ = fs::remove_dir_all(&self.0);
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
