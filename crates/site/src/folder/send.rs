//! Sending a file: at once if it is in memory, else in pieces, each only when the client has taken those before.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use blitz_http::files::File;
use blitz_http::{BodyLength, Chunk, PooledFuture, ResponseHead, SendError};
use bytes::Bytes;

use super::content::{Content, Source};
use crate::content_sender::ContentSender;
use crate::files::{Piece, Selection};
use crate::record::Ended;
use crate::responder::Responder;

/// Bytes that are read at a time.
const PIECE_BYTES: u64 = 64 * 1024;

/// The most lookups and open files of a core: each has a descriptor, and clients may read slowly.
const OPEN_MAX: usize = 1024;

/// At a low limit of descriptors they are at most this part of the core's sockets, but [`OPEN_MIN`].
const OPEN_PART: usize = 10;
const OPEN_MIN: usize = 4;

/// Counts the lookups and open files of a core. A lookup goes on when its request has ended.
#[derive(Debug, Default)]
pub(super) struct Permits(Arc<AtomicUsize>);

/// The right to one more; it is given back when this is dropped.
pub(super) struct Permit(Arc<AtomicUsize>);

impl Permits {
    /// `None` if a core that may have so many sockets has as many files open as it may.
    pub(super) fn take(&self, sockets_max: usize) -> Option<Permit> {
        let max = (sockets_max / OPEN_PART).clamp(OPEN_MIN, OPEN_MAX);
        let before = self.0.fetch_add(1, Ordering::Relaxed);
        let permit = Permit(Arc::clone(&self.0));
        (before < max).then_some(permit)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Sends what was selected of the content. Returns the rest of the work, which has the permit.
pub(super) fn respond<'a>(
    responder: Responder<'a>,
    head: &mut ResponseHead,
    content: &Content,
    selection: Selection,
    permit: Option<Permit>,
) -> Option<PooledFuture<'a, ()>> {
    let file = match &content.source {
        Source::Memory(bytes) => {
            responder.send(head, in_memory(bytes, &selection));
            return None;
        }
        Source::File(_) if selection.pieces.is_empty() => {
            responder.send(head, Chunk::from(""));
            return None;
        }
        Source::File(file) => file.clone(),
    };
    let length = BodyLength::Known(selection.length);
    let (body, sent) = responder.start_content(head, length)?;
    if body.is_discarding() {
        sent.end(Ended::Complete);
        return None;
    }
    Some(PooledFuture::new(async move {
        // A file that is being sent is still open.
        let _permit = permit;
        let ended = stream(body, &file, selection.pieces).await;
        sent.end(ended);
    }))
}

/// The selected bytes; those of a single part are shared.
fn in_memory(bytes: &Bytes, selection: &Selection) -> Chunk {
    match &selection.pieces[..] {
        [] => Chunk::from(""),
        [Piece::File(part)] => Chunk::from(slice(bytes, part)),
        pieces => {
            let mut all = Vec::new();
            for piece in pieces {
                match piece {
                    Piece::File(part) => all.extend_from_slice(&slice(bytes, part)),
                    Piece::Text(text) => all.extend_from_slice(text.as_bytes()),
                }
            }
            Chunk::from(all)
        }
    }
}

/// A part of bytes; it lies within them.
fn slice(bytes: &Bytes, part: &Range<u64>) -> Bytes {
    let bound = |at: u64| usize::try_from(at).map_or(bytes.len(), |at| at.min(bytes.len()));
    bytes.slice(bound(part.start)..bound(part.end))
}

/// Sends the pieces. If the file ends early or cannot be read, the response is cut off.
async fn stream(mut body: ContentSender, file: &File, pieces: Vec<Piece>) -> Ended {
    for piece in pieces {
        let part = match piece {
            Piece::Text(text) => match body.send_part(text.into()).await {
                Ok(()) => continue,
                Err(error) => return ended_by(error),
            },
            Piece::File(part) => part,
        };
        let mut at = part.start;
        while at < part.end {
            match body.file(file, at, part.end - at).await {
                Ok(0) => {}
                Ok(bytes) => {
                    at += bytes;
                    continue;
                }
                Err(error) => return ended_by(error),
            }
            // Nothing is read before there is room, so a slow reader holds no further piece.
            if body.room().await.is_err() {
                return Ended::ClientGone;
            }
            let wanted = PIECE_BYTES.min(part.end - at) as usize;
            let bytes = match file.read(at, wanted).await {
                Ok(bytes) if !bytes.is_empty() => bytes,
                Ok(_) => {
                    tracing::warn!(
                        "a file became shorter while it was sent: the response is cut off"
                    );
                    return Ended::Aborted;
                }
                Err(error) => {
                    tracing::warn!(%error, "a file cannot be read any further: the response is cut off");
                    return Ended::Aborted;
                }
            };
            at += bytes.len() as u64;
            // Frames share them, whereas parts of a vector are copied.
            if let Err(error) = body.send_part(Bytes::from(bytes).into()).await {
                return ended_by(error);
            }
        }
    }
    body.finish(None)
        .map_or_else(ended_by, |()| Ended::Complete)
}

fn ended_by(error: SendError) -> Ended {
    match error {
        SendError::Closed => Ended::ClientGone,
        SendError::Length => Ended::Aborted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permits_are_bounded_and_given_back() {
        let permits = Permits::default();
        for (sockets_max, expected) in [(0, OPEN_MIN), (450, 45), (1 << 20, OPEN_MAX)] {
            let taken = (0..2 * OPEN_MAX).map_while(|_| permits.take(sockets_max));
            let all: Vec<_> = taken.collect();
            assert_eq!(all.len(), expected);
            assert!(permits.take(sockets_max).is_none());
        }
        assert_eq!(permits.0.load(Ordering::Relaxed), 0);
    }
}
