//! Errors of starting and running a server, in words for the person at the terminal.

use std::fmt;

/// What `main` of a server returns.
pub type Result<T = (), E = Error> = std::result::Result<T, E>;

/// Why a server could not start or keep running, and what to do about it.
///
/// `Debug` reads like `Display`, because that is what a failing `main` prints.
#[derive(Clone, PartialEq, Eq)]
pub struct Error {
    problem: String,
    remedy: Option<String>,
}

impl Error {
    /// An error described by one sentence without a full stop.
    pub fn new(problem: impl Into<String>) -> Error {
        Error {
            problem: problem.into(),
            remedy: None,
        }
    }

    /// Adds what to do about it.
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
        let said = Error::new(error.to_string());
        match error.remedy() {
            "" => said,
            remedy => said.with_remedy(remedy),
        }
    }
}

impl std::error::Error for Error {}
