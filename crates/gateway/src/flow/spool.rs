//! Content in a temporary file, which has no name and is gone with the request. It is written and read on the pool of
//! blocking threads.

use std::fs::File;
use std::future::Future;
use std::io;
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use blitz_http::blocking;

/// Bytes that are read at a time.
const READ_BYTES: u64 = 64 * 1024;

/// A write or a read: the file, and what was read.
type Job = Pin<Box<dyn Future<Output = io::Result<(Arc<File>, Vec<u8>)>>>>;

/// A file that is written from its beginning to its end, and then read.
#[derive(Default)]
pub(super) struct Spool {
    /// `None` before the first write has ended.
    file: Option<Arc<File>>,
    written: u64,
    read: u64,
    job: Option<Job>,
}

impl Spool {
    /// Begins to write further content. No other write may be pending.
    pub(super) fn write(&mut self, bytes: Vec<u8>) {
        let (file, at) = (self.file.clone(), self.written);
        self.written += bytes.len() as u64;
        self.job = Some(Box::pin(blocking(move || {
            let file = match file {
                Some(file) => file,
                None => Arc::new(tempfile::tempfile()?),
            };
            file.write_all_at(&bytes, at)?;
            Ok((file, Vec::new()))
        })));
    }

    /// Ready when nothing is being written.
    pub(super) fn poll_written(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_job(cx).map_ok(|_| ())
    }

    /// Whether something has not been read.
    pub(super) fn has_next(&self) -> bool {
        self.read < self.written
    }

    /// The next content; `None` after the last.
    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Vec<u8>>>> {
        let Some(file) = self.file.as_ref().filter(|_| self.has_next()) else {
            return Poll::Ready(Ok(None));
        };
        if self.job.is_none() {
            let (file, at) = (Arc::clone(file), self.read);
            let length = READ_BYTES.min(self.written - at) as usize;
            self.job = Some(Box::pin(blocking(move || {
                let mut bytes = vec![0; length];
                file.read_exact_at(&mut bytes, at)?;
                Ok((file, bytes))
            })));
        }
        let bytes = ready!(self.poll_job(cx))?;
        self.read += bytes.len() as u64;
        Poll::Ready(Ok(Some(bytes)))
    }

    fn poll_job(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Vec<u8>>> {
        let Some(job) = &mut self.job else {
            return Poll::Ready(Ok(Vec::new()));
        };
        let done = ready!(job.as_mut().poll(cx));
        self.job = None;
        let (file, bytes) = done.inspect_err(|error| {
            let folder = std::env::temp_dir();
            tracing::warn!(%error, folder = %folder.display(), "content of a request cannot be kept in a file");
        })?;
        self.file = Some(file);
        Poll::Ready(Ok(bytes))
    }
}
