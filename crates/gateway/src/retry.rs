//! Whether a request may be sent a second time (rule 13).

use blitz_http::{BodyLength, Buffer, ClientError, Protocol, RequestHead};

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
    /// For this request: the bytes of an idempotent one are kept, up to `bytes_max`; those of any
    /// on a connection of HTTP/2, where the upstream can say that it did nothing about it.
    pub(crate) fn of(
        head: &RequestHead,
        length: BodyLength,
        bytes_max: usize,
        protocol: Protocol,
    ) -> Replay {
        let can_be_kept = match length {
            BodyLength::Empty | BodyLength::NothingButTrailers => false,
            // What is known to be too long is not copied in vain.
            BodyLength::Known(length) => (1..=bytes_max as u64).contains(&length),
            BodyLength::Unknown => true,
        };
        if can_be_kept && (head.method.is_idempotent() || protocol == Protocol::Http2) {
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

    /// Gives the copy back: there will be no second attempt, and what follows may last.
    pub(crate) fn forget(&mut self) {
        *self = Replay::Gone;
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
/// There is none: it was the second already, sending twice might not have the effect of sending
/// once, a part of the response came, or the body is not at hand any more.
pub(crate) fn prepare_retry(request: &mut Request, error: &ClientError) -> Result<(), Ended> {
    let is_harmless =
        error.is_unprocessed() || (is_idempotent(request) && error.is_before_response());
    let allowed = is_harmless && request.upload.can_repeat();
    if request.retried || !allowed {
        return Err(Ended::Failed(Failure::from(error)));
    }
    tracing::debug!(%error, "upstream request sent again");
    count(|counters| counters.retries += 1);
    request.retried = true;
    request.connect_failure = None;
    if let Some(upstream) = &request.upstream {
        request.tried.may_return_to(upstream);
    }
    Ok(())
}

/// Whether a request that has just been sent might be sent once more. On HTTP/1.1 a server cannot
/// say that it did nothing about it.
pub(crate) fn may_be_sent_again(request: &Request, protocol: Protocol) -> bool {
    !request.retried && (protocol == Protocol::Http2 || is_idempotent(request))
}

/// The handshake of a WebSocket is a GET, whatever form it has.
fn is_idempotent(request: &Request) -> bool {
    request.websocket.is_some() || request.head.method.is_idempotent()
}

#[cfg(test)]
mod tests {
    use blitz_http::Method;

    use super::*;

    /// A replay of this request after `sent` bytes were sent.
    fn after(method: Method, length: BodyLength, sent: usize) -> Replay {
        after_speaking(Protocol::Http1, method, length, sent)
    }

    fn after_speaking(
        protocol: Protocol,
        method: Method,
        length: BodyLength,
        sent: usize,
    ) -> Replay {
        let head = RequestHead::new(method, "/");
        let mut replay = Replay::of(&head, length, 4, protocol);
        if sent > 0 {
            replay.note(&b"abcdefgh"[..sent]);
        }
        replay
    }

    fn kept(mut replay: Replay) -> Option<Vec<u8>> {
        let complete = replay.is_complete();
        complete.then(|| replay.again().map_or(Vec::new(), |kept| kept.to_vec()))
    }

    #[test]
    fn what_was_sent_is_kept_up_to_its_bound() {
        assert_eq!(
            kept(after(Method::Put, BodyLength::Known(4), 4)),
            Some(b"abcd".to_vec())
        );
        assert_eq!(
            kept(after(Method::Put, BodyLength::Unknown, 4)),
            Some(b"abcd".to_vec())
        );
        assert_eq!(kept(after(Method::Put, BodyLength::Unknown, 5)), None);
    }

    #[test]
    fn a_body_that_is_too_long_can_be_repeated_only_while_unsent() {
        assert_eq!(
            kept(after(Method::Put, BodyLength::Known(5), 0)),
            Some(Vec::new())
        );
        assert_eq!(kept(after(Method::Put, BodyLength::Known(5), 1)), None);
    }

    #[test]
    fn what_was_forgotten_is_not_repeated() {
        let mut replay = after(Method::Put, BodyLength::Known(4), 2);
        replay.forget();
        replay.note(b"cd");
        assert_eq!(kept(replay), None);
    }

    #[test]
    fn what_may_have_had_an_effect_is_never_kept() {
        assert_eq!(kept(after(Method::Post, BodyLength::Known(1), 1)), None);
    }

    #[test]
    fn but_an_upstream_of_http2_may_say_that_it_had_none() {
        let replay = after_speaking(Protocol::Http2, Method::Post, BodyLength::Known(1), 1);
        assert_eq!(kept(replay), Some(b"a".to_vec()));
    }
}
