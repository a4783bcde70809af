//! Content that is received completely before it is sent on, in memory and perhaps in a file. All of a core has limits.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::task::{Context, Poll, ready};

use blitz_config::{BUFFER_FILE_MAX, BUFFER_MAX, RequestBuffer};
use blitz_http::{BodyError, BodyLength, Buffer, Chunk, Part, core_local};
use blitz_site::TransformError;

use super::Flow;
use super::spool::Spool;

/// Received pieces are copied into pieces of this size: they may be small parts of large buffers.
const PIECE_BYTES: usize = 16 * 1024;

/// Smaller parts are not written to a file.
const WRITE_BYTES_MIN: u64 = 64 * 1024;

/// Content that was received and not yet sent on: first that of the file, then that in memory.
pub(super) struct Filled {
    spool: Option<Spool>,
    pieces: VecDeque<Chunk>,
    /// The piece that grows.
    last: Buffer,
    /// All that was received, in bytes.
    total: u64,
    in_memory: HeldPart,
    in_file: HeldPart,
}

/// The reason why content cannot be held.
pub(crate) enum FillError {
    /// The content failed.
    From(BodyError),
    /// It is larger than its request may have.
    TooLarge,
    /// The core holds as much content as it may, or the file cannot be written.
    NoRoom,
    /// It cannot be transformed.
    Transform(TransformError),
}

impl From<TransformError> for FillError {
    fn from(error: TransformError) -> FillError {
        FillError::Transform(error)
    }
}

impl From<io::Error> for FillError {
    fn from(_: io::Error) -> FillError {
        FillError::NoRoom
    }
}

impl Flow {
    /// Receives all content, and transforms it; trailers are dropped. Ready when it is complete.
    pub(crate) fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        max: RequestBuffer,
    ) -> Poll<Result<(), FillError>> {
        if matches!(self.from.length(), BodyLength::Known(length) if length > max.bytes_max()) {
            return Poll::Ready(Err(FillError::TooLarge));
        }
        let mut filled = self.filled.take().unwrap_or_default();
        let polled = self.poll_into(&mut filled, cx, max);
        self.filled = Some(filled);
        polled
    }

    fn poll_into(
        &mut self,
        filled: &mut Filled,
        cx: &mut Context<'_>,
        max: RequestBuffer,
    ) -> Poll<Result<(), FillError>> {
        loop {
            ready!(filled.poll_written(cx))?;
            if let Some(transform) = &mut self.transform {
                if transform.yields() {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                if let Some(chunk) = transform.proceed()? {
                    filled.hold(&chunk, max)?;
                    continue;
                }
            }
            match ready!(self.from.poll_next(cx)).map_err(FillError::From)? {
                Some(Part::Data(slice)) => {
                    self.left = self.left.saturating_sub(slice.len() as u64);
                    match &mut self.transform {
                        None => filled.hold(&slice, max)?,
                        Some(transform) => filled.hold(&transform.content(slice)?, max)?,
                    }
                }
                Some(Part::Trailers(_)) => {}
                None => {
                    // The held bytes are sent as they are, with their length.
                    if let Some(mut transform) = self.transform.take()
                        && let Some(last) = transform.end(&mut None)?
                    {
                        filled.hold(&last, max)?;
                    }
                    filled.complete_last();
                    return Poll::Ready(Ok(()));
                }
            }
        }
    }
}

impl Default for Filled {
    fn default() -> Filled {
        Filled {
            spool: None,
            pieces: VecDeque::new(),
            last: Buffer::take(),
            total: 0,
            in_memory: HeldPart::new(Medium::Memory),
            in_file: HeldPart::new(Medium::File),
        }
    }
}

impl Filled {
    /// The length of the whole content.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// Whether something has to be sent on.
    pub(super) fn has_next(&self) -> bool {
        !self.pieces.is_empty() || self.spool.as_ref().is_some_and(Spool::has_next)
    }

    /// The next piece to send on; `None` after the last.
    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Chunk>>> {
        if let Some(spool) = &mut self.spool
            && let Some(bytes) = ready!(spool.poll_next(cx))?
        {
            self.in_file.remove(bytes.len() as u64);
            return Poll::Ready(Ok(Some(Chunk::from(bytes))));
        }
        let piece = self.pieces.pop_front();
        if let Some(piece) = &piece {
            self.in_memory.remove(piece.len() as u64);
        }
        Poll::Ready(Ok(piece))
    }

    /// Adds bytes within the limits of the request and of the core.
    fn hold(&mut self, bytes: &[u8], max: RequestBuffer) -> Result<(), FillError> {
        let length = bytes.len() as u64;
        if self.total + length > max.bytes_max() {
            return Err(FillError::TooLarge);
        }
        let has_room = self.in_memory.try_add(length);
        self.add(bytes);
        let is_full = max.file.is_some() && self.in_memory.bytes > max.memory.max(WRITE_BYTES_MIN);
        // Clients that hold all memory must not keep others from sending.
        match is_full || !has_room {
            true => self.write(),
            false => Ok(()),
        }
    }

