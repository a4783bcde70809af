//! Requesting: from a framing driver to whoever waits for a response.

use std::task::{Context, Poll};

use super::deadline::poll_response_deadline;
use super::framing::{ClientFraming, ReceivedHead};
use crate::error::ClientError;

/// The next response head.
pub(super) fn poll_response<F: ClientFraming>(
    framing: &mut F,
    id: F::Id,
    cx: &mut Context<'_>,
) -> Poll<Result<ReceivedHead, ClientError>> {
    if framing.exchange(id).is_none() {
        return Poll::Ready(Err(ClientError::Cancelled));
    }
    match framing.poll_head(id, cx) {
        Poll::Pending => {}
        received => return received,
    }
    poll_response_deadline(framing, id, cx).map(|()| {
        let is_heard = framing.is_heard(id);
        framing.abandon(id);
        Err(match is_heard {
            true => ClientError::HeadTimedOut,
            false => ClientError::TimedOut,
        })
    })
}
