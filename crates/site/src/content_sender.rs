//! Content that is sent piece by piece by the code that responds, compressed on its way where that was decided.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use blitz_http::files::File;
use blitz_http::{BodyLength, Chunk, Fields, PooledFuture, SendBody, SendError, yield_now};

use crate::compress::{Encoder, STEP_BYTES, edit_trailers};
use crate::transform::TransformError;

/// Sends the content of a response. Dropped before [`finish`](ContentSender::finish), the response is cut off.
pub struct ContentSender {
    body: SendBody,
    /// `None` sends content as it is.
    encoder: Option<Box<Encoder>>,
    /// Content that is still to come by its declared length, of which HTTP knows nothing if it is compressed.
    left: Option<u64>,
    /// Where to add what is sent, if somebody will ask.
    sent: Option<Rc<Cell<u64>>>,
}

impl ContentSender {
    pub(crate) fn new(
        body: SendBody,
        encoder: Option<Box<Encoder>>,
        length: BodyLength,
        sent: Option<Rc<Cell<u64>>>,
    ) -> ContentSender {
        let left = match (&encoder, length) {
            (Some(_), BodyLength::Known(bytes)) => Some(bytes),
            _ => None,
        };
        ContentSender {
            body,
            encoder,
            left,
            sent,
        }
    }

    /// Whether content would only be thrown away, as that of responses to HEAD.
    #[must_use]
    pub fn is_discarding(&self) -> bool {
        self.body.is_discarding()
    }

    /// Waits until there is room for another piece.
    ///
    /// # Errors
    /// The client is gone.
    pub fn room(&mut self) -> impl Future<Output = Result<(), SendError>> {
        poll_fn(|cx| self.body.poll_room(cx))
    }

    /// Sends bytes of a file without reading them, as [`SendBody::poll_file`] does. Ready with their number; 0 if they must be
    /// read, also because they are to be compressed.
    ///
    /// # Errors
    /// The client is gone.
    pub fn poll_file(
        &mut self,
        cx: &mut Context<'_>,
        file: &File,
        offset: u64,
        len: u64,
    ) -> Poll<Result<u64, SendError>> {
        if self.encoder.is_some() {
            return Poll::Ready(Ok(0));
        }
        let sent = self.body.poll_file(cx, file, offset, len);
        if let Poll::Ready(Ok(sent)) = sent {
            self.note(sent);
        }
        sent
    }

    /// Sends a piece after which another one may be long in coming: the client can read all of it now.
    ///
    /// # Errors
    /// The client is gone, or the content is longer than declared.
    #[inline]
    pub fn send(&mut self, piece: Chunk) -> impl Future<Output = Result<(), SendError>> {
        self.send_piece(piece, true)
    }

    /// Sends a piece that others follow at once.
    ///
    /// # Errors
    /// As [`send`](ContentSender::send).
    #[inline]
    pub(crate) fn send_part(
        &mut self,
        piece: Chunk,
    ) -> impl Future<Output = Result<(), SendError>> {
        self.send_piece(piece, false)
    }

    #[inline]
    fn send_piece(&mut self, piece: Chunk, is_flushed: bool) -> Sending<'_> {
        match self.encoder {
            None => Sending::AsItIs(self, Some(piece)),
            // On the heap, so that the future of other content is small.
            Some(_) => Sending::Compressed(PooledFuture::new(self.compress(piece, is_flushed))),
        }
    }

    async fn compress(&mut self, piece: Chunk, is_flushed: bool) -> Result<(), SendError> {
        if let Some(left) = &mut self.left {
            let rest = left.checked_sub(piece.len() as u64);
            *left = rest.ok_or(SendError::Length)?;
        }
        let mut parts = piece.chunks(STEP_BYTES).peekable();
        while let Some(part) = parts.next() {
            let Some(encoder) = &mut self.encoder else {
                return Err(SendError::Closed);
            };
            let compressed = encoder.part(part, is_flushed && parts.peek().is_none());
            let yields = encoder.is_tired();
            let compressed = compressed.map_err(failed)?;
            if !compressed.is_empty() {
                self.room().await?;
                self.queue(compressed)?;
            }
            if yields {
                yield_now().await;
            }
        }
        Ok(())
    }

    #[inline]
    fn queue(&mut self, piece: Chunk) -> Result<(), SendError> {
        let length = piece.len() as u64;
        self.body.queue(piece)?;
        self.note(length);
        Ok(())
    }

    #[inline]
    fn note(&self, bytes: u64) {
        if let Some(sent) = &self.sent {
            sent.set(sent.get() + bytes);
        }
    }

    /// Ends the content.
    ///
    /// # Errors
    /// The client is gone, or the content is shorter than declared.
    pub fn finish(mut self, trailers: Option<&Fields>) -> Result<(), SendError> {
        if self.left.is_some_and(|left| left > 0) {
            return Err(SendError::Length);
        }
        let mut changed = None;
        if let Some(mut encoder) = self.encoder.take() {
            changed = trailers.cloned();
            changed.as_mut().map(edit_trailers);
            let last = encoder.finish().map_err(failed)?;
            self.queue(last)?;
        }
        self.body.finish(changed.as_ref().or(trailers))
    }
}

/// A piece that is being sent. Not an `async fn`, because it would be one future within another for each piece.
enum Sending<'s> {
    /// The piece is sent once there is room.
    AsItIs(&'s mut ContentSender, Option<Chunk>),
    Compressed(PooledFuture<'s, Result<(), SendError>>),
}

impl Future for Sending<'_> {
    type Output = Result<(), SendError>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), SendError>> {
        match self.get_mut() {
            Sending::AsItIs(sender, piece) => {
                ready!(sender.body.poll_room(cx))?;
                // Only a future that was ready has none.
                Poll::Ready(piece.take().map_or(Ok(()), |piece| sender.queue(piece)))
            }
            Sending::Compressed(sending) => Pin::new(sending).poll(cx),
        }
    }
}

/// The response is cut off, so that the client does not take it for complete.
#[cold]
fn failed(error: TransformError) -> SendError {
    tracing::error!(?error, "an encoder has failed, and the response is cut off");
    SendError::Length
}
