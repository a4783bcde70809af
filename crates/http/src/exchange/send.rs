//! Sending: from a writer to a framing driver.

use std::task::{Context, Poll};

use blitz_proto::{Error, Fields};
use blitz_reactor::{Chunk, File};

use super::framing::{Framing, Sent, Side};
use super::state::MessageState;
use crate::error::SendError;

pub(super) fn poll_room<F: Framing>(
    framing: &mut F,
    id: F::Id,
    cx: &mut Context<'_>,
) -> Poll<Result<(), SendError>> {
    if !can_send(framing, id) {
        return Poll::Ready(Err(SendError::Closed));
    }
    let room = framing.poll_room(id, cx);
    if room.is_pending()
        && let Some(exchange) = framing.exchange(id)
    {
        exchange.wake_task_for(cx);
    }
    room
}

pub(super) fn poll_send_file<F: Framing>(
    framing: &mut F,
    id: F::Id,
    cx: &mut Context<'_>,
    (file, offset, len): (&File, u64, u64),
) -> Poll<Result<Option<usize>, SendError>> {
    if !can_send(framing, id) {
        return Poll::Ready(Err(SendError::Closed));
    }
    let sent = framing.poll_send_file(id, cx, file, offset, len);
    if sent.is_pending()
        && let Some(exchange) = framing.exchange(id)
    {
        exchange.wake_task_for(cx);
    }
    sent
}

pub(super) fn send_data<F: Framing>(
    framing: &mut F,
    id: F::Id,
    chunk: Chunk,
) -> Result<(), SendError> {
    if !can_send(framing, id) {
        return Err(SendError::Closed);
    }
    if chunk.is_empty() {
        return Ok(());
    }
    let sent = framing.send_data(id, chunk, false);
    conclude_sent(framing, id, &sent)
}

pub(super) fn send_end<F: Framing>(
    framing: &mut F,
    id: F::Id,
    trailers: Option<&Fields>,
) -> Result<(), SendError> {
    if !can_send(framing, id) {
        return Err(SendError::Closed);
    }
    let sent = framing.send_end(id, trailers);
    conclude_sent(framing, id, &sent)
}

/// The writer is gone without having finished.
pub(super) fn writer_dropped<F: Framing>(framing: &mut F, id: F::Id) {
    if !F::Side::completes_when_dropped(framing, id) {
        cut_message(framing, id);
    }
}

/// The outcome of a message of which a part was sent.
#[inline]
pub(crate) fn conclude_sent<F: Framing>(
    framing: &mut F,
    id: F::Id,
    sent: &Result<Sent, Error>,
) -> Result<(), SendError> {
    match sent {
        Ok(Sent::Open) => {}
        Ok(Sent::Complete) => complete_message(framing, id),
        Err(_) => {
            cut_message(framing, id);
            return Err(SendError::Length);
        }
    }
    Ok(())
}

/// Our message has left.
#[inline]
pub(crate) fn complete_message<F: Framing>(framing: &mut F, id: F::Id) {
    if let Some(exchange) = framing.exchange(id) {
        exchange.message = MessageState::Done;
    }
    F::Side::message_completed(framing, id);
}

/// Gives our message up in the middle, so that the peer sees that it is incomplete.
fn cut_message<F: Framing>(framing: &mut F, id: F::Id) {
    if let Some(exchange) = framing.exchange(id)
        && exchange.message == MessageState::Open
    {
        exchange.message = MessageState::Cut;
        F::Side::message_cut(framing, id);
    }
}

#[inline]
fn can_send<F: Framing>(framing: &mut F, id: F::Id) -> bool {
    let exchange = framing.exchange(id);
    exchange.is_some_and(|exchange| exchange.can_send())
}
