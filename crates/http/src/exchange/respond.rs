//! Responding: from a service to a framing driver.

use blitz_proto::{BodyLength, ResponseHead, Status};
use blitz_reactor::Chunk;

use super::framing::{Framing, ServerFraming};
use super::send;
use super::state::MessageState;
use crate::counters::count;

/// The part of the response that is left to send after the head.
pub(crate) enum Started {
    /// Nothing.
    Complete,
    /// Nothing, since the client takes no content: HEAD, 304.
    WithoutContent,
    /// The content.
    Open,
}

pub(super) fn expects_continue<F: ServerFraming>(framing: &mut F, id: F::Id) -> bool {
    framing.exchange(id).is_some() && framing.expects_continue(id)
}

pub(super) fn is_upgrade_requested<F: ServerFraming>(framing: &mut F, id: F::Id) -> bool {
    framing.exchange(id).is_some() && framing.is_upgrade_requested(id)
}

pub(super) fn send_informational<F: ServerFraming>(
    framing: &mut F,
    id: F::Id,
    head: &ResponseHead,
) {
    if framing.exchange(id).is_some() {
        framing.send_informational(id, head);
    }
}

/// Sends a head; content follows.
pub(super) fn start_response<F: ServerFraming>(
    framing: &mut F,
    id: F::Id,
    head: &mut ResponseHead,
    length: BodyLength,
) -> Started {
    if framing.exchange(id).is_none() {
        // The exchange is over: the next use of the handle fails.
        return Started::Open;
    }
    let is_empty = length == BodyLength::Empty;
    send_head(framing, id, head, length, is_empty);
    match finish_without_content(framing, id) {
        true if is_empty => Started::Complete,
        true => Started::WithoutContent,
        false => Started::Open,
    }
}

/// Sends a complete response.
#[inline(always)]
pub(crate) fn send_response<F: ServerFraming>(
    framing: &mut F,
    id: F::Id,
    head: &mut ResponseHead,
    content: Chunk,
) {
    if framing.exchange(id).is_none() {
        return;
    }
    let length = match content.len() {
        0 if head.status.forbids_content() => BodyLength::Empty,
        bytes => BodyLength::Known(bytes as u64),
    };
    send_head(framing, id, head, length, true);
    if framing.has_content_to_send(id) {
        // With a length of its own the content is neither too long nor too short.
        let sent = framing.send_data(id, content, true);
        let _ = send::conclude_sent(framing, id, &sent);
    } else {
        finish_without_content(framing, id);
    }
}

/// Sends 101, or 2xx to CONNECT; from then on both directions are opaque.
pub(super) fn start_tunnel<F: ServerFraming>(framing: &mut F, id: F::Id, head: &mut ResponseHead) {
    if framing.exchange(id).is_none() {
        return;
    }
    assert!(
        framing.is_upgrade_requested(id),
        "a tunnel answers a complete request to upgrade"
    );
    framing.send_tunnel_head(id, head);
    count_response(head.status);
    count(|counters| counters.upgrades += 1);
    if let Some(exchange) = framing.exchange(id) {
        exchange.is_tunnel = true;
    }
    set_message(framing, id, MessageState::Open);
}

/// Ends the exchange without a response.
pub(super) fn abort<F: ServerFraming>(framing: &mut F, id: F::Id) {
    set_message(framing, id, MessageState::Cut);
}

/// The responder was dropped without a response.
pub(super) fn drop_responder<F: ServerFraming>(framing: &mut F, id: F::Id) {
    set_message(framing, id, MessageState::Missing);
}

#[inline]
fn set_message<F: Framing>(framing: &mut F, id: F::Id, message: MessageState) {
    if let Some(exchange) = framing.exchange(id) {
        exchange.message = message;
        exchange.wake_task();
    }
}

#[inline]
fn send_head<F: ServerFraming>(
    framing: &mut F,
    id: F::Id,
    head: &mut ResponseHead,
    length: BodyLength,
    is_whole: bool,
) {
    framing.send_head(id, head, length, is_whole);
    count_response(head.status);
    // Other deadlines hold from now on.
    set_message(framing, id, MessageState::Open);
}

#[inline]
fn count_response(status: Status) {
    let class = usize::from(status.class()).clamp(1, 5) - 1;
    count(|counters| counters.responses[class] += 1);
}

/// Completes the response if no content is left to send.
#[inline]
pub(super) fn finish_without_content<F: ServerFraming>(framing: &mut F, id: F::Id) -> bool {
    if framing.has_content_to_send(id) {
        return false;
    }
    let ended = framing.send_end(id, None);
    debug_assert!(ended.is_ok(), "no content was due");
    send::complete_message(framing, id);
    true
}
