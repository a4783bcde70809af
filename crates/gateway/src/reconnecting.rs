//! The state of a request between its attempts to connect.

use std::time::Instant;

use blitz_http::{ClientError, TlsError};

/// The failures to connect of a request.
#[derive(Debug, Default)]
pub(crate) struct Reconnecting {
    /// When the first failure was that may be over soon.
    pub(crate) since: Option<Instant>,
    /// It has waited for the look-up that it caused.
    pub(crate) has_looked_up: bool,
}

impl Reconnecting {
    pub(crate) fn note_failure(&mut self, error: &ClientError) {
        if is_transient(error) {
            self.since.get_or_insert_with(blitz_http::now);
        }
    }
}

/// Whether the upstream may just be restarting. Other errors of TLS are permanent.
fn is_transient(error: &ClientError) -> bool {
    matches!(
        error,
        ClientError::Refused
            | ClientError::NoSocket
            | ClientError::ConnectTimedOut
            | ClientError::Unreachable
            | ClientError::ConnectFailed(_)
            | ClientError::TlsHandshake(TlsError::Ended | TlsError::TimedOut)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_certificate_is_not_tried_again() {
        assert!(!is_transient(&ClientError::TlsHandshake(
            TlsError::Incompatible
        )));
        assert!(is_transient(&ClientError::Refused));
    }
}
