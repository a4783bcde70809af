//! The response that a client waits for on a stream, before its body.

use std::collections::VecDeque;
use std::task::{Context, Poll};
use std::time::Instant;

use blitz_proto::{BodyLength, Method, RequestHead, ResponseHead, Status};

use super::stream::{ResetReason, Stream};
use crate::error::ClientError;
use crate::exchange::{BodyState, Framing, MessageState, ReceivedHead, ReceivedKind, note};
use crate::recycle::Pooled;

/// A client's driver whose exchanges have streams.
pub(in crate::conn) trait Requesting: Framing {
    fn request(&mut self, id: Self::Id) -> Option<&mut Stream>;

    /// Removes a stream whose exchange is over, and cancels its open directions.
    fn close_request(&mut self, id: Self::Id);
}

/// See [`ClientFraming::poll_head`](crate::exchange::ClientFraming::poll_head).
pub(in crate::conn) fn poll_head<D: Requesting>(
    driver: &mut D,
    id: D::Id,
    cx: &mut Context<'_>,
) -> Poll<Result<ReceivedHead, ClientError>> {
    let Some(state) = driver.request(id) else {
        return Poll::Ready(Err(ClientError::Cancelled));
    };
    if let Some((head, length)) = state.response.heads.pop_front() {
        let kind = kind_of(driver, id, &head);
        return Poll::Ready(Ok(ReceivedHead { head, length, kind }));
    }
    if let Some(error) = state.response.failed.take() {
        driver.close_request(id);
        return Poll::Ready(Err(error));
    }
    note(&mut state.exchange.receiving.reader, cx);
    Poll::Pending
}

/// The kind of message that follows a head.
fn kind_of<D: Requesting>(driver: &mut D, id: D::Id, head: &ResponseHead) -> ReceivedKind {
    if head.status.is_informational() {
        return ReceivedKind::Informational;
    }
    let Some(state) = driver.request(id) else {
        return ReceivedKind::Complete;
    };
    if state.is_connect {
        if head.status.is_success() {
            state.exchange.is_tunnel = true;
            return ReceivedKind::Tunnel;
        }
        // The request of a refused CONNECT has no writer that could end it.
        state.exchange.message = MessageState::Done;
    }
    let is_complete = state.exchange.receiving.is_complete()
        && state.parts.is_empty()
        && state.trailers.is_none();
    if is_complete {
        response_taken(driver, id);
        return ReceivedKind::Complete;
    }
    ReceivedKind::Content
}

/// CONNECT has no content: its stream stays open for the tunnel.
pub(in crate::conn) fn awaits_content<D: Requesting>(driver: &mut D, id: D::Id) -> bool {
    let is_connect = driver.request(id).is_some_and(|state| state.is_connect);
    !is_connect && driver.has_content_to_send(id)
}

pub(in crate::conn) fn has_response<D: Requesting>(driver: &mut D, id: D::Id) -> bool {
    let state = driver.request(id);
    state.is_some_and(|state| state.response.has_final || state.response.failed.is_some())
}

/// Closes a stream when the response was read and the request was sent.
pub(in crate::conn) fn settle<D: Requesting>(driver: &mut D, id: D::Id) {
    let is_settled = driver.request(id).is_some_and(|state| {
        let is_sending = state.exchange.message == MessageState::Open && !state.exchange.is_gone;
        state.response.is_read && !is_sending
    });
    if is_settled {
        driver.close_request(id);
    }
}

pub(in crate::conn) fn response_taken<D: Requesting>(driver: &mut D, id: D::Id) {
    if let Some(state) = driver.request(id) {
        state.response.is_read = true;
        settle(driver, id);
    }
}

impl Stream {
    /// A request begins on the stream, with content or without; the connection has carried others if it
    /// `is_reused`.
    pub(in crate::conn) fn begin_request(
        &mut self,
        head: &RequestHead,
        has_content: bool,
        is_reused: bool,
    ) {
        self.is_connect = head.method == Method::Connect;
        self.exchange.message = match has_content {
            true => MessageState::Open,
            false => MessageState::Done,
        };
        self.response.wait_start = Some(blitz_reactor::now());
        self.response.is_reused = is_reused;
    }

    /// A response head has arrived; nothing follows it if it `has_ended`.
    pub(in crate::conn) fn push_head(
        &mut self,
        received: &mut ResponseHead,
        length: BodyLength,
        has_ended: bool,
    ) {
        let mut head = Pooled::<ResponseHead>::take();
        std::mem::swap(&mut *head, received);
        self.response.is_heard = true;
        let receiving = &mut self.exchange.receiving;
        if !head.status.is_informational() {
            self.response.has_final = true;
            receiving.body = if has_ended {
                BodyState::Done
            } else {
                BodyState::Open
            };
            receiving.pace.declare(length);
        } else if head.status == Status::PROCESSING {
            // The wait begins again (RFC 2518, section 10.1). The rate of interim responses is limited.
            self.response.wait_start = Some(blitz_reactor::now());
        }
        receiving.arrived();
        self.response.heads.push_back((head, length));
    }
}

#[derive(Default)]
pub(in crate::conn) struct Response {
    /// Heads that were received and not yet taken.
    pub(in crate::conn) heads: VecDeque<(Pooled<ResponseHead>, BodyLength)>,
    /// The reason why no more will come.
    pub(in crate::conn) failed: Option<ClientError>,
    /// The final head was received.
    pub(in crate::conn) has_final: bool,
    /// Some head was received.
    pub(in crate::conn) is_heard: bool,
    /// The response was read to its end, or it has no reader.
    pub(in crate::conn) is_read: bool,
    /// The request may be the cause of the error with which the server ends the connection.
    pub(in crate::conn) is_suspect: bool,
    /// The connection has carried other requests before.
    pub(in crate::conn) is_reused: bool,
    /// When the wait for the final head began: with the request or the last 102.
    pub(in crate::conn) wait_start: Option<Instant>,
}

impl Response {
    pub(in crate::conn) fn clear(&mut self) {
        self.heads.clear();
        *self = Response {
            heads: std::mem::take(&mut self.heads),
            ..Response::default()
        };
    }

    pub(in crate::conn) fn fail(&mut self, reason: &ResetReason) {
        if self.has_final || self.failed.is_some() {
            return;
        }
        let reused = self.is_reused;
        self.failed = Some(match *reason {
            ResetReason::Malformed(error) => ClientError::Malformed(error),
            ResetReason::Tls(error) => ClientError::Tls(error),
            _ if self.is_suspect => ClientError::Suspect,
            ResetReason::Refused => ClientError::Unprocessed,
            ResetReason::Reset | ResetReason::Truncated if self.is_heard => {
                ClientError::OnlyInterim
            }
            ResetReason::Reset | ResetReason::Truncated => ClientError::Reset { reused },
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interim_responses_are_not_a_part_of_the_response() {
        for (is_heard, is_retried) in [(false, true), (true, false)] {
            let mut response = Response {
                is_heard,
                ..Response::default()
            };
            response.fail(&ResetReason::Reset);
            let error = response.failed.unwrap();
            assert_eq!(error.is_before_response(), is_retried);
            assert_eq!(matches!(error, ClientError::OnlyInterim), is_heard);
        }
    }
}
