//! The operations of a framing driver.
//!
//! A driver owns a connection of one version and translates between messages and bytes. It decides
//! nothing about an exchange: the other modules of this folder do.

use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Instant;

use blitz_proto::{BodyLength, Error, Fields, Limits, ResponseHead, Version};
use blitz_reactor::{Chunk, File, Slice};

use super::deadline::poll_client_deadline;
use super::pace::ReceivedContent;
use super::peer::Peer;
use super::state::{BodyState, ExchangeState, MessageState};
use crate::error::{BodyError, ClientError, SendError};
use crate::options::ClientOptions;
use crate::options::ServeOptions;
use crate::recycle::Pooled;

/// Names an exchange on its connection: the number of the stream, or of the exchange where a
/// connection carries one at a time. It is never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ExchangeId(pub(crate) u64);

/// A framing driver. Operations on an exchange that is over do nothing.
pub(crate) trait Framing: Sized {
    type Id: Copy + From<ExchangeId>;
    /// Whether it serves requests or sends them.
    type Side: Side<Self>;

    /// The state of an exchange; `None` once it is over.
    fn exchange(&mut self, id: Self::Id) -> Option<&mut ExchangeState>;

    /// The same, with the bounds that hold for it.
    fn exchange_and_limits(&mut self, id: Self::Id) -> Option<(&mut ExchangeState, &Limits)>;

