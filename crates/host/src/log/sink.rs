//! The far end of an output.

use std::fmt::Debug;
use std::io::{self, ErrorKind};

/// A file, a pipe, or a daemon that logs. Its calls may block the thread that writes.
pub(super) trait Sink: Debug + Send {
    /// Writes a part of the lines, from their beginning, and gives its length. Daemons get one line at a time.
    ///
    /// # Errors
    /// [`Problem`]: nothing was written.
    fn write(&mut self, lines: &[u8]) -> Result<usize, Problem>;

    /// Opens the destination anew.
    ///
    /// # Errors
    /// The old one stays in use.
    fn reopen(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The reason why nothing was written.
#[derive(Debug)]
pub(super) enum Problem {
    /// The reader has no room: the lines are tried again.
    Busy,
    /// The daemon does not run: the lines are tried again.
    Absent {
        error: io::Error,
        /// Lines that were written before and turn out to be lost.
        lost: u64,
    },
    /// The first line is lost, for example because it is longer than a message may be.
    Line(io::Error),
    /// All lines are lost, for example because the disk is full. The next ones are tried.
    Failed(io::Error),
}

impl Problem {
    /// For an error of a file or a pipe.
    pub(super) fn of_stream(error: io::Error) -> Problem {
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::Interrupted => Problem::Busy,
            _ => Problem::Failed(error),
        }
    }

    /// For an error of a message to a daemon.
    pub(super) fn of_message(error: io::Error) -> Problem {
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::TimedOut => Problem::Busy,
            ErrorKind::NotFound
            | ErrorKind::ConnectionRefused
            | ErrorKind::ConnectionReset
            | ErrorKind::NotConnected
            | ErrorKind::PermissionDenied
            | ErrorKind::HostUnreachable
            | ErrorKind::NetworkUnreachable
            | ErrorKind::NetworkDown
            | ErrorKind::AddrNotAvailable => Problem::Absent { error, lost: 0 },
            _ => Problem::Line(error),
        }
    }
}

/// The first line without its end, and the length with its end.
pub(super) fn first_line(lines: &[u8]) -> (&[u8], usize) {
    match lines.iter().position(|&byte| byte == b'\n') {
        Some(end) => (&lines[..end], end + 1),
        None => (lines, lines.len()),
    }
}
