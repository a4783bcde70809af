//! Bodies on their way in and out, the same for servers and clients and for all versions.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};

use blitz_proto::h2::StreamId;
use blitz_proto::{BodyLength, Fields};
use blitz_reactor::{Buffer, Chunk, Slice};

use crate::error::{BodyError, SendError};
use crate::recycle::Pooled;
use crate::{h1, h2};

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
    source: Source,
}

enum Source {
    /// Nothing (more) to come.
    Done,
    /// An HTTP/1 connection, in the exchange of this number.
    H1(Rc<h1::Wire>, u32),
    /// A stream of an HTTP/2 connection.
    H2(Rc<h2::Wire>, StreamId),
}

impl RecvBody {
    /// A body without content.
    #[must_use]
    pub fn empty() -> RecvBody {
        RecvBody {
            length: BodyLength::Empty,
            source: Source::Done,
        }
    }

    pub(crate) fn done(length: BodyLength) -> RecvBody {
        RecvBody {
            length,
            source: Source::Done,
        }
    }

    pub(crate) fn h1(wire: Rc<h1::Wire>, exchange: u32, length: BodyLength) -> RecvBody {
        RecvBody {
            length,
            source: Source::H1(wire, exchange),
        }
    }

    pub(crate) fn h2(wire: Rc<h2::Wire>, stream: StreamId, length: BodyLength) -> RecvBody {
        RecvBody {
            length,
            source: Source::H2(wire, stream),
        }
    }

    /// What the head declared, whatever was read since.
    #[inline]
    #[must_use]
    pub fn length(&self) -> BodyLength {
        self.length
    }

    /// Whether everything was received and taken; true at once for a message without content.
    #[inline]
    #[must_use]
    pub fn is_done(&self) -> bool {
        matches!(self.source, Source::Done)
    }

    /// Holds the sender to no minimum rate: the body is a stream of messages, which may be far apart
    /// (rule 18). Whoever reads it has to know when it has lasted too long.
    pub fn be_patient(&mut self) {
        match &self.source {
            Source::Done => {}
            Source::H1(wire, exchange) => wire.be_patient(*exchange),
            Source::H2(wire, stream) => wire.be_patient(*stream),
        }
    }

    /// The next part, as soon as there is one; `None` at the end, and from then on.
    ///
    /// On a server the first read of a body whose sender waits for `100 Continue` asks for it,
    /// unless [`Responder::informational`](crate::Responder::informational) did.
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
        let polled = match &self.source {
            Source::Done => return Poll::Ready(Ok(None)),
            Source::H1(wire, exchange) => wire.poll_part(*exchange, cx),
            Source::H2(wire, stream) => wire.poll_part(*stream, cx),
        };
        if let Poll::Ready(Ok(None)) = polled {
            self.let_go();
        }
        polled
    }

    /// All of the content, if nothing was taken yet and it was received in one piece; the body is
    /// done then. Saves whoever passes a small body on the way by its parts.
    pub fn take_whole(&mut self) -> Option<Slice> {
        let BodyLength::Known(length) = self.length else {
            return None;
        };
        let whole = match &self.source {
            Source::H1(wire, exchange) => wire.take_whole(*exchange, length)?,
            Source::H2(wire, stream) => wire.take_whole(*stream, length)?,
            Source::Done => return None,
        };
        self.let_go();
        Some(whole)
    }

    fn let_go(&mut self) {
        if let Source::H1(wire, _) = std::mem::replace(&mut self.source, Source::Done) {
            h1::Wire::let_go(wire);
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
        match &self.source {
            Source::Done => {}
            Source::H1(wire, exchange) => {
                wire.drop_recv(*exchange);
                self.let_go();
            }
            Source::H2(wire, stream) => wire.drop_recv(*stream),
        }
    }
}

/// A body that is being sent: of a response on a server, of a request on a client, or one
/// direction of a tunnel.
///
/// Dropping it unfinished cuts the message off in a way that the peer can see: the connection is
/// closed, a stream is reset.
pub struct SendBody {
    sink: Sink,
}