    /// The next piece of the peer's message. When it is pending the caller's task is woken, by the
    /// socket or through the exchange's reader.
    ///
    /// # Errors
    /// Why no more comes; the exchange's state keeps it.
    fn poll_fill(&mut self, id: Self::Id, cx: &mut Context<'_>) -> Poll<Result<Fill, BodyError>>;

    /// The whole body of `length` bytes, if nothing of it was taken and it was received in one piece.
    fn take_whole(&mut self, id: Self::Id, length: u64) -> Option<Slice>;

    /// Ready when there is room for another piece of an open message.
    fn poll_room(&mut self, id: Self::Id, cx: &mut Context<'_>) -> Poll<Result<(), SendError>>;

    /// Frames content of an open message and queues it; nothing follows if it `is_last`.
    ///
    /// # Errors
    /// It is longer than declared, or shorter and the last.
    fn send_data(&mut self, id: Self::Id, chunk: Chunk, is_last: bool) -> Result<Sent, Error>;

    /// Sends content of an open message straight from a file: at most `len` bytes at an offset. Ready with the number
    /// that was sent; `None` if the next bytes must be read, and be sent with [`Framing::send_data`].
    fn poll_send_file(
        &mut self,
        _: Self::Id,
        _: &mut Context<'_>,
        _file: &File,
        _offset: u64,
        _len: u64,
    ) -> Poll<Result<Option<usize>, SendError>> {
        Poll::Ready(Ok(None))
    }

    /// Ends an open message.
    ///
    /// # Errors
    /// It is shorter than declared.
    fn send_end(&mut self, id: Self::Id, trailers: Option<&Fields>) -> Result<Sent, Error>;

    /// Whether content of our message is still to come.
    fn has_content_to_send(&self, id: Self::Id) -> bool;

    /// How our message leaves.
    fn transmission(&mut self, id: Self::Id) -> Transmission;
}

/// A driver on a server.
pub(crate) trait ServerFraming: Framing<Side = ServerSide> {
    /// The version of the connection, for logs; a request may also be one of HTTP/1.0.
    const VERSION: Version;

    fn options(&self) -> &Rc<ServeOptions>;

    /// The client.
    fn peer(&self) -> &Rc<Peer>;

    /// Whether the client waits for `100 Continue`.
    fn expects_continue(&self, id: Self::Id) -> bool;

    /// Whether the request asks for a tunnel and was received completely.
    fn is_upgrade_requested(&mut self, id: Self::Id) -> bool;

    fn send_informational(&mut self, id: Self::Id, head: &ResponseHead);

    /// Sends the head of the final response. `is_whole` means that its content follows at once.
    fn send_head(
        &mut self,
        id: Self::Id,
        head: &mut ResponseHead,
        length: BodyLength,
        is_whole: bool,
    );

    /// Sends the head that opens a tunnel.
    fn send_tunnel_head(&mut self, id: Self::Id, head: &mut ResponseHead);

    /// Whether the head of the final response was sent, or can no longer be sent.
    fn is_response_started(&self, id: Self::Id) -> bool;

    /// A connection that carries one exchange at a time closes after this one.
    fn close_if_exclusive(&mut self);

    /// Drops the received content of a request without a reader.
    fn discard(&mut self, id: Self::Id);

    /// Whether a deadline of the client may apply although the request was received: the client reads
    /// nothing, or has ended its direction.
    fn may_wait_for_client(&mut self, id: Self::Id) -> bool;

    /// Notices without a reader that the client has left.
    fn poll_client_gone(&mut self, id: Self::Id, cx: &mut Context<'_>) -> Poll<()>;
}

/// A driver on a client.
pub(crate) trait ClientFraming: Framing<Side = ClientSide> {
    fn options(&self) -> &ClientOptions;

    /// When the wait for the final head began: with the request or the last 102.
    fn wait_start(&mut self, id: Self::Id) -> Option<Instant>;

    /// The next response head, as it comes.
    ///
    /// # Errors
    /// Why there is none.
    fn poll_head(
        &mut self,
        id: Self::Id,
        cx: &mut Context<'_>,
    ) -> Poll<Result<ReceivedHead, ClientError>>;

    /// Whether some of a response head has come that is not complete, as far as that is known.
    fn is_heard(&mut self, _: Self::Id) -> bool {
        false
    }

    /// Whether content of the request is still to come.
    fn awaits_content(&mut self, id: Self::Id) -> bool;

    /// Whether a final response has begun, so that it can be read although the request is truncated.
    fn has_response(&mut self, id: Self::Id) -> bool;

    /// One of the two messages was completed: ends the exchange if both are.
    fn settle(&mut self, id: Self::Id);

    /// The response was taken to its end.
    fn response_taken(&mut self, id: Self::Id);

    /// The server is too slow: cancels the exchange, which fails for its reader.
    fn cancel(&mut self, id: Self::Id);

    /// Cancels the exchange for all of its handles.
    fn abandon(&mut self, id: Self::Id);
}

/// A piece of a message.
pub(crate) enum Fill {
    Data(Slice),
    Trailers(Pooled<Fields>),
    End,
}

/// Whether a message has left.
pub(crate) enum Sent {
    /// Some of it is still to come, or waits to be framed.
    Open,
    /// Down to its last frame.
    Complete,
}

/// How much of a message waits, and when the peer last took any.
pub(crate) struct Transmission {
    /// Bytes queued that the peer, or the kernel, has not taken.
    pub(crate) unsent: usize,
    /// When it last took a byte, or the oldest queued byte was queued.
    pub(crate) progress: Option<Instant>,
    /// When the client ended its direction, where that leaves ours open.
    pub(crate) half_closed: Option<Instant>,
    /// The peer may not send at the moment: memory is short, or unread content has used up the window.
    pub(crate) is_held_back: bool,
    /// The content that the connection has received for all its streams.
    pub(crate) received: ReceivedContent,
}

/// A response head and what follows it.
pub(crate) struct ReceivedHead {
    pub(crate) head: Pooled<ResponseHead>,
    pub(crate) length: BodyLength,
    pub(crate) kind: ReceivedKind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReceivedKind {
    /// Another head.
    Informational,
    /// Nothing.
    Complete,
    /// The content.
    Content,
    /// Bytes of another protocol, in both directions.
    Tunnel,
}

/// The differences between a server and a client in handling an event.
pub(crate) trait Side<F: Framing<Side = Self>> {
    /// A reader waits for content that has not come.
    fn poll_awaiting(framing: &mut F, id: F::Id, cx: &mut Context<'_>) -> Poll<BodyError>;
    /// A reader has taken the end of the peer's message.
    fn end_taken(framing: &mut F, id: F::Id);
    /// The reader of the peer's message is gone.
    fn reader_gone(framing: &mut F, id: F::Id);
    /// Our message is complete.
    fn message_completed(framing: &mut F, id: F::Id);
    /// Our message was truncated.
    fn message_cut(framing: &mut F, id: F::Id);
    /// Its writer was dropped before it ended our message: whether the message is complete nevertheless.
    fn completes_when_dropped(framing: &mut F, id: F::Id) -> bool;
}

/// Requests come, responses go.
pub(crate) struct ServerSide;

impl<F: ServerFraming> Side<F> for ServerSide {
    /// The first read of a body sends the `100 Continue` that its sender waits for.
    fn poll_awaiting(framing: &mut F, id: F::Id, _: &mut Context<'_>) -> Poll<BodyError> {
        if framing.expects_continue(id) {
            let head = ResponseHead::new(blitz_proto::Status::CONTINUE);
            framing.send_informational(id, &head);
        }
        // Its deadline is the exchange's, whose task looks at it.
        Poll::Pending
    }

    fn end_taken(_: &mut F, _: F::Id) {}

    fn reader_gone(framing: &mut F, id: F::Id) {
        if let Some(exchange) = framing.exchange(id) {
            // An early end stays on record: it may decide the response.
            if matches!(exchange.receiving.body, BodyState::Open) {
                exchange.receiving.body = BodyState::Unwanted;
            }
            // A tunnel may have to be torn down for it.
            exchange.wake_task();
            framing.discard(id);
        }
    }

    #[inline]
    fn message_completed(framing: &mut F, id: F::Id) {
        if let Some(exchange) = framing.exchange(id) {
            exchange.wake_task();
        }
    }

    fn message_cut(framing: &mut F, id: F::Id) {
        Self::message_completed(framing, id);
    }

    /// A response of which all was sent that its length announced is complete for the client, whose
    /// next request may be on its way.
    fn completes_when_dropped(framing: &mut F, id: F::Id) -> bool {
        let is_open = framing
            .exchange(id)
            .is_some_and(|exchange| exchange.message == MessageState::Open);
        is_open && super::respond::finish_without_content(framing, id)
    }
}

/// Requests go, responses come.
pub(crate) struct ClientSide;

impl<F: ClientFraming> Side<F> for ClientSide {
    fn poll_awaiting(framing: &mut F, id: F::Id, cx: &mut Context<'_>) -> Poll<BodyError> {
        if poll_client_deadline(framing, id, cx).is_pending() {
            return Poll::Pending;
        }
        if let Some(exchange) = framing.exchange(id) {
            exchange.receiving.body = BodyState::Failed(BodyError::TimedOut);
        }
        framing.cancel(id);
        Poll::Ready(BodyError::TimedOut)
    }

    fn end_taken(framing: &mut F, id: F::Id) {
        framing.response_taken(id);
    }

    fn reader_gone(framing: &mut F, id: F::Id) {
        framing.abandon(id);
    }

    #[inline]
    fn message_completed(framing: &mut F, id: F::Id) {
        framing.settle(id);
    }

    /// An early response may still be read to its end; without one the request is cancelled.
    fn message_cut(framing: &mut F, id: F::Id) {
        let is_tunnel = framing
            .exchange(id)
            .is_some_and(|exchange| exchange.is_tunnel);
        if framing.has_response(id) && !is_tunnel {
            framing.settle(id);
        } else {
            framing.abandon(id);
        }
    }

    fn completes_when_dropped(_: &mut F, _: F::Id) -> bool {
        false
    }
}
