//! Lines to a file, a pipe or a terminal.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::sink::{Problem, Sink};

/// New files can be read by their owner and group: the lines have addresses of clients.
const MODE: u32 = 0o640;

/// A file, or a standard stream of the process.
#[derive(Debug)]
pub(super) struct Stream {
    file: File,
    /// The file can be opened anew.
    path: Option<PathBuf>,
}

impl Stream {
    /// Appends to the file, which is made if there is none.
    ///
    /// # Errors
    /// With the path.
    pub(super) fn open(path: &Path) -> io::Result<Stream> {
        Ok(Stream {
            file: open(path)?,
            path: Some(path.to_owned()),
        })
    }

    /// A standard stream. Its descriptor is duplicated, because a write that blocks would keep the lock of
    /// [`io::stdout`] or [`io::stderr`], which other threads take.
    pub(super) fn standard(stream: &impl AsFd) -> io::Result<Stream> {
        Ok(Stream {
            file: File::from(stream.as_fd().try_clone_to_owned()?),
            path: None,
        })
    }
}

impl Sink for Stream {
    fn write(&mut self, lines: &[u8]) -> Result<usize, Problem> {
        self.file.write(lines).map_err(Problem::of_stream)
    }

    fn reopen(&mut self) -> io::Result<()> {
        if let Some(path) = &self.path {
            self.file = open(path)?;
        }
        Ok(())
    }
}

fn open(path: &Path) -> io::Result<File> {
    // A named pipe that is opened for writing only waits for its reader.
    let is_pipe = fs::metadata(path).is_ok_and(|found| found.file_type().is_fifo());
    OpenOptions::new()
        .append(true)
        .read(is_pipe)
        .create(true)
        .mode(MODE)
        .open(path)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}
