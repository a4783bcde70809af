//! The encoder of a response as a transform of its content: it works in steps, and leaves nothing waiting.

use blitz_http::{Buffer, Chunk, Fields, Pooled, Slice};

use super::coder::{Coder, Then};
use super::edit_trailers;
use crate::coding::ContentCoding;
use crate::counters::count;
use crate::failure::Failure;
use crate::transform::{Transform, TransformError};

/// Content that is compressed in one step, after which the core does other work: 0.2 to 0.7 ms.
pub const STEP_BYTES: usize = 32 * 1024;

/// Compresses a response.
pub struct Encoder {
    coder: Coder,
    /// The part of a received piece that is not compressed yet.
    rest: Option<Slice>,
    /// Bytes that were compressed since other tasks could run.
    worked: usize,
    /// Whether output may wait in the encoder.
    has_unflushed: bool,
    counts: Counts,
}

/// Bytes of a response before and after its compression, counted when it ends.
#[derive(Default)]
struct Counts {
    before: u64,
    after: u64,
}

impl Drop for Counts {
    fn drop(&mut self) {
        note_compressed(self.before, self.after);
    }
}

/// Counts a compressed response by the bytes of its content before and after.
pub(crate) fn note_compressed(before: u64, after: u64) {
    count(|counters| {
        counters.compressed += 1;
        counters.compressed_bytes_before += before;
        counters.compressed_bytes_after += after;
    });
}

/// The compressed form of content of at most [`STEP_BYTES`]; `None` if the encoder fails.
pub(super) fn whole(coding: ContentCoding, content: &[u8]) -> Option<Chunk> {
    let mut coder = Coder::new(coding, Some(content.len() as u64))?;
    let mut output = Buffer::take();
    coder.run(content, Then::End, &mut output).ok()?;
    drop(Counts {
        before: content.len() as u64,
        after: output.len() as u64,
    });
    Some(Chunk::from(output))
}

impl Encoder {
    /// Compresses a part of at most [`STEP_BYTES`]. Flushed, all of it can be decoded now.
    pub(crate) fn part(&mut self, part: &[u8], is_flushed: bool) -> Result<Chunk, TransformError> {
        let then = if is_flushed { Then::Flush } else { Then::More };
        self.run(part, then)
    }

    /// Whether other tasks should run now. It is said once.
    pub(crate) fn is_tired(&mut self) -> bool {
        self.yields()
    }

    /// The last bytes.
    pub(crate) fn finish(&mut self) -> Result<Chunk, TransformError> {
        self.run(&[], Then::End)
    }

    /// An encoder for content of this length, if that is known; `None` if there is no memory for it.
    pub(super) fn new(coding: ContentCoding, length: Option<u64>) -> Option<Encoder> {
        Some(Encoder {
            coder: Coder::new(coding, length)?,
            rest: None,
            worked: 0,
            has_unflushed: false,
            counts: Counts::default(),
        })
    }

    fn run(&mut self, input: &[u8], then: Then) -> Result<Chunk, TransformError> {
        let mut output = Buffer::take();
        self.coder.run(input, then, &mut output)?;
        self.worked += input.len();
        self.has_unflushed = then == Then::More;
        self.counts.before += input.len() as u64;
        self.counts.after += output.len() as u64;
        Ok(Chunk::from(output))
    }

    /// Compresses a piece, or its first part.
    fn step(&mut self, mut slice: Slice) -> Result<Chunk, TransformError> {
        if slice.len() > STEP_BYTES {
            let first = slice.split_to(STEP_BYTES);
            self.rest = Some(slice);
            slice = first;
        }
        self.run(&slice, Then::More)
    }
}

impl Transform for Encoder {
    fn content(&mut self, slice: Slice) -> Result<Chunk, TransformError> {
        self.step(slice)
    }

    fn yields(&mut self) -> bool {
        let is_long = self.worked >= STEP_BYTES;
        if is_long {
            self.worked = 0;
        }
        is_long
    }

    fn proceed(&mut self) -> Result<Option<Chunk>, TransformError> {
        match self.rest.take() {
            Some(rest) => self.step(rest).map(Some),
            None => Ok(None),
        }
    }

    fn flush(&mut self) -> Result<Option<Chunk>, TransformError> {
        match self.has_unflushed {
            true => self.run(&[], Then::Flush).map(Some),
            false => Ok(None),
        }
    }

    fn end(
        &mut self,
        trailers: &mut Option<Pooled<Fields>>,
    ) -> Result<Option<Chunk>, TransformError> {
        if let Some(trailers) = trailers {
            edit_trailers(trailers);
        }
        self.run(&[], Then::End).map(Some)
    }

    /// Nothing: the client must see that something is missing.
    fn fail(&mut self, _: Failure) -> Option<Chunk> {
        None
    }
}
