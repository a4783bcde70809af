//! Sending a file: at once if it is in memory, else in pieces, each only when the client has taken those before.

use std::future::poll_fn;
use std::ops::Range;
use std::rc::Rc;
use std::task::Poll;

use blitz_http::{BodyLength, Chunk, PooledFuture, ResponseHead, SendError};
use bytes::Bytes;

use super::content::{Content, Source};
use super::open_files::{LargeFile, OpenFiles};
use crate::content_sender::ContentSender;
use crate::files::{Piece, Selection};
use crate::record::Ended;
use crate::responder::Responder;

/// Bytes that are read at a time.
const PIECE_BYTES: u64 = 64 * 1024;

/// Sends what was selected of the content. Returns the rest of the work.
pub(super) fn respond<'a>(
    responder: Responder<'a>,
    head: &mut ResponseHead,
    content: Rc<Content>,
    selection: Selection,
    open_files: Rc<OpenFiles>,
) -> Option<PooledFuture<'a, ()>> {
    match &content.source {
        Source::Memory(bytes) => {
            responder.send(head, in_memory(bytes, &selection));
            return None;
        }
        Source::File(_) if selection.pieces.is_empty() => {
            responder.send(head, Chunk::from(""));
            return None;
        }
        Source::File(_) => {}
    }
    let length = BodyLength::Known(selection.length);
    let (body, sent) = responder.start_content(head, length)?;
    if body.is_discarding() {
        sent.end(Ended::Complete);
        return None;
    }
    Some(PooledFuture::new(async move {
        let ended = stream(body, &content, &open_files, selection.pieces).await;
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
async fn stream(
    mut body: ContentSender,
    content: &Rc<Content>,
    open_files: &OpenFiles,
    pieces: Vec<Piece>,
) -> Ended {
    let Source::File(large) = &content.source else {
        return Ended::Aborted;
    };
    for piece in pieces {
        let sent = match piece {
            Piece::Text(text) => body.send_part(text.into()).await.map_err(ended_by),
            Piece::File(mut part) => loop {
                match send_next(&mut body, large, open_files, &mut part).await {
                    Ok(Next::Sent) if part.is_empty() => break Ok(()),
                    Ok(Next::Sent) => {}
                    Ok(Next::Closed) if open_files.reopen(content, large).await => {}
                    Ok(Next::Closed) => break Err(Ended::Aborted),
                    Err(ended) => break Err(ended),
                }
            },
        };
        if let Err(ended) = sent {
            return ended;
        }
    }
    body.finish(None)
        .map_or_else(ended_by, |()| Ended::Complete)
}

/// The outcome of an attempt to send the next bytes of a file.
enum Next {
    Sent,
    /// The file was closed while the client took nothing.
    Closed,
}

/// Sends some bytes of the part, and removes them from it. Nobody holds the file while the client takes nothing.
async fn send_next(
    body: &mut ContentSender,
    large: &LargeFile,
    open_files: &OpenFiles,
    part: &mut Range<u64>,
) -> Result<Next, Ended> {
    let length = part.end - part.start;
    let sent = poll_fn(|cx| match open_files.get(large) {
        Some(opened) => {
            let sent = body.poll_file(cx, &opened.file, part.start, length);
            sent.map(Some)
        }
        None => Poll::Ready(None),
    });
    let sent = match sent.await {
        Some(sent) => sent.map_err(ended_by)?,
        None => return Ok(Next::Closed),
    };
    if sent > 0 {
        part.start += sent;
        return Ok(Next::Sent);
    }
    // Nothing is read before there is room, so a slow reader holds no further piece.
    body.room().await.map_err(|_| Ended::ClientGone)?;
    let Some(opened) = open_files.get(large) else {
        return Ok(Next::Closed);
    };
    let read = opened
        .file
        .read(part.start, PIECE_BYTES.min(length) as usize)
        .await;
    drop(opened);
    let bytes = match read {
        Ok(bytes) if !bytes.is_empty() => bytes,
        Ok(_) => {
            let file = large.shown();
            tracing::warn!(
                file,
                "a file became shorter while it was sent: the response is cut off"
            );
            return Err(Ended::Aborted);
        }
        Err(error) => {
            let file = large.shown();
            tracing::warn!(%error, file, "a file cannot be read any further: the response is cut off");
            return Err(Ended::Aborted);
        }
    };
    part.start += bytes.len() as u64;
    // Frames share them, whereas parts of a vector are copied.
    let sent = body.send_part(Bytes::from(bytes).into()).await;
    sent.map_err(ended_by)?;
    Ok(Next::Sent)
}

fn ended_by(error: SendError) -> Ended {
    match error {
        SendError::Closed => Ended::ClientGone,
        SendError::Length => Ended::Aborted,
    }
}