    fn add(&mut self, mut bytes: &[u8]) {
        self.total += bytes.len() as u64;
        while !bytes.is_empty() {
            let room = PIECE_BYTES - self.last.len();
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.last.extend_from_slice(now);
            bytes = later;
            if self.last.len() == PIECE_BYTES {
                self.complete_last();
            }
        }
    }

    fn complete_last(&mut self) {
        if !self.last.is_empty() {
            let piece = std::mem::replace(&mut self.last, Buffer::take());
            self.pieces.push_back(Chunk::from(piece));
        }
    }

    /// Begins to write to the file what is in memory.
    fn write(&mut self) -> Result<(), FillError> {
        self.complete_last();
        let length: usize = self.pieces.iter().map(Chunk::len).sum();
        if !self.in_file.try_add(length as u64) {
            return Err(FillError::NoRoom);
        }
        let mut bytes = Vec::with_capacity(length);
        for piece in self.pieces.drain(..) {
            bytes.extend_from_slice(&piece);
        }
        match self.spool.get_or_insert_default().write(bytes) {
            true => Ok(()),
            false => Err(FillError::NoRoom),
        }
    }

    /// Ready when nothing is being written. Content that is being written is still in memory.
    fn poll_written(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(spool) = &mut self.spool
            && self.pieces.is_empty()
            && self.last.is_empty()
        {
            ready!(spool.poll_written(cx))?;
            self.in_memory.remove(self.in_memory.bytes);
        }
        Poll::Ready(Ok(()))
    }
}

#[derive(Debug, Clone, Copy)]
enum Medium {
    Memory,
    File,
}

impl Medium {
    /// Bytes that a core may hold for all requests that are received before they are sent on; beyond: 503.
    fn bytes_max(self) -> u64 {
        match self {
            Medium::Memory => BUFFER_MAX,
            Medium::File => BUFFER_FILE_MAX,
        }
    }
}

/// A part of the content that the core holds.
struct HeldPart {
    medium: Medium,
    bytes: u64,
}

impl HeldPart {
    fn new(medium: Medium) -> HeldPart {
        HeldPart { medium, bytes: 0 }
    }

    fn try_add(&mut self, bytes: u64) -> bool {
        let has_room = HELD.with_borrow_mut(|held| {
            let held = &mut held[self.medium as usize];
            let has_room = *held + bytes <= self.medium.bytes_max();
            *held += if has_room { bytes } else { 0 };
            has_room
        });
        self.bytes += if has_room { bytes } else { 0 };
        has_room
    }

    fn remove(&mut self, bytes: u64) {
        self.bytes -= bytes;
        // While the thread ends, the count may already be gone.
        let _ = HELD.try_with(|held| held.borrow_mut()[self.medium as usize] -= bytes);
    }
}

impl Drop for HeldPart {
    fn drop(&mut self) {
        self.remove(self.bytes);
    }
}

core_local! {
    /// By medium.
    static HELD: RefCell<[u64; 2]> = const { RefCell::new([0; 2]) };
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    fn held() -> [u64; 2] {
        HELD.with_borrow(|held| *held)
    }

    #[test]
    fn content_is_held_in_pieces_and_counted_until_it_is_sent() {
        let mut filled = Filled::default();
        let content: Vec<u8> = (0..PIECE_BYTES * 2 + 5).map(|at| at as u8).collect();
        for part in content.chunks(1000) {
            assert!(filled.in_memory.try_add(part.len() as u64));
            filled.add(part);
        }
        filled.complete_last();
        assert_eq!(held(), [content.len() as u64, 0]);
        assert_eq!(filled.total(), content.len() as u64);
        let (mut sent, cx) = (Vec::new(), &mut Context::from_waker(Waker::noop()));
        while let Poll::Ready(Ok(Some(piece))) = filled.poll_next(cx) {
            sent.extend_from_slice(&piece);
        }
        assert_eq!(sent, content);
        assert_eq!(held(), [0, 0]);
    }

    #[test]
    fn the_content_of_all_requests_is_limited() {
        for medium in [Medium::Memory, Medium::File] {
            let mut first = HeldPart::new(medium);
            assert!(first.try_add(medium.bytes_max() - 1));
            let mut second = HeldPart::new(medium);
            assert!(!second.try_add(2));
            assert!(second.try_add(1));
            drop(first);
            assert!(second.try_add(2));
            drop(second);
            assert_eq!(held(), [0, 0]);
        }
    }
}
