//! The folder for the files of one run.

use std::fs;
use std::path::{Path, PathBuf};

/// A new folder, removed when dropped.
pub(crate) struct RunFolder(PathBuf);

impl RunFolder {
    pub(crate) fn create() -> Result<RunFolder, String> {
        let path = std::env::temp_dir().join(format!("blitz-bench-{}", std::process::id()));
        fs::create_dir_all(&path).map_err(|e| format!("{}: {e}", path.display()))?;
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