enum Sink {
    /// The message has no content, or it is finished.
    Done,
    /// The peer takes no content that the caller still believes it has to give: the answer to
    /// HEAD, a 304.
    Discard,
    /// The peer is gone.
    Closed,
    /// An HTTP/1 connection, in the exchange of this number.
    H1(Rc<h1::Wire>, u32),
    /// A stream of an HTTP/2 connection.
    H2(Rc<h2::Wire>, StreamId),
}

impl SendBody {
    pub(crate) fn done() -> SendBody {
        SendBody { sink: Sink::Done }
    }

    /// Of a message that nobody will take.
    pub(crate) fn refused() -> SendBody {
        SendBody { sink: Sink::Closed }
    }

    pub(crate) fn discard() -> SendBody {
        SendBody {
            sink: Sink::Discard,
        }
    }

    pub(crate) fn h1(wire: Rc<h1::Wire>, exchange: u32) -> SendBody {
        SendBody {
            sink: Sink::H1(wire, exchange),
        }
    }

    pub(crate) fn h2(wire: Rc<h2::Wire>, stream: StreamId) -> SendBody {
        SendBody {
            sink: Sink::H2(wire, stream),
        }
    }

    /// Whether content would only be thrown away, so that making it can be spared: in answers to
    /// HEAD, with 204 and 304, and once finished.
    #[must_use]
    pub fn is_discarding(&self) -> bool {
        matches!(self.sink, Sink::Done | Sink::Discard)
    }

    /// Waits until the peer has taken enough of what was queued before, then queues `chunk`.
    ///
    /// # Errors
    /// [`SendError`], after which nothing more can be sent.
    pub async fn data(&mut self, chunk: impl Into<Chunk>) -> Result<(), SendError> {
        let chunk = chunk.into();
        poll_fn(|cx| self.poll_room(cx)).await?;
        self.queue(chunk)
    }

    /// Ready when there is room for another piece (a quarter of what a stream may buffer is queued at most).
    ///
    /// # Errors
    /// [`SendError::Closed`] when the peer is gone.
    pub fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SendError>> {
        match &self.sink {
            Sink::H1(wire, exchange) => wire.poll_room(*exchange, cx),
            Sink::H2(wire, stream) => wire.poll_room(*stream, cx),
            Sink::Closed => Poll::Ready(Err(SendError::Closed)),
            Sink::Done | Sink::Discard => Poll::Ready(Ok(())),
        }
    }

    /// Queues `chunk` without waiting for room: for callers that asked
    /// [`poll_room`](SendBody::poll_room) or hold little.
    ///
    /// # Errors
    /// As [`SendBody::data`].
    pub fn queue(&mut self, chunk: impl Into<Chunk>) -> Result<(), SendError> {
        let chunk = chunk.into();
        match &self.sink {
            Sink::H1(wire, exchange) => wire.send_data(*exchange, chunk),
            Sink::H2(wire, stream) => wire.send_data(*stream, chunk),
            Sink::Discard => Ok(()),
            Sink::Closed => Err(SendError::Closed),
            Sink::Done if chunk.is_empty() => Ok(()),
            Sink::Done => Err(SendError::Length),
        }
    }

    /// Ends the body, with trailers where the framing has room for them; in a tunnel, passes FIN
    /// on.
    ///
    /// # Errors
    /// [`SendError::Length`] if less than the declared length was sent.
    pub fn finish(mut self, trailers: Option<&Fields>) -> Result<(), SendError> {
        match std::mem::replace(&mut self.sink, Sink::Done) {
            Sink::H1(wire, exchange) => {
                let ended = wire.send_end(exchange, trailers);
                h1::Wire::let_go(wire);
                ended
            }
            Sink::H2(wire, stream) => wire.send_end(stream, trailers),
            Sink::Closed => Err(SendError::Closed),
            Sink::Done | Sink::Discard => Ok(()),
        }
    }

    /// Cuts the message off, as dropping it does.
    pub fn abort(self) {}
}

impl Drop for SendBody {
    fn drop(&mut self) {
        match std::mem::replace(&mut self.sink, Sink::Done) {
            Sink::H1(wire, exchange) => {
                wire.drop_send(exchange);
                h1::Wire::let_go(wire);
            }
            Sink::H2(wire, stream) => wire.drop_send(stream),
            Sink::Done | Sink::Discard | Sink::Closed => {}
        }
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
