//! Why a check fails.

use blitz_http::ClientError;

/// Why a check has failed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) text: String,
    /// This machine lacked something.
    pub(super) is_local: bool,
}

impl From<&str> for Problem {
    fn from(text: &str) -> Problem {
        Problem {
            text: text.to_owned(),
            is_local: false,
        }
    }
}

impl From<String> for Problem {
    fn from(text: String) -> Problem {
        Problem {
            text,
            is_local: false,
        }
    }
}

impl From<ClientError> for Problem {
    fn from(error: ClientError) -> Problem {
        Problem {
            text: error.to_string(),
            is_local: matches!(error, ClientError::LocalShortage(_)),
        }
    }
}
