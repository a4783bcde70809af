//! Content that is kept so that a request can be sent again (rule 13).

use blitz_http::{BodyLength, Buffer, Capabilities, RequestHead};

/// A copy of the content sent so far, as long as it is small enough to be sent again.
pub(crate) enum Replay {
    /// Nothing was sent. Later content is not kept.
    Unsent,
    /// Something was sent that is not kept.
    Gone,
    /// All that was sent, at most the given number of bytes.
    Kept(Buffer, usize),
}

impl Replay {
    /// For this request: content of an idempotent one is kept, up to `bytes_max`. Content of any
    /// other is kept too if the server can report that it has not processed the request.
    pub(crate) fn of(
        head: &RequestHead,
        length: BodyLength,
        bytes_max: usize,
        capabilities: Capabilities,
    ) -> Replay {
        let can_be_kept = match length {
            BodyLength::Empty | BodyLength::NothingButTrailers => false,
            // Content that is known to be too long is not copied in vain.
            BodyLength::Known(length) => (1..=bytes_max as u64).contains(&length),
            BodyLength::Unknown => true,
        };
        if can_be_kept && (head.is_idempotent() || capabilities.refuses_unprocessed) {
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

    /// Frees the copy when no further attempt will follow, since the response may take long.
    pub(crate) fn forget(&mut self) {
        *self = Replay::Gone;
    }

    /// Whether all that was sent can be sent again.
    pub(crate) fn is_complete(&self) -> bool {
        !matches!(self, Replay::Gone)
    }

    /// A copy of the content to send again. It stays here, for further attempts.
    pub(crate) fn sent(&self) -> Option<Buffer> {
        match self {
            Replay::Kept(kept, _) if !kept.is_empty() => {
                let mut sent = Buffer::take();
                sent.extend_from_slice(kept);
                Some(sent)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use blitz_http::{Method, UpgradeForm};

    use super::*;

    /// A replay of this request after `sent` bytes were sent.
    fn after(method: Method, length: BodyLength, sent: usize) -> Replay {
        after_sending(false, method, length, sent)
    }

    fn after_sending(
        refuses_unprocessed: bool,
        method: Method,
        length: BodyLength,
        sent: usize,
    ) -> Replay {
        let capabilities = Capabilities {
            multiplexes: false,
            carries_trailers: false,
            refuses_unprocessed,
            upgrade: UpgradeForm::UpgradeField,
        };
        let head = RequestHead::new(method, "/");
        let mut replay = Replay::of(&head, length, 4, capabilities);
        if sent > 0 {
            replay.note(&b"abcdefgh"[..sent]);
        }
        replay
    }

    fn kept(replay: &Replay) -> Option<Vec<u8>> {
        let complete = replay.is_complete();
        complete.then(|| replay.sent().map_or(Vec::new(), |kept| kept.to_vec()))
    }

    #[test]
    fn sent_content_is_kept_up_to_a_bound() {
        assert_eq!(
            kept(&after(Method::Put, BodyLength::Known(4), 4)),
            Some(b"abcd".to_vec())
        );
        assert_eq!(
            kept(&after(Method::Put, BodyLength::Unknown, 4)),
            Some(b"abcd".to_vec())
        );
        assert_eq!(kept(&after(Method::Put, BodyLength::Unknown, 5)), None);
    }

    #[test]
    fn too_long_content_can_be_sent_again_only_while_unsent() {
        assert_eq!(
            kept(&after(Method::Put, BodyLength::Known(5), 0)),
            Some(Vec::new())
        );
        assert_eq!(kept(&after(Method::Put, BodyLength::Known(5), 1)), None);
    }

    #[test]
    fn forgotten_content_is_not_sent_again() {
        let mut replay = after(Method::Put, BodyLength::Known(4), 2);
        replay.forget();
        replay.note(b"cd");
        assert_eq!(kept(&replay), None);
    }

    #[test]
    fn content_of_a_post_is_not_kept() {
        assert_eq!(kept(&after(Method::Post, BodyLength::Known(1), 1)), None);
    }

    #[test]
    fn content_of_a_post_is_kept_if_the_server_can_refuse_it_unprocessed() {
        let replay = after_sending(true, Method::Post, BodyLength::Known(1), 1);
        assert_eq!(kept(&replay), Some(b"a".to_vec()));
    }
}
