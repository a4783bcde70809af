//! Content that is received completely before it is sent on. All of a core has a limit.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::task::{Context, Poll, ready};

use blitz_http::{BodyError, BodyLength, Buffer, Chunk, Part, core_local};

use super::Flow;

/// Bytes that a core may hold for all requests that are received before they are sent on; beyond: 503.
const HELD_BYTES_MAX: usize = blitz_config::BUFFER_MAX as usize;

/// Received pieces are copied into pieces of this size: they may be small parts of large buffers.
const PIECE_BYTES: usize = 16 * 1024;

/// Content that was received and not yet sent on.
pub(super) struct Filled {
    pieces: VecDeque<Chunk>,
    /// The piece that grows.
    last: Buffer,
    /// All that was received, in bytes.
    total: u64,
    held: HeldBytes,
}

/// Why content cannot be held.
pub(crate) enum FillError {
    /// The content failed.
    From(BodyError),
    /// It is larger than its request may have.
    TooLarge,
    /// The core holds as much content as it may.
    NoRoom,
}

impl Flow {
    /// Receives all content, at most `bytes_max`; trailers are dropped. Ready when it is complete.
    pub(crate) fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        bytes_max: u64,
    ) -> Poll<Result<(), FillError>> {
        if matches!(self.from.length(), BodyLength::Known(length) if length > bytes_max) {
            return Poll::Ready(Err(FillError::TooLarge));
        }
        let mut filled = self.filled.take().unwrap_or_default();
        let polled = self.poll_into(&mut filled, cx, bytes_max);
        self.filled = Some(filled);
        polled
    }

    fn poll_into(
        &mut self,
        filled: &mut Filled,
        cx: &mut Context<'_>,
        bytes_max: u64,
    ) -> Poll<Result<(), FillError>> {
        loop {
            match ready!(self.from.poll_next(cx)).map_err(FillError::From)? {
                Some(Part::Data(slice)) => {
                    let bytes = slice.len() as u64;
                    self.left = self.left.saturating_sub(bytes);
                    if filled.total + bytes > bytes_max {
                        return Poll::Ready(Err(FillError::TooLarge));
                    }
                    if !filled.held.try_add(slice.len()) {
                        return Poll::Ready(Err(FillError::NoRoom));
                    }
                    filled.add(&slice);
                }
                Some(Part::Trailers(_)) => {}
                None => {
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
            pieces: VecDeque::new(),
            last: Buffer::take(),
            total: 0,
            held: HeldBytes(0),
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
        !self.pieces.is_empty()
    }

    /// The next piece to send on.
    pub(super) fn next(&mut self) -> Option<Chunk> {
        let piece = self.pieces.pop_front()?;
        self.held.remove(piece.len());
        Some(piece)
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
}

/// A part of the content that the core holds.
struct HeldBytes(usize);

impl HeldBytes {
    fn try_add(&mut self, bytes: usize) -> bool {
        let has_room = HELD.with_borrow_mut(|held| {
            let has_room = *held + bytes <= HELD_BYTES_MAX;
            *held += if has_room { bytes } else { 0 };
            has_room
        });
        self.0 += if has_room { bytes } else { 0 };
        has_room
    }

    fn remove(&mut self, bytes: usize) {
        self.0 -= bytes;
        // While the thread ends, the count may already be gone.
        let _ = HELD.try_with(|held| *held.borrow_mut() -= bytes);
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        self.remove(self.0);
    }
}

core_local! {
    static HELD: RefCell<usize> = const { RefCell::new(0) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_held_in_pieces_and_counted_until_it_is_sent() {
        let mut filled = Filled::default();
        let content: Vec<u8> = (0..PIECE_BYTES * 2 + 5).map(|at| at as u8).collect();
        for part in content.chunks(1000) {
            assert!(filled.held.try_add(part.len()));
            filled.add(part);
        }
        filled.complete_last();
        assert_eq!(HELD.with_borrow(|held| *held), content.len());
        assert_eq!(filled.total(), content.len() as u64);
        let mut sent = Vec::new();
        while let Some(piece) = filled.next() {
            sent.extend_from_slice(&piece);
        }
        assert_eq!(sent, content);
        assert_eq!(HELD.with_borrow(|held| *held), 0);
    }

    #[test]
    fn the_content_of_all_requests_is_limited() {
        let mut first = Filled::default();
        assert!(first.held.try_add(HELD_BYTES_MAX - 1));
        let mut second = Filled::default();
        assert!(!second.held.try_add(2));
        assert!(second.held.try_add(1));
        drop(first);
        assert!(second.held.try_add(2));
        drop(second);
        assert_eq!(HELD.with_borrow(|held| *held), 0);
    }
}
