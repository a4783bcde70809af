//! The operations of an exchange that handles call, on a connection of any version.

use std::rc::Rc;
use std::task::{Context, Poll};

use blitz_proto::{BodyLength, Fields, ResponseHead};
use blitz_reactor::{Chunk, File, Slice};

use super::framing::{ClientFraming, ExchangeId, Framing, ReceivedHead, ServerFraming};
use super::recv_body::Part;
use super::respond::{self, Started};
use super::state::BodyState;
use super::{receive, request, send};
use crate::error::{BodyError, ClientError, SendError};
use crate::options::RequestOptions;

/// A connection as its handles share it. Everything below follows from these.
pub(crate) trait Link: 'static {
    type Framing: Framing;

    /// Runs `act` on the driver; what it queued leaves with everything else that is queued in this turn.
    fn with<T>(&self, act: impl FnOnce(&mut Self::Framing) -> T) -> T;

    /// As [`Link::with`], where nothing is queued.
    fn look<T>(&self, act: impl FnOnce(&mut Self::Framing) -> T) -> T;

    /// The last handle is gone.
    fn recycle(self: Rc<Self>) {}
}

/// The operations of both messages.
pub(crate) trait MessageOps {
    fn poll_part(
        &self,
        id: ExchangeId,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Part>, BodyError>>;
    fn take_whole(&self, id: ExchangeId, length: u64) -> Option<Slice>;
    fn disable_min_rate(&self, id: ExchangeId);
    fn set_options(&self, id: ExchangeId, options: RequestOptions);
    fn hold_continue(&self, id: ExchangeId, is_held: bool);
    fn body_failure(&self, id: ExchangeId) -> Option<BodyError>;
    fn drop_reader(&self, id: ExchangeId);
    fn poll_room(&self, id: ExchangeId, cx: &mut Context<'_>) -> Poll<Result<(), SendError>>;
    fn poll_send_file(
        &self,
        id: ExchangeId,
        cx: &mut Context<'_>,
        part: (&File, u64, u64),
    ) -> Poll<Result<Option<usize>, SendError>>;
    fn send_data(&self, id: ExchangeId, chunk: Chunk) -> Result<(), SendError>;
    fn send_end(&self, id: ExchangeId, trailers: Option<&Fields>) -> Result<(), SendError>;
    fn drop_writer(&self, id: ExchangeId);
    fn recycle(self: Rc<Self>);
}

/// The operations of a response on a server.
pub(crate) trait ServerOps: MessageOps {
    fn expects_continue(&self, id: ExchangeId) -> bool;

    fn accepts_problem(&self, id: ExchangeId) -> bool;
    fn is_upgrade_requested(&self, id: ExchangeId) -> bool;
    fn send_informational(&self, id: ExchangeId, head: &ResponseHead);
    fn start_response(
        &self,
        id: ExchangeId,
        head: &mut ResponseHead,
        length: BodyLength,
    ) -> Started;
    fn send_response(&self, id: ExchangeId, head: &mut ResponseHead, content: Chunk);
    fn start_tunnel(&self, id: ExchangeId, head: &mut ResponseHead);
    fn abort(&self, id: ExchangeId);
    fn drop_responder(&self, id: ExchangeId);
}

/// The operations of a response on a client.
pub(crate) trait ClientOps: MessageOps {
    fn poll_response(
        &self,
        id: ExchangeId,
        cx: &mut Context<'_>,
    ) -> Poll<Result<ReceivedHead, ClientError>>;
    fn drop_response(&self, id: ExchangeId);
}

impl<L: Link> MessageOps for L {
    fn poll_part(
        &self,
        id: ExchangeId,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Part>, BodyError>> {
        self.with(|framing| receive::poll_part(framing, id.into(), cx))
    }

    fn take_whole(&self, id: ExchangeId, length: u64) -> Option<Slice> {
        self.with(|framing| receive::take_whole(framing, id.into(), length))
    }

    fn disable_min_rate(&self, id: ExchangeId) {
        self.look(|framing| {
            if let Some(exchange) = framing.exchange(id.into()) {
                exchange.has_no_min_rate = true;
            }
        });
    }

    fn set_options(&self, id: ExchangeId, options: RequestOptions) {
        self.look(|framing| {
            if let Some(exchange) = framing.exchange(id.into()) {
                exchange.options = options;
            }
        });
    }

    fn hold_continue(&self, id: ExchangeId, is_held: bool) {
        self.look(|framing| {
            if let Some(exchange) = framing.exchange(id.into()) {
                exchange.holds_continue = is_held;
            }
        });
    }

    fn body_failure(&self, id: ExchangeId) -> Option<BodyError> {
        self.look(
            |framing| match &framing.exchange(id.into())?.receiving.body {
                BodyState::Failed(error) => Some(error.clone()),
                BodyState::Open | BodyState::Done | BodyState::Unwanted => None,
            },
        )
    }

    fn drop_reader(&self, id: ExchangeId) {
        self.with(|framing| receive::drop_reader(framing, id.into()));
    }

    fn poll_room(&self, id: ExchangeId, cx: &mut Context<'_>) -> Poll<Result<(), SendError>> {
        self.look(|framing| send::poll_room(framing, id.into(), cx))
    }

    fn poll_send_file(
        &self,
        id: ExchangeId,
        cx: &mut Context<'_>,
        part: (&File, u64, u64),
    ) -> Poll<Result<Option<usize>, SendError>> {
        self.with(|framing| send::poll_send_file(framing, id.into(), cx, part))
    }

    fn send_data(&self, id: ExchangeId, chunk: Chunk) -> Result<(), SendError> {
        self.with(|framing| send::send_data(framing, id.into(), chunk))
    }

    fn send_end(&self, id: ExchangeId, trailers: Option<&Fields>) -> Result<(), SendError> {
        self.with(|framing| send::send_end(framing, id.into(), trailers))
    }

    fn drop_writer(&self, id: ExchangeId) {
        self.with(|framing| send::writer_dropped(framing, id.into()));
    }

    fn recycle(self: Rc<Self>) {
        Link::recycle(self);
    }
}

impl<L: Link<Framing: ServerFraming>> ServerOps for L {
    fn expects_continue(&self, id: ExchangeId) -> bool {
        self.look(|framing| respond::expects_continue(framing, id.into()))
    }

    fn accepts_problem(&self, id: ExchangeId) -> bool {
        self.look(|framing| {
            let exchange = framing.exchange(id.into());
            exchange.is_some_and(|exchange| exchange.accepts_problem)
        })
    }

    fn is_upgrade_requested(&self, id: ExchangeId) -> bool {
        self.look(|framing| respond::is_upgrade_requested(framing, id.into()))
    }

    fn send_informational(&self, id: ExchangeId, head: &ResponseHead) {
        self.with(|framing| respond::send_informational(framing, id.into(), head));
    }

    fn start_response(
        &self,
        id: ExchangeId,
        head: &mut ResponseHead,
        length: BodyLength,
    ) -> Started {
        self.with(|framing| respond::start_response(framing, id.into(), head, length))
    }

    fn send_response(&self, id: ExchangeId, head: &mut ResponseHead, content: Chunk) {
        self.with(|framing| respond::send_response(framing, id.into(), head, content));
    }

    fn start_tunnel(&self, id: ExchangeId, head: &mut ResponseHead) {
        self.with(|framing| respond::start_tunnel(framing, id.into(), head));
    }

    fn abort(&self, id: ExchangeId) {
        self.with(|framing| respond::abort(framing, id.into()));
    }

    fn drop_responder(&self, id: ExchangeId) {
        self.with(|framing| respond::drop_responder(framing, id.into()));
    }
}

impl<L: Link<Framing: ClientFraming>> ClientOps for L {
    fn poll_response(
        &self,
        id: ExchangeId,
        cx: &mut Context<'_>,
    ) -> Poll<Result<ReceivedHead, ClientError>> {
        self.with(|framing| request::poll_response(framing, id.into(), cx))
    }

    fn drop_response(&self, id: ExchangeId) {
        self.with(|framing| {
            if framing.exchange(id.into()).is_some() {
                framing.abandon(id.into());
            }
        });
    }
}

/// A reference to an exchange. Its connection may be used again when the last one is given back.
pub(super) struct ExchangeHandle<T: ?Sized + MessageOps> {
    pub(super) connection: Rc<T>,
    pub(super) id: ExchangeId,
}

impl<T: ?Sized + MessageOps> ExchangeHandle<T> {
    pub(super) fn new(connection: Rc<T>, id: ExchangeId) -> ExchangeHandle<T> {
        ExchangeHandle { connection, id }
    }

    /// Gives the reference back.
    #[inline]
    pub(super) fn release(self) {
        if Rc::strong_count(&self.connection) == 1 {
            MessageOps::recycle(self.connection);
        }
    }
}
