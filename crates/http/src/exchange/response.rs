//! The response to a request, as it comes.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};

use blitz_proto::ResponseHead;

use super::framing::{ExchangeId, ReceivedHead, ReceivedKind};
use super::handle::{ClientOps, ExchangeHandle, MessageOps};
use super::recv_body::RecvBody;
use super::send_body::SendBody;
use crate::error::ClientError;
use crate::options::RequestOptions;
use crate::recycle::Pooled;

/// The responses of a server to one request: interim ones, then the final one.
///
/// Dropping it cancels the request, and closes the connection or resets the stream.
pub struct ResponseStream {
    source: ResponseSource,
}

enum ResponseSource {
    /// Nothing more to come.
    Done,
    /// The request was not even sent.
    Failed(ClientError),
    Open(ExchangeHandle<dyn ClientOps>),
}

/// One response head.
pub enum ResponseEvent {
    /// 100, 102, 103 and their like; another event follows.
    Informational(Pooled<ResponseHead>),
    /// The final response; nothing follows.
    Final(Response),
}

/// A final response.
pub struct Response {
    /// Status and fields.
    pub head: Pooled<ResponseHead>,
    /// The content, possibly still to come; of a tunnel, the bytes from the server.
    pub body: RecvBody,
    /// After 101, or 2xx to CONNECT: the way to the server.
    pub upgraded: Option<SendBody>,
}

impl ResponseStream {
    pub(crate) fn new(connection: Rc<dyn ClientOps>, id: ExchangeId) -> ResponseStream {
        ResponseStream {
            source: ResponseSource::Open(ExchangeHandle::new(connection, id)),
        }
    }

    pub(crate) fn failed(error: ClientError) -> ResponseStream {
        ResponseStream {
            source: ResponseSource::Failed(error),
        }
    }

    /// Lets the server be silent for [`Limits::stream_idle_timeout`](crate::Limits) before its response
    /// and within it: both messages are streams, which may last (rule 18).
    pub fn disable_min_rate(&mut self) {
        if let ResponseSource::Open(ExchangeHandle { connection, id }) = &self.source {
            connection.disable_min_rate(*id);
        }
    }

    /// Sets options of this request, in place of those of the connection.
    pub fn set_options(&mut self, options: RequestOptions) {
        if let ResponseSource::Open(ExchangeHandle { connection, id }) = &self.source {
            connection.set_options(*id, options);
        }
    }

    /// The next response head.
    ///
    /// # Errors
    /// Why there will be none.
    ///
    /// # Panics
    /// If called again after the final response or an error.
    pub async fn next(&mut self) -> Result<ResponseEvent, ClientError> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// [`ResponseStream::next`] for hand-written futures. The last caller's task is the one woken.
    ///
    /// # Errors
    /// As [`ResponseStream::next`].
    ///
    /// # Panics
    /// As [`ResponseStream::next`].
    #[inline(always)]
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<ResponseEvent, ClientError>> {
        let polled = match &self.source {
            ResponseSource::Open(ExchangeHandle { connection, id }) => {
                connection.poll_response(*id, cx)
            }
            ResponseSource::Failed(error) => return Poll::Ready(Err(error.clone())),
            ResponseSource::Done => panic!("the final response was taken"),
        };
        let received = match polled {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Ok(received)) => received,
            Poll::Ready(Err(error)) => {
                self.release();
                return Poll::Ready(Err(error));
            }
        };
        if received.kind == ReceivedKind::Informational {
            return Poll::Ready(Ok(ResponseEvent::Informational(received.head)));
        }
        Poll::Ready(Ok(ResponseEvent::Final(self.begin(received))))
    }

    /// The final response, with the handles of what follows its head.
    #[inline(always)]
    fn begin(&mut self, received: ReceivedHead) -> Response {
        let ReceivedHead { head, length, kind } = received;
        let ResponseSource::Open(handle) =
            std::mem::replace(&mut self.source, ResponseSource::Done)
        else {
            unreachable!("it has just been polled")
        };
        let connection =
            || -> Rc<dyn MessageOps> { Rc::<dyn ClientOps>::clone(&handle.connection) };
        let (body, upgraded) = match kind {
            ReceivedKind::Content => (RecvBody::new(connection(), handle.id, length), None),
            ReceivedKind::Tunnel => (
                RecvBody::new(connection(), handle.id, length),
                Some(SendBody::new(connection(), handle.id)),
            ),
            ReceivedKind::Complete | ReceivedKind::Informational => {
                (RecvBody::complete(length), None)
            }
        };
        handle.release();
        Response {
            head,
            body,
            upgraded,
        }
    }

    fn release(&mut self) {
        if let ResponseSource::Open(handle) =
            std::mem::replace(&mut self.source, ResponseSource::Done)
        {
            handle.release();
        }
    }

    /// The final response; interim ones are passed over.
    ///
    /// # Errors
    /// As [`ResponseStream::next`].
    pub async fn response(mut self) -> Result<Response, ClientError> {
        loop {
            if let ResponseEvent::Final(response) = self.next().await? {
                return Ok(response);
            }
        }
    }
}

impl Drop for ResponseStream {
    fn drop(&mut self) {
        if let ResponseSource::Open(handle) =
            std::mem::replace(&mut self.source, ResponseSource::Done)
        {
            handle.connection.drop_response(handle.id);
            handle.release();
        }
    }
}
