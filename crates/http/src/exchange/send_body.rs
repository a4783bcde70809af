//! A message's body on its way out.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};

use blitz_proto::Fields;
use blitz_reactor::{Chunk, File};

use super::framing::ExchangeId;
use super::handle::{ExchangeHandle, MessageOps};
use crate::error::SendError;

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
    /// The peer takes no content that the caller still believes it has to give: the response to HEAD, a 304.
    Discard,
    /// The peer is gone.
    Closed,
    Open(ExchangeHandle<dyn MessageOps>),
}

impl SendBody {
    pub(crate) fn done() -> SendBody {
        SendBody { sink: Sink::Done }
    }

    /// Of a message without a recipient.
    pub(crate) fn closed() -> SendBody {
        SendBody { sink: Sink::Closed }
    }

    pub(crate) fn discard() -> SendBody {
        SendBody {
            sink: Sink::Discard,
        }
    }

    pub(crate) fn new(connection: Rc<dyn MessageOps>, id: ExchangeId) -> SendBody {
        SendBody {
            sink: Sink::Open(ExchangeHandle::new(connection, id)),
        }
    }

    /// Whether content would only be thrown away, so that making it can be spared: in responses to HEAD, with 204 and
    /// 304, and once finished.
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
            Sink::Open(ExchangeHandle { connection, id }) => connection.poll_room(*id, cx),
            Sink::Closed => Poll::Ready(Err(SendError::Closed)),
            Sink::Done | Sink::Discard => Poll::Ready(Ok(())),
        }
    }

    /// Sends bytes of a file without reading them, where the connection and the file can do that: at most `len`, at an
    /// offset, as many as the peer takes. Ready with their number. If that is 0 the next bytes must be read, and be sent
    /// with [`data`](SendBody::data); `len` must not be 0. While it is pending, nothing else is to be sent.
    ///
    /// # Errors
    /// [`SendError::Closed`] when the peer is gone.
    pub fn poll_file(
        &mut self,
        cx: &mut Context<'_>,
        file: &File,
        offset: u64,
        len: u64,
    ) -> Poll<Result<u64, SendError>> {
        let Sink::Open(ExchangeHandle { connection, id }) = &self.sink else {
            return Poll::Ready(Ok(0));
        };
        let sent = connection.poll_send_file(*id, cx, (file, offset, len));
        sent.map_ok(|sent| sent.unwrap_or(0) as u64)
    }

    /// Queues `chunk` without waiting for room: for callers that asked
    /// [`poll_room`](SendBody::poll_room) or hold little.
    ///
    /// # Errors
    /// As [`SendBody::data`].
    pub fn queue(&mut self, chunk: impl Into<Chunk>) -> Result<(), SendError> {
        let chunk = chunk.into();
        match &self.sink {
            Sink::Open(ExchangeHandle { connection, id }) => connection.send_data(*id, chunk),
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
            Sink::Open(handle) => {
                let ended = handle.connection.send_end(handle.id, trailers);
                handle.release();
                ended
            }
            Sink::Closed => Err(SendError::Closed),
            Sink::Done | Sink::Discard => Ok(()),
        }
    }

    /// Ends a direction of a tunnel that the peer reads no more: what it has not taken by now may be
    /// discarded, and then it sees that.
    pub fn close(self) {
        if let Sink::Open(ExchangeHandle { connection, id }) = &self.sink {
            // Dropping it cuts off what is left.
            let _ = connection.send_end(*id, None);
        }
    }

    /// Cuts the message off, as dropping it does.
    pub fn abort(self) {}
}

impl Drop for SendBody {
    fn drop(&mut self) {
        if let Sink::Open(handle) = std::mem::replace(&mut self.sink, Sink::Done) {
            handle.connection.drop_writer(handle.id);
            handle.release();
        }
    }
}
