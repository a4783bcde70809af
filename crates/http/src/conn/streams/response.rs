//! The response that a client waits for on a stream, before its body.

use std::collections::VecDeque;
use std::time::Instant;

use blitz_proto::{BodyLength, ResponseHead};

use super::stream::ResetReason;
use crate::error::ClientError;
use crate::recycle::Pooled;

#[derive(Default)]
pub(in crate::conn) struct Response {
    /// Received and not yet taken.
    pub(in crate::conn) heads: VecDeque<(Pooled<ResponseHead>, BodyLength)>,
    /// Why no more will come.
    pub(in crate::conn) failed: Option<ClientError>,
    /// The final head was received.
    pub(in crate::conn) has_final: bool,
    /// Some head was received.
    pub(in crate::conn) is_heard: bool,
    /// It was read to its end, or it has no reader.
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
