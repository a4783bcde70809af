//! Why a gateway cannot start, or cannot take other sites.

use std::fmt;
use std::io;

use blitz_host::serving;
use blitz_http::TlsConfigError;

use crate::routes::RouteConflict;

/// Why a gateway cannot start.
#[derive(Debug)]
pub enum StartError {
    /// Two targets contradict each other.
    Conflict(RouteConflict),
    /// A listener cannot be bound, or the cores cannot be started.
    Serving(serving::StartError),
    /// The TLS settings cannot be used for a target.
    Tls(TlsConfigError),
    /// The control thread, which resolves names, cannot be started.
    Resolve(io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Conflict(conflict) => conflict.fmt(f),
            StartError::Serving(error) => error.fmt(f),
            StartError::Tls(error) => error.fmt(f),
            StartError::Resolve(error) => write!(f, "cannot start to resolve names: {error}"),
        }
    }
}

impl std::error::Error for StartError {}

impl From<serving::StartError> for StartError {
    fn from(error: serving::StartError) -> StartError {
        StartError::Serving(error)
    }
}
