//! Whether a request may be sent a second time (rule 13).

use blitz_http::{BodyLength, Buffer, ClientError, RequestHead};

use crate::counters::count;
use crate::proxy_status::Failure;
use crate::request::{Ended, Request};

/// A copy of the body sent so far, for as long as it is small enough to be sent again.
pub(crate) enum Replay {
    /// Nothing was sent, and nothing needs to be kept of what will be.
    Unsent,
    /// Something was sent that is not at hand any more.
    Gone,
    /// All that was sent, at most the given number of bytes.
    Kept(Buffer, usize),
}

impl Replay {
    /// For this request: the bytes of an idempotent one are kept, up to `bytes_max`.
    pub(crate) fn of(head: &RequestHead, length: BodyLength, bytes_max: usize) -> Replay {
        let has_body = !matches!(length, BodyLength::Empty | BodyLength::Known(0));
        if has_body && head.method.is_idempotent() {
            Replay::Kept(Buffer::take(), bytes_max)
        } else {
            Replay::Unsent
        }
    }

    /// Notes that these bytes were sent.
    pub(crate) fn note(&mut self, sent: &[u8]) {
        match self {
            Replay::Kept(kept, bytes_max) if kept.len() + sent.len() <= *bytes_max => {
                kept.extend_from_slice(sent);
            }
            _ => *self = Replay::Gone,
        }
    }

    /// Whether all that was sent can be sent again.
    pub(crate) fn is_complete(&self) -> bool {
        !matches!(self, Replay::Gone)
    }

    /// What has to be sent again; from now on nothing is kept, since there is only one retry.
    pub(crate) fn again(&mut self) -> Option<Buffer> {
        match std::mem::replace(self, Replay::Unsent) {
            Replay::Kept(kept, _) if !kept.is_empty() => Some(kept),
            _ => None,
        }
    }
}

/// Makes the request ready for its second attempt.
///
/// # Errors
/// There is none: it was the second already, sending twice would not have the effect of sending
/// once, a part of the response came, or the body is not at hand any more.
pub(crate) fn prepare_retry(request: &mut Request, error: &ClientError) -> Result<(), Ended> {
    let allowed = request.head.method.is_idempotent()
        && error.is_before_response()
        && request.upload.can_repeat();
    if request.retried || !allowed {
        return Err(Ended::Failed(Failure::from(error)));
    }
    tracing::debug!(%error, "upstream request sent again");
    count(|counters| counters.retries += 1);
    request.retried = true;
    request.connect_failure = None;
    Ok(())
}
