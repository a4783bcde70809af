//! Errors of starting and running a server, as messages for the terminal.

use std::fmt;

/// The result of a server's `main`.
pub type Result<T = (), E = Error> = std::result::Result<T, E>;

/// Why a server could not start or keep running, and the remedy.
///
/// `Debug` is the same as `Display`, because a failing `main` prints `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct Error {
    problem: String,
    remedy: Option<String>,
}

impl Error {
    /// An error with a message: one sentence without a full stop.
    pub fn new(problem: impl Into<String>) -> Error {
        Error {
            problem: problem.into(),
            remedy: None,
        }
    }

    /// Adds the remedy.
    #[must_use]
    pub fn with_remedy(mut self, remedy: impl Into<String>) -> Error {
        self.remedy = Some(remedy.into());
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problem)?;
        match &self.remedy {
            Some(remedy) => write!(f, "\n  {}", remedy.replace('\n', "\n  ")),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<&blitz_http::TlsConfigError> for Error {
    fn from(error: &blitz_http::TlsConfigError) -> Error {
        let message = Error::new(error.to_string());
        match error.remedy() {
            "" => message,
            remedy => message.with_remedy(remedy),
        }
    }
}

impl std::error::Error for Error {}
