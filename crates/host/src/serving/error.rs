//! Why a service does not start, and why it ends.

use std::fmt;
use std::io;

use blitz_http::Address;

/// Why a service could not start.
#[derive(Debug)]
pub enum StartError {
    /// An address cannot be listened on.
    Listen(Address, io::Error),
    /// The cores cannot be started.
    Start(io::Error),
}

/// Why a service ended other than by a graceful shutdown.
#[derive(Debug)]
pub enum EndError {
    /// A second INT arrived; running requests are dropped with the process.
    Interrupted,
    /// TERM or QUIT arrived during the shutdown, and a core did not end at once.
    Terminated,
    /// The listeners of all cores have ended without a signal.
    ListenersEnded,
    /// A core failed, or waiting for signals failed.
    Failed(io::Error),
}

/// The error for a core that panicked while it started; the panic hook has logged the reason.
pub(super) fn ended_early() -> StartError {
    StartError::Start(io::Error::other("a core ended while it started"))
}

/// The error for a core that has ended, or that something has held for long.
pub(super) fn not_opened() -> StartError {
    StartError::Start(io::Error::other("a core has not opened its listeners"))
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Listen(Address::Tcp(address), error) => {
                write!(f, "cannot listen on {address}: {error}")
            }
            StartError::Listen(Address::Unix(path), error) => {
                write!(f, "cannot listen on unix:{}: {error}", path.display())
            }
            StartError::Start(error) => write!(f, "cannot start: {error}"),
        }
    }
}

impl std::error::Error for StartError {}

impl fmt::Display for EndError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EndError::Interrupted => f.write_str("interrupted"),
            EndError::Terminated => f.write_str("terminated"),
            EndError::ListenersEnded => {
                f.write_str("every core has stopped listening without a signal")
            }
            EndError::Failed(error) => write!(f, "cannot keep running: {error}"),
        }
    }
}

impl std::error::Error for EndError {}
