//! Content in a temporary file, which has no name and is gone with the request. It is written and read on the pool of
//! blocking threads.

use std::fs::File;
use std::future::Future;
use std::io;
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use blitz_http::blocking;

/// Bytes that are read at a time.
const READ_BYTES: u64 = 64 * 1024;

/// Bytes that may wait to be written, of all cores: writes of requests that have ended are still to be done.
const WRITING_BYTES_MAX: usize = 64 << 20;

/// The bytes of all writes that have begun.
static WRITING: AtomicUsize = AtomicUsize::new(0);

/// Content on its way to a file.
struct Writing(Vec<u8>);

impl Writing {
    /// `None` if too much waits already.
    fn begin(bytes: Vec<u8>) -> Option<Writing> {
        let before = WRITING.fetch_add(bytes.len(), Ordering::Relaxed);
        // It is subtracted when this is dropped.
        let writing = Writing(bytes);
        (before + writing.0.len() <= WRITING_BYTES_MAX).then_some(writing)
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        WRITING.fetch_sub(self.0.len(), Ordering::Relaxed);
    }
}

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
    /// Begins to write further content. No other write may be pending. `false` if too much waits to be written.
    pub(super) fn write(&mut self, bytes: Vec<u8>) -> bool {
        let Some(bytes) = Writing::begin(bytes) else {
            return false;
        };
        let (file, at) = (self.file.clone(), self.written);
        self.written += bytes.0.len() as u64;
        self.job = Some(Box::pin(blocking(move || {
            let file = match file {
                Some(file) => file,
                None => Arc::new(tempfile::tempfile()?),
            };
            file.write_all_at(&bytes.0, at)?;
            Ok((file, Vec::new()))
        })));
        true
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_to_be_written_is_limited_until_it_is_written() {
        let first = Writing::begin(vec![0; WRITING_BYTES_MAX - 1]);
        assert!(first.is_some());
        assert!(Writing::begin(vec![0; 2]).is_none());
        assert!(Writing::begin(vec![0; 1]).is_some());
        drop(first);
        assert!(Writing::begin(vec![0; 2]).is_some());
        assert_eq!(WRITING.load(Ordering::Relaxed), 0);
    }
}
