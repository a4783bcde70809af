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
