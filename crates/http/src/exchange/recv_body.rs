//! A message's body on its way in.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};

use blitz_proto::{BodyLength, Fields};
use blitz_reactor::{Buffer, Slice};

use super::framing::ExchangeId;
use super::handle::{ExchangeHandle, MessageOps};
use super::send_body::SendBody;
use crate::error::BodyError;
use crate::options::RequestOptions;
use crate::recycle::Pooled;

/// A piece of a received body.
pub enum Part {
    /// Content, as it was received; forwarding it does not copy it.
    Data(Slice),
    /// The trailer section; nothing follows it.
    Trailers(Pooled<Fields>),
}

/// A body that is being received: of a request on a server, of a response on a client, or one
/// direction of a tunnel.
///
/// It buffers at most its share of [`Limits::stream_buffer_bytes_max`](crate::Limits) and receives
/// no more until it is read. Dropping it unread is legal: a server discards a little or closes, a
/// client closes.
pub struct RecvBody {
    length: BodyLength,
    /// `None` when nothing more is to come.
    source: Option<ExchangeHandle<dyn MessageOps>>,
    /// One more than the bytes of content that may still come; 0 if more have come.
    bytes_left: u64,
}

impl RecvBody {
    /// A body without content.
    #[must_use]
    pub fn empty() -> RecvBody {
        RecvBody::complete(BodyLength::Empty)
    }

    /// A body of which everything was taken.
    pub(crate) fn complete(length: BodyLength) -> RecvBody {
        RecvBody {
            length,
            source: None,
            bytes_left: u64::MAX,
        }
    }

    pub(crate) fn new(
        connection: Rc<dyn MessageOps>,
        id: ExchangeId,
        length: BodyLength,
    ) -> RecvBody {
        RecvBody {
            length,
            source: Some(ExchangeHandle::new(connection, id)),
            bytes_left: u64::MAX,
        }
    }

    /// Limits the content that is still to come to `bytes_max`. A reader gets all parts within the
    /// limit, then [`BodyError::TooLarge`]; the rest is discarded as if the body had no reader.
    ///
    /// # Errors
    /// [`BodyError::TooLarge`] if the declared length exceeds the limit.
    pub fn limit(&mut self, bytes_max: u64) -> Result<(), BodyError> {
        if matches!(self.length, BodyLength::Known(length) if length > bytes_max) {
            return Err(BodyError::TooLarge);
        }
        self.bytes_left = bytes_max.saturating_add(1);
        Ok(())
    }

    /// The length that the head declared, however much was read since.
    #[inline]
    #[must_use]
    pub fn length(&self) -> BodyLength {
        self.length
    }

    /// Whether everything was received and taken; true at once for a message without content.
    #[inline]
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.source.is_none() && self.bytes_left > 0
    }

    /// Holds the sender to no minimum rate: the body is a stream of messages, which may be far apart
    /// (rule 18). The deadline for idle streams holds instead.
    pub fn disable_min_rate(&mut self) {
        if let Some(ExchangeHandle { connection, id }) = &self.source {
            connection.disable_min_rate(*id);
        }
    }

    /// Sets options of the request, in place of those of the connection.
    pub fn set_options(&mut self, options: RequestOptions) {
        if let Some(ExchangeHandle { connection, id }) = &self.source {
            connection.set_options(*id, options);
        }
    }

    /// On a server: while this is held, reading sends no `100 Continue`, and gets what the client sends
    /// without waiting for it. A gateway leaves the expectation to its upstream so.
    pub fn hold_continue(&mut self, is_held: bool) {
        if let Some(ExchangeHandle { connection, id }) = &self.source {
            connection.hold_continue(*id, is_held);
        }
    }

    /// Why the body has ended early. A service whose future is dropped learns here that the core
    /// responds instead of it, because the body came too slowly ([`BodyError::TimedOut`]).
    #[must_use]
    pub fn failure(&self) -> Option<BodyError> {
        let ExchangeHandle { connection, id } = self.source.as_ref()?;
        connection.body_failure(*id)
    }

    /// The next part, as soon as there is one; `None` at the end, and from then on.
    ///
    /// On a server the first read of a body whose sender waits for `100 Continue` sends it,
    /// unless [`Responder::informational`](crate::Responder::informational) did, or
    /// [`RecvBody::hold_continue`] forbids it.
    ///
    /// # Errors
    /// Why the body ends early; the same again on later calls.
    pub async fn next(&mut self) -> Result<Option<Part>, BodyError> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// [`RecvBody::next`] for hand-written futures. The last caller's task is the one woken.
    ///
    /// # Errors
    /// As [`RecvBody::next`].
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Part>, BodyError>> {
        let Some(ExchangeHandle { connection, id }) = &self.source else {
            return Poll::Ready(match self.bytes_left {
                0 => Err(BodyError::TooLarge),
                _ => Ok(None),
            });
        };
        let polled = connection.poll_part(*id, cx);
        match &polled {
            Poll::Ready(Ok(Some(Part::Data(slice)))) => {
                let bytes = slice.len() as u64;
                if bytes >= self.bytes_left {
                    return Poll::Ready(Err(self.exceed_limit()));
                }
                self.bytes_left -= bytes;
            }
            Poll::Ready(Ok(None)) => self.release(),
            _ => {}
        }
        polled
    }

    #[cold]
    fn exceed_limit(&mut self) -> BodyError {
        self.bytes_left = 0;
        self.drop_source();
        BodyError::TooLarge
    }

    /// All of the content, if nothing was taken yet and it was received in one piece; the body is
    /// done then. A small body can so be forwarded without its parts.
    pub fn take_whole(&mut self) -> Option<Slice> {
        let BodyLength::Known(length) = self.length else {
            return None;
        };
        let ExchangeHandle { connection, id } = self.source.as_ref()?;
        let whole = connection.take_whole(*id, length)?;
        self.release();
        Some(whole)
    }

    fn release(&mut self) {
        if let Some(source) = self.source.take() {
            source.release();
        }
    }

    /// The rest is discarded.
    fn drop_source(&mut self) {
        if let Some(source) = self.source.take() {
            source.connection.drop_reader(source.id);
            source.release();
        }
    }

    /// Reads the whole content, at most `limit` bytes; trailers are dropped.
    ///
    /// # Errors
    /// [`BodyError::TooLarge`] beyond the limit, at once if the declared length says so; otherwise
    /// as [`RecvBody::next`].
    pub async fn read_to_end(&mut self, limit: usize) -> Result<Buffer, BodyError> {
        if let BodyLength::Known(length) = self.length
            && length > limit as u64
        {
            return Err(BodyError::TooLarge);
        }
        let mut content = Buffer::take();
        while let Some(part) = self.next().await? {
            let Part::Data(slice) = part else { continue };
            if content.len() + slice.len() > limit {
                return Err(BodyError::TooLarge);
            }
            content.extend_from_slice(&slice);
        }
        Ok(content)
    }
}

impl Drop for RecvBody {
    fn drop(&mut self) {
        self.drop_source();
    }
}

/// Both directions of a connection that left HTTP: WebSocket, CONNECT.
///
/// `recv` ends with `None` at the peer's FIN; `send.finish(None)` sends ours.
pub struct Tunnel {
    /// Bytes from the peer, beginning with those that were held while the upgrade was decided.
    pub recv: RecvBody,
    /// Bytes to the peer.
    pub send: SendBody,
}
